"""What was found, in sentences: for managers first, then for analysts."""

from __future__ import annotations

import math
from collections.abc import Sequence

from clusterdp._text import NOTHING, counted, p_text, plural
from clusterdp.estimation.effects.effect import Effect, plain_label
from clusterdp.estimation.effects.findings import AttritionBounds, Findings, SegmentTest
from clusterdp.estimation.effects.margins import MarginVerdict
from clusterdp.estimation.effects.shrinkage import MANY_SEGMENTS
from clusterdp.estimation.report.tables import (
    MetricNumbers,
    arm_label,
    has_several_arms,
    heterogeneity_name,
    is_significant,
    is_word,
    level_text,
    privacy_text,
    reported_tests,
    shown_effect,
    shown_mean,
)
from clusterdp.privacy.statement import rounded_up

# This many names are listed; more are counted.
_MOST_NAMES = 3
# So many segments that stand out are listed.
_MOST_LISTED = 5
# Effects in the first sentences of a page, and metrics in its title; more are counted.
_MOST_IN_LEAD = 4
# Letters of the arms in a heading.
_LONGEST = 40
_NOT_CORRECTED = "not significant after correcting for {} tests"
_NUMBERS = ("no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")


def heading(estimate: Findings) -> str:
    """`treated = 1 vs 0 (control), 120,000 units, within markets, ε = 2`."""
    arms = dict.fromkeys(effect.of.arm for effect in estimate.effects)
    control = estimate.effects[0].of.control if estimate.effects else None
    compared = list(arms) or [arm for arm, _ in estimate.origin.arm_sizes]
    units = counted(estimate.origin.n_units, estimate.origin.unit)
    parts = [comparison(estimate, control, compared), units]
    if estimate.origin.cluster is not None:
        name = estimate.origin.cluster
        is_noun = name.isascii() and name.isalpha() and name.islower() and not name.endswith("s")
        within = f"within {plural(name) if is_noun else f'clusters ({plain_label(name)})'}"
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


def comparison(estimate: Findings, control: object, arms: Sequence[object]) -> str:
    """`treated = 1 vs 0 (control)`; `B and C vs A (control)`; `mens vs control`."""
    names = _and(list(map(plain_label, arms)))
    start = names if len(names) <= _LONGEST else counted(len(arms), "arm")
    if not all(map(is_word, arms)):
        start = f"{plain_label(estimate.treatment)} = {start}"
    if control is None:
        return start
    name = plain_label(control)
    return f"{start} vs {name}" + " (control)" * (name.lower() != "control")


def reported_overall(estimate: Findings) -> list[Effect]:
    """The effects on all units that are to be reported."""
    return [effect for effect in estimate.effects if not effect.of.segment and effect.to_report]


def significance(estimate: Findings) -> list[str]:
    """Which overall effects differ from zero, corrected for each other."""
    effects = _tested(estimate)
    unclear = [one for one in effects if not is_significant(one, estimate.level)]
    at = f"at {100 * (1 - estimate.level):.4g}%{_correction(effects)}"
    if not unclear:
        return [f"{_all(len(effects))} significant {at}."] if effects else []
    names = ", ".join(_name(estimate, one) for one in effects if one not in unclear)
    found = [f"Significant {at}: {names}."] if names else []
    return [
        *found,
        _no_clear_effect(estimate, unclear, len(effects)),
        *(
            f"{_name(estimate, one)}: {_NOT_CORRECTED.format(one.family_size)} "
            f"(Holm {p_text(one.holm_p_value)})."
            for one in unclear
            if one.p_value < 1 - estimate.level
        ),
    ]


def _tested(estimate: Findings) -> list[Effect]:
    """The reported effects on all units that have an estimate with a CI."""
    return [one for one in reported_overall(estimate) if one.has_ci]


def _no_clear_effect(estimate: Findings, unclear: Sequence[Effect], n_effects: int) -> str:
    """On which metrics there is no clear effect, in words for few, one or all of them."""
    names = [_name(estimate, one) for one in unclear]
    if 1 < len(unclear) == n_effects:
        is_of_both = n_effects == 2 and not has_several_arms(estimate)
        return f"No clear effect{' on either metric' * is_of_both}."
    if len(names) <= _MOST_NAMES:
        return f"No clear effect on {_or(names)}."
    return "No clear effect on the others."


def _or(texts: Sequence[str]) -> str:
    return " or ".join(filter(None, [", ".join(texts[:-1]), texts[-1]]))


def _correction(effects: Sequence[Effect]) -> str:
    return " after Holm correction" if any(one.family_size > 1 for one in effects) else ""


def _name(estimate: Findings, effect: Effect | AttritionBounds | MarginVerdict) -> str:
    arm = f" ({plain_label(effect.of.arm)})" if has_several_arms(estimate) else ""
    return plain_label(effect.of.metric) + arm


def segment_sentence(estimate: Findings, effects: Sequence[Effect]) -> str:
    """In which segments there is no clear effect."""
    known = [one for one in effects if one.of.segment and one.has_ci and one.shrunken is None]
    unclear = [one for one in known if not is_significant(one, estimate.level)]
    if not known:
        return ""
    if known[0].of.against is not None:
        return _difference_sentence(len(known) - len(unclear), len(known))
    if not unclear:
        few = {1: "The segment has a", 2: "Both segments have"}
        start = few.get(len(known), f"All {len(known):,} segments have")
        return f"{start} significant effect{'s' if len(known) > 1 else ''}."
    values = [", ".join(plain_label(value) for _, value in one.of.segment) for one in unclear]
    if len(unclear) == len(known):
        return "No clear effect in any segment."
    if len(values) > _MOST_NAMES:
        return f"No clear effect in {len(unclear)} of {counted(len(known), 'segment')}."
    return f"No clear effect in {_or(values)}."


def _difference_sentence(n_clear: int, n_known: int) -> str:
    """How many differences between segments are significant."""
    if n_clear == n_known:
        few = {1: "The difference is", 2: "Both differences are"}
        return f"{few.get(n_known, f'All {n_known:,} differences are')} significant."
    if not n_clear:
        return "No difference is significant."
    return f"{n_clear} of {n_known:,} differences {'is' if n_clear == 1 else 'are'} significant."


def family_sentence(estimate: Findings) -> str:
    """What p-values and simultaneous intervals of segments are corrected for."""
    sizes: dict[bool, set[int]] = {}
    for effect in estimate.effects:
        if effect.of.segment and effect.to_report and effect.family_size > 1:
            sizes.setdefault(effect.of.against is not None, set()).add(effect.family_size)
    parts = [
        f"{_or(list(map(str, sorted(each))))} "
        f"{'differences' if is_difference else 'segment effects'}"
        for is_difference, each in sorted(sizes.items())
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
        if any(one.bounds is not None for one in effects):
            continue
        overall = privacy_text(one.privacy_variance_share for one in effects if not one.of.segment)
        within = privacy_text(one.privacy_variance_share for one in effects if one.of.segment)
        more = f" (up to {within} in segments)" if within != NOTHING else ""
        if (overall, within) != (NOTHING, NOTHING):
            parts.append(f"{plain_label(metric)} {overall}{more}")
    return f"Variance due to privacy: {', '.join(parts)}." if parts else ""


def adjusted_sentence(estimate: Findings) -> str:
    """Which effects are covariate-adjusted, if any."""
    adjusted = [effect for effect in estimate.effects if effect.of.adjusted]
    if adjusted and estimate.owner_covariates:
        return _adjusted_by_owner(estimate, adjusted)
    if not adjusted:
        return ""
    names = ", ".join(map(plain_label, estimate.adjusted_for))
    reported = [effect for effect in adjusted if effect.to_report]
    if not reported:
        return f"Effects are unadjusted; -v and --csv also have them adjusted for {names} (CUPED)."
    some = "" if len(reported) == len(adjusted) else "; unadjusted where an arm has too few units"
    return f"Covariate-adjusted (CUPED) for {names}{some}."


def _adjusted_by_owner(estimate: Findings, adjusted: Sequence[Effect]) -> str:
    """Which overall effects are adjusted by a covariate that the owner did not publish."""
    reported = {one.of.metric for one in adjusted if one.to_report}
    named = [
        f"{plain_label(metric)} by {plain_label(column)}"
        for metric, column in estimate.owner_covariates
        if metric in reported
    ]
    if not named:
        return "The owner's covariate makes no effect more precise; effects are unadjusted."
    which = "covariates" if len(named) > 1 else "covariate"
    return f"Overall effects adjusted by the owner's {which} (not published): {', '.join(named)}."


def do_not_differ(estimate: Findings, effects: Sequence[Effect]) -> bool:
    """Whether effects are in many segments which differ by no more than chance."""
    tests = [_test_of(estimate, one) for one in effects if one.shrunken is not None]
    return bool(tests) and all(
        one is not None and one.p_value >= 1 - estimate.level for one in tests
    )


def _test_of(estimate: Findings, effect: Effect) -> SegmentTest | None:
    """The heterogeneity test of the segments that an effect is in one of."""
    by, of = tuple(name for name, _ in effect.of.segment), effect.of
    same = (of.metric, of.arm, by, of.adjusted)
    tests = (one for one in estimate.tests if (one.metric, one.arm, one.by, one.adjusted) == same)
    return next(tests, None)


def many_sentences(estimate: Findings, effects: Sequence[Effect]) -> list[str]:
    """Of many segments: whether they differ beyond chance, and which stand out from the rest."""
    by_test: dict[SegmentTest, list[Effect]] = {}
    for one in effects:
        test = None if one.shrunken is None else _test_of(estimate, one)
        if test is not None:
            by_test.setdefault(test, []).append(one)
    several = len({(test.metric, test.arm) for test in by_test}) > 1
    return [_many_sentence(estimate, *pair, is_named=several) for pair in by_test.items()]


def _many_sentence(
    estimate: Findings, test: SegmentTest, effects: Sequence[Effect], *, is_named: bool
) -> str:
    what = f"{len(effects):,} segments by {', '.join(map(plain_label, test.by))}"
    named = plain_label(test.metric)
    if has_several_arms(estimate):
        named = f"{plain_label(test.arm)} on {named}"
    what = f"Effects of {named} in {what}" if is_named else f"The effects of {what}"
    if test.p_value >= 1 - estimate.level:
        return (
            f"{what} do not differ beyond chance (heterogeneity test: {p_text(test.p_value)}). "
            f"Use the effect on all {estimate.origin.units}."
        )
    rate = 100 * (1 - estimate.level)
    found = []
    for side in (True, False):
        names = [
            ", ".join(plain_label(value) for _, value in one.of.segment)
            for one in effects
            if one.shrunken is not None
            and one.shrunken.is_above_rest == side
            and one.shrunken.rest_p_value < 1 - estimate.level
        ]
        more = [f"{len(names) - _MOST_LISTED} more"] if len(names) > _MOST_LISTED else []
        if names:
            where = "Above" if side else "Below"
            found.append(f"{where} the rest: {_and([*names[:_MOST_LISTED], *more])}.")
    listed = " ".join(found) or "No single segment stands out from the rest."
    return (
        f"{what} differ (heterogeneity test: {p_text(test.p_value)}). {listed}"
        + f" The false discovery rate is {rate:.4g}%." * bool(found)
    )


def heterogeneity_sentences(estimate: Findings) -> list[str]:
    """Heterogeneity tests, each in a sentence."""
    return [
        f"Heterogeneity test, {heterogeneity_name(estimate, test)}: "
        + ("effects differ" if test.p_value < 1 - estimate.level else "no clear difference")
        + f" (F = {test.statistic:.4g}, {p_text(test.p_value)})."
        for test in reported_tests(estimate)
        if test.n_segments < MANY_SEGMENTS
    ]


def bound_sentences(estimate: Findings) -> list[str]:
    """Lee bounds, each in two sentences."""
    texts = []
    for one in estimate.bounds:
        show = MetricNumbers(estimate, one.of.metric)
        text = (
            f"Lee bounds for {_name(estimate, one)}: {show.effect(one.low)} to "
            f"{show.effect(one.high)} ({one.level:.0%} CI {show.show(one.limits[0])} to "
            f"{show.show(one.limits[1])}), assuming the arm moves response in one direction only."
        )
        if one.from_ends:
            text += " They use the declared range, because this release has no distribution."
        if one.widened:
            text += " They were widened to include the estimated effect."
        texts.append(text)
    return texts


def verdict_sentences(estimate: Findings) -> list[str]:
    """Verdicts on margins, each in a sentence."""
    texts = []
    for one in estimate.verdicts:
        numbers = MetricNumbers(estimate, one.of.metric)
        size = numbers.error(abs(one.margin))
        if one.is_equivalence:
            found = f"{'equivalent' if one.holds else 'not shown to be equivalent'} to control"
            found += f" within ±{size}"
        elif one.margin < 0:
            found = f"{'not' if one.holds else 'could be'} worse than control by more than {size}"
        else:
            found = f"{'better' if one.holds else 'not shown to be better'} than control"
            found += f" by more than {size}" * bool(one.margin)
        test = "one-sided " * (not one.is_equivalence)
        texts.append(f"{_name(estimate, one)}: {found} ({test}{p_text(one.p_value)}).")
    return texts


def best_sentences(estimate: Findings) -> list[str]:
    """Of three or more arms, how probable it is that each is the best, metric by metric."""
    return [
        f"Probability of the {'lowest' if one.is_lower else 'highest'} {plain_label(one.metric)} "
        "(flat prior): "
        + ", ".join(f"{plain_label(arm)} {_prob_text(prob)}" for arm, prob in one.arms)
        + "."
        for one in estimate.best
        if len(one.arms) > 2
    ]


def _prob_text(prob: float) -> str:
    if prob < 0.01:
        return "<1%"
    return ">99%" if prob > 0.99 else f"{prob:.0%}"


def effect_sentences(estimate: Findings) -> list[str]:
    """A sentence for each overall effect."""
    return [_sentence(effect, estimate) for effect in reported_overall(estimate)]


def lead(estimate: Findings) -> list[str]:
    """The answer in a few sentences: the first metric, the others, how sure they are.

    Of many effects it has those on the first metric, and leads to the others.
    """
    effects = reported_overall(estimate)
    all_below = f"All {len(effects)} effects are below."
    are_plain = all(one.bounds is None for one in effects)
    is_plain = bool(effects) and are_plain and effects[0].has_ci
    if has_several_arms(estimate) or not is_plain:
        found = effect_sentences(estimate)
        certainty = list(filter(None, [_certainty(estimate)]))
        if len(effects) <= _MOST_IN_LEAD:
            return [*found, *certainty]
        n_first = sum(one.of.metric == effects[0].of.metric for one in effects)
        return [*found[: min(n_first, _MOST_IN_LEAD)], *certainty, all_below]
    first, *others = effects
    found = [_sentence(first, estimate, with_means=True)]
    if len(others) > _MOST_IN_LEAD:
        return [*found, _certainty(estimate), all_below]
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
    numbers = MetricNumbers(estimate, effect.of.metric)
    unit = " points" if numbers.is_share else f" per {estimate.origin.unit}"
    return f"{plain_label(effect.of.metric)} by {numbers.show(abs(shown_effect(effect)))}{unit}"


def _certainty(estimate: Findings) -> str:
    effects = _tested(estimate)
    clear = [one for one in effects if is_significant(one, estimate.level)]
    noise = ", and the CIs include privacy noise" if estimate.guarantee is not None else ""
    if not effects:
        return ""
    if not clear:
        return f"No effect is significant{noise}."
    n_clear, verb = _number(len(clear)).capitalize(), "is" if len(clear) == 1 else "are"
    start = f"{n_clear} of {_number(len(effects))} effects {verb}"
    if len(clear) == len(effects):
        start = _all(len(effects))
    return f"{start} significant{_correction(effects)}{noise}."


def _all(n_effects: int) -> str:
    few = {1: "The effect is", 2: "Both effects are"}
    return few.get(n_effects, f"All {n_effects:,} effects are")


def _number(number: int) -> str:
    return _NUMBERS[number] if number < len(_NUMBERS) else f"{number:,}"


def _and(texts: Sequence[str]) -> str:
    return " and ".join(filter(None, [", ".join(texts[:-1]), texts[-1]]))


def _sentence(effect: Effect, estimate: Findings, *, with_means: bool = False) -> str:
    numbers = MetricNumbers(estimate, effect.of.metric)
    metric, arm = plain_label(effect.of.metric), arm_label(estimate, effect.of.arm)
    if why := _why_unknown(effect, metric, estimate.origin.units):
        return f"{arm}: {why}."
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
    if is_significant(effect, estimate.level):
        return f"{text}."
    chance = _NOT_CORRECTED.format(effect.family_size).capitalize()
    return f"{text}. {chance} (Holm {p_text(effect.holm_p_value)})."


def _why_unknown(effect: Effect, metric: str, units: str) -> str:
    """Why there is no estimate with a CI; nothing where there is one."""
    if effect.bounds is not None:
        return f"the effect on {metric} is not answerable from this release"
    if math.isnan(effect.effect):
        return f"{metric} is not reported, because an arm has too few {units}"
    if math.isnan(effect.std_error):
        return f"{metric} has no CI, because this release does not identify its variance"
    if effect.is_impossible:
        return f"{metric} has no CI, because its means are far outside its allowed values"
    return ""


def _rounded(mean: float | None, numbers: MetricNumbers) -> str:
    return f"{mean:.1%}" if numbers.is_share else numbers.mean(mean)


def title(estimate: Findings) -> str:
    """`Effect of treated on visit, order and spend`."""
    treatment = plain_label(estimate.treatment)
    if estimate.effects:
        metrics = [plain_label(one) for one in estimate.metrics]
        if len(metrics) > _MOST_IN_LEAD:
            metrics = [metrics[0], counted(len(metrics) - 1, "other metric")]
        return f"Effect of {treatment} on {_and(metrics)}"
    outcomes = dict.fromkeys(plain_label(one.outcome) for one in estimate.distributions)
    return f"Distribution of {_and(list(outcomes))} by {treatment}"
