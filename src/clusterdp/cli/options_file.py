"""What to release, written down: a TOML file that can be reviewed and kept in version control."""

from __future__ import annotations

import json
import re
import tomllib
from typing import TYPE_CHECKING, Any

from clusterdp.errors import OutputError, ParameterError
from clusterdp.experiment.outcomes import OutcomeSpace
from clusterdp.planning.assumptions import histogram_reference, spread_reference, uniform_reference

if TYPE_CHECKING:
    from pathlib import Path

    from clusterdp.planning.assumptions import Reference

# What each option may be. A bool is an int to Python, but not to us.
KEYS: dict[str, tuple[type, ...]] = {
    "input": (str,),
    "unit": (str,),
    "arm": (str,),
    "cluster": (str,),
    "outcome": (str,),
    "outcomes": (str, list),
    "control": (str, int, bool),
    "keep": (str, list),
    "clip": (bool,),
    "min_cell_size": (int,),
    "keep_order": (bool,),
    "mechanism": (str,),
    "epsilon": (int, float),
    "delta": (int, float),
    "noise_scale": (int, float),
    "prior_floor": (int, float),
    "resample_prob": (int, float),
    "calibrate": (int, float),
    "prior": (str, list),
    "segment_share": (int, float),
    "reference": (str, list),
    "within_share": (int, float),
    "n_units": (int,),
    "n_clusters": (int,),
    "out": (str,),
    "engine": (str,),
    "master": (str,),
    "allow_unencrypted_spark": (bool,),
    "ledger": (str,),
    "population": (str,),
}
# No option means anything beyond, and TOML knows no larger ones.
_LARGEST_INTEGER = 2**63 - 1
REQUIRED = ("input", "unit", "arm", "cluster", "outcome", "outcomes")
# What a plan decides; nothing may override it.
PLANNED = (
    "mechanism",
    "epsilon",
    "delta",
    "noise_scale",
    "prior_floor",
    "resample_prob",
    "calibrate",
    "prior",
)


_OUTCOMES_FORM = (
    "outcomes reads values (0,1,5), a range (0..5), bins (bins:0,1,10,100) or binary; got {!r}"
)


def read_spec(
    path: Path | None, given: dict[str, Any], required: tuple[str, ...] = REQUIRED
) -> dict[str, Any]:
    """The options of a release: a file's, overridden by those that were given.

    Raises:
        ParameterError: If the file cannot be read, has an unknown key, or something is missing.
    """
    spec = _read_file(path)
    spec.update({key: value for key, value in given.items() if value is not None})
    missing = [key for key in required if spec.get(key) is None]
    if missing:
        names = ", ".join("--" + key.replace("_", "-") for key in missing if key != "input")
        lacking = "an input table" if "input" in missing else names
        raise ParameterError(f"missing: {lacking} (as an option, or in a --spec file)")
    return spec


def read_plan(path: Path, given: dict[str, Any]) -> dict[str, Any]:
    """The options of a plan, with those of the table and the output that were given.

    Raises:
        ParameterError: If an option was given that the plan decides.
    """
    clash = [key for key in PLANNED if given.get(key) is not None]
    if clash:
        name = clash[0].replace("_", "-")
        raise ParameterError(
            f"--{name} is decided by the plan {path}; change the plan, or release without it"
        )
    planned = _read_file(path)
    if "mechanism" not in planned or "epsilon" not in planned:
        raise ParameterError(f"{path} is not a plan: it names no mechanism and epsilon")
    return read_spec(path, given)


def write_plan(path: Path, options: dict[str, Any], remarks: list[str]) -> None:
    """Write a plan as TOML, with remarks for its reader."""
    lines = [f"# {remark}" for remark in remarks]
    lines += [f"{key} = {_toml(value)}" for key, value in options.items() if value is not None]
    try:
        path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    except OSError as error:
        raise OutputError(f"cannot write {path}: {error.strerror}") from None


def _toml(value: Any) -> str:
    """A value as TOML; JSON strings, numbers and lists are."""
    return json.dumps(value, ensure_ascii=False)


def _read_file(path: Path | None) -> dict[str, Any]:
    spec: dict[str, Any] = {}
    if path is not None:
        try:
            spec = tomllib.loads(path.read_text(encoding="utf-8"))
        except (OSError, UnicodeDecodeError):
            raise ParameterError(f"cannot read the spec {path}") from None
        except tomllib.TOMLDecodeError as error:
            raise ParameterError(f"{path} is not TOML: {error}") from None
        except (RecursionError, ValueError):  # nested without end, or a number of 5000 digits
            raise ParameterError(f"{path} is not TOML that can be read") from None
    spec = {key.replace("-", "_"): value for key, value in spec.items()}
    unknown = [key for key in spec if key not in KEYS]
    if unknown:
        raise ParameterError(
            f"{path} has an unknown key {unknown[0]!r}; known are {', '.join(KEYS)}"
        )
    for key, value in spec.items():
        allowed = KEYS[key]
        if not isinstance(value, allowed) or (isinstance(value, bool) and bool not in allowed):
            kinds = " or ".join(kind.__name__ for kind in allowed)
            raise ParameterError(f"{path} has a {key} that is no {kinds}: {value!r}")
        if isinstance(value, int) and abs(value) > _LARGEST_INTEGER:
            raise ParameterError(f"{path} has a {key} that is too large")
    return spec


def parse_outcomes(text: str | list[float]) -> OutcomeSpace:
    """An outcome space from `0,1,5`, `0..5`, `bins:0,1,10,100` or `binary`."""
    try:
        if not isinstance(text, str):
            return OutcomeSpace.of(parse_numbers(text))
        if text == "binary":
            return OutcomeSpace.binary()
        if text.startswith("bins:"):
            return OutcomeSpace.bins(parse_numbers(text.removeprefix("bins:")))
        if ".." in text:
            low, _, high = text.partition("..")
            return OutcomeSpace.integers(int(low), int(high))
        return OutcomeSpace.of(parse_numbers(text))
    except ParameterError as error:
        # What the space itself refuses says more than that the text could not be read.
        if "separated by commas" not in str(error):
            raise
        raise ParameterError(_OUTCOMES_FORM.format(text)) from None
    except ValueError:
        raise ParameterError(_OUTCOMES_FORM.format(text)) from None


def parse_reference(
    text: str | list[float] | None, space: OutcomeSpace, within_share: float | None
) -> Reference:
    """A reference from `0.5,0.3,0.2` (a histogram) or `mean:2,std:1`; None if nothing is known."""
    within = 1.0 if within_share is None else float(within_share)
    if text is None:
        if within_share is None:
            return uniform_reference(space)
        return histogram_reference(space, [1.0] * space.n_outcomes, within)
    found = re.fullmatch(r"mean:([^,]+),std:(.+)", text) if isinstance(text, str) else None
    if found:
        mean, std = parse_numbers([found[1], found[2]])  # type: ignore[list-item]
        return spread_reference(space, mean, std, within)
    return histogram_reference(space, parse_numbers(text), within)


def parse_numbers(text: str | list[float]) -> list[float]:
    """Numbers separated by commas, or a list of them."""
    listed = text.split(",") if isinstance(text, str) else text
    try:
        return [float(number) for number in listed]
    except (OverflowError, TypeError, ValueError):
        raise ParameterError(f"expected numbers separated by commas, got {text!r}") from None


def parse_names(names: str | list[str] | None) -> tuple[str, ...]:
    """Names separated by commas, or a list of such."""
    if names is None:
        return ()
    listed = [names] if isinstance(names, str) else names
    if not all(isinstance(name, str) for name in listed):
        raise ParameterError(f"expected names of columns, got {listed!r}")
    return tuple(name.strip() for entry in listed for name in entry.split(",") if name.strip())
