"""Random malformed inputs: no traceback, no acceptance.

    python -m soak.malformed [INPUTS] [SEED]

Whatever was found is repeated by the same number of inputs and the seed that was printed.
"""

from __future__ import annotations

import secrets
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from soak.attempts import strictly
from soak.bad_folders import try_manifest, try_table
from soak.bad_inputs import try_input
from soak.bad_ledgers import sound_ledger, try_ledger
from soak.bad_requests import try_request
from soak.sound_folders import sound_folders

if TYPE_CHECKING:
    from collections.abc import Callable

    from soak.attempts import Tried


class Finding(NamedTuple):
    """An input that was not refused as it should be; what repeats it, and no data."""

    kind: str
    mutation: str
    seed: int
    detail: str


class Report(NamedTuple):
    """What became of malformed inputs.

    Attributes:
        tried: Inputs of each kind.
        refused: In one clear line.
        harmless: They mean what they meant before.
        sound: They mean something else, and nothing could tell: another id, rows in another order.
        tracebacks: Unexpected errors.
        accepted: Malformed, and taken as sound.
    """

    tried: dict[str, int]
    refused: int
    harmless: int
    sound: int
    tracebacks: list[Finding]
    accepted: list[Finding]

    def __str__(self) -> str:
        kinds = ", ".join(f"{number} {kind}" for kind, number in self.tried.items())
        verdicts = (
            f"{self.refused} refused, {self.harmless} harmless, {self.sound} sound, "
            f"{len(self.tracebacks)} tracebacks, {len(self.accepted)} accepted"
        )
        lines = [f"{sum(self.tried.values())} malformed inputs ({kinds}): {verdicts}"]
        for name, findings in (("traceback", self.tracebacks), ("accepted", self.accepted)):
            lines += [f"{name}: {', '.join(map(str, finding))}" for finding in findings]
        return "\n".join(lines)


def run(n_inputs: int, rng: np.random.Generator, folder: Path) -> Report:
    """Try so many malformed inputs, as many of each kind.

    Args:
        n_inputs: How many.
        rng: Where they come from; the same generator gives the same inputs.
        folder: An empty folder to work in.
    """
    kinds = _kinds(rng, folder)
    names = [list(kinds)[number % len(kinds)] for number in range(n_inputs)]
    verdicts: Counter[str] = Counter()
    found: dict[str, list[Finding]] = {"traceback": [], "accepted": []}
    for kind in names:
        seed = int(rng.integers(2**63))
        tried = strictly(lambda: kinds[kind](np.random.default_rng(seed)))  # noqa: B023 - run now
        verdicts[tried.verdict] += 1
        if tried.verdict in found:
            found[tried.verdict].append(Finding(kind, tried.mutation, seed, tried.detail))
    return Report(
        tried=dict(Counter(names)),
        refused=verdicts["refused"],
        harmless=verdicts["harmless"],
        sound=verdicts["sound"],
        tracebacks=found["traceback"],
        accepted=found["accepted"],
    )


def _kinds(
    rng: np.random.Generator, folder: Path
) -> dict[str, Callable[[np.random.Generator], Tried]]:
    published, place = sound_folders(rng, folder), folder / "spoilt"
    ledger = sound_ledger(folder / "sound.db")
    return {
        "manifests": lambda one: try_manifest(published, one, place),
        "tables": lambda one: try_table(published, one, place),
        "requests": lambda one: try_request(one, folder),
        "inputs": lambda one: try_input(one, folder),
        "ledgers": lambda one: try_ledger(ledger, one, folder / "spoilt.db"),
    }


def main() -> None:
    """The run of `make soak`."""
    n_inputs = int(sys.argv[1]) if len(sys.argv) > 1 else 10_000
    seed = int(sys.argv[2]) if len(sys.argv) > 2 else secrets.randbits(64)
    print(f"seed {seed}")
    started = time.perf_counter()
    with tempfile.TemporaryDirectory(prefix="clusterdp-soak-") as folder:
        report = run(n_inputs, np.random.default_rng(seed), Path(folder))
    print(report)
    print(f"{time.perf_counter() - started:.0f} s")
    sys.exit(bool(report.tracebacks or report.accepted))


if __name__ == "__main__":
    main()
