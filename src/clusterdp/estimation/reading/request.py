"""What an analyst asks for, for any metric: what to compare, to segment by and to adjust for."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from clusterdp._lists import parse_named
from clusterdp._named import columns
from clusterdp.cells.layout import Layout, find_arm
from clusterdp.errors import ParameterError, did_you_mean
from clusterdp.estimation.effects.effect import Estimator, Segment
from clusterdp.estimation.reading.clusters import PUBLIC_CLUSTERS, ClusterInversion
from clusterdp.estimation.reading.rows import MATCHED
from clusterdp.outcomes.categories import Categories
from clusterdp.outcomes.finite import OutcomeSpace
from clusterdp.published.release import Release
from clusterdp.published.rows import answer_columns

if TYPE_CHECKING:
    import polars as pl


# What segments are compared with: the rest of their dimension, or each other.
Differences = Literal["rest", "pairs"]
_ARMS_FORM = "arms must name arms that are compared as one (email=mens+womens), got {!r}"


class MergedArms(NamedTuple):
    """Arms that are compared as one: the union of their units.

    Attributes:
        released: The cells as released.
        labels: What the arms to compare are called.
        places: Which of them each released arm goes into.
        texts: What each merged arm is made of, in words.
    """

    released: Layout
    labels: tuple[Any, ...]
    places: tuple[int, ...]
    texts: tuple[str, ...]

    @classmethod
    def parse(cls, given: Any, layout: Layout) -> MergedArms | None:
        """From `{"email": ["mens", "womens"]}`, or texts such as `email=mens+womens`.

        Raises:
            ParameterError: If an arm is not there, or in two of them, or if one arm is left.
        """
        texts, form = [given] if isinstance(given, str) else given, _ARMS_FORM
        if isinstance(given, Mapping):
            pairs = list(given.items())
        elif isinstance(texts, list | tuple) and all(isinstance(one, str) for one in texts):
            split = [parse_named(one, form) for one in texts]
            pairs = [(name, [arm.strip() for arm in arms.split("+")]) for name, arms in split]
        else:
            raise ParameterError(form.format(given))
        into: dict[int, Any] = {}
        for label, arms in pairs:
            if isinstance(arms, str) or not isinstance(arms, list | tuple) or len(arms) < 2:
                raise ParameterError(form.format(f"{label}={arms}"))
            for arm in arms:
                place = find_arm(layout.arms, arm, option="arms:")
                if place in into:
                    raise ParameterError(
                        f"arms merges {layout.arms[place]!r} twice. Fix: name each arm once."
                    )
                into[place] = label
        kept = [into.get(place, arm) for place, arm in enumerate(layout.arms)]
        labels = tuple(dict.fromkeys(kept))
        n_expected = len(pairs) + len(layout.arms) - len(into)
        if len(labels) < max(n_expected, 2):
            raise ParameterError(
                "arms must leave at least 2 arms with different names, and would leave "
                f"{', '.join(map(repr, labels))}. Fix: use other names, or merge fewer arms."
            )
        places = tuple(labels.index(label) for label in kept)
        told = [f"{label} is {' and '.join(map(str, arms))} together." for label, arms in pairs]
        return cls(layout, labels, places, tuple(told)) if pairs else None


class ExposureRequest(NamedTuple):
    """What units were exposed to.

    Attributes:
        name: An outcome of the release; or a column that is kept or joined.
        place: The place of the question that has the outcome; None for a column.
    """

    name: str
    place: int | None

    @classmethod
    def parse(cls, name: Any, spaces: Sequence[Categories]) -> ExposureRequest:
        """An exposure by its name.

        Raises:
            ParameterError: If it is an outcome that is not 0 or 1 of everyone.
        """
        if not isinstance(name, str):
            raise ParameterError(f"exposure must be the name of an outcome or column, got {name!r}")
        for place, space in enumerate(spaces):
            if name in space.declared.missing:
                raise ParameterError(
                    f"exposure must be known for every unit, and {name!r} may be missing. Fix: use "
                    "another outcome or column."
                )
            if name in space.declared.names:
                outcome = space.declared.spaces[name]
                if not isinstance(outcome, OutcomeSpace) or outcome.values != (0.0, 1.0):
                    raise ParameterError(
                        f"exposure must have the values 0 and 1, and {name!r} was declared as "
                        f"{outcome}. Fix: use an outcome that was declared as 0,1."
                    )
                return cls(name, place)
        return cls(name, None)

    def check(self, release: Release, joined: Collection[str]) -> None:
        """Raise a ParameterError unless there is such an exposure, once.

        Args:
            release: The release.
            joined: The columns of the analyst's table.
        """
        columns = release.columns
        if self.place is not None and self.name in joined:
            raise ParameterError(
                f"exposure {self.name!r} is an outcome of the release and a column of the segments "
                "table. Fix: rename the column."
            )
        others = (columns.unit, *columns.cell)
        offered = [name for name in (*columns.public, *joined) if name not in others]
        if self.place is None and self.name not in offered:
            known = (*columns.outcomes, *offered)
            raise ParameterError(
                f"There is no outcome or column {self.name!r} to use as exposure."
                f"{did_you_mean(self.name, known)} Available: "
                f"{', '.join(known)}."
            )


class EstimateRequest(NamedTuple):
    """What to estimate, for any metric.

    Attributes:
        layout: The cells, with the control to compare with.
        estimator: How cells are weighed.
        use_sums: Whether rows are calibrated by published sums.
        fold: The fold whose rows are used alone; None for all rows.
        level: The confidence level.
        table: The analyst's frame, of any library; None if only passthrough columns are used.
        on: The column of ids in that frame; the release's own name by default.
        dimensions: The columns to segment by, see `parse_dimensions`.
        differences: What segments are compared with; None if with nothing.
        covariates: The columns to adjust for.
        exposure: The exposure; None without one.
        groups: The columns of groups of answers, in the analyst's table.
        inversion: What units count by noisy labels, where clusters are private.
        by_precision: Whether folders count by the precision of their effects, not by their units.
        merged: How arms are merged; None if they are compared as released.
    """

    layout: Layout
    estimator: Estimator = "stratified"
    use_sums: bool = True
    fold: int | None = None
    level: float = 0.95
    table: Any = None
    on: str | None = None
    dimensions: tuple[tuple[str, ...], ...] = ()
    differences: Differences | None = None
    covariates: tuple[str, ...] = ()
    exposure: ExposureRequest | None = None
    groups: tuple[str, ...] = ()
    inversion: ClusterInversion = PUBLIC_CLUSTERS
    by_precision: bool = False
    merged: MergedArms | None = None

    @property
    def released(self) -> Layout:
        """The cells as released."""
        return self.layout if self.merged is None else self.merged.released

    @property
    def merging(self) -> tuple[int, ...] | None:
        """Which of the arms to compare each released arm goes into; None if each is its own."""
        return None if self.merged is None else self.merged.places

    def check(self, randomization_unit: str | None) -> None:
        """Raise a ParameterError if what is asked for does not go together, or with the release."""
        exposure = None if self.exposure is None else self.exposure.name
        column, is_weighted = self.inversion.column, self.inversion.probs is not None
        by_cluster = any(column in names for names in self.dimensions)
        refused = (
            (
                any(exposure in names for names in (*self.dimensions, self.covariates)),
                (
                    f"exposure {exposure!r} depends on treatment, so it cannot be a segment or a "
                    "covariate. Fix: leave it out of by and adjust (--by, --adjust)."
                ),
            ),
            (
                self.table is not None
                and not (self.names or self.exposure or self.groups)
                and not self.dimensions,
                "A segments table was given, and no column to segment by. Fix: add by=... (--by).",
            ),
            (
                is_weighted and self.estimator == "unstratified",
                (
                    "Arms have different probabilities in private clusters, so unstratified means "
                    "are biased. Fix: leave out estimator='unstratified' (--unstratified)."
                ),
            ),
            (
                (by_cluster or is_weighted)
                and bool(self.covariates or randomization_unit or exposure),
                (
                    f"Effects that are weighted by noisy clusters ({column!r}) cannot be adjusted, "
                    "complier effects, or effects of a randomization unit. Fix: leave out adjust, "
                    "exposure or by."
                ),
            ),
            (
                by_cluster and self.differences,
                (
                    f"True clusters of {column!r} are private, so their effects cannot be compared "
                    "with each other. Fix: leave out differences (--differences)."
                ),
            ),
            (
                self.covariates and randomization_unit is not None,
                (
                    "Whole groups were randomized, and adjusted effects have no valid CIs there. "
                    "Fix: leave out adjust (--adjust)."
                ),
            ),
            (
                self.differences and not self.dimensions,
                (
                    "differences compares segments, and no column to segment by was given. Fix: "
                    "add by=... (--by)."
                ),
            ),
        )
        for is_refused, text in refused:
            if is_refused:
                raise ParameterError(text)

    @property
    def is_of_rows(self) -> bool:
        """Whether anything is asked for that only rows identify."""
        more = self.fold is not None or self.merged is not None
        return bool(self.dimensions or self.covariates or self.exposure or more)

    @property
    def names(self) -> tuple[str, ...]:
        """Every column to segment by or to adjust for."""
        return (*dimension_columns(self.known), *self.covariates)

    @property
    def known(self) -> list[tuple[str, ...]]:
        """The columns of dimensions that are known of units: true clusters are not."""
        return [one for one in dict.fromkeys(map(self.known_of, self.dimensions)) if one]

    def known_of(self, dimension: tuple[str, ...]) -> tuple[str, ...]:
        """The columns of a dimension that are known of units."""
        return tuple(name for name in dimension if name != self.inversion.column)

    def cut(
        self, tables: list[pl.DataFrame], dimension: tuple[str, ...]
    ) -> Iterator[tuple[Segment, pl.DataFrame]]:
        """Each segment of a dimension with counts of rows; a true cluster has those of all."""
        known = self.known_of(dimension)
        parts = _cut(holding(tables, known), known) if known else [((), tables[0])]
        for segment, part in parts:
            if known == dimension:
                yield segment, part
                continue
            for group in self.inversion.groups:
                of_known = dict(segment)
                yield tuple((name, of_known.get(name, group)) for name in dimension), part

    @property
    def finest(self) -> list[tuple[str, ...]]:
        """What rows must be counted by: counts by `("tier", "region")` include those by tier."""
        every = self.known
        return [one for one in every if not any(set(one) < set(other) for other in every)] or [()]

    @property
    def used(self) -> tuple[str, ...]:
        """Every column that decides anything, and the name of an exposure."""
        asked = (*dimension_columns(self.dimensions), *self.covariates, *self.groups)
        return (*asked, *([] if self.exposure is None else [self.exposure.name]))


def parse_dimensions(by: Any, release: Release) -> tuple[tuple[str, ...], ...]:
    """What to segment by: each entry a column, or several that are crossed (`"tier,region"`).

    A name that the release has itself is never split. Repeated entries count once.
    """
    entries = [by] if isinstance(by, str) else () if by is None else by
    if not isinstance(entries, list | tuple):
        raise ParameterError(f"by must be a column or a list of columns, got {by!r}")
    found: dict[tuple[str, ...], None] = {}
    for entry in entries:
        names = entry
        if isinstance(entry, str):
            whole = entry in (*release.columns.public, release.columns.true_cluster)
            names = [entry] if whole else [name.strip() for name in entry.split(",")]
        found[tuple(dict.fromkeys(parse_column_names("by", names)))] = None
    return tuple(found)


def parse_column_names(parameter: str, names: Any) -> tuple[str, ...]:
    """One column or several, as a tuple."""
    listed = (names,) if isinstance(names, str) else names
    if isinstance(listed, list | tuple) and all(isinstance(name, str) for name in listed):
        return tuple(listed)
    raise ParameterError(f"{parameter} must be a column or a list of columns, got {names!r}")


def check_dimensions(
    schema: pl.Schema, dimensions: list[tuple[str, ...]], release: Release
) -> None:
    """Raise a ParameterError unless every column can define segments."""
    columns = release.columns
    answers = (*answer_columns(release), *columns.debiased)
    reserved = {columns.unit, columns.arm, *answers, MATCHED}
    offered = [
        name for name in schema.names() if name not in reserved and not name.startswith("__")
    ]
    if columns.true_cluster is not None:
        offered = [columns.true_cluster if name == columns.cluster else name for name in offered]
    for name in dimension_columns(dimensions):
        if columns.true_cluster is not None and name == columns.cluster:
            raise ParameterError(
                f"Cannot segment by {name!r}: it is a noisy cluster, and each mixes all true ones. "
                f"Fix: segment by {columns.true_cluster!r}."
            )
        if name not in offered:
            raise ParameterError(
                f"No column {name!r} to segment by.{did_you_mean(name, offered)} Available: "
                f"{', '.join(offered)}. Add your own with segments (--segments FILE)."
            )


def dimension_columns(dimensions: Iterable[tuple[str, ...]]) -> tuple[str, ...]:
    """Every column of some dimensions, once."""
    return tuple(dict.fromkeys(name for dimension in dimensions for name in dimension))


def holding(tables: list[pl.DataFrame], dimension: tuple[str, ...]) -> pl.DataFrame:
    """The counts that have every column of a dimension."""
    return next(table for table in tables if set(dimension) <= set(table.columns))


def _cut(table: pl.DataFrame, dimension: tuple[str, ...]) -> Iterator[tuple[Segment, pl.DataFrame]]:
    """Each segment of a dimension, in the order of its values, with the counts of its rows.

    Rows without a value in the dimension belong to no segment.
    """
    there = table.drop_nulls(columns(dimension)).sort(columns(dimension))
    # By position: where rows are parted, too, names are patterns, and no selectors are taken.
    names, by = there.columns, [f"c{there.columns.index(name)}" for name in dimension]
    there.columns = [f"c{place}" for place in range(there.width)]
    for key, group in there.partition_by(by, as_dict=True, maintain_order=True).items():
        group.columns = names
        yield tuple(zip(dimension, key, strict=True)), group
