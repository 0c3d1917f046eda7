"""Release a frame in memory."""

from __future__ import annotations

import os
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

from clusterdp.channels.noise import add_exact_noise
from clusterdp.errors import ParameterError
from clusterdp.owner.plan import engine_for
from clusterdp.owner.preview import choose_mechanism
from clusterdp.owner.publish import prepare_options, wanted_by
from clusterdp.releasing.in_memory import release_in_memory
from clusterdp.rows.keys import ReleaseKey

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from clusterdp.experiment.outcomes import OutcomeSpace
    from clusterdp.mechanisms.mechanism import Mechanism
    from clusterdp.owner.plan import Plan
    from clusterdp.published.release import Release


def release(  # noqa: PLR0913 - the parts of a table and the owner's choices, all by name
    source: Any,
    plan: Plan | str | os.PathLike[str] | None = None,
    *,
    outcomes: OutcomeSpace | str | Sequence[float] | Mapping[str, Any] | None = None,
    unit: str | None = None,
    arm: str | None = None,
    cluster: str | Sequence[str] | None = None,
    outcome: str | None = None,
    control: Any = None,
    keep: str | Sequence[str] | None = None,
    clip: bool | None = None,
    min_cell_size: int | None = None,
    keep_order: bool | None = None,
    mechanism: Mechanism | str | None = None,
    epsilon: float | None = None,
    delta: float | None = None,
    noise_scale: float | None = None,
    prior_floor: float | None = None,
    resample_prob: float | None = None,
    sums_share: float | None = None,
    prior: str | Sequence[float] | None = None,
    reference: str | Sequence[float] | None = None,
    within_share: float | None = None,
    segment_share: float | None = None,
    allow_unencrypted_spark: bool | None = None,
    verbose: bool = False,
) -> Release:
    """Privatize every outcome of an experiment's frame, in memory.

    Each call spends the stated guarantee anew: two releases of the same people's outcomes add up,
    and no ledger tracks them. `publish` writes a folder and can spend from a ledger.

    Args:
        source: A pandas, Polars, PyArrow, DuckDB or Spark frame with one row per unit. A Spark
            frame is evaluated several times and must give the same rows each time; if it does not,
            checkpoint it.
        plan: A `Plan`, or the path of a plan file. What it says need not be said again.
        outcomes: The values outcomes can take, such as "0..5" or an `OutcomeSpace`; or
            `{"clicks": "0..5"}`, which names the outcome as well.
        unit: The column of ids, integers or strings.
        arm: The column of treatment arms.
        cluster: The column of public clusters; a list of columns is crossed.
        outcome: The column of sensitive outcomes.
        control: The control arm. Needed unless the arms are 0 and 1.
        keep: Public columns to publish as they are.
        clip: Move outcomes beyond the ends of the space to the nearest end, instead of an error.
        min_cell_size: Pool clusters with fewer units than this in some arm into one cluster.
        keep_order: Publish rows in the order of the table, which is then public, instead of the
            order of their ids. The order must not depend on outcomes.
        mechanism: From a builder such as `cluster_dp`, or a name such as "optimal", with what it
            leaves open chosen as `plan` does.
        epsilon: The budget of the whole release, for a mechanism by name; as are all up to
            `segment_share`, which `publish` explains.
        delta: Failure probability.
        noise_scale: Scale of the noise on counts.
        prior_floor: Least prior probability of an outcome.
        resample_prob: Probability that a row is redrawn.
        sums_share: Share of epsilon for noisy cell sums.
        prior: Public prior that the optimal channel is designed for.
        reference: What outcomes are thought to be like.
        within_share: Share of the outcomes' variance thought to lie within clusters.
        segment_share: Choose for effects in segments of this share.
        allow_unencrypted_spark: Release a frame of a Spark cluster that does not encrypt what its
            machines store and send. Who can read their disks or their network can then learn the
            key of the release, and with it every outcome.
        verbose: Say how many rows an error or a notice is about. For the owner's eyes alone: such
            numbers depend on true outcomes.

    Raises:
        DataError: If the table breaks a rule.
        ParameterError: If a parameter is wrong.
    """
    given = locals()
    if isinstance(source, str | os.PathLike):
        raise ParameterError("release takes a frame, got the name of a table; publish takes names")
    options, made = wanted_by(given, plan)
    with ExitStack() as stack:
        engine = engine_for(source, options, stack)
        prepared = prepare_options(source, options, engine, None, verbose=verbose)
        made = made or choose_mechanism(options, prepared.layout)
        return release_in_memory(prepared, made, ReleaseKey.from_system(), add_exact_noise)
