"""What to release, written down: a TOML file that can be reviewed and kept in version control."""

from __future__ import annotations

import tomllib
from typing import TYPE_CHECKING, Any

from clusterdp.errors import ParameterError
from clusterdp.outcomes import OutcomeSpace

if TYPE_CHECKING:
    from pathlib import Path

KEYS = (
    "input",
    "unit",
    "arm",
    "cluster",
    "outcome",
    "outcomes",
    "control",
    "keep",
    "clip",
    "min_cell_size",
    "mechanism",
    "epsilon",
    "delta",
    "noise_scale",
    "prior_floor",
    "resample_prob",
    "reference",
    "out",
)
REQUIRED = ("input", "unit", "arm", "cluster", "outcome", "outcomes")


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
    spec.update({key: value for key, value in given.items() if value is not None})
    missing = [key for key in REQUIRED if spec.get(key) is None]
    if missing:
        names = ", ".join("--" + key.replace("_", "-") for key in missing if key != "input")
        lacking = "an input table" if "input" in missing else names
        raise ParameterError(f"missing: {lacking} (as an option, or in a --spec file)")
    return spec


def parse_outcomes(text: str | list[float]) -> OutcomeSpace:
    """An outcome space from `0,1,5`, `0..5`, `bins:0,1,10,100` or `binary`."""
    if not isinstance(text, str):
        return OutcomeSpace.of(text)
    try:
        if text == "binary":
            return OutcomeSpace.binary()
        if text.startswith("bins:"):
            return OutcomeSpace.bins(parse_numbers(text.removeprefix("bins:")))
        if ".." in text:
            low, _, high = text.partition("..")
            return OutcomeSpace.integers(int(low), int(high))
        return OutcomeSpace.of(parse_numbers(text))
    except ParameterError:
        raise
    except ValueError:
        raise ParameterError(
            f"outcomes reads values (0,1,5), a range (0..5), bins (bins:0,1,10,100) or binary; "
            f"got {text!r}"
        ) from None


def parse_numbers(text: str | list[float]) -> list[float]:
    """Numbers separated by commas."""
    if not isinstance(text, str):
        return [float(number) for number in text]
    return [float(number) for number in text.split(",")]


def parse_names(names: str | list[str] | None) -> tuple[str, ...]:
    """Names separated by commas, or a list of such."""
    if names is None:
        return ()
    listed = [names] if isinstance(names, str) else names
    return tuple(name.strip() for entry in listed for name in entry.split(",") if name.strip())
