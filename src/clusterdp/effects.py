"""The analyst's half: effects with honest intervals from a release alone."""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import NormalDist
from typing import TYPE_CHECKING, Any

import numpy as np

from clusterdp import estimators, report
from clusterdp.encoding import Columns
from clusterdp.engine import LocalTable
from clusterdp.errors import ParameterError
from clusterdp.frames import read_frame, to_polars
from clusterdp.released import count_released
from clusterdp.summary import ContrastSummary

if TYPE_CHECKING:
    from clusterdp.accounting import Guarantee
    from clusterdp.cells import Layout
    from clusterdp.estimators import Estimator
    from clusterdp.outcomes import OutcomeSpace
    from clusterdp.pipeline import Release

# Below this many units in an arm the normal approximation is doubtful, and the result says so.
_FEW_UNITS = 30


@dataclass(frozen=True, slots=True, kw_only=True)
class Effect:
    """The average effect of one arm against control.

    Attributes:
        arm: The treatment arm.
        control: The control arm.
        effect: Estimated average effect, in units of the outcome.
        std_error: Its standard error, of assignment and privacy together.
        sampling_variance: The part of the variance that sampling cost.
        privacy_variance: The part of the variance that privacy cost.
        n_treated: Units in the treatment arm.
        n_control: Units in control.
    """

    arm: Any
    control: Any
    effect: float
    std_error: float
    sampling_variance: float
    privacy_variance: float
    n_treated: int
    n_control: int

    @property
    def privacy_share(self) -> float:
        """The share of the variance that privacy cost."""
        total = self.sampling_variance + self.privacy_variance
        return self.privacy_variance / total if total else 0.0

    @property
    def p_value(self) -> float:
        """Two-sided p-value of no effect, by the normal approximation."""
        if self.std_error == 0:
            return 1.0 if self.effect == 0 else 0.0
        return math.erfc(abs(self.effect) / self.std_error / math.sqrt(2))

    def ci(self, level: float = 0.95) -> tuple[float, float]:
        """A confidence interval, by the normal approximation."""
        if not 0 < level < 1:
            raise ParameterError(f"level must lie strictly between 0 and 1, got {level}")
        reach = NormalDist().inv_cdf((1 + level) / 2) * self.std_error
        return self.effect - reach, self.effect + reach

    def to_dict(self, level: float = 0.95) -> dict[str, Any]:
        """Everything about this effect as plain numbers."""
        low, high = self.ci(level)
        return {
            "arm": self.arm,
            "control": self.control,
            "effect": self.effect,
            "std_error": self.std_error,
            "ci_level": level,
            "ci_low": low,
            "ci_high": high,
            "p_value": self.p_value,
            "sampling_variance": self.sampling_variance,
            "privacy_variance": self.privacy_variance,
            "privacy_share": self.privacy_share,
            "n_treated": self.n_treated,
            "n_control": self.n_control,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """Effects of every arm against control.

    With one treatment arm, `effect`, `std_error` and `ci` speak of it; with several, take one by
    its label: `estimate["B"].effect`. Any library that reads Arrow streams reads it as a table.

    Attributes:
        effects: One per treatment arm.
        estimator: "stratified" or "unstratified".
        source: The mechanism behind the numbers, or "true outcomes".
        guarantee: What the release cost, or None for true outcomes.
        notes: What a reader should know about these numbers.
    """

    effects: tuple[Effect, ...]
    estimator: Estimator
    source: str
    guarantee: Guarantee | None
    notes: tuple[str, ...] = ()

    def __getitem__(self, arm: Any) -> Effect:
        for effect in self.effects:
            if effect.arm == arm or str(effect.arm) == str(arm):
                return effect
        raise KeyError(arm)

    @property
    def effect(self) -> float:
        """The effect of the only treatment arm."""
        return self._only().effect

    @property
    def std_error(self) -> float:
        """The standard error of the only treatment arm's effect."""
        return self._only().std_error

    def ci(self, level: float = 0.95) -> tuple[float, float]:
        """The confidence interval of the only treatment arm's effect."""
        return self._only().ci(level)

    def to_dict(self, level: float = 0.95) -> dict[str, Any]:
        """Everything as plain values, ready for JSON when arm labels are."""
        return {
            "estimator": self.estimator,
            "source": self.source,
            "epsilon": self.guarantee.epsilon if self.guarantee else None,
            "delta": self.guarantee.delta if self.guarantee else None,
            "effects": [effect.to_dict(level) for effect in self.effects],
            "notes": list(self.notes),
        }

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        import polars as pl

        table = pl.DataFrame([effect.to_dict() for effect in self.effects])
        return table.__arrow_c_stream__(requested_schema)

    def __str__(self) -> str:
        return report.as_text(self)

    def __repr__(self) -> str:
        return report.as_text(self)

    def _repr_html_(self) -> str:
        return report.as_html(self)

    def _only(self) -> Effect:
        if len(self.effects) != 1:
            arms = ", ".join(repr(effect.arm) for effect in self.effects)
            raise ParameterError(
                f"there are {len(self.effects)} treatment arms ({arms}); take one: estimate[arm]"
            )
        return self.effects[0]


def estimate(
    release: Release, *, control: Any = None, estimator: Estimator = "stratified"
) -> Estimate:
    """Average effects from a release, each arm against control.

    Args:
        release: From `release`.
        control: The arm to compare with; the release's own by default.
        estimator: "stratified" compares within clusters and weighs them by size; "unstratified"
            compares overall means.
    """
    if estimator not in ("stratified", "unstratified"):
        raise ParameterError(f'estimator must be "stratified" or "unstratified", got {estimator!r}')
    layout = release.layout if control is None else release.layout.with_control(control)
    notes: tuple[str, ...] = ()
    if isinstance(release.summary, ContrastSummary):
        if layout.control != release.layout.control:
            raise ParameterError(
                f"{release.mechanism.name} published contrasts against "
                f"{release.layout.arms[release.layout.control]!r}; no other control is possible"
            )
        notes = ("the release does not tell sampling variance; its largest possible is charged",)
    arrays = estimators.estimate_effects(
        layout,
        estimator,
        summary=release.summary,
        channel=release.channel,
        released_counts=None if release.units is None else count_released(release),
    )
    return _to_estimate(
        arrays,
        layout,
        estimator=estimator,
        source=release.mechanism.name,
        guarantee=release.guarantee,
        notes=(*release.notes, *notes, *_layout_notes(layout, estimator)),
    )


def estimate_without_privacy(  # noqa: PLR0913 - the parts of a table, all by name
    frame: Any,
    *,
    outcomes: OutcomeSpace,
    unit: str,
    arm: str,
    cluster: str,
    outcome: str,
    control: Any = None,
    estimator: Estimator = "stratified",
    clip: bool = False,
) -> Estimate:
    """Effects from the true outcomes, for the owner's eyes: this result is not private."""
    columns = Columns(unit=unit, arm=arm, cluster=cluster, outcome=outcome)
    rows = to_polars(read_frame(frame), columns).lazy()
    table = LocalTable(rows=rows, columns=columns, space=outcomes, clip=clip)
    layout, encoder = table.read_layout(control)
    layout.check()
    counts, _ = table.count(layout, encoder)
    moments = estimators.true_moments(counts, outcomes)
    return _to_estimate(
        estimators.moment_effects(moments, layout, estimator),
        layout,
        estimator=estimator,
        source="true outcomes (not private)",
        guarantee=None,
        notes=_layout_notes(layout, estimator),
    )


def _to_estimate(  # noqa: PLR0913 - assembles one value from its parts
    arrays: estimators.EffectArrays,
    layout: Layout,
    *,
    estimator: Estimator,
    source: str,
    guarantee: Guarantee | None,
    notes: tuple[str, ...],
) -> Estimate:
    arm_sizes = layout.sizes.sum(axis=0)
    effects = []
    for position, arm in enumerate(layout.treatments):
        variance = float(arrays.variances[position])
        # An estimated part can fall outside the whole by chance; it is shown within it.
        privacy = min(max(float(arrays.privacy_variances[position]), 0.0), variance)
        effects.append(
            Effect(
                arm=layout.arms[arm],
                control=layout.arms[layout.control],
                effect=float(arrays.effects[position]),
                std_error=math.sqrt(variance),
                sampling_variance=variance - privacy,
                privacy_variance=privacy,
                n_treated=int(arm_sizes[arm]),
                n_control=int(arm_sizes[layout.control]),
            )
        )
    return Estimate(
        effects=tuple(effects),
        estimator=estimator,
        source=source,
        guarantee=guarantee,
        notes=notes,
    )


def _layout_notes(layout: Layout, estimator: Estimator) -> tuple[str, ...]:
    notes = []
    n_single = int((layout.sizes == 1).sum())
    if n_single and estimator == "stratified":
        notes.append(
            f"{n_single} cells have one unit; their variance is taken from the rest of their arm, "
            "which errs on the wide side"
        )
    if layout.sizes.sum(axis=0).min() < _FEW_UNITS:
        notes.append(f"an arm has fewer than {_FEW_UNITS} units: normal intervals are doubtful")
    shares = layout.sizes / layout.sizes.sum(axis=1, keepdims=True)
    if estimator == "unstratified" and np.ptp(shares, axis=0).max() > 1 / np.sqrt(layout.n_units):
        notes.append(
            "arms have different shares in different clusters: if assignment was by cluster, the "
            "unstratified estimate mixes the effect with differences between clusters"
        )
    return tuple(notes)
