"""Which column of a table plays which part, and how columns and questions are published.

Where a unit has several rows, each outcome has a rule that makes one value of them.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

from clusterdp._text import is_plain, with_article
from clusterdp.errors import DataError, ParameterError
from clusterdp.outcomes.metric import OBSERVED

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    # The rule of each outcome, by its name.
    Aggregates = Mapping[str, str]

# An outcome that may be missing, 0 where it is, has the name of the outcome and this.
TIMES_OBSERVED = "_times_observed"
# The name of the question that a row of a published table is about, where there are several.
QUESTION = "question"
# The number of a row's output in its channel.
RESPONSE = "response"
# The public fold that a unit is in.
FOLD = "fold"
# Each fold has noise of its own on its totals.
MOST_FOLDS = 10
# The part that a private cluster plays, in words.
PRIVATE_CLUSTER = "private cluster"
# What the published column of a private cluster is called after the cluster's name.
NOISY = "_noisy"
# The columns of published tables next to clusters and arms.
PUBLISHED_COLUMNS = frozenset(
    {
        RESPONSE,
        FOLD,
        QUESTION,
        "size",
        "weight",
        "by",
        "group",
        "noisy_counts",
        "noisy_contrast",
        "noisy_sum",
        "noisy_sum_in_units",
        "noisy_squares",
        "covariate_imbalance",
        "covariate_squares",
        "covariate_products",
        "prior",
        "decode",
        "channel",
        "weights",
    }
)


def _check_name(name: str) -> None:
    """Raise a DataError if a column cannot be named in documents and on terminals."""
    if "`" in name or not all(map(is_plain, name)):
        raise DataError(
            f"column {name!r} has a control character or a backtick in its name; rename it"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Columns:
    """Which column of the table plays which part.

    Attributes:
        unit: Ids.
        arm: Treatment arms.
        cluster: Clusters; None without clusters.
        private_cluster: Whether clusters are private: rows are published with the labels that a
            response gives them, in a column of another name, see `as_published`.
        true_cluster: The private cluster that `cluster` holds noisy labels of; None in the table
            itself, and where clusters are public.
        outcomes: The sensitive outcomes.
        missing: Those that may be missing.
        covariates: The owner's covariates of outcomes, which are published nowhere.
        kept: Public columns that are published as they are.
        breakdowns: Columns that analysts will segment by; several in one entry are crossed.
            They are published like kept ones.
        randomization_unit: The column of groups that were assigned to arms as a whole; None if
            units were.
        folds: How many public folds units are put in.
        question_names: The names of the questions that units are asked one of; empty where there is
            one question.
    """

    unit: str
    arm: str
    cluster: str | None
    outcomes: tuple[str, ...]
    kept: tuple[str, ...] = ()
    breakdowns: tuple[tuple[str, ...], ...] = ()
    randomization_unit: str | None = None
    folds: int = 1
    missing: tuple[str, ...] = ()
    question_names: tuple[str, ...] = ()
    private_cluster: bool = False
    true_cluster: str | None = None
    covariates: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        cut_by = dict.fromkeys(name for names in self.breakdowns for name in names)
        if self.private_cluster and self.cluster in {*self.kept, *cut_by}:
            raise DataError(
                f"column {self.cluster!r} is a private cluster; it cannot also be passthrough or "
                "a breakdown. Effects by it are estimated anyway"
            )
        if set(cut_by) & {self.unit, self.arm, *self.outcomes}:
            raise DataError("a breakdown is by public columns, not by ids, arms or outcomes")
        if (
            len(set(map(frozenset, self.breakdowns))) < len(self.breakdowns)
            or () in self.breakdowns
        ):
            raise DataError("two breakdowns have the same columns; declare it once")
        if any(len(set(names)) < len(names) for names in self.breakdowns):
            raise DataError("a breakdown names a column twice; name it once")
        if not 1 <= self.folds <= MOST_FOLDS:
            raise DataError(f"folds must be 1 to {MOST_FOLDS}, got {self.folds}")
        named = {self.cluster, self.randomization_unit}
        kept = dict.fromkeys((*self.kept, *cut_by))
        object.__setattr__(self, "kept", tuple(name for name in kept if name not in named))
        own = () if self.true_cluster is None else (self.true_cluster,)
        names = [*self.public, *own, *self.outcomes, *self.covariates]
        for name in names:
            _check_name(name)
        twice = [name for name, times in Counter(names).items() if times > 1]
        if twice:
            raise DataError(
                f"column {twice[0]!r} has two parts: unit, arm, cluster, outcomes and passthrough "
                "columns must all differ; name another column"
            )
        if len(set(self.question_names)) < len(self.question_names):
            raise DataError(
                "two questions would have one name, their outcomes joined by '+'; rename an outcome"
            )
        given = {FOLD, QUESTION, RESPONSE, *self.debiased}
        taken = [name for name in self.public if name in given]
        endings = question_suffixes(self.n_questions)
        of_cells = {name + ending for name in PUBLISHED_COLUMNS for ending in ("", *endings)}
        taken += [name for name in self.cell if name in of_cells]
        taken += [name for name in names if self.private_cluster and name == self.noisy_name]
        if taken:
            raise DataError(f"column {taken[0]!r} has a name that the release gives; rename it")

    def keeping(self, names: Iterable[str]) -> Columns:
        """The same, with more columns kept."""
        more = tuple(name for name in names if name not in self.public)
        return replace(self, kept=(*self.kept, *more))

    @property
    def noisy_name(self) -> str:
        """What the published column of a private cluster is called."""
        return f"{self.cluster}{NOISY}"

    def as_published(self) -> Columns:
        """The same in published tables: a private cluster is there by its noisy labels."""
        if not self.private_cluster:
            return self
        return replace(
            self, cluster=self.noisy_name, true_cluster=self.cluster, private_cluster=False
        )

    @property
    def public(self) -> tuple[str, ...]:
        """The columns that are published next to outcomes, in their order.

        All are published as they are, but for a private cluster.
        """
        named = (self.cluster, self.randomization_unit)
        return (self.unit, self.arm, *(name for name in named if name is not None), *self.kept)

    @property
    def shown(self) -> tuple[str, ...]:
        """Those of them that are published as they are."""
        return tuple(name for name in self.public if name not in self.secrets)

    @property
    def cell(self) -> tuple[str, ...]:
        """The columns that the cell of a unit follows from."""
        return (self.arm,) if self.cluster is None else (self.cluster, self.arm)

    @property
    def secret(self) -> tuple[str, ...]:
        """Columns that nothing public may be made of: ids, and all that is secret."""
        private = (self.cluster,) if self.private_cluster and self.cluster else ()
        return (self.unit, *self.outcomes, *self.covariates, *private)

    @property
    def secrets(self) -> tuple[str, ...]:
        """What no column may reveal: the outcomes, covariates, and a private cluster."""
        return self.secret[1:]

    @property
    def counted(self) -> tuple[str, ...]:
        """What outcomes are counted by: ids, cells, breakdowns; outcomes and covariates."""
        cut_by = (name for names in self.breakdowns for name in names)
        held = (*self.outcomes, *self.covariates)
        return tuple(dict.fromkeys((self.unit, *self.cell, *cut_by, *held)))

    @property
    def n_questions(self) -> int:
        """How many questions outcomes are released in; each has a channel of its own."""
        return len(self.question_names) or 1

    @property
    def ordering(self) -> tuple[str, ...]:
        """Columns published unchanged, next to cells: an order by them is public."""
        return tuple(name for name in self.shown if name not in {self.unit, *self.cell})

    @property
    def debiased(self) -> tuple[str, ...]:
        """The published columns of debiased outcomes.

        An outcome that may be missing has two: the outcome times whether it was observed, which is
        0 where it is missing; and whether it was observed, after all outcomes.
        """
        return debiased_names(self.outcomes, self.missing)

    @property
    def published(self) -> tuple[str, ...]:
        """All columns of published rows, in their order."""
        fold = (FOLD,) if self.folds > 1 else ()
        question = (QUESTION,) if self.question_names else ()
        return (*self.public, *fold, *question, RESPONSE, *self.debiased)

    @property
    def parts(self) -> dict[str, str]:
        """Every column that is read, with the part it plays."""
        cluster = PRIVATE_CLUSTER if self.private_cluster else "cluster"
        if self.true_cluster is not None:
            cluster = f"noisy clusters of {self.true_cluster}"
        named = {self.cluster: cluster, self.randomization_unit: "randomization unit"}
        return {
            self.unit: "unit",
            self.arm: "arm",
            **{name: part for name, part in named.items() if name is not None},
            **dict.fromkeys(self.outcomes, "outcome"),
            **dict.fromkeys(self.covariates, "covariate"),
            **dict.fromkeys(self.kept, "passthrough"),
            **{name: "breakdown" for names in self.breakdowns for name in names},
        }


def question_suffixes(n_questions: int) -> tuple[str, ...]:
    """What the columns of each question end with; nothing where there is one question."""
    return ("",) if n_questions == 1 else tuple(f"_{place}" for place in range(1, n_questions + 1))


def question_name(outcomes: Sequence[str]) -> str:
    """What a question is called."""
    return "+".join(outcomes)


def question_names(outcomes: Sequence[tuple[str, ...]]) -> tuple[str, ...]:
    """What questions are called, from the outcomes of each; nothing where there is one question."""
    return () if len(outcomes) == 1 else tuple(map(question_name, outcomes))


def debiased_names(outcomes: tuple[str, ...], missing: tuple[str, ...]) -> tuple[str, ...]:
    """The published columns of some outcomes, of which some may be missing."""
    values = (f"{name}{TIMES_OBSERVED}" if name in missing else name for name in outcomes)
    observed = (f"{name}{OBSERVED}" for name in missing)
    return tuple(f"{name}_debiased" for name in (*values, *observed))


Rule = Literal["sum", "mean", "max", "any"]
# The rules, with what each makes of a unit's values. Missing values are left out; a unit with no
# other has no outcome.
RULES = {
    "sum": "the sum",
    "mean": "the mean",
    "max": "the largest",
    "any": "1 if one of them is not 0, else 0",
}
# The rule of a private cluster: the value that all rows of a unit have; missing if they differ.
COMMON = "common"


def parse_aggregates(texts: Iterable[str], outcomes: tuple[str, ...]) -> dict[str, str]:
    """The rule of every outcome, from `spend=sum`, or from `sum` for all that have none.

    Raises:
        ParameterError: If a rule or an outcome is unknown, or an outcome has no rule.
    """
    rules: dict[str, str] = {}
    for text in texts:
        name, found, rule = text.rpartition("=")
        if rule.strip() not in RULES:
            raise ParameterError(
                f"aggregate must be NAME=RULE with one of {', '.join(RULES)} (spend=sum), got "
                f"{text!r}"
            )
        if found and name.strip() not in outcomes:
            raise ParameterError(
                f"aggregate: there is no outcome {name.strip()!r}; the outcomes are "
                f"{', '.join(map(repr, outcomes))}"
            )
        rules[name.strip()] = rule.strip()
    default = rules.pop("", None)
    without = [name for name in outcomes if name not in rules]
    if rules and default is None and without:
        raise ParameterError(
            f"aggregate has no rule for {without[0]!r}; give every outcome one, such as "
            f"{without[0]}=sum"
        )
    if default is None:
        return rules
    return {name: rules.get(name, default) for name in outcomes}


def aggregation_notes(aggregates: Aggregates, unit: str = "unit") -> tuple[str, ...]:
    """What a reader of the release should know."""
    if not aggregates:
        return ()
    each = ", ".join(f"{name} ({rule})" for name, rule in aggregates.items())
    return (f"Several rows of {with_article(unit)} were combined into one: {each}.",)
