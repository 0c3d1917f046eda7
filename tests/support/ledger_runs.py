"""Releases of a ledger as the tests run them, without a table."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING, Any

import numpy as np
import sqlalchemy as sa

import clusterdp as cdp
from categories import one_outcome, one_question
from clusterdp.ledger._store import LedgerStore
from clusterdp.mechanisms.draw import Question, release_cells
from clusterdp.statistics.base import CellTotals
from clusterdp.statistics.noise import add_exact_noise
from populations import make_layout
from released import Drawn

if TYPE_CHECKING:
    from clusterdp.ledger._store import Secrets
    from clusterdp.ledger.ledger import Ledger
    from clusterdp.ledger.reservation import Reservation

SPACE = one_outcome("y", cdp.OutcomeSpace.integers(0, 3))
LAYOUT = make_layout([[3, 4], [5, 6]])


def reserve(
    ledger: Ledger, epsilon: float = 1, population: str = "us", place: str = "x", **settings: Any
) -> Reservation:
    mechanism = cdp.cluster_dp(noise_scale=20, prior_floor=0.05, epsilon=epsilon, **settings)
    return ledger.reserve(population, terms=one_question(SPACE, mechanism), about={}, place=place)


def stored_secrets(where: str, release_id: str) -> Secrets | None:
    with LedgerStore(where).reading() as stored:
        return stored.secrets(release_id)


def with_secrets(where: str) -> list[str]:
    """The ids of releases whose secrets are stored."""
    with LedgerStore(where).reading() as stored:
        return stored.unfinished()


def some_drawn(reservation: Reservation) -> bytes:
    counts = np.stack([LAYOUT.sizes] + [np.zeros_like(LAYOUT.sizes)] * 3, axis=-1)
    mechanism = reservation.mechanisms[0]
    totals = CellTotals.from_counts(counts, SPACE)
    cells = release_cells(totals, LAYOUT, SPACE, mechanism, add_exact_noise)
    question = Question(space=SPACE, mechanism=mechanism).released(*cells)
    return bytes(Drawn(questions=(question,), table_tag=bytes(range(32))))


def finish(reservation: Reservation) -> None:
    reservation.keep("drawn", some_drawn(reservation))
    reservation.seal(b"manifest")
    reservation.commit("out")


def edit(where: str, statement: str) -> None:
    """Change history behind the ledger's back."""
    if "://" in where:
        engine = sa.create_engine(where.replace("postgresql:", "postgresql+psycopg:"))
        with engine.begin() as connection:
            connection.execute(sa.text(statement))
        engine.dispose()
        return
    with closing(sqlite3.connect(where)) as file, file:
        file.execute(statement)
