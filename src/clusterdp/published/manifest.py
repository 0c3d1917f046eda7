"""The manifest of a published folder: what it says, and how it is read back.

The format is described in `docs/format.md`.
"""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING, Any

from clusterdp.channels.statistics import sum_noise
from clusterdp.errors import ClusterDPError, FormatError
from clusterdp.experiment.layout import find_arm
from clusterdp.experiment.outcomes import OutcomeSpace
from clusterdp.mechanisms import mechanism as mechanisms
from clusterdp.mechanisms import parts as recipes
from clusterdp.privacy.accounting import Guarantee, shown
from clusterdp.rows.encoding import Columns

if TYPE_CHECKING:
    from clusterdp.experiment.layout import Layout
    from clusterdp.mechanisms.mechanism import Mechanism
    from clusterdp.storage.files import RowOrderKind

FORMAT, FORMAT_VERSION = "clusterdp release", 3
NEIGHBOURS = "replace-one-outcome"
ROW_ORDERS = ("ids", "table")


def describe(  # noqa: PLR0913 - the parts of a release
    *,
    software: str,
    columns: Columns,
    layout: Layout,
    mechanism: Mechanism,
    guarantee: Guarantee,
    row_order: RowOrderKind,
    notes: tuple[str, ...],
) -> dict[str, Any]:
    """The manifest of a release, but for its files."""
    terms = describe_terms(columns.outcome, layout.space, mechanism, guarantee)
    return {
        "format": FORMAT,
        "format_version": FORMAT_VERSION,
        "software": software,
        "outcome": terms["outcome"],
        "columns": _describe_columns(columns),
        "arms": [plain(arm) for arm in layout.arms],
        "control": plain(layout.arms[layout.control]),
        "n_units": layout.n_units,
        "n_clusters": len(layout.clusters),
        "row_order": row_order if mechanism.releases_rows else None,
        "mechanism": terms["mechanism"],
        "guarantee": terms["guarantee"],
        "notes": list(notes),
    }


def describe_terms(
    outcome: str, space: OutcomeSpace, mechanism: Mechanism, guarantee: Guarantee
) -> dict[str, Any]:
    """What is published of an outcome and what that costs: all that is known before it is read."""
    return {
        "outcome": {
            "name": outcome,
            "values": list(space.values),
            "edges": None if space.edges is None else list(space.edges),
        },
        "mechanism": _describe_mechanism(mechanism, space),
        "guarantee": {
            "epsilon": guarantee.epsilon,
            "delta": guarantee.delta,
            "neighbours": NEIGHBOURS,
            "in_words": in_words(guarantee),
        },
    }


def what_is_public(row_order: RowOrderKind | None) -> str:
    """What is published as it is, in a sentence; without rows there is no order of rows."""
    public = {
        None: "Arms, clusters and cell sizes",
        "ids": "Ids, arms, clusters, cell sizes and kept columns",
        "table": "Ids, arms, clusters, cell sizes, kept columns and the order of the table",
    }
    return f"{public[row_order]} are published as they are."


def in_words(guarantee: Guarantee) -> str:
    """The guarantee as a sentence for people."""
    budget = f"epsilon = {shown(guarantee.epsilon)}"
    meaning = (
        "whoever knows everything else, including all other outcomes, can change the odds between "
        "any two outcomes of a person by at most a factor e^epsilon"
    )
    if guarantee.delta:
        budget += f", delta = {shown(guarantee.delta)}"
        meaning = (
            "whatever could be published becomes at most e^epsilon times likelier, plus delta, "
            "when one person's outcome is another"
        )
    return (
        "Everything in this folder, taken together, is label differentially private with "
        f"{budget}, for the replacement of one unit's outcome: {meaning}. In other words: "
        f"{guarantee.in_odds()}."
    )


def seal(manifest: dict[str, Any]) -> bytes:
    """The manifest as the bytes of its file, with a checksum of itself."""
    sealed = {**manifest, "sha256": _checksum(manifest)}
    return (json.dumps(sealed, indent=2, ensure_ascii=False) + "\n").encode()


def unseal(content: bytes) -> dict[str, Any]:
    """The manifest of a file, checked against its own checksum.

    Raises:
        FormatError: If it is no manifest, of a newer format, was edited, or says what no release
            says.
    """
    try:
        manifest = json.loads(
            content.decode(), object_pairs_hook=_without_repeats, parse_constant=_refuse_constant
        )
        json.dumps(manifest, ensure_ascii=False).encode()  # text that can be shown
    except (ValueError, RecursionError):
        raise FormatError("manifest.json is not JSON; the folder is damaged") from None
    if not isinstance(manifest, dict) or manifest.get("format") != FORMAT:
        raise FormatError("manifest.json is not the manifest of a clusterdp release")
    version = manifest.get("format_version")
    if type(version) is int and version != FORMAT_VERSION:
        remedy = "upgrade clusterdp" if version > FORMAT_VERSION else "read it with clusterdp 0.1"
        raise FormatError(
            f"the folder has format {version}, this software reads format {FORMAT_VERSION}; "
            f"{remedy}"
        )
    stated = manifest.pop("sha256", None)
    if type(version) is not int or stated != _checksum(manifest):
        raise FormatError("manifest.json was edited after it was published")
    _check_content(manifest)
    return manifest


def read_columns(manifest: dict[str, Any]) -> Columns:
    """The columns a manifest names."""
    names = manifest["columns"]
    return Columns(
        unit=names["unit"],
        arm=names["arm"],
        cluster=names["cluster"],
        outcome=manifest["outcome"]["name"],
        kept=tuple(names["kept"]),
    )


def read_space(manifest: dict[str, Any]) -> OutcomeSpace:
    """The outcome space a manifest declares."""
    outcome = manifest["outcome"]
    edges = outcome["edges"]
    return OutcomeSpace(
        values=tuple(outcome["values"]), edges=None if edges is None else tuple(edges)
    )


def read_control(manifest: dict[str, Any], arms: tuple[Any, ...]) -> int:
    """The position of the control arm."""
    return find_arm(arms, manifest["control"])


def read_mechanism(manifest: dict[str, Any]) -> Mechanism:
    """The mechanism a manifest describes, by its exact parameters."""
    described = manifest["mechanism"]
    summary = described["summary"]
    recipe: recipes.NoisyCounts | recipes.NoisyContrasts | None = None
    if summary is not None and summary["statistic"] == "counts":
        recipe = recipes.NoisyCounts(noise_scale=summary["noise_scale"], scope=summary["scope"])
    elif summary is not None:
        recipe = recipes.NoisyContrasts(epsilon=summary["epsilon"])
    rows, sums = described["rows"], described["sums"]
    delta = manifest["guarantee"]["delta"]
    recipe_of_rows: recipes.RowRecipe | None = None
    if rows is not None and "epsilon" in rows:
        recipe_of_rows = recipes.FixedDesign(epsilon=rows["epsilon"], delta=rows["delta"])
    elif rows is not None:
        recipe_of_rows = recipes.FixedResampling(resample_prob=rows["resample_prob"], delta=delta)
    prior = None if rows is None else rows.get("public_prior")
    return mechanisms.Mechanism(
        name=described["name"],
        summary=recipe,
        rows=recipe_of_rows,
        sums=None if sums is None else recipes.NoisySums(epsilon=sums["epsilon"]),
        prior_floor=None if rows is None else rows.get("prior_floor"),
        public_prior=None if prior is None else tuple(prior),
    )


def read_guarantee(manifest: dict[str, Any]) -> Guarantee:
    """The guarantee a manifest states, checked to follow from its parameters.

    Raises:
        FormatError: If the parameters cost something else.
    """
    stated = Guarantee(
        epsilon=manifest["guarantee"]["epsilon"], delta=manifest["guarantee"]["delta"]
    )
    try:
        follows = read_mechanism(manifest).guarantee(read_space(manifest))
    except ClusterDPError as error:
        raise FormatError(f"the manifest describes no mechanism of ours: {error}") from None
    if follows != stated:
        raise FormatError(f"the stated guarantee does not follow from the parameters: {follows}")
    return stated


def _check_content(manifest: dict[str, Any]) -> None:
    """Raise a FormatError unless this software could have written every part of a manifest."""
    try:
        known = _described_again(manifest)
        sound = {
            "software": isinstance(manifest["software"], str),
            "arms": _are_labels(manifest["arms"]),
            "control": canonical(manifest["control"]) in map(canonical, manifest["arms"]),
            "n_units": type(manifest["n_units"]) is int,
            "n_clusters": type(manifest["n_clusters"]) is int,
            "row_order": _is_row_order(manifest),
            "notes": _are_texts(manifest["notes"]),
            "files": all(_is_file_sum(stated) for stated in manifest["files"].values()),
        }
    except FormatError:
        raise
    except ClusterDPError as error:
        raise FormatError(f"manifest.json describes no release of ours: {error}") from None
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        raise FormatError(f"manifest.json does not hold together: {type(error).__name__}") from None
    sound |= {key: canonical(manifest[key]) == canonical(known[key]) for key in known}
    wrong = [key for key in manifest if not sound.get(key, False)]
    if wrong:
        raise FormatError(f"manifest.json does not hold together: see {wrong[0]!r}")


def _described_again(manifest: dict[str, Any]) -> dict[str, Any]:
    """What follows from a manifest's own parameters, written down anew."""
    columns, space = read_columns(manifest), read_space(manifest)
    mechanism, guarantee = read_mechanism(manifest), read_guarantee(manifest)
    terms = describe_terms(columns.outcome, space, mechanism, guarantee)
    if not _are_texts([*columns.public, columns.outcome, mechanism.name]):
        raise TypeError
    if mechanism.public_prior is not None and len(mechanism.public_prior) != space.n_outcomes:
        raise ValueError
    said = manifest["guarantee"]["in_words"]
    if isinstance(said, str):  # words for people may change
        terms["guarantee"]["in_words"] = said
    return {
        "format": FORMAT,
        "format_version": FORMAT_VERSION,
        "columns": _describe_columns(columns),
        **terms,
    }


def _is_row_order(manifest: dict[str, Any]) -> bool:
    if manifest["mechanism"]["rows"] is None:
        return manifest["row_order"] is None
    return manifest["row_order"] in ROW_ORDERS


def _are_texts(texts: Any) -> bool:
    return isinstance(texts, list) and all(isinstance(text, str) for text in texts)


def _are_labels(labels: Any) -> bool:
    plain_ones = all(isinstance(label, bool | int | float | str) for label in labels)
    return isinstance(labels, list) and plain_ones and len(labels) >= 2


def _is_file_sum(stated: Any) -> bool:
    kinds = {name: type(value) for name, value in stated.items()}
    return kinds == {"bytes": int, "sha256": str}


def _without_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object whose keys differ: of two values, readers could take either."""
    if len({key for key, _ in pairs}) < len(pairs):
        raise ValueError
    return dict(pairs)


def _refuse_constant(name: str) -> None:
    """NaN and Infinity are not JSON."""
    raise ValueError(name)


def plain(label: Any) -> Any:
    """A label as JSON can hold it."""
    return label if isinstance(label, bool | int | float | str) else str(label)


def _describe_columns(columns: Columns) -> dict[str, Any]:
    return {
        "unit": columns.unit,
        "arm": columns.arm,
        "cluster": columns.cluster,
        "kept": list(columns.kept),
    }


def _describe_mechanism(mechanism: Mechanism, space: OutcomeSpace) -> dict[str, Any]:
    summary: dict[str, Any] | None = None
    if isinstance(mechanism.summary, recipes.NoisyCounts):
        summary = {
            "statistic": "counts",
            "scope": mechanism.summary.scope,
            "noise_scale": mechanism.summary.noise_scale,
        }
    elif isinstance(mechanism.summary, recipes.NoisyContrasts):
        summary = {"statistic": "contrasts", "epsilon": mechanism.summary.epsilon}
    return {
        "name": mechanism.name,
        "summary": summary,
        "sums": _describe_sums(mechanism, space),
        "rows": _describe_rows(mechanism, space),
    }


def _describe_sums(mechanism: Mechanism, space: OutcomeSpace) -> dict[str, Any] | None:
    if mechanism.sums is None:
        return None
    noise = sum_noise(space, mechanism.sums.epsilon)
    return {
        "epsilon": mechanism.sums.epsilon,
        "unit": float(space.lattice()[0]),
        "noise_scale": noise.of_sums,
        "squares_noise_scale": noise.of_squares,
    }


def _describe_rows(mechanism: Mechanism, space: OutcomeSpace) -> dict[str, Any] | None:
    if not mechanism.releases_rows:
        return None
    if mechanism.designs_rows:
        prior, designed = mechanism.public_prior, mechanism.designed_response()
        return {
            "channel": "designed",
            "released": "numbers",
            "epsilon": designed.epsilon,
            "delta": designed.delta,
            "public_prior": None if prior is None else list(prior),
        }
    response = mechanism.response(space)
    uniform = mechanism.prior_floor is None
    return {
        "resample_prob": response.resample_prob,
        "prior_floor": None if uniform else float(response.prior_floor),
    }


def _checksum(manifest: dict[str, Any]) -> str:
    return hashlib.sha256(canonical(manifest).encode()).hexdigest()


def canonical(content: Any) -> str:
    """The text that checksums are of; two contents are the same if it is."""
    return json.dumps(content, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
