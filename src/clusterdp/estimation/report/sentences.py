"""What was found, in sentences: for managers first, then for analysts."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from clusterdp._text import counted, plural
from clusterdp.estimation.effects.text import (
    NOTHING,
    p_value_text,
    plain_label,
    segment_label,
    short_label,
)
from clusterdp.estimation.report.numbers import (
    MetricNumbers,
    privacy_text,
    shown_effect,
    shown_mean,
)
from clusterdp.estimation.report.tables import has_several_arms, is_significant, level_text
from clusterdp.privacy.statement import rounded_up

if TYPE_CHECKING:
    from collections.abc import Sequence

    from clusterdp.estimation.effects.effect import Effect
    from clusterdp.estimation.effects.findings import AttritionBounds, Findings

# This many names are listed; more are counted.
_MOST_NAMES = 3
# Letters of the arms in a heading.
_LONGEST = 40
_NUMBERS = ("no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")


def heading(estimate: Findings) -> str:
    """`treated = 1 vs 0 (control), 120,000 units, within markets, ε = 2`."""
    parts = [comparison(estimate, *_arms(estimate)), counted(estimate.origin.n_units, "unit")]
    if estimate.origin.cluster is not None:
        within = f"within {_several(estimate.origin.cluster)}"
        parts.append(within if estimate.estimator == "stratified" else "not stratified")
    return ", ".join([*parts, budget_text(estimate)])


def segment_heading(estimate: Findings, effects: Sequence[Effect]) -> str:
    """`visit: treated = 1 vs 0 (control), by tier, ε = 2`."""
    of, by = effects[0].of, ", ".join(map(plain_label, estimate.segment_columns))
    what = f"by {by}" if of.against is None else "differences between segments"
    compared = comparison(estimate, of.control, [of.arm])
    return f"{plain_label(of.metric)}: {compared}, {what}, {budget_text(estimate)}"


def budget_text(estimate: Findings) -> str:
    """`ε = 2`, with δ if there is any; or that there is no privacy."""
    if estimate.guarantee is None:
        return "not private"
    epsilon, delta = estimate.guarantee.epsilon, estimate.guarantee.delta
    return f"ε = {rounded_up(epsilon)}" + (f", δ = {rounded_up(delta)}" if delta else "")


def _arms(estimate: Findings) -> tuple[object, list[object]]:
    """Control, and the arms that are compared with it."""
    if not estimate.effects:
        return None, [arm for arm, _ in estimate.origin.arm_sizes]
    arms = dict.fromkeys(effect.of.arm for effect in estimate.effects)
    return estimate.effects[0].of.control, list(arms)


def comparison(estimate: Findings, control: object, arms: Sequence[object]) -> str:
    """`treated = 1 vs 0 (control)`; `B, C vs A (control)`."""
    names = ", ".join(map(plain_label, arms))
    names = names if len(names) <= _LONGEST else counted(len(arms), "arm")
    named = all(map(_is_word, arms))
    start = names if named else f"{plain_label(estimate.treatment)} = {names}"
    return start if control is None else f"{start} vs {plain_label(control)} (control)"


def arm_label(estimate: Findings, arm: object) -> str:
    """An arm by its label; labels that are not words have the name of their column."""
    return plain_label(arm) if _is_word(arm) else f"{plain_label(estimate.treatment)} = {arm}"


def _is_word(arm: object) -> bool:
    return isinstance(arm, str) and any(letter.isalpha() for letter in plain_label(arm))


def _several(name: str) -> str:
    """The clusters of a column: `markets`; `clusters (store_id)`."""
    is_noun = name.isascii() and name.isalpha() and name.islower() and not name.endswith("s")
    return plural(name) if is_noun else f"clusters ({plain_label(name)})"


def reported_overall(estimate: Findings) -> list[Effect]:
    """The effects on all units that are to be reported."""
    return [effect for effect in estimate.effects if not effect.of.segment and effect.to_report]


def significance(estimate: Findings) -> list[str]:
    """Which overall effects differ from zero, corrected for each other."""
    effects = [one for one in reported_overall(estimate) if not math.isnan(one.std_error)]
    if not effects:
        return []
    clear = [one for one in effects if is_significant(one, estimate.level)]
    unclear = [one for one in effects if not is_significant(one, estimate.level)]
    at = f"at {100 * (1 - estimate.level):.4g}%"
    at += " after Holm correction" if any(one.family_size > 1 for one in effects) else ""
    if not unclear:
        return [f"{_all(len(clear))} significant {at}."]
    if not clear:
        return [_no_clear_effect(estimate, unclear), *_not_after_correction(estimate, unclear)]
    names = ", ".join(_name(estimate, one) for one in clear)
    return [
        f"Significant {at}: {names}.",
        _no_clear_effect(estimate, unclear),
        *_not_after_correction(estimate, unclear),
    ]


def _no_clear_effect(estimate: Findings, effects: Sequence[Effect]) -> str:
    n_overall = len(reported_overall(estimate))
    if len(effects) == n_overall > 1 and not has_several_arms(estimate):
        which = "either metric" if n_overall == 2 else f"any of {n_overall} metrics"
        return f"No clear effect on {which}."
    names = [_name(estimate, one) for one in effects]
    return f"No clear effect on {_listed(names, 'effect')}."


def _not_after_correction(estimate: Findings, effects: Sequence[Effect]) -> list[str]:
    return [
        f"{_name(estimate, one)}: not significant after correcting for {one.family_size} tests "
        f"(Holm p = {p_value_text(one.holm_p_value)})."
        for one in effects
        if one.p_value < 1 - estimate.level
    ]


def _name(estimate: Findings, effect: Effect) -> str:
    arm = f" ({plain_label(effect.of.arm)})" if has_several_arms(estimate) else ""
    return plain_label(effect.of.metric) + arm


def _listed(names: Sequence[str], noun: str) -> str:
    return ", ".join(names) if len(names) <= _MOST_NAMES else counted(len(names), noun)


def segment_sentence(estimate: Findings, effects: Sequence[Effect]) -> str:
    """In which segments there is no clear effect."""
    known = [one for one in effects if one.of.segment and not math.isnan(one.std_error)]
    unclear = [one for one in known if not is_significant(one, estimate.level)]
    if not known:
        return ""
    is_difference = known[0].of.against is not None
    if not unclear:
        each = "difference" if is_difference else "segment"
        few = {1: f"The {each}", 2: f"Both {each}s"}
        start = few.get(len(known), f"All {len(known):,} {each}s")
        have = "are" if is_difference else ("have" if len(known) > 1 else "has")
        effect = "" if is_difference else " effects" if len(known) > 1 else " effect"
        return f"{start} {have} significant{effect}."
    if is_difference:
        n_clear = len(known) - len(unclear)
        return f"{n_clear} of {counted(len(known), 'difference')} are significant."
    values = [", ".join(plain_label(value) for _, value in one.of.segment) for one in unclear]
    if len(values) > _MOST_NAMES:
        return f"No clear effect in {len(unclear)} of {counted(len(known), 'segment')}."
    return f"No clear effect in {', '.join(values)}."


def family_sentence(estimate: Findings) -> str:
    """What p-values and simultaneous intervals of segments are corrected for."""
    sizes = {
        (effect.of.against is not None, effect.family_size)
        for effect in estimate.effects
        if effect.of.segment and effect.to_report and effect.family_size > 1
    }
    parts = [
        f"{size} {'differences' if is_difference else 'segment effects'}"
        for is_difference, size in sorted(sizes)
    ]
    return f"Holm p is corrected for {' and for '.join(parts)}." if parts else ""


def correction_sentence(estimate: Findings) -> str:
    """What each correction controls."""
    if not any(effect.family_size > 1 for effect in estimate.effects):
        return ""
    return (
        f"Multiple-testing family: over {', '.join(estimate.family)}. Holm p and simultaneous "
        "CIs control any false positive, BH p the false discovery rate."
    )


def privacy_sentence(estimate: Findings) -> str:
    """How much of the variance of each metric is due to privacy."""
    if estimate.guarantee is None or not estimate.effects:
        return ""
    parts = []
    for metric in estimate.metrics:
        effects = [one for one in estimate.effects if one.of.metric == metric and one.to_report]
        overall = privacy_text(one.privacy_variance_share for one in effects if not one.of.segment)
        within = privacy_text(one.privacy_variance_share for one in effects if one.of.segment)
        more = f" (up to {within} in segments)" if within != NOTHING else ""
        parts.append(f"{plain_label(metric)} {overall}{more}")
    return f"Variance due to privacy: {', '.join(parts)}."


def adjusted_sentence(estimate: Findings) -> str:
    """Which effects are covariate-adjusted, if any."""
    adjusted = [effect for effect in estimate.effects if effect.of.adjusted]
    if not adjusted:
        return ""
    names = ", ".join(map(plain_label, estimate.adjusted_for))
    reported = [effect for effect in adjusted if effect.to_report]
    if not reported:
        return f"Effects are unadjusted; -v and --csv also have them adjusted for {names} (CUPED)."
    some = "" if len(reported) == len(adjusted) else "; unadjusted where an arm has too few units"
    return f"Covariate-adjusted (CUPED) for {names}{some}."


def heterogeneity_sentences(estimate: Findings) -> list[str]:
    """Heterogeneity tests, each in a sentence."""
    several = has_several_arms(estimate)
    return [
        f"Heterogeneity test, {plain_label(test.metric)}"
        + (f" of {plain_label(test.arm)}" if several else "")
        + f" by {', '.join(map(plain_label, test.by))}"
        + (" (adjusted)" if test.adjusted else "")
        + (": effects differ" if test.p_value < 1 - estimate.level else ": no clear difference")
        + f" (F = {test.statistic:.4g}, p = {p_value_text(test.p_value)})."
        for test in estimate.tests
    ]


def bound_sentences(estimate: Findings) -> list[str]:
    """Lee bounds, each in two sentences."""
    return [_bounds(estimate, one) for one in estimate.bounds]


def _bounds(estimate: Findings, one: AttritionBounds) -> str:
    show = MetricNumbers.from_effects(estimate, one.of.metric)
    arm = f" ({plain_label(one.of.arm)})" if has_several_arms(estimate) else ""
    text = (
        f"Lee bounds for {plain_label(one.of.metric)}{arm}: {show.effect(one.low)} to "
        f"{show.effect(one.high)} ({one.level:.0%} CI {show.show(one.limits[0])} to "
        f"{show.show(one.limits[1])}), assuming the arm moves response in one direction only."
    )
    if one.from_ends:
        text += " They use the declared range, because this release has no distribution."
    if one.widened:
        text += " They were widened to include the estimated effect."
    return text


def effect_sentences(estimate: Findings) -> list[str]:
    """A sentence for each overall effect."""
    return [_sentence(effect, estimate) for effect in reported_overall(estimate)]


def lead(estimate: Findings) -> list[str]:
    """The answer in up to three sentences: the first metric, the others, how sure they are."""
    effects = reported_overall(estimate)
    if has_several_arms(estimate) or not effects or math.isnan(effects[0].std_error):
        return [*effect_sentences(estimate), _certainty(estimate)]
    first, *others = effects
    found = [_sentence(first, estimate, with_means=True)]
    moved = [one for one in others if is_significant(one, estimate.level)]
    also = ""
    for verb, sign in (("raised", 1), ("lowered", -1)):
        parts = [_amount(one, estimate) for one in moved if sign * one.effect > 0]
        if parts:
            also += f"{' and ' if also else 'It also '}{verb} {_and(parts)}"
    found += [f"{also}."] if also else []
    unclear = [plain_label(one.of.metric) for one in others if one not in moved]
    found += [f"There is no clear effect on {_and(unclear)}."] if unclear else []
    return [*found, _certainty(estimate)]


def _amount(effect: Effect, estimate: Findings) -> str:
    numbers = MetricNumbers.from_effects(estimate, effect.of.metric)
    unit = " points" if numbers.is_share else " per unit"
    return f"{plain_label(effect.of.metric)} by {numbers.show(abs(shown_effect(effect)))}{unit}"


def _certainty(estimate: Findings) -> str:
    effects = [one for one in reported_overall(estimate) if not math.isnan(one.std_error)]
    clear = [one for one in effects if is_significant(one, estimate.level)]
    noise = " and the CIs include privacy noise" if estimate.guarantee is not None else ""
    if not clear:
        return f"No effect is significant{',' + noise if noise else ''}."
    corrected = " after Holm correction" if any(one.family_size > 1 for one in effects) else ""
    verb = "is" if len(clear) == 1 else "are"
    start = f"{_number(len(clear)).capitalize()} of {_number(len(effects))} effects {verb}"
    if len(clear) == len(effects):
        start = _all(len(effects))
    return f"{start} significant{corrected}{',' + noise if noise else ''}."


def _all(n_effects: int) -> str:
    few = {1: "The effect is", 2: "Both effects are"}
    return few.get(n_effects, f"All {n_effects:,} effects are")


def _number(number: int) -> str:
    return _NUMBERS[number] if number < len(_NUMBERS) else f"{number:,}"


def _and(texts: Sequence[str]) -> str:
    return " and ".join(filter(None, [", ".join(texts[:-1]), texts[-1]]))


def _sentence(effect: Effect, estimate: Findings, *, with_means: bool = False) -> str:
    numbers = MetricNumbers.from_effects(estimate, effect.of.metric)
    metric, arm = plain_label(effect.of.metric), arm_label(estimate, effect.of.arm)
    if math.isnan(effect.effect):
        return f"{arm}: {metric} is not reported, because an arm has too few units."
    if math.isnan(effect.std_error):
        return f"{arm}: {metric} has no CI, because this release does not identify its variance."
    unit = " percentage points" if numbers.is_share else ""
    low, high = effect.ci(estimate.level)
    level, gap = f"{level_text(estimate)} CI", effect.ci_gap(estimate.level)
    if gap is not None:
        clear = "an effect" if gap[0] < 0 < gap[1] else "no clear effect"
        ends = f"{numbers.show(gap[0])} to {numbers.show(gap[1])}{unit}"
        return f"{arm}: {clear} on {metric} ({level}: outside {ends})."
    ends = f"{numbers.show(low)} to {numbers.show(high)}"
    if low <= 0 <= high:
        return f"{arm}: no clear effect on {metric} ({level} {ends}{unit})."
    verb = "raised" if low > 0 else "lowered"
    size, near, far = abs(shown_effect(effect)), *sorted((abs(low), abs(high)))
    ends = f"{numbers.show(near)} to {numbers.show(far)}"
    text = f"{arm} {verb} {metric} by {numbers.show(size)}{unit} ({level} {ends})"
    means = [shown_mean(mean, effect) for mean in (effect.control_mean, effect.treated_mean)]
    if with_means and None not in means:
        text += f", from {_rounded(means[0], numbers)} to {_rounded(means[1], numbers)}"
    chance = (
        ""
        if is_significant(effect, estimate.level)
        else (
            f" Not significant after correcting for {effect.family_size} tests "
            f"(Holm p = {p_value_text(effect.holm_p_value)})."
        )
    )
    return f"{text}.{chance}"


def _rounded(mean: float | None, numbers: MetricNumbers) -> str:
    return f"{mean:.1%}" if numbers.is_share else numbers.mean(mean)


def title(estimate: Findings) -> str:
    """`Effect of treated on visit, order and spend`."""
    treatment = plain_label(estimate.treatment)
    if estimate.effects:
        return f"Effect of {treatment} on {_and([plain_label(one) for one in estimate.metrics])}"
    outcomes = dict.fromkeys(plain_label(one.outcome) for one in estimate.distributions)
    return f"Distribution of {_and(list(outcomes))} by {treatment}"


def segment_name(effect: Effect, longest: int = _LONGEST) -> str:
    """A segment in one line."""
    return short_label(segment_label(effect.of.segment), longest)
