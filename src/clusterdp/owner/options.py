"""What the owner asks for, as typed values: from Python, from the command line, from TOML.

Every option has one name, one type and one rule in words, wherever it comes from.
"""

from __future__ import annotations

import json
import os
import re
import tomllib
from collections.abc import Mapping
from difflib import get_close_matches
from pathlib import Path  # noqa: TC003 - msgspec resolves hints
from typing import Annotated, Any, get_type_hints

import msgspec
import numpy as np
from msgspec import Meta, Struct

from clusterdp.errors import OutputError, ParameterError
from clusterdp.experiment.lists import parse_names, parse_numbers
from clusterdp.experiment.outcomes import OutcomeSpace
from clusterdp.planning.assumptions import Reference, parse_reference
from clusterdp.planning.choose import MECHANISMS, Request
from clusterdp.rows.encoding import Columns

Text = Annotated[str | None, Meta(description="text")]
Column = Annotated[str | None, Meta(description="the name of a column")]
Crossed = Annotated[str | None, Meta(description="the name of a column, or a list to be crossed")]
Names = Annotated[str | list[str] | None, Meta(description="names of columns")]
Number = Annotated[float | None, Meta(description="a number")]
Whole = Annotated[int | None, Meta(description="a whole number")]
Switch = Annotated[bool | None, Meta(description="true or false")]
Label = Annotated[str | bool | int | float | None, Meta(description="the label of an arm")]
Numbers = Annotated[
    str | list[float] | None, Meta(description="numbers separated by commas, or a list of them")
]
Space = Annotated[
    str | list[float] | None,
    Meta(description="an outcome space such as '0..5', '0,1,5', 'bins:0,1,10' or 'binary'"),
]
MechanismName = Annotated[str | None, Meta(description=f"one of {', '.join(MECHANISMS)}")]

# No option means anything beyond, and TOML knows no larger ones.
_LARGEST_INTEGER = 2**63 - 1
_LONGEST_SHOWN = 80


class TableOptions(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The table, and what its columns are."""

    input: Text = None
    unit: Column = None
    arm: Column = None
    cluster: Crossed = None
    outcome: Column = None
    outcomes: Space = None
    control: Label = None
    keep: Names = None
    clip: Switch = None
    min_cell_size: Whole = None
    keep_order: Switch = None


class AssumptionOptions(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What outcomes are thought to be like, what it is for, and what a plan was made for."""

    reference: Numbers = None
    within_share: Number = None
    segment_share: Number = None
    n_units: Whole = None
    n_clusters: Whole = None


class MechanismOptions(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The mechanism and its budget: what a plan decides."""

    mechanism: MechanismName = None
    epsilon: Number = None
    delta: Number = None
    noise_scale: Number = None
    prior_floor: Number = None
    resample_prob: Number = None
    sums_share: Number = None
    prior: Numbers = None


class RunOptions(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What reads the table, where the release goes, and whose budget it spends."""

    out: Text = None
    engine: Annotated[str | None, Meta(description="local or spark")] = None
    master: Text = None
    allow_unencrypted_spark: Switch = None
    ledger: Text = None
    population: Text = None


class Options(Struct, frozen=True, kw_only=True):
    """Everything that was asked for, in groups."""

    table: TableOptions
    assumed: AssumptionOptions
    mechanism: MechanismOptions
    run: RunOptions

    @classmethod
    def of(cls, given: Mapping[str, Any], where: str = "") -> Options:
        """Options from their names and values; those that are None were not given.

        Args:
            given: What was given.
            where: Where it was read, for messages: ` in plan.toml`.

        Raises:
            ParameterError: If an option is unknown or of a wrong type.
        """
        named = _normalized(given, where)
        unknown = [name for name in named if name not in OPTION_NAMES]
        if unknown:
            like = get_close_matches(unknown[0], OPTION_NAMES, n=1) or [", ".join(OPTION_NAMES)]
            raise ParameterError(
                f"there is no option {unknown[0]!r}{where}; did you mean {like[0]}?"
            )
        return cls(**{group: _convert(kind, named, where) for group, kind in _GROUPS.items()})

    @classmethod
    def read(cls, path: Path) -> Options:
        """Options in a TOML file."""
        try:
            content = tomllib.loads(path.read_text(encoding="utf-8"))
        except (OSError, UnicodeDecodeError, ValueError) as error:
            if isinstance(error, tomllib.TOMLDecodeError):
                raise ParameterError(f"{path} is not TOML: {error}") from None
            if isinstance(error, OSError | UnicodeDecodeError):
                raise ParameterError(f"cannot read {path}") from None
            raise ParameterError(f"{path} is not TOML that can be read") from None  # 5000 digits
        except RecursionError:  # nested without end
            raise ParameterError(f"{path} is not TOML that can be read") from None
        named = {key.replace("-", "_"): value for key, value in content.items()}
        return cls.of(named, f" in {path}")

    def write(self, path: Path, remarks: list[str]) -> None:
        """Write them as TOML, with remarks for the reader."""
        # JSON strings, numbers and lists are TOML.
        lines = [f"# {remark}" for remark in remarks]
        lines += [
            f"{name} = {json.dumps(value, ensure_ascii=False)}"
            for name, value in self.to_dict().items()
        ]
        try:
            path.write_text("\n".join(lines) + "\n", encoding="utf-8")
        except OSError as error:
            raise OutputError(f"cannot write {path}: {error.strerror}") from None

    def to_dict(self) -> dict[str, Any]:
        """What was given, by name."""
        flat: dict[str, Any] = {}
        for group in _GROUPS:
            flat |= msgspec.to_builtins(getattr(self, group))
        return flat

    def changed(self, given: Mapping[str, Any]) -> Options:
        """The same with what is given instead."""
        over = {name: value for name, value in given.items() if value is not None}
        if isinstance(over.get("outcomes"), Mapping):
            over = _normalized(over, "")
        return Options.of({**self.to_dict(), **over})

    def require(self, *names: str) -> None:
        """Raise a ParameterError unless these options were given."""
        held = self.to_dict()
        for name in names:
            if held.get(name) is None:
                option = name.replace("_", "-")
                raise ParameterError(f"missing: {name}; give {name}=... (--{option})")

    @property
    def space(self) -> OutcomeSpace:
        """The declared outcome space."""
        self.require("outcomes")
        return OutcomeSpace.parse(self.table.outcomes or "")

    @property
    def columns(self) -> Columns:
        """Which column plays which part."""
        self.require("unit", "arm", "cluster", "outcome")
        table = self.table
        return Columns(
            unit=table.unit or "",
            arm=table.arm or "",
            cluster=table.cluster or "",
            outcome=table.outcome or "",
            kept=parse_names(table.keep),
        )

    @property
    def request(self) -> Request:
        """What was asked for, of a mechanism."""
        asked, share = self.mechanism, self.assumed.segment_share
        return Request(
            mechanism=asked.mechanism,
            epsilon=asked.epsilon,
            delta=asked.delta or 0.0,
            noise_scale=asked.noise_scale,
            prior_floor=asked.prior_floor,
            resample_prob=asked.resample_prob,
            sums_share=asked.sums_share,
            prior=None if asked.prior is None else tuple(parse_numbers(asked.prior)),
            segment_share=1.0 if share is None else share,
        )

    def reference(self, space: OutcomeSpace) -> Reference:
        """What outcomes are thought to be like; a public prior says it, too."""
        believed = self.assumed.reference
        if believed is None:
            believed = self.mechanism.prior
        return parse_reference(believed, space, self.assumed.within_share)


_GROUPS: dict[str, type[Struct]] = {
    "table": TableOptions,
    "assumed": AssumptionOptions,
    "mechanism": MechanismOptions,
    "run": RunOptions,
}
OPTION_NAMES = tuple(name for kind in _GROUPS.values() for name in kind.__struct_fields__)


def _convert(kind: type[Struct], named: Mapping[str, Any], where: str) -> Any:
    """A group of options, each of its type."""
    own = {name: named[name] for name in kind.__struct_fields__ if name in named}
    try:
        return msgspec.convert(own, kind)
    except msgspec.ValidationError as error:
        found = re.search(r"\$\.(\w+)", str(error))
        name = found[1] if found else next(iter(own))
        (meta,) = get_type_hints(kind, include_extras=True)[name].__metadata__
        shown = repr(own[name])[:_LONGEST_SHOWN]
        raise ParameterError(f"{name} must be {meta.description}; got {shown}{where}") from None


def _normalized(given: Mapping[str, Any], where: str) -> dict[str, Any]:
    """Options as plain values: one way of saying each of them."""
    named = {name: _plain(value) for name, value in given.items() if value is not None}
    for name, value in named.items():
        if isinstance(value, int) and abs(value) > _LARGEST_INTEGER:
            raise ParameterError(f"{name} is too large{where}: it must be at most 2**63 - 1")
    if isinstance(named.get("outcomes"), dict):
        named |= _one_outcome(named["outcomes"], named.get("outcome"))
    cluster, control = named.get("cluster"), named.get("control")
    if isinstance(cluster, list) and cluster and all(isinstance(name, str) for name in cluster):
        named["cluster"] = ",".join(cluster)
    if control is not None and not isinstance(control, str | int | float):
        named["control"] = str(control)  # a date: arms are found by the text of their labels
    return named


def _one_outcome(outcomes: dict[str, Any], outcome: str | None) -> dict[str, Any]:
    """The outcome and its space, from `{"clicks": "0..5"}`."""
    if len(outcomes) != 1:
        raise ParameterError(
            f"outcomes names {len(outcomes)} outcomes; a release is of one outcome so far: make a "
            "release for each"
        )
    ((name, space),) = outcomes.items()
    if outcome not in {None, name}:
        raise ParameterError(f"outcome={outcome!r} contradicts outcomes, which names {name!r}")
    return {"outcome": name, "outcomes": space}


def _plain(value: Any) -> Any:
    """A value as TOML could hold it."""
    if isinstance(value, OutcomeSpace):
        return str(value)
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if isinstance(value, np.generic | np.ndarray):
        return value.tolist()
    if isinstance(value, Mapping):
        return {name: _plain(entry) for name, entry in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(entry) for entry in value]
    return value
