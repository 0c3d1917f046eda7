"""Every method that is compared, with its promise beside it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final

import numpy as np

from bench.peers import (
    binned_sums,
    disobedience,
    forced_response,
    library_response,
    local_laplace,
    ours,
    private_boosting,
    subsample_aggregate,
)
from bench.peers.given import RowsGiven
from bench.peers.promise import (
    CENTRAL,
    LOCAL,
    LOCAL_WITH_ARM,
    RECORD,
    RECORD_OF_ARM,
    TRUE_ROWS,
    Promise,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from bench.peers.given import Given
    from bench.peers.trial import Sample

DISOBEYING = 0.1
ANY = "any, also later"
ONE = "one"
ROWS = "one noisy number per person"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Method:
    """One row of the tables.

    Attributes:
        name: As it is called on the page.
        promise: What ε means.
        released: What leaves the trusted side.
        questions: How many an analyst can ask.
        release: From a sample, ε and a generator to what the analyst is given.
        slow: Whether a release takes seconds, so that fewer are made.
    """

    name: str
    promise: Promise
    released: str
    questions: str
    release: Callable[[Sample, float, np.random.Generator], Given]
    slow: bool = False


def true_rows(sample: Sample, epsilon: float, rng: np.random.Generator) -> RowsGiven:  # noqa: ARG001
    """What there is to know without privacy."""
    values = sample.outcomes.astype(np.float64)
    return RowsGiven(values=values, arms=sample.arms, features=sample.features)


def _local(name: str, release: Callable[..., Given], *, slow: bool = False) -> Method:
    return Method(
        name=name, promise=LOCAL, released=ROWS, questions=ANY, release=release, slow=slow
    )


def _library(name: str, respond: library_response.Respond, *, slow: bool = False) -> Method:
    return _local(name, partial(library_response.release, respond=respond), slow=slow)


def _ours(name: str, purpose: str | None) -> Method:
    return Method(
        name=name,
        promise=CENTRAL,
        released="rows, noisy sums, channels",
        questions=ANY,
        release=partial(ours.planned, optimize_for=purpose),
    )


def _bins(n_bins: int) -> Method:
    return Method(
        name=f"ADUM (Betlei et al.), {n_bins} bins",
        promise=CENTRAL,
        released="noisy sums of bins and arms",
        questions="those that bins answer",
        release=partial(binned_sums.release, n_bins=n_bins),
    )


NO_PRIVACY: Final = Method(
    name="true rows", promise=TRUE_ROWS, released="everything", questions=ANY, release=true_rows
)
FORCED: Final = _local("forced response (Kancharla & Kang)", forced_response.one_device)
FORCED_DISOBEYED: Final = _local(
    f"forced response, {DISOBEYING:.0%} disobey",
    partial(forced_response.one_device, disobeying=DISOBEYING),
)
TWO_DEVICES: Final = _local(
    f"two devices (Kancharla & Kang), {DISOBEYING:.0%} disobey",
    partial(disobedience.two_devices, disobeying=DISOBEYING),
)
LAPLACE: Final = _local("Laplace terms (Ohnishi & Awan), arms public", local_laplace.outcome_alone)
LAPLACE_WITH_ARM: Final = Method(
    name="Laplace terms (Ohnishi & Awan)",
    promise=LOCAL_WITH_ARM,
    released=ROWS,
    questions=ANY,
    release=local_laplace.arm_and_outcome,
)
PURE_LDP: Final = _library("pure-ldp", library_response.pure_ldp)
MULTI_FREQ: Final = _library("multi-freq-ldpy", library_response.multi_freq_ldpy)
OPENDP: Final = _library("OpenDP", library_response.opendp, slow=True)
ONE_CLUSTER: Final = Method(
    name="noisy Horvitz–Thompson, one cluster",
    promise=CENTRAL,
    released="one noisy number",
    questions=ONE,
    release=ours.one_cluster,
)
FEW_BINS: Final = _bins(16)
MANY_BINS: Final = _bins(64)
OURS: Final = _ours("clusterdp, default plan", None)
OURS_OVERALL: Final = _ours("clusterdp, planned for the overall effect", "overall")
OURS_SEGMENTS: Final = _ours("clusterdp, planned for segments of 10%", "segments:0.1")
OURS_BINS: Final = Method(
    name="clusterdp, 16 bins as clusters",
    promise=CENTRAL,
    released="rows, noisy sums, channels",
    questions=ANY,
    release=partial(ours.with_bins, n_bins=16),
)
SUBSAMPLED: Final = Method(
    name="subsample and aggregate (Guha & Reiter)",
    promise=RECORD,
    released="two noisy numbers",
    questions=ONE,
    release=subsample_aggregate.release,
)
BOOSTED: Final = Method(
    name="DP-EBM, one per arm (Niu et al.)",
    promise=RECORD_OF_ARM,
    released="two models",
    questions="those that models answer",
    release=private_boosting.release,
    slow=True,
)
METHODS: Final = (
    FORCED,
    FORCED_DISOBEYED,
    TWO_DEVICES,
    LAPLACE,
    PURE_LDP,
    MULTI_FREQ,
    OPENDP,
    LAPLACE_WITH_ARM,
    ONE_CLUSTER,
    FEW_BINS,
    MANY_BINS,
    OURS,
    OURS_OVERALL,
    OURS_SEGMENTS,
    OURS_BINS,
    SUBSAMPLED,
    BOOSTED,
    NO_PRIVACY,
)
