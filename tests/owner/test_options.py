"""The one list of options: Python, commands, files and help all follow it."""

from __future__ import annotations

import inspect
import json
import math
import re
from dataclasses import fields
from typing import TYPE_CHECKING, Any

import pytest
import typer.main

import clusterdp as cdp
from clusterdp.cli.app import app
from clusterdp.owner import keywords
from clusterdp.spec.experiment import read_lock
from clusterdp.spec.fields import DECLARED, OF_ONE_RUN, REQUESTED, SECTIONS, flag_of
from clusterdp.spec.parse import parse_options
from clusterdp.spec.request import BudgetRequest

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    import polars as pl

FUNCTIONS: dict[Callable[..., Any], type] = {
    cdp.plan: keywords.PlanKeywords,
    cdp.release: keywords.ReleaseKeywords,
    cdp.preview: keywords.PublishKeywords,
    cdp.publish: keywords.PublishKeywords,
}
COMMANDS = typer.main.get_group(app).commands
PUBLIC: dict[str, Any] = {"outcomes": {"clicks": "0..3"}, "arm": "treated", "cluster": "market"}


def shown(function: Callable[..., Any]) -> set[str]:
    """The options in the signature of a function."""
    return set(inspect.signature(function).parameters) & set(DECLARED)


@pytest.mark.parametrize("function", FUNCTIONS)
def test_help_explains_every_option_that_a_function_takes(function: Callable[..., Any]) -> None:
    taken = set(FUNCTIONS[function].__annotations__)
    assert taken <= set(DECLARED)
    assert shown(function) == taken | ({"out"} if function in (cdp.publish, cdp.preview) else set())
    text = inspect.getdoc(function) or ""
    plain = " ".join(text.split())
    for name in taken:
        assert f"{name}: {DECLARED[name].text}" in plain
    assert "**options" not in text
    assert max(map(len, text.splitlines())) <= 100


def test_every_option_is_taken_by_a_function_or_recorded_by_a_plan() -> None:
    taken = set().union(*map(shown, FUNCTIONS))
    assert set(DECLARED) - taken == {"input", "experiment", "n_units", "n_clusters", "grids"}


@pytest.mark.parametrize(
    ("name", "function", "own"),
    [
        ("plan", cdp.plan, {"out", "html", "as_json", "verbose"}),
        ("release", cdp.publish, {"resume", "dry_run", "yes", "as_json", "verbose"}),
    ],
)
def test_a_command_takes_what_its_function_takes(
    name: str, function: Callable[..., Any], own: set[str]
) -> None:
    every = {one.name: one for one in COMMANDS[name].params}
    parameters = {key: one for key, one in every.items() if key not in {"help", "help_all"}}
    with_flags = {option for option in shown(function) if DECLARED[option].panel is not None}
    assert set(parameters) == with_flags | {"input"} | own
    for option in with_flags - own:
        assert f"--{flag_of(option)}" in parameters[option].opts
        assert not parameters[option].secondary_opts  # no --no-clip
        assert getattr(parameters[option], "help", None) == DECLARED[option].text


def test_every_option_has_a_place_in_the_experiment_file_or_holds_for_one_run() -> None:
    keys = [option for section in SECTIONS.values() for option in section.values()]
    assert len(keys) == len(set(keys))
    of_outcomes = {"outcomes", "missing", "baseline"}
    of_locks = {"experiment", "n_units", "n_clusters", "grids"}
    assert set(DECLARED) == {*keys, *of_outcomes, *of_locks, *OF_ONE_RUN}
    assert all(DECLARED[name].panel is None for name in of_locks)


def test_types_of_python_cover_what_is_checked() -> None:
    """A number is a number, and a switch a switch, for type checkers as for `parse_options`."""
    hints = {**keywords.PlanKeywords.__annotations__, **keywords.PublishKeywords.__annotations__}
    for name in set(hints) - {"control"}:  # the label of an arm can be anything
        written = set(re.findall(r"\b(?:str|int|float|bool)\b", hints[name].__forward_arg__))
        checked = set(re.findall(r"\b(?:str|int|float|bool)\b", str(DECLARED[name].types)))
        assert checked <= written, name


def test_options_hold_what_a_request_holds() -> None:
    # Covariates are declared with outcomes, and what they cost is a part of the budget.
    more = {"optimize_for", "asked", "covariates"}
    assert {one.name for one in fields(BudgetRequest)} == {*REQUESTED, *more}


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"epislon": 1}, "there is no option 'epislon'. Did you mean epsilon?"),
        ({"epsilon": 1, "ledger": "budget.db"}, "there is no option 'ledger'"),
        ({"epsilon": 1, "out": "published"}, "there is no option 'out'"),
    ],
)
def test_an_option_of_no_use_is_refused(
    given: dict[str, Any], message: str, table: pl.DataFrame
) -> None:
    with pytest.raises(cdp.ParameterError) as refused:
        cdp.plan(table, **PUBLIC, **given)
    assert message in str(refused.value)


@pytest.mark.parametrize(
    "given", [{"epsilon": math.inf}, {"epsilon": -math.inf}, {"epsilon": 1, "delta": math.nan}]
)
def test_a_budget_that_is_no_number_is_refused(given: dict[str, Any], table: pl.DataFrame) -> None:
    with pytest.raises(cdp.ParameterError, match=r"must be a finite number|must lie in"):
        cdp.plan(table, **PUBLIC, **given)


VALUES: dict[str, Any] = {
    "size": "n",
    "mde": 0.5,
    "new_population": True,
    "ledger_key_file": "key",
    "show_row_counts": True,
}


@pytest.mark.parametrize("name", VALUES)
def test_what_holds_for_one_run_is_not_kept(name: str, tmp_path: Path) -> None:
    options = parse_options({"epsilon": 1, name: VALUES[name]})
    assert getattr(options, name) == VALUES[name]
    assert options.to_dict() == {"epsilon": 1.0}
    path = tmp_path / "experiment.lock"
    path.write_text(f"{name} = {json.dumps(VALUES[name])}\n")
    with pytest.raises(cdp.ParameterError, match=f"there is no option '{name}' in"):
        read_lock(path)
