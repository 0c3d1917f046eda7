"""Bugs planted on purpose: each audit passes on the real code and must fail on the broken one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl
import pytest

import clusterdp as cdp
from assertions import assert_discrete_laplace, assert_frequencies
from categories import one_outcome
from channel_checks import assert_unbiased
from clusterdp.channels.base import PRIOR_TOTAL
from clusterdp.channels.resampling import ResamplingChannel
from clusterdp.rows.keys import ReleaseKey
from clusterdp.rows.randomizing import QuestionRandomizer
from clusterdp.spec.columns import Columns
from clusterdp.statistics.noise import add_exact_noise
from enumeration import joint_release, worst_loss
from runs import run_release

if TYPE_CHECKING:
    from collections.abc import Callable

    from clusterdp._arrays import CodeArray, FloatArray, IntArray, WordArray
    from clusterdp.rows.keys import UnitIds


def audit_noise() -> None:
    """What a release adds to counts has the distribution that its guarantee assumes."""
    scale, n_clusters, n_each = 3.0, 1000, 2
    cells = np.indices((n_clusters, 2, 5, n_each)).reshape(4, -1)
    table = pl.DataFrame(
        {"user": np.arange(cells.shape[1]), "cluster": cells[0], "arm": cells[1], "y": cells[2]}
    ).sample(fraction=1.0, shuffle=True)
    release = cdp.release(
        table,
        mechanism=cdp.noisy_histogram(noise_scale=scale),
        outcomes={"y": cdp.OutcomeSpace.integers(0, 4)},
        unit="user",
        arm="arm",
        cluster="cluster",
    )
    noise = release.cells["noisy_counts"].explode().to_numpy() - n_each
    assert_discrete_laplace(noise, scale)


def halve_the_noise(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(
        "clusterdp.releasing.stages.add_exact_noise",
        lambda values, scale: add_exact_noise(values, scale / 2),
    )


def audit_loss() -> None:
    """Enumerated over all neighbours and outputs of a cell, the loss is within the guarantee."""
    mechanism = cdp.cluster_dp(noise_scale=2, prior_floor=0.05, resample_prob=0.8)
    space = cdp.OutcomeSpace.binary()
    release = joint_release(mechanism, space, size=10, reach=20, noise_scale=2)
    assert worst_loss(release, 10) <= mechanism.guarantee(space).epsilon + 1e-9


def drop_the_floor(patch: pytest.MonkeyPatch) -> None:
    def without_floor(prior: FloatArray, floor_weight: int) -> IntArray:
        from clusterdp.channels.priors import to_weights

        unfloored = np.where(prior <= floor_weight / PRIOR_TOTAL, 1e-6, prior)
        return to_weights(unfloored / unfloored.sum(axis=-1, keepdims=True), 1)

    patch.setattr("clusterdp.channels.resampling.to_weights", without_floor)


def audit_rows() -> None:
    """Over twelve keys no row always keeps its outcome: 16^-12 per row if rows are redrawn."""
    n_rows, n_keys = 300, 12
    rng = np.random.default_rng()
    table = pl.DataFrame(
        {
            "user": rng.permutation(n_rows),
            "arm": np.arange(n_rows) % 2,
            "cluster": np.zeros(n_rows, np.int64),
            "outcome": rng.integers(0, 16, n_rows),
        }
    )
    kept = np.zeros(n_rows)
    for _ in range(n_keys):
        release = run_release(
            table,
            mechanism=cdp.uniform_prior_dp(resample_prob=1 - 2**-40),
            space=one_outcome("outcome", cdp.OutcomeSpace.integers(0, 15)),
            columns=Columns(unit="user", arm="arm", cluster="cluster", outcomes=("outcome",)),
            control=None,
            clip=False,
            keep_order=True,
            key=ReleaseKey(rng.bytes(32)),
            add_noise=lambda values, *_: values,
        )
        kept += (release.units["response"] == table["outcome"]).to_numpy()
    assert kept.max() < n_keys, "a row was never randomized"
    # Rows of one release are independent of each other: equal words would move them together.
    released = release.units["response"].cast(pl.Int64).to_numpy()
    assert_frequencies(np.bincount(released % 4, minlength=4), np.ones(4))


def leave_one_row(patch: pytest.MonkeyPatch) -> None:
    honest = QuestionRandomizer.draw

    def forgetful(
        self: QuestionRandomizer, units: Any, cells: Any, categories: Any, aes_key: bytes
    ) -> CodeArray:
        places = honest(self, units, cells, categories, aes_key)
        groups = cells if self.groups is None else self.groups[cells]
        places[:1] = groups[:1] * self.n_outputs + categories[:1]
        return places

    patch.setattr(QuestionRandomizer, "draw", forgetful)


def ignore_the_id(patch: pytest.MonkeyPatch) -> None:
    def constant_words(units: UnitIds, aes_key: bytes) -> WordArray:
        word = int.from_bytes(aes_key[:8], "little")
        return np.full((len(units), 2), word, dtype=np.uint64)

    patch.setattr("clusterdp.rows.randomizing.unit_words", constant_words)


def audit_decode() -> None:
    """E[debiased | true] = true, from the released integers."""
    assert_unbiased(
        cdp.cluster_dp(noise_scale=3, prior_floor=0.05, resample_prob=0.7),
        cdp.OutcomeSpace.integers(0, 3),
    )


def shift_the_decode(patch: pytest.MonkeyPatch) -> None:
    honest = ResamplingChannel.decode

    def off_by_the_floor(self: ResamplingChannel, metric: int = 0) -> FloatArray:
        return honest(self, metric) + float(self.weights.min()) / PRIOR_TOTAL

    patch.setattr(ResamplingChannel, "decode", off_by_the_floor)


def decode_another_prior(patch: pytest.MonkeyPatch) -> None:
    """Decoding with the prior before it was rounded to integers, wrong in the ninth digit only."""
    honest = ResamplingChannel.decode

    def unrounded(self: ResamplingChannel, metric: int = 0) -> FloatArray:
        return honest(self, metric) * (1 + 1e-8)

    patch.setattr(ResamplingChannel, "decode", unrounded)


@pytest.mark.parametrize(
    ("audit", "plant"),
    [
        (audit_noise, halve_the_noise),
        (audit_loss, drop_the_floor),
        (audit_rows, leave_one_row),
        (audit_rows, ignore_the_id),
        (audit_decode, shift_the_decode),
        (audit_decode, decode_another_prior),
    ],
    ids=lambda function: function.__name__,
)
def test_planted_bugs_are_caught(
    audit: Callable[[], None],
    plant: Callable[[pytest.MonkeyPatch], None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    audit()
    plant(monkeypatch)
    with pytest.raises(AssertionError):
        audit()
