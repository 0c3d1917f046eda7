"""Random malformed inputs: no traceback, no acceptance.

    python -m soak.malformed [INPUTS] [SEED] [--json]

Whatever was found is repeated by the same number of inputs and the seed that was printed.
"""

from __future__ import annotations

import json
import secrets
import subprocess
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


# How many inputs a process of its own tries.
_APART = 1000


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

    @classmethod
    def from_json(cls, text: str) -> Report:
        """What another process found."""
        fields = json.loads(text)
        for name in ("tracebacks", "accepted"):
            fields[name] = [Finding(*finding) for finding in fields[name]]
        return cls(**fields)

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


def run_apart(n_inputs: int, rng: np.random.Generator) -> tuple[Report, int]:
    """The same in processes of their own, because damage can make Polars abort, not only panic.

    Returns:
        What was found, and how many processes were aborted; what these tried is tried anew.
    """
    total, n_aborted = Report({}, 0, 0, 0, [], []), 0
    while sum(total.tried.values()) < n_inputs:
        left = min(_APART, n_inputs - sum(total.tried.values()))
        seed = str(rng.integers(2**63))
        ended = subprocess.run(  # noqa: S603 - ourselves
            [sys.executable, "-m", "soak.malformed", str(left), seed, "--json"],
            cwd=Path(__file__).parent.parent,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            check=False,
        )
        if ended.returncode < 0:
            n_aborted += 1
            continue
        total = _added(total, Report.from_json(ended.stdout.splitlines()[-1]))
    return total, n_aborted


def _added(one: Report, other: Report) -> Report:
    return Report(
        tried=dict(Counter(one.tried) + Counter(other.tried)),
        refused=one.refused + other.refused,
        harmless=one.harmless + other.harmless,
        sound=one.sound + other.sound,
        tracebacks=one.tracebacks + other.tracebacks,
        accepted=one.accepted + other.accepted,
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
    """One run, in this process."""
    as_json = "--json" in sys.argv
    numbers = [int(given) for given in sys.argv[1:] if given != "--json"]
    n_inputs = numbers[0] if numbers else 10_000
    seed = numbers[1] if len(numbers) > 1 else secrets.randbits(64)
    print(f"seed {seed}")
    started = time.perf_counter()
    with tempfile.TemporaryDirectory(prefix="clusterdp-soak-") as folder:
        report = run(n_inputs, np.random.default_rng(seed), Path(folder))
    if as_json:
        print(json.dumps(report._asdict()))
        return
    print(report)
    print(f"{time.perf_counter() - started:.0f} s")
    sys.exit(bool(report.tracebacks or report.accepted))


if __name__ == "__main__":
    main()
