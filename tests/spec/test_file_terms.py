"""Messages in the terms of an experiment file."""

from __future__ import annotations

import pytest

from clusterdp.spec.file_terms import in_command_terms, in_file_terms

SAID = {
    "a value": (
        "declare them: decimal=',' (--decimal ,)",
        'declare them: decimal = "," under [table]',
    ),
    "in parentheses": (
        "combine rows first (aggregate='sum', --aggregate sum)",
        'combine rows first (aggregate = "sum" under [table])',
    ),
    "left open": (
        "give population=... (--population)",
        "give population under [privacy]",
    ),
    "numbers by label": (
        "declare it: arm_shares=... (--arm-shares a=0.5,b=0.5).",
        "declare it: shares = { a = 0.5, b = 0.5 } under [table].",
    ),
    "of an outcome": (
        "may be missing (missing=[...], --missing NAME)",
        "may be missing (missing = true under [outcomes])",
    ),
    "no key of a file": (
        "confirm it with new_population=True (--new-population)",
        "confirm it with new_population=True (--new-population)",
    ),
    "two labels": (
        "declare its two labels: plan name=no,yes",
        'declare its two labels: type = "labels", values = ["no", "yes"]',
    ),
    "an outcome": (
        "no column 'a' to use as outcome (outcomes=..., --outcome). Did you mean 'b'?",
        "no column 'a' to use as outcome. Did you mean 'b'?",
    ),
    "how often it is observed": (
        "Give what you expect: baseline={'score_observed': 0.8} (--baseline score_observed=0.8).",
        "Give what you expect: observed = 0.8 of score under [outcomes].",
    ),
    "a command": (
        "Resume with: clusterdp release --resume a --ledger b.db",
        "Resume with: clusterdp release --resume a --ledger b.db",
    ),
}


@pytest.mark.parametrize(("text", "in_file"), SAID.values(), ids=SAID)
def test_options_are_keys_in_their_sections(text: str, in_file: str) -> None:
    assert in_file_terms(text) == in_file


TYPED = {
    "a value": ("declare them: decimal=',' (--decimal ,)", "declare them: --decimal ,"),
    "in parentheses": (
        "combine rows first (aggregate='sum', --aggregate sum)",
        "combine rows first (--aggregate sum)",
    ),
    "left open": ("missing: unit=... (--unit), arm=... (--arm)", "missing: --unit, --arm"),
    "what to add": (
        "Add your own with segments (--segments FILE).",
        "Add your own with --segments FILE.",
    ),
    "a verb": ("or clip (--clip)", "or clip (--clip)"),
    "a command of Python": (
        "open it: clusterdp.Ledger('b.db'), or: clusterdp ledger show b.db",
        "open it: clusterdp ledger show b.db",
    ),
}


@pytest.mark.parametrize(("text", "typed"), TYPED.values(), ids=TYPED)
def test_a_terminal_shows_what_to_type(text: str, typed: str) -> None:
    assert in_command_terms(text) == typed
