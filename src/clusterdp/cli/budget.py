"""A release that is paid for: reserved in a ledger, published, committed."""

from __future__ import annotations

import os
import shlex
import sys
from contextlib import contextmanager
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Protocol

from clusterdp._version import __version__
from clusterdp.cli.console import say_aside
from clusterdp.engines.source_names import DUCKDB
from clusterdp.errors import ClusterDPError, DataError, LedgerError, ParameterError
from clusterdp.ledger.balance import budget_in_short, plain_name, population_problem, shown_below
from clusterdp.ledger.encryption import unencrypted
from clusterdp.ledger.ledger import Ledger
from clusterdp.ledger.reservation import OvertakenError, absolute
from clusterdp.privacy.composition import basic_composition

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from clusterdp.experiment.outcomes import OutcomeSpace
    from clusterdp.ledger.balance import Account
    from clusterdp.ledger.reservation import Reservation
    from clusterdp.mechanisms.mechanism import Mechanism
    from clusterdp.releasing.journal import Journal
    from clusterdp.releasing.prepare import Prepared
    from clusterdp.storage.folder import Destination

PASSPHRASE = "CLUSTERDP_LEDGER_PASSPHRASE"  # noqa: S105 - where it is, not what it is
# What may be said anew when a release is resumed: where things are, not what they are.
_PLACES = ("input", "out")


class Write(Protocol):
    """What writes a release."""

    def __call__(
        self,
        prepared: Prepared,
        mechanism: Mechanism,
        target: Destination,
        journal: Journal | None = None,
    ) -> dict[str, Any]:
        """Write it, and return what to show."""
        ...


class Budget:
    """A population's budget in a ledger that is open."""

    def __init__(
        self,
        where: str,
        population: str | None,
        key_file: Path | None,
        *,
        confirmed_new: bool = False,
    ) -> None:
        """Open the ledger.

        Args:
            where: A file, or a PostgreSQL URL.
            population: Whose budget; None when a release is resumed, which says so itself.
            key_file: What the ledger's secrets are encrypted with, if it is a file.
            confirmed_new: Whether the owner says that the population is new to the ledger.
        """
        self.ledger = open_ledger(where, key_file)
        self._population = None if population is None else plain_name(population)
        self._confirmed_new = confirmed_new
        self._options = f"--ledger {shlex.quote(absolute(str(self.ledger)))}"
        if key_file is not None:
            self._options += f" --ledger-key-file {shlex.quote(str(key_file))}"

    def check_population(self) -> None:
        """Raise a LedgerError if the population's name is new and unconfirmed, or the reverse."""
        assert self._population is not None  # noqa: S101 - a release names it
        self.ledger.check_population(self._population, confirmed_new=self._confirmed_new)

    def describe(self, mechanism: Mechanism, space: OutcomeSpace, outcome: str) -> dict[str, Any]:
        """What there is and whether it is enough; everything in it is public."""
        account, known = self._account()
        guarantee = mechanism.guarantee(space)
        after = basic_composition([account.basic, guarantee])
        earlier = sum(one.content["outcome"]["name"] == outcome for one in account.spent)
        notes = []
        if not account.allows(guarantee, mechanism.loss(space)):
            notes.append("the budget does not allow this release: it would be refused")
        problem = population_problem(account.population, known, confirmed=self._confirmed_new)
        if problem:
            notes.append(f"this release would be refused: {problem}")
        if earlier:
            times = "1 earlier release" if earlier == 1 else f"{earlier} earlier releases"
            notes.append(
                f"the ledger has {times} of outcome {outcome!r} of population "
                f"{account.population!r}; all releases about it have spent "
                f"{budget_in_short(account.basic)} in sum, and with this one "
                f"{budget_in_short(after)}"
            )
        return {
            "population": account.population,
            "cap_epsilon": account.cap.epsilon,
            "cap_delta": account.cap.delta,
            "spent_epsilon": account.basic.epsilon,
            "spent_delta": account.basic.delta,
            "after_epsilon": after.epsilon,
            "after_delta": after.delta,
            "earlier_releases_of_outcome": earlier,
            "room_epsilon": account.room,
            "notes": notes,
            "in_short": (
                f"{budget_in_short(guarantee)} of population {account.population!r}, which has "
                f"room for epsilon {shown_below(account.room)} (cap {budget_in_short(account.cap)})"
            ),
        }

    def _account(self) -> tuple[Account, list[str]]:
        """The population's account, and whom else the ledger knows."""
        assert self._population is not None  # noqa: S101 - a release names it
        accounts = {account.population: account for account in self.ledger.accounts()}
        mine = accounts.get(self._population) or self.ledger.account(self._population)
        return mine, list(accounts)

    def release(
        self,
        prepared: Prepared,
        mechanism: Mechanism,
        target: Destination,
        spec: dict[str, Any],
        write: Write,
    ) -> dict[str, Any]:
        """Reserve, and write."""
        assert self._population is not None  # noqa: S101 - a release names it
        layout = prepared.layout
        reservation = self.ledger.reserve(
            self._population,
            outcome=prepared.table.columns.outcome,
            space=layout.space,
            mechanism=mechanism,
            about={
                "software": __version__,
                "n_units": layout.n_units,
                "n_clusters": len(layout.clusters),
                "options": _portable(spec),
            },
            confirmed_new=self._confirmed_new,
        )
        say_aside(
            f"reserved as release {reservation.release}; should this be interrupted, finish it "
            f"with: {self._remedy(reservation)}"
        )
        return self.finish(reservation, prepared, target, write)

    def finish(
        self, reservation: Reservation, prepared: Prepared, target: Destination, write: Write
    ) -> dict[str, Any]:
        """Write what is reserved."""
        content, layout = reservation.spending.content, prepared.layout
        if (content["n_units"], content["n_clusters"]) != (layout.n_units, len(layout.clusters)):
            raise DataError("the table is not the one that the release was reserved for")
        reservation.place = absolute(str(target))
        with self._hints(reservation, target):
            # By the parameters as they are written down, so that every run does the same.
            finished = write(prepared, reservation.mechanism, target, reservation)
        return {**finished, "release": reservation.release}

    def finish_published(
        self, reservation: Reservation, target: Destination
    ) -> dict[str, Any] | None:
        """Commit a release that was published just before it was interrupted."""
        if not _is_published(reservation, target):
            return None
        reservation.commit(str(target))
        return {"folder": str(target), "release": reservation.release}

    def _remedy(self, reservation: Reservation) -> str:
        return f"clusterdp release --resume {reservation.release} {self._options}"

    @contextmanager
    def _hints(self, reservation: Reservation, target: Destination) -> Iterator[None]:
        """Say of every error what became of the budget."""
        try:
            yield
        except OvertakenError as error:
            if _is_published(reservation, target):
                raise LedgerError(
                    f"{target} is published, but {error}: its budget stays spent"
                ) from None
            raise OvertakenError(f"{error}; this run published nothing") from None
        except KeyboardInterrupt:
            if _is_published(reservation, target):
                raise LedgerError(self._unrecorded(reservation, target, "interrupted")) from None
            say_aside(f"the budget stays reserved; finish with: {self._remedy(reservation)}")
            raise
        except DataError as error:
            if reservation.has_drawn:
                raise self._explained(error, reservation) from None
            raise self._given_back(error, reservation) from None
        except ClusterDPError as error:
            if _is_published(reservation, target):
                why = str(error)
                raise LedgerError(self._unrecorded(reservation, target, why)) from None
            raise self._explained(error, reservation) from None

    def _given_back(self, error: DataError, reservation: Reservation) -> ClusterDPError:
        """Cancel a release that drew nothing, and say so."""
        try:
            reservation.cancel()
        except OvertakenError as overtaken:
            return DataError(f"{error} ({overtaken})")
        except LedgerError:  # it stays reserved then, which the ledger shows
            return self._explained(error, reservation)
        return DataError(f"{error} (the budget was given back)")

    def _unrecorded(self, reservation: Reservation, target: Destination, why: str) -> str:
        return (
            f"{target} is published, but that could not be recorded ({why}); record it with: "
            f"{self._remedy(reservation)}"
        )

    def _explained(self, error: ClusterDPError, reservation: Reservation) -> ClusterDPError:
        return type(error)(
            f"{error}. The budget stays reserved; finish with: {self._remedy(reservation)}"
        )


def open_ledger(where: str, key_file: Path | None) -> Ledger:
    """A ledger, unlocked with a key file, or a passphrase from the environment or the terminal."""
    ledger = Ledger(where)
    if ledger.protection == "none" and PASSPHRASE in os.environ:
        raise LedgerError(unencrypted(f"{PASSPHRASE} is set", "passphrase"))
    ledger.unlock(
        passphrase=_passphrase() if ledger.protection == "passphrase" else None, key_file=key_file
    )
    return ledger


def _passphrase() -> str | None:
    given = os.environ.get(PASSPHRASE)
    if given is None and sys.stdin.isatty():
        import getpass

        given = getpass.getpass("passphrase of the ledger: ")
    if given is None:
        raise LedgerError(f"the ledger needs its passphrase: set {PASSPHRASE}")
    return given


def chosen_passphrase(*, wanted: bool, has_key_file: bool) -> str | None:
    """The passphrase for a new ledger; None if there is to be none.

    Args:
        wanted: Whether the owner asks for one.
        has_key_file: Whether they give a key file.
    """
    if wanted:
        return _new_passphrase()
    if PASSPHRASE in os.environ and not has_key_file:
        raise LedgerError(
            f"{PASSPHRASE} is set, but the ledger would keep keys unencrypted: add --passphrase"
        )
    return None


def _new_passphrase() -> str:
    """From the environment, or asked for twice."""
    given = os.environ.get(PASSPHRASE)
    if given is not None:
        return given
    if not sys.stdin.isatty():
        raise LedgerError(f"there is no terminal to ask for a passphrase: set {PASSPHRASE}")
    import getpass

    given = getpass.getpass("passphrase for the new ledger: ")
    if getpass.getpass("again: ") != given:
        raise LedgerError("these are two different passphrases")
    return given


def resumed_options(reservation: Reservation, given: dict[str, Any]) -> dict[str, Any]:
    """The options of a release as they were, with places that may be said anew."""
    content = reservation.spending.content
    if content["software"] != __version__:
        raise LedgerError(
            f"release {reservation.release} was begun with clusterdp {content['software']}; only "
            f"that version finishes it exactly: pip install clusterdp=={content['software']}"
        )
    more = [key for key in given if given[key] is not None and key not in (*_PLACES, "ledger")]
    if more:
        name = more[0].replace("_", "-")
        raise ParameterError(f"--{name} was decided when the release began; leave it out")
    moved = {key: given[key] for key in _PLACES if given[key] is not None}
    return {**content["options"], **moved}


def _portable(spec: dict[str, Any]) -> dict[str, Any]:
    """Options that mean the same in another working directory."""
    options = {key: value for key, value in spec.items() if key != "ledger"}
    source, out = str(spec["input"]), str(spec["out"])
    if source.startswith(DUCKDB):
        database, mark, query = source.removeprefix(DUCKDB).partition("?")
        options["input"] = DUCKDB + (database and absolute(database)) + mark + query
    else:
        options["input"] = absolute(source)
    return {**options, "out": absolute(out)}


def _is_published(reservation: Reservation, target: Destination) -> bool:
    manifest = target.manifest()
    return manifest is not None and sha256(manifest).hexdigest() == reservation.sealed
