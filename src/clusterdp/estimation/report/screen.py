"""An estimate as text: the answer, one table, exceptions. Every line fits the width."""

from __future__ import annotations

import re
from collections.abc import Sequence

from clusterdp.document.text import aligned, fitted, interval_lines, remark, wrapped
from clusterdp.estimation.effects.effect import Effect, plain_label
from clusterdp.estimation.effects.findings import Findings
from clusterdp.estimation.report import sentences
from clusterdp.estimation.report.tables import (
    MetricNumbers,
    distribution_tables,
    first_columns,
    is_scaled,
    level_text,
    more_columns,
    segment_tables,
    to_interval,
)

# How wide a text chart is at least, and at most.
_LEAST_CHART, _MOST_CHART = 14, 26


def estimate_text(estimate: Findings, width: int, *, verbose: bool = False) -> str:
    """Effects, how sure they are, warnings and notes.

    Args:
        estimate: What was found.
        width: How many characters a line has.
        verbose: Whether to show all columns, passed checks and notes on the method.
    """
    blocks = _segment_blocks(estimate, width, verbose=verbose) or [_overall_block(estimate, width)]
    blocks += _distribution_blocks(estimate, width)
    if verbose:
        blocks += _more_blocks(estimate, width)
    blocks.append(_sentences(estimate, width))
    blocks.append(_remarks(estimate, width, verbose=verbose))
    return "\n\n".join("\n".join(lines) for lines in blocks if lines)


def _overall_block(estimate: Findings, width: int) -> list[str]:
    lines = wrapped(sentences.heading(estimate), width, "  ")
    effects = sentences.reported_overall(estimate)
    if effects:
        table, _ = fitted(first_columns(estimate, effects), width)
        lines += ["", *table]
    return lines


def _segment_blocks(estimate: Findings, width: int, *, verbose: bool) -> list[list[str]]:
    """For each metric and arm a table of segments, drawn if there is room."""
    tables, blocks = segment_tables(estimate), []
    for index, effects in enumerate(tables):
        lines = wrapped(sentences.segment_heading(estimate, effects), width, "  ")
        are_noise = sentences.do_not_differ(estimate, effects) and not verbose
        shown = [one for one in effects if not (are_noise and one.shrunken is not None)]
        lines += ["", *_drawn_table(estimate, shown, width)]
        found = [
            sentences.segment_sentence(estimate, effects),
            *sentences.many_sentences(estimate, effects),
            "-v, --csv and --html show each segment." if are_noise else "",
        ]
        if not index:
            is_shown = verbose or all(one.shrunken is None for one in effects)
            found.append(sentences.family_sentence(estimate) if is_shown else "")
            below = [_below(one[0], effects[0]) for one in tables[1:]]
            found += [f"Below: {', '.join(dict.fromkeys(below))}."] if below else []
        said = wrapped(" ".join(filter(None, found)), width)
        blocks.append([*lines, "", *said] if said else lines)
    return blocks


def _below(effect: Effect, first: Effect) -> str:
    """What a table below the first one shows, in a word."""
    if effect.of.against is not None:
        return "differences"
    return plain_label(effect.of.metric if effect.of.metric != first.of.metric else effect.of.arm)


def _drawn_table(estimate: Findings, effects: Sequence[Effect], width: int) -> list[str]:
    columns = [
        column._replace(cells=_aligned_limits(column.cells))
        if column.name.endswith("CI")
        else column
        for column in first_columns(estimate, effects)
    ]
    table, hidden = fitted(columns, width - _LEAST_CHART - 3)
    if hidden or len(table) != len(effects) + 1 or is_scaled(estimate, effects):
        return fitted(columns, width)[0]
    used = max(map(len, table)) + 3
    numbers = MetricNumbers(estimate, effects[0].of.metric)
    drawn = interval_lines(
        [to_interval(effect, numbers, estimate.level) for effect in effects],
        numbers.unit,
        min(width - used, _MOST_CHART),
    )
    return [f"{line:{used}}{bar}".rstrip() for line, bar in zip(table, drawn, strict=True)]


def _aligned_limits(cells: tuple[str, ...]) -> tuple[str, ...]:
    """Intervals whose limits stand below each other."""
    pairs = [re.fullmatch(r"\[(\S+), (\S+)\]", cell) for cell in cells]
    widest = [max((len(one[end]) for one in pairs if one), default=0) for end in (1, 2)]
    return tuple(
        f"[{pair[1]:>{widest[0]}}, {pair[2]:>{widest[1]}}]" if pair else cell
        for pair, cell in zip(pairs, cells, strict=True)
    )


def _distribution_blocks(estimate: Findings, width: int) -> list[list[str]]:
    """Shares of units at or below each value, by arm."""
    blocks = []
    for outcome in dict.fromkeys(one.outcome for one in estimate.distributions):
        for segment, rows in distribution_tables(estimate, outcome):
            title = (
                f"{plain_label(outcome)}, {segment}: {estimate.origin.units} at or below each "
                f"value ({level_text(estimate)} CI)"
            )
            blocks.append([*wrapped(title, width), *aligned(rows, width)])
    return blocks


def _more_blocks(estimate: Findings, width: int) -> list[list[str]]:
    """All other columns, of all effects; and what does not fit."""
    blocks, hidden = [], list[str]()
    every = [effect for effect in estimate.effects if effect.of.against is None]
    differences = [effect for effect in estimate.effects if effect.of.against is not None]
    for effects in filter(None, (every, differences)):
        for columns in more_columns(estimate, effects):
            # A narrow terminal leaves out the last ones.
            ranked = [
                one if one.is_label else one._replace(rank=rank) for rank, one in enumerate(columns)
            ]
            table, left_out = fitted(ranked, width)
            blocks.append(table)
            hidden += left_out
    if hidden:
        text = f"Hidden at this width: {', '.join(dict.fromkeys(hidden))}. See --csv."
        blocks.append(wrapped(text, width))
    return blocks


def _sentences(estimate: Findings, width: int) -> list[str]:
    has_segments = bool(estimate.segment_columns)
    texts = [
        "" if has_segments else " ".join(sentences.significance(estimate)),
        sentences.privacy_sentence(estimate),
        sentences.adjusted_sentence(estimate),
        *sentences.heterogeneity_sentences(estimate),
        *sentences.bound_sentences(estimate),
        *sentences.verdict_sentences(estimate),
        *([] if has_segments else sentences.best_sentences(estimate)),
    ]
    return [line for text in texts for line in wrapped(text, width)]


def _remarks(estimate: Findings, width: int, *, verbose: bool) -> list[str]:
    texts = [("warning", text) for text in estimate.warnings]
    texts += [("note", text) for text in estimate.notes]
    if verbose:
        passed = [check for check in estimate.checks if check.verdict == "passed"]
        texts += [("passed", f"{one.name}: {' '.join(one.found)}") for one in passed]
        method = (*estimate.method, sentences.correction_sentence(estimate))
        texts += [("method", text) for text in method if text]
    return [line for kind, text in texts for line in remark(kind, text, width)]
