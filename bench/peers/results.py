"""What a run found, as a value and as a file, so that its page can be written again."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

import msgspec

from bench.peers.costs import Cost
from bench.peers.study import Key
from bench.peers.summary import Summary

if TYPE_CHECKING:
    from pathlib import Path


@dataclass(frozen=True, slots=True, kw_only=True)
class Results:
    """What a run found.

    Attributes:
        summary: Of all draws.
        costs: By method, of one release.
        n_units: Units of that release.
        rates: Rows per second, by who randomizes.
    """

    summary: Summary
    costs: dict[str, Cost]
    n_units: int
    rates: dict[str, float]


def save(results: Results, path: Path) -> None:
    """Write results to a file."""
    content = asdict(results) | {"summary": list(results.summary.found.items())}
    path.write_bytes(msgspec.json.encode(content, enc_hook=float))


def load(path: Path) -> Results:
    """The results of a file."""
    content = msgspec.json.decode(path.read_bytes())
    found = {Key(*key): values for key, values in content.pop("summary")}
    costs = {name: Cost(*cost) for name, cost in content.pop("costs").items()}
    return Results(summary=Summary(found), costs=costs, **content)
