"""A pilot is drawn once: it survives kills, is never drawn again, and its budget stays spent."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
import polars as pl
import pytest

import clusterdp as cdp
from categories import one_outcome, questions_of
from clusterdp.ledger.history import ReleaseRecord
from clusterdp.ledger.ledger import Ledger
from clusterdp.mechanisms.settling import settle
from clusterdp.published.manifest import _with_checksum, unseal
from clusterdp.published.verification import verify_folder
from clusterdp.releasing import stages
from clusterdp.releasing.journal import unpack_entry
from clusterdp.rows.keys import ReleaseKey
from clusterdp.spec.columns import Columns
from clusterdp.statistics.noise import ALONE, add_exact_noise, simulated_noise
from clusterdp.statistics.pilot import DrawnPilot, NoisyPilot, pilot_space
from clusterdp.storage.folder import MANIFEST
from pilot_runs import (
    ASKED,
    EPSILON,
    PILOT,
    Clock,
    KilledError,
    Replay,
    contents,
    players,
    prepared_players,
    publish_again,
    publish_players,
)
from runs import release_in_memory, run_release

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from clusterdp._arrays import IntArray

pytestmark = pytest.mark.filterwarnings("ignore::clusterdp.errors.OwnerNotice")
CLICKS = one_outcome("clicks", cdp.OutcomeSpace.integers(0, 3))
# The point of a `Clock` at which the pilot is in the journal, and nothing was made of it.
PILOT_IS_KEPT = 8


def problems(folder: Path) -> list[str]:
    return [check.problem for check in verify_folder(folder) if check.problem]


def is_killed(folder: Path, ledger: Ledger, clock: Clock, deadly: int) -> bool:
    """Publish until a point; False if there are fewer."""
    clock.passed, clock.deadly = 0, deadly
    try:
        publish_players(folder, ledger)
    except KilledError:
        return True
    finally:
        clock.deadly = 0
    return False


def audit_kill(folder: Path, clock: Clock, deadly: int) -> bool:
    """Kill a release at a point, resume it, and compare it with what it had drawn by then.

    Returns:
        Whether there is such a point.
    """
    ledger, target = Ledger.create(folder / f"{deadly}.db", EPSILON), folder / f"out-{deadly}"
    if not is_killed(target, ledger, clock, deadly):
        return False
    (record,) = ledger.releases()
    left = ledger.resume(record.release_id)
    key, looked, drawn = left.key, left.recall("looked"), left.recall("drawn")
    assert (record.status == "reserved") == (looked is None)
    assert (record.drawn_sha256 is None) == (drawn is None)
    cdp.resume(record.release_id, players(), ledger=ledger)
    assert ledger.verify() == problems(target) == []
    assert [one.status for one in ledger.releases()] == ["committed"]
    if looked is not None:
        (published,) = cdp.read_release(target).pilots
        assert published is not None
        kept = unpack_entry(looked)[0]
        assert np.array_equal(kept["0"], published.noisy_counts), "the pilot was drawn again"
    if looked is not None and drawn is not None:
        again = folder / f"again-{deadly}"
        known = cdp.read_release(target).provenance
        (now,) = ledger.releases()
        by = key.for_attempt(now.n_attempts)
        publish_again(again, Replay(key, by, looked, drawn), record.terms.mechanisms[0], known)
        assert contents(again) == contents(target)
    return True


@pytest.mark.slow
def test_a_release_killed_anywhere_around_its_pilot_is_the_same_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock, n_kills = Clock(monkeypatch), 0
    while audit_kill(tmp_path, clock, n_kills + 1):
        n_kills += 1
    assert n_kills >= 20


def audit_resume(folder: Path, patch: pytest.MonkeyPatch) -> None:
    """A run that is killed once its pilot is kept goes on with that look."""
    assert audit_kill(folder, Clock(patch), PILOT_IS_KEPT)


def draw_again(patch: pytest.MonkeyPatch) -> None:
    def redrawn(*, statistic: NoisyPilot, bins: Any, noisy_counts: IntArray) -> DrawnPilot:
        return statistic.draw(noisy_counts, bins, add_exact_noise)

    patch.setattr(stages, "DrawnPilot", redrawn)


def audit_refusal(folder: Path, patch: pytest.MonkeyPatch) -> None:
    """A table that is refused after a pilot costs as much as one that is released."""
    ledger, target = Ledger.create(folder / "budget.db", EPSILON), folder / "out"
    assert is_killed(target, ledger, Clock(patch), PILOT_IS_KEPT)
    (record,) = ledger.releases()
    another = players().with_columns(pl.col("rounds") + 1)
    with pytest.raises(cdp.DataError, match="not the one that the release began with"):
        cdp.resume(record.release_id, another, ledger=ledger)
    assert ledger.balance("players").remaining == 0
    assert [one.status for one in ledger.releases()] == ["looked"]
    with pytest.raises(cdp.LedgerError, match="cannot be cancelled: it has drawn noise"):
        ledger.cancel(record.release_id)
    assert ledger.close(record.release_id).status == "closed"
    assert ledger.balance("players").remaining == 0
    assert ledger.verify() == []


def give_back(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(ReleaseRecord, "has_drawn", property(lambda one: one.drawn_sha256 is not None))


@pytest.mark.parametrize(
    ("audit", "plant"),
    [(audit_resume, draw_again), (audit_refusal, give_back)],
    ids=["redraw", "give back"],
)
def test_planted_bugs_are_caught(
    audit: Callable[[Path, pytest.MonkeyPatch], None],
    plant: Callable[[pytest.MonkeyPatch], None],
    tmp_path: Path,
) -> None:
    for bug in (None, plant):
        folder = tmp_path / str(bug is None)
        folder.mkdir()
        with pytest.MonkeyPatch.context() as patch:
            if bug is None:
                audit(folder, patch)
            else:
                bug(patch)
                # The ledger itself does not accept a budget that is given back.
                with pytest.raises((AssertionError, cdp.LedgerError)):
                    audit(folder, patch)


def test_what_follows_from_a_pilot_is_published_with_it() -> None:
    key = ReleaseKey(bytes(range(32)))
    release = release_in_memory(prepared_players(), [PILOT], key, add_exact_noise)
    (question,) = release.questions
    (number,) = question.space.declared.numbers.values()
    assert number.high <= 100
    assert release.guarantee.epsilon == pytest.approx(EPSILON)
    assert question.mechanism.prior is not None
    assert any("rounds is clipped to 0–" in note for note in release.notes)
    assert any("(20% of ε) found" in note for note in release.notes)
    (pilot,) = release.pilots
    assert pilot is not None
    assert pilot.to_table().columns == ["bin", "noisy_count"]
    truth = players().select(pl.col("rounds").clip(upper_bound=number.high).mean()).item()
    (effect,) = cdp.estimate(release).effects
    assert abs(effect.effect) < 6 * effect.std_error
    assert question.space.metric_values()[0] @ question.mechanism.prior == pytest.approx(
        truth, rel=0.2
    )


def test_the_same_pilot_and_key_give_the_same_release() -> None:
    def once() -> cdp.Release:
        noise = simulated_noise(np.random.default_rng(7))
        return release_in_memory(prepared_players(), [PILOT], ReleaseKey(bytes(32)), noise)

    one, other = once(), once()
    assert one.units.equals(other.units)
    assert one.questions[0].mechanism == other.questions[0].mechanism


@pytest.mark.parametrize("part", ["prior", "outcomes", "grids"])
def test_what_does_not_follow_from_the_pilot_is_found(part: str, tmp_path: Path) -> None:
    ledger, target = Ledger.create(tmp_path / "budget.db", EPSILON), tmp_path / "out"
    publish_players(target, ledger)
    assert problems(target) == []
    manifest = unseal((target / MANIFEST).read_bytes())
    (question,), (before,) = manifest.questions, manifest.before_pilot
    assert before is not None
    replace = msgspec.structs.replace
    if part == "prior":
        prior = tuple(reversed(question.mechanism.prior or ()))
        other = replace(question, mechanism=question.mechanism.with_prior(prior))
        edited = replace(manifest, questions=(other,))
    else:
        changed = {"outcomes": question.outcomes, "grids": replace(before.outcomes, grids={})}
        edited = replace(manifest, before_pilot=(replace(before, outcomes=changed[part]),))
    (target / MANIFEST).write_bytes(_with_checksum(edited))
    assert problems(target)


def test_where_what_follows_could_not_be_released_it_is_as_declared(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(*_: Any) -> None:
        raise cdp.ParameterError("too many bits")

    prepared = prepared_players()
    (declared,), layout = prepared.table.spaces, prepared.layout
    bins = pilot_space(declared.declared)
    assert PILOT.pilot is not None
    pilot = PILOT.pilot.draw(np.zeros(bins.n_categories, dtype=np.int64), bins, add_exact_noise)
    monkeypatch.setattr("clusterdp.mechanisms.settling.check_exact", refuse)
    (settled,) = settle(questions_of([declared], [PILOT]), layout, [pilot])
    assert (settled.space, settled.mechanism) == (declared, PILOT.settled(declared))


def test_a_pilot_belongs_to_a_channel_that_is_designed(tmp_path: Path) -> None:
    with pytest.raises(cdp.ParameterError, match="pilot does not apply to mechanism"):
        cdp.release(players(), epsilon=2, mechanism="uniform-prior-dp", pilot=0.1, **ASKED)
    with pytest.raises(cdp.ParameterError, match="no randomizer that a pilot could optimize"):
        cdp.Mechanism(
            name="None", pilot=NoisyPilot(epsilon=1), rows=cdp.uniform_prior_dp(epsilon=1).rows
        )
    with pytest.raises(cdp.ParameterError, match="pilot is a share of epsilon, and must be"):
        cdp.publish(players(), out=tmp_path / "out", epsilon=2, pilot=1.5, **ASKED)


def test_a_row_that_breaks_a_rule_is_refused_before_the_pilot() -> None:
    def refuse_to_draw(values: IntArray, scale: float, widths: tuple[int, ...] = ALONE) -> IntArray:
        pytest.fail(f"noise of scale {scale} was drawn for {len(values)} numbers")

    table = players().with_columns(clicks=pl.col("user") % 5)
    with pytest.raises(cdp.DataError, match="outside the allowed values"):
        run_release(
            table,
            mechanism=cdp.optimal(epsilon=2, pilot=0.1),
            space=CLICKS,
            columns=Columns(unit="user", arm="treated", cluster="market", outcomes=("clicks",)),
            key=ReleaseKey.from_system(),
            add_noise=refuse_to_draw,
        )


def test_the_options_of_a_pilot_make_it(tmp_path: Path) -> None:
    folder = cdp.publish(players(), out=tmp_path / "out", epsilon=2, pilot=0.1, **ASKED)
    release = folder.read()
    (question,) = release.questions
    assert question.mechanism.pilot is not None
    assert question.mechanism.pilot.epsilon == pytest.approx(0.2)
    assert release.guarantee.epsilon == pytest.approx(2)
    assert problems(tmp_path / "out") == []
