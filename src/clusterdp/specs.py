"""What to release, written down: a TOML file that can be reviewed and kept in version control."""

from __future__ import annotations

import tomllib
from typing import TYPE_CHECKING, Any

from clusterdp.errors import ParameterError
from clusterdp.outcomes import OutcomeSpace

if TYPE_CHECKING:
    from pathlib import Path

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
    "mechanism": (str,),
    "epsilon": (int, float),
    "delta": (int, float),
    "noise_scale": (int, float),
    "prior_floor": (int, float),
    "resample_prob": (int, float),
    "reference": (str, list),
    "out": (str,),
}
REQUIRED = ("input", "unit", "arm", "cluster", "outcome", "outcomes")


_OUTCOMES_FORM = (
    "outcomes reads values (0,1,5), a range (0..5), bins (bins:0,1,10,100) or binary; got {!r}"
)


def read_spec(path: Path | None, given: dict[str, Any]) -> dict[str, Any]:
    """The options of a release: a file's, overridden by those that were given.

    Raises:
        ParameterError: If the file cannot be read, has an unknown key, or something is missing.
    """
    spec: dict[str, Any] = {}
    if path is not None:
        try:
            spec = tomllib.loads(path.read_text(encoding="utf-8"))
        except (OSError, UnicodeDecodeError):
            raise ParameterError(f"cannot read the spec {path}") from None
        except tomllib.TOMLDecodeError as error:
            raise ParameterError(f"{path} is not TOML: {error}") from None
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
    spec.update({key: value for key, value in given.items() if value is not None})
    missing = [key for key in REQUIRED if spec.get(key) is None]
    if missing:
        names = ", ".join("--" + key.replace("_", "-") for key in missing if key != "input")
        lacking = "an input table" if "input" in missing else names
        raise ParameterError(f"missing: {lacking} (as an option, or in a --spec file)")
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


def parse_numbers(text: str | list[float]) -> list[float]:
    """Numbers separated by commas, or a list of them."""
    listed = text.split(",") if isinstance(text, str) else text
    try:
        return [float(number) for number in listed]
    except (TypeError, ValueError):
        raise ParameterError(f"expected numbers separated by commas, got {text!r}") from None


def parse_names(names: str | list[str] | None) -> tuple[str, ...]:
    """Names separated by commas, or a list of such."""
    if names is None:
        return ()
    listed = [names] if isinstance(names, str) else names
    if not all(isinstance(name, str) for name in listed):
        raise ParameterError(f"expected names of columns, got {listed!r}")
    return tuple(name.strip() for entry in listed for name in entry.split(",") if name.strip())
