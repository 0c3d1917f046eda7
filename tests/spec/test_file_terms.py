"""Messages in the terms of an experiment file."""

from __future__ import annotations

import pytest

from clusterdp.spec.file_terms import in_file_terms

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
    "a command": (
        "Resume with: clusterdp release --resume a --ledger b.db",
        "Resume with: clusterdp release --resume a --ledger b.db",
    ),
}


@pytest.mark.parametrize(("text", "in_file"), SAID.values(), ids=SAID)
def test_options_are_keys_in_their_sections(text: str, in_file: str) -> None:
    assert in_file_terms(text) == in_file
