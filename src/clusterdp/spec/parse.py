"""From what was given, by Python, by the command line or in an experiment file, to a request.

Options hold a request: `parse(request.options.to_dict()) == request`. Options that are
lists of texts have one form, as the command line gives them.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from clusterdp._lists import parse_names, parse_numbers
from clusterdp._text import shortest_decimal
from clusterdp.cells.assignment import parse_by_label, parse_positive
from clusterdp.channels.cluster_response import ClusterResponse
from clusterdp.errors import ParameterError, nearest_first, nearest_name
from clusterdp.outcomes.baseline import parse_margins
from clusterdp.outcomes.declaration import declare, parse_question
from clusterdp.outcomes.finite import OutcomeSpace
from clusterdp.outcomes.grammar import parse_metric
from clusterdp.outcomes.number import Number
from clusterdp.privacy.accounting import checked_delta
from clusterdp.spec.clusters import PrivateClusters, PublicClusters
from clusterdp.spec.columns import MOST_FOLDS, parse_aggregates
from clusterdp.spec.fields import DECLARATION, DECLARED, REQUESTED, Options
from clusterdp.spec.provenance import LONGEST, Provenance
from clusterdp.spec.purpose import BALANCED
from clusterdp.spec.request import BudgetRequest, OutcomeRequest, Request
from clusterdp.statistics.covariates import Covariate
from clusterdp.storage.folder import MOST_OF_TEXT, read_regular

if TYPE_CHECKING:
    from collections.abc import Collection

    from clusterdp.outcomes.baseline import Margin
    from clusterdp.outcomes.declaration import DeclaredOutcomes
    from clusterdp.outcomes.metric import Metric
    from clusterdp.spec.clusters import Clusters


# Options with a text for each outcome, metric or constraint.
LISTED = (
    *DECLARATION,
    "continues",
    "breakdown",
    "aggregate",
    "label_shares",
    "assignment",
    "arm_shares",
)


def as_texts(option: str, given: Any) -> Any:
    """Texts from a text, from texts, or from what was given by name; all else as it is.

    `{"visit": [0, 1]}` becomes `["visit=0,1"]`. Numbers alone, which a baseline may be, become one
    text.
    """
    if isinstance(given, str):
        return [given]
    if isinstance(given, dict):
        as_text = _BY_NAME.get(option, _as_text)
        values = {name: as_text(value) for name, value in given.items()}
        if not all(isinstance(value, str) for value in values.values()):
            return given
        return [f"{name}={value}" for name, value in values.items()]
    if option in ("breakdown", "question") and isinstance(given, list):
        return [",".join(one) if _are_texts(one) else one for one in given]
    if option == "baseline" and _are_numbers(given):
        return [_as_text(given)]
    return given


def _as_text(value: Any) -> Any:
    """A number, a list of numbers or of labels as a text; all else as it is."""
    if _is_number(value):
        return shortest_decimal(value)
    if _are_numbers(value):
        return ",".join(map(shortest_decimal, value))
    if _are_texts(value) and value:
        return ",".join(value)
    return value


def _as_parts(value: Any) -> Any:
    """The same; probabilities by arm become `email:0.3/letter:0.2`."""
    if isinstance(value, dict) and all(map(_is_number, value.values())):
        return "/".join(f"{arm}:{shortest_decimal(prob)}" for arm, prob in value.items())
    return _as_text(value)


def _as_covariate(value: Any) -> Any:
    """A covariate as `spend_before:0..500 correlation 0.7`; all else as it is."""
    if not isinstance(value, dict) or not {"column", "range"} <= set(value) <= _OF_COVARIATES:
        return value
    column, ends, correlation = value["column"], value["range"], value.get("correlation")
    if not isinstance(column, str) or not _are_numbers(ends) or len(ends) != 2:
        return value
    text = f"{column}:{'..'.join(map(shortest_decimal, ends))}"
    if correlation is None:
        return text
    return (
        f"{text} correlation {shortest_decimal(correlation)}" if _is_number(correlation) else value
    )


_OF_COVARIATES = {"column", "range", "correlation"}
# What is given by name, and is no number, list of numbers or of labels.
_BY_NAME = {"assignment": _as_parts, "covariate": _as_covariate}


def _are_texts(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(one, str) for one in value)


def _are_numbers(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(map(_is_number, value))


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


# Larger integers mean nothing to any option, and TOML has none.
_LARGEST_INTEGER = 2**63 - 1
_LONGEST_SHOWN = 80


def parse_options(given: Mapping[str, Any], where: str = "") -> Options:
    """Options from their names and values; an option that is None was not given.

    Args:
        given: The names and values.
        where: Where they were read, for messages: ` in experiment.lock`.

    Raises:
        ParameterError: If an option is unknown or of a wrong type.
    """
    named = _normalized(given, where)
    refuse_unknown(named, DECLARED, where)
    try:
        return msgspec.convert(named, Options)
    except msgspec.ValidationError as error:
        found = re.search(r"\$\.(\w+)", str(error))
        name = found[1] if found else next(iter(named))
        shown = repr(named[name])[:_LONGEST_SHOWN]
        raise ParameterError(f"{name} must be {DECLARED[name].rule}; got {shown}{where}") from None


def change_options(options: Options, given: Mapping[str, Any]) -> Options:
    """The same options, with those that are given in place of theirs."""
    return parse_options({**options.to_dict(), **_normalized(given, "")})


def refuse_unknown(given: Collection[str], known: Collection[str], where: str = "") -> None:
    """Raise a ParameterError if a name is not that of a known option."""
    for name in given:
        if name not in known:
            near = nearest_name(name, known)
            listed = f"The options are {nearest_first(name, known)}."
            meant = f"Did you mean {near}?" if near else listed
            raise ParameterError(f"there is no option {name!r}{where}. {meant}")


def _normalized(given: Mapping[str, Any], where: str) -> dict[str, Any]:
    """The options that were given, each in its one form."""
    named = {name: _plain(value) for name, value in given.items() if value is not None}
    for name, value in named.items():
        if isinstance(value, int) and abs(value) > _LARGEST_INTEGER:
            raise ParameterError(f"{name} is too large{where}: it must be at most 2**63 - 1")
    named |= {name: as_texts(name, named[name]) for name in LISTED if name in named}
    effect = named.get("mde")
    if isinstance(effect, dict) and len(effect) == 1 and _are_numbers([*effect.values()]):
        (named["mde"],) = as_texts("mde", effect)
    cluster, control = named.get("cluster"), named.get("control")
    if isinstance(cluster, list) and cluster and all(isinstance(name, str) for name in cluster):
        named["cluster"] = ",".join(cluster)
    if control is not None and not isinstance(control, str | int | float):
        named["control"] = str(control)  # a date: arms are found by the text of their labels
    return named


def _plain(value: Any) -> Any:
    """A value as TOML could hold it."""
    if isinstance(value, OutcomeSpace | Number):
        return str(value)
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if isinstance(value, np.generic | np.ndarray):
        return value.tolist()
    if isinstance(value, Mapping):
        return {name: _plain(entry) for name, entry in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(entry) for entry in value]
    return value


# Options that say nothing where clusters are public.
_OF_LABELS = ("labels", "labels_from", "label_shares", "assignment")


def parse(given: Mapping[str, Any] | Options) -> Request:
    """What was asked for, with every text read once.

    Raises:
        ParameterError: If an option is unknown, of a wrong type, or says nothing that can be done.
    """
    options = given if isinstance(given, Options) else parse_options(given)
    outcomes = None if options.outcomes is None else _outcomes(options)
    names = () if outcomes is None else outcomes.declared.names
    if options.folds is not None and not 1 <= options.folds <= MOST_FOLDS:
        raise ParameterError(
            f"folds must be 1 to {MOST_FOLDS}, got {options.folds}; 2 are enough to choose in one "
            "and estimate in the other"
        )
    kept = parse_names(options.passthrough)
    if len(set(kept)) < len(kept):
        raise ParameterError(
            f"passthrough names a column twice, got {options.passthrough!r}; name it once"
        )
    if options.within_share is not None and options.cluster is None:
        raise ParameterError(
            "within_share (--within-share) needs clusters: give cluster=... (--cluster), or "
            "leave it out"
        )
    return Request(
        options=options,
        outcomes=outcomes,
        clusters=_clusters(options),
        budget=_budget(options, names),
        target=None if options.mde is None else _target(options.mde),
        kept=kept,
        breakdowns=tuple(map(parse_names, options.breakdown or ())),
        folds=2 if options.folds is None else options.folds,
        aggregates=parse_aggregates(options.aggregate or (), names) if names else {},
        provenance=Provenance(**{name: getattr(options, name) for name in LONGEST}),
    )


def _outcomes(options: Options) -> OutcomeRequest:
    if options.baseline == []:
        raise ParameterError("baseline is empty; leave it out, or say what you expect")
    declared = declare(
        options.outcomes or (),
        constraints=options.constraint or (),
        metrics=options.metric or (),
        weights=options.weight or (),
        missing=options.missing or (),
    )
    metrics = list(map(str, declared.metrics))
    if options.primary is not None and options.primary not in metrics:
        raise ParameterError(
            f"primary must be one of the metrics, {', '.join(metrics)}; got {options.primary!r}"
        )
    named = (text.partition("=") for text in options.grids or ())
    return OutcomeRequest(
        declared=declared,
        margins=_margins(options.baseline or [], declared),
        questions=tuple(map(parse_question, options.question or ())),
        grids={name: parse_numbers(points) for name, _, points in named},
    )


def _margins(texts: list[str], declared: DeclaredOutcomes) -> dict[str, Margin]:
    """What is expected of each outcome, by name; one alone needs no name."""
    if len(texts) == 1 and "=" not in texts[0] and len(declared.names) == 1:
        return parse_margins({declared.names[0]: texts[0]}, declared.spaces)
    named = [text.partition("=")[0].strip() for text in texts]
    repeated = [name for name in named if named.count(name) > 1]
    if repeated:
        raise ParameterError(f"baseline gives {repeated[0]!r} twice; give it once")
    return parse_margins(texts, declared.margin_spaces)


def _budget(options: Options, names: Collection[str]) -> BudgetRequest:
    given = {name: getattr(options, name) for name in REQUESTED}
    given["covariates"] = _covariates(options, names)
    prior = None if options.prior is None else tuple(parse_numbers(options.prior))
    delta = checked_delta(options.delta or 0.0)
    purpose = None if options.optimize_for == BALANCED else options.optimize_for
    return BudgetRequest(**given | {"delta": delta, "prior": prior, "optimize_for": purpose})


def _covariates(options: Options, names: Collection[str]) -> tuple[Covariate, ...]:
    """The owner's covariates, each of a declared outcome."""
    found = tuple(map(Covariate.parse, options.covariate or ()))
    for one in found:
        if one.outcome not in names:
            raise ParameterError(
                f"covariate: there is no outcome {one.outcome!r}; the outcomes are "
                f"{', '.join(map(repr, names))}"
            )
        if one.outcome in (options.missing or ()):
            raise ParameterError(
                f"covariate: {one.outcome!r} may be missing, and a covariate adjusts means of all "
                "units; leave out its covariate"
            )
    if len({one.outcome for one in found}) < len(found):
        raise ParameterError("covariate gives an outcome twice; give each outcome one column")
    for name in ("private_cluster", "randomization_unit"):
        if found and getattr(options, name) is not None:
            raise ParameterError(
                f"covariate adjusts effects of arms that were assigned unit by unit, in public "
                f"clusters; leave out covariate, or {name}"
            )
    return found


def _target(given: str | float) -> tuple[Metric | None, float]:
    name, _, effect = str(given).rpartition("=")
    try:
        size = float(effect)
    except ValueError:
        raise ParameterError(f"mde must be METRIC=EFFECT (visit=0.01), got {given!r}") from None
    return parse_metric(name) if name else None, size


def _clusters(options: Options) -> Clusters:
    """What is declared of clusters; all that is said of labels must be of private ones."""
    if options.private_cluster is None:
        for name in _OF_LABELS:
            if getattr(options, name) is not None:
                raise ParameterError(
                    f"{name} applies to private clusters only. Give their part of epsilon: "
                    "private_cluster=... (epsilon under [private_clusters])"
                )
        return PublicClusters(min_cell_size=options.min_cell_size)
    options.require("cluster")
    labels = _labels(options)
    shares = (1.0,) * len(labels)
    if options.label_shares is not None:
        by_label = parse_by_label("label_shares", options.label_shares, labels)
        shares = tuple(parse_positive("label_shares", by_label[label]) for label in labels)
    assignment = None
    if options.assignment is not None:
        if options.randomization_unit is not None:
            raise ParameterError(
                "assignment applies to arms that were assigned unit by unit within clusters: leave "
                "out randomization_unit (--randomization-unit), or assignment"
            )
        if options.arm_shares is not None:
            raise ParameterError(
                "assignment declares the probabilities of arms: leave out arm_shares (--arm-shares)"
            )
        by_label = parse_by_label("assignment", options.assignment, labels)
        assignment = {label: by_label[label] for label in labels}
    return PrivateClusters(
        response=ClusterResponse.for_epsilon(labels, options.private_cluster),
        shares=shares,
        assignment=assignment,
        min_cell_size=options.min_cell_size,
    )


def _labels(options: Options) -> tuple[str, ...]:
    """The declared labels, given or from a file."""
    if (options.labels is None) == (options.labels_from is None):
        raise ParameterError(
            "private clusters need their labels, which are never read from the table. Give "
            "labels or labels_from (under [private_clusters]), and not both"
        )
    if options.labels_from is None:
        return parse_names(options.labels)
    try:
        lines = read_regular(options.labels_from, MOST_OF_TEXT).decode().splitlines()
    except (OSError, UnicodeDecodeError):
        raise ParameterError(
            "labels_from must be a text file with one label in a line; "
            f"{options.labels_from} cannot be read"
        ) from None
    return tuple(line.strip() for line in lines if line.strip())
