"""Publish user-level results of randomized experiments under label differential privacy.

The data owner calls `plan`, then `publish` (a folder) or `release` (in memory); the analyst calls
`estimate` on what was released. Names are loaded when they are first used, so that importing
this package is fast. To import any part of it keeps Polars from storing rows on a disk, in every
process that holds true outcomes: the owner's, the analyst's, those of Spark's workers.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from clusterdp._version import __version__
from clusterdp.storage.spilling import keep_rows_in_memory

keep_rows_in_memory()

if TYPE_CHECKING:
    from clusterdp.auditing.folder import Audit, audit
    from clusterdp.errors import (
        ClusterDPError,
        DataError,
        FormatError,
        LedgerError,
        OutputError,
        OwnerNotice,
        ParameterError,
    )
    from clusterdp.estimation.asking import Asked, ask
    from clusterdp.estimation.calibrated_rows import calibrated_rows
    from clusterdp.estimation.effects.effect import Effect
    from clusterdp.estimation.estimate import estimate
    from clusterdp.estimation.power import Power, power
    from clusterdp.estimation.report.results import Estimate
    from clusterdp.ledger.ledger import Ledger
    from clusterdp.mechanisms.catalogue import (
        SumShares,
        cluster_dp,
        cluster_free_dp,
        noisy_histogram,
        noisy_horvitz_thompson,
        optimal,
        uniform_prior_dp,
    )
    from clusterdp.mechanisms.mechanism import Mechanism
    from clusterdp.outcomes.finite import OutcomeSpace
    from clusterdp.outcomes.number import Number
    from clusterdp.owner.answers import answer
    from clusterdp.owner.plan import Plan, plan
    from clusterdp.owner.preview import Preview
    from clusterdp.owner.publish import Published, preview, publish, release, resume
    from clusterdp.privacy.accounting import Guarantee
    from clusterdp.published.folder import read_release
    from clusterdp.published.release import Release
    from clusterdp.releasing.true_effects import estimate_without_privacy

# Where each public name is defined.
_HOMES = {
    "auditing.folder": ("Audit", "audit"),
    "errors": (
        "ClusterDPError",
        "DataError",
        "FormatError",
        "LedgerError",
        "OutputError",
        "OwnerNotice",
        "ParameterError",
    ),
    "estimation.asking": ("Asked", "ask"),
    "estimation.calibrated_rows": ("calibrated_rows",),
    "estimation.estimate": ("estimate",),
    "estimation.effects.effect": ("Effect",),
    "estimation.power": ("Power", "power"),
    "estimation.report.results": ("Estimate",),
    "outcomes.number": ("Number",),
    "outcomes.finite": ("OutcomeSpace",),
    "ledger.ledger": ("Ledger",),
    "mechanisms.catalogue": (
        "SumShares",
        "cluster_dp",
        "cluster_free_dp",
        "noisy_histogram",
        "noisy_horvitz_thompson",
        "optimal",
        "uniform_prior_dp",
    ),
    "mechanisms.mechanism": ("Mechanism",),
    "owner.answers": ("answer",),
    "owner.plan": ("Plan", "plan"),
    "owner.preview": ("Preview",),
    "owner.publish": ("Published", "preview", "publish", "release", "resume"),
    "privacy.accounting": ("Guarantee",),
    "published.folder": ("read_release",),
    "published.release": ("Release",),
    "releasing.true_effects": ("estimate_without_privacy",),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}

__all__ = [
    "Asked",
    "Audit",
    "ClusterDPError",
    "DataError",
    "Effect",
    "Estimate",
    "FormatError",
    "Guarantee",
    "Ledger",
    "LedgerError",
    "Mechanism",
    "Number",
    "OutcomeSpace",
    "OutputError",
    "OwnerNotice",
    "ParameterError",
    "Plan",
    "Power",
    "Preview",
    "Published",
    "Release",
    "SumShares",
    "__version__",
    "answer",
    "ask",
    "audit",
    "calibrated_rows",
    "cluster_dp",
    "cluster_free_dp",
    "estimate",
    "estimate_without_privacy",
    "noisy_histogram",
    "noisy_horvitz_thompson",
    "optimal",
    "plan",
    "power",
    "preview",
    "publish",
    "read_release",
    "release",
    "resume",
    "uniform_prior_dp",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME_OF:
        raise AttributeError(f"module 'clusterdp' has no attribute {name!r}")
    found = getattr(import_module(f"clusterdp.{_HOME_OF[name]}"), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
