"""Released rows moved by their calibration, for the tools of others.

A calibrated mean is s'ỹ − b'(X'ỹ − Z), with b = M⁻¹X's and M = X'X + W/v̄, see `calibration.py`. It
is linear in s:

    s'ỹ − (X'ỹ − Z)'M⁻¹X's = s'y*,   y* = ỹ − XM⁻¹(X'ỹ − Z)

So one column y* gives every calibrated mean: of everyone and of any segment, with any weights s
that do not depend on outcomes. A unit is moved by a number that all units of its profile share.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import numpy as np

from clusterdp._arrays import FloatArray
from clusterdp._named import column
from clusterdp.cells.layout import Layout
from clusterdp.errors import DataError, ParameterError
from clusterdp.estimation.means.calibration import Calibration
from clusterdp.estimation.means.functions import CategoryFunction, DecodedFunction
from clusterdp.estimation.means.responses import ProfileSums
from clusterdp.estimation.means.weights import weigh
from clusterdp.estimation.opened import open_release
from clusterdp.estimation.reading.clusters import ClusterInversion
from clusterdp.estimation.reading.profiles import PROFILE, ProfiledRows, Profiling
from clusterdp.estimation.reading.request import EstimateRequest
from clusterdp.mechanisms.draw import ReleasedQuestion
from clusterdp.published.release import Release
from clusterdp.published.rows import answer_columns, count_released, n_outputs, scan_units
from clusterdp.rows.frames import frame_like, read_frame
from clusterdp.spec.columns import FOLD, QUESTION, RESPONSE, TIMES_OBSERVED

if TYPE_CHECKING:
    import polars as pl


# What a unit counts in a comparison within clusters.
STRATIFIED_WEIGHT = "stratified_weight"


def calibrated_rows(release: Release | str | os.PathLike[str], *, fold: int | None = None) -> Any:
    """The released rows with a column such as `clicks_calibrated` for each metric.

    An outcome that may be missing has two, as in the release: `spend_times_observed_calibrated`,
    which is 0 where it is missing, and `spend_observed_calibrated`. Its mean among units with an
    observed outcome is the ratio of their means.

    Means by arm equal those of `estimate` with `estimator="unstratified"`, for all units and in any
    segment. Means weighted by the column `stratified_weight` equal those of `estimate` for all
    units. With several questions, columns are null for units that answered another one; means that
    skip nulls are unbiased, and close to those of `estimate`. Standard errors from other tools are
    too large where published sums are precise: take those of `estimate`.

    Args:
        release: A published folder, or a release from `release` or `read_release`.
        fold: Rows of this fold only, calibrated to its sums only.

    Returns:
        A Polars query over a folder, or a frame of the library that the rows came in.

    Raises:
        ParameterError: If an argument has another type or is out of its range, or the release has
            no rows.
        FormatError: If the folder is not a release, or was damaged or edited.
        DataError: If a column of the release has the name of a new one.
    """
    release = open_release(release)
    if release.units is None:
        raise ParameterError(
            f"{release.mechanism_names} publishes no rows to calibrate. Fix: use estimate(release)."
        )
    request = EstimateRequest(layout=release.layout, fold=fold)
    profiling = Profiling(release, request)
    every = [ProfiledRows(profiling, one) for one in count_released(release, profiling.names)]
    pairs = zip(release.questions, every, strict=True)
    columns = [_calibrated(question, found, request) for question, found in pairs]
    factors = ClusterInversion.from_release(release).factors()
    for question, more, found in zip(release.questions, columns, every, strict=True):
        weights = _stratified_weights(question, found, release.layout, factors)
        cells = found.profiles.cells[found.table[PROFILE].to_numpy()]
        more[STRATIFIED_WEIGHT] = weights[cells]
    return _with_columns(release, [one.table for one in every], columns, profiling)


def _calibrated(
    question: ReleasedQuestion, found: ProfiledRows, request: EstimateRequest
) -> dict[str, FloatArray]:
    """The new columns of a question, by name; axes `[entry]` of its counted rows."""
    profiles, whole = found.profiles, found.count(found.table)
    places, responses = (found.table[name].to_numpy() for name in (PROFILE, RESPONSE))
    moved, of_observed = {}, question.space.of_observed()
    for place, measured in enumerate(question.space.declared.metrics):
        # Every metric of an outcome that may be missing is 0 where it is missing.
        name = f"{measured}{TIMES_OBSERVED}" if place in of_observed else str(measured)
        function = CategoryFunction.measured(name, question.space, place)
        metric = DecodedFunction.from_question(function, question, request)
        sums = ProfileSums.from_rows(whole, profiles, metric.outputs)
        shifts = Calibration(metric.readings, profiles, sums, metric.noise).shifts()
        groups = metric.outputs.groups.ravel()[profiles.cells[places]]
        asked = responses < metric.outputs.values.shape[-1]
        debiased = metric.outputs.values[groups, np.where(asked, responses, 0)]
        debiased = np.where(asked, debiased + metric.outputs.middle, np.nan)
        moved[f"{function.name}_calibrated"] = debiased + shifts[places]
    return moved


def _stratified_weights(
    question: ReleasedQuestion, found: ProfiledRows, layout: Layout, factors: FloatArray | None
) -> FloatArray:
    """What a unit of each cell counts in a comparison within clusters, one on average of its arm.

    It covers units that were asked the question. Where private clusters have probabilities of arms
    of their own, `factors` is what units count. That of control is the one of its first comparison.
    Axes `[cell]`.
    """
    profiles, counted = found.profiles, found.count(found.table)
    asked, sizes = (counted.cell_sizes(profiles, one) for one in (n_outputs(question), None))
    weights = np.zeros(sizes.shape)
    for arm in reversed(layout.treatments):
        pair = [layout.control, arm]
        weighed = weigh(sizes, layout, pair, factors=factors)
        each = weighed.shares / np.maximum(asked[:, pair], 1)
        weights[:, pair] = each * asked[:, pair].sum(axis=0)
    return weights.ravel()


def _with_columns(
    release: Release,
    counted: list[pl.DataFrame],
    columns: list[dict[str, FloatArray]],
    profiling: Profiling,
) -> Any:
    """The rows of a release with more columns.

    Those of a question follow from profiles and responses, and are null where it was not asked.
    """
    import polars as pl

    new = dict.fromkeys(name for of_question in columns for name in of_question)
    new[STRATIFIED_WEIGHT] = new.pop(STRATIFIED_WEIGHT)  # it comes last
    clash = [name for name in new if name in release.columns.published]
    if clash:
        raise DataError(f"The release already has a column {clash[0]!r}. Fix: rename it first.")
    rows = scan_units(release)
    if profiling.fold is not None:
        rows = rows.filter(pl.col(FOLD) == profiling.fold)
    keys = [*map(column, (*profiling.names, *answer_columns(release)))]
    tables = []
    for question, table, more in zip(release.questions, counted, columns, strict=True):
        known = table.with_columns(pl.Series(name, values) for name, values in more.items())
        if len(release.questions) > 1:
            kind = rows.collect_schema()[QUESTION]
            known = known.filter(pl.col(RESPONSE) < n_outputs(question))
            known = known.with_columns(pl.lit(question.name).cast(kind).alias(QUESTION))
        tables.append(known.select(*keys, *map(column, more)))
    moved = pl.concat(tables, how="diagonal").lazy().select(*keys, *map(column, new))
    rows = rows.join(moved, on=keys, how="left", nulls_equal=True, maintain_order="left")
    if isinstance(release.units, pl.LazyFrame):
        return rows
    return frame_like(read_frame(release.units), release.units, rows.collect())
