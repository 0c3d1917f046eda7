"""An estimate as people hold it: its numbers, conversions to tables, text, pages and figures."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from clusterdp._text import plain_text
from clusterdp.document.text import terminal_width
from clusterdp.errors import ParameterError
from clusterdp.estimation.effects.effect import Effect, segment_label
from clusterdp.estimation.effects.findings import Findings
from clusterdp.estimation.report.screen import estimate_text

if TYPE_CHECKING:
    import pandas as pd
    import polars as pl
    from matplotlib.figure import Figure


class Estimate(Findings):
    """Effects of every arm against control, the overall ones first.

    With one treatment arm, `effect`, `std_error` and `ci` are those of its overall effect. Other
    effects are selected by metric, arm and segment: `estimate["visit"]`, `estimate["B"]`,
    `estimate["visit", "B", "tier=gold"]`. Any library that reads Arrow streams reads an estimate as
    a table. `Findings` lists its attributes.
    """

    __slots__ = ()

    def __getitem__(self, key: Any) -> Effect:
        """The effect of a metric, an arm, a segment (`effect.of.label`), or of several of these."""
        parts = key if isinstance(key, tuple) else (key,)
        found = [effect for effect in self.effects if effect.of.is_named_by(parts)]
        if len(found) != 1:
            raise KeyError(self._why_not(key, found))
        return found[0]

    @property
    def effect(self) -> float:
        """The overall effect of the only treatment arm."""
        return self._only().effect

    @property
    def std_error(self) -> float:
        """The standard error of the only treatment arm's overall effect."""
        return self._only().std_error

    def ci(self, level: float = 0.95) -> tuple[float, float]:
        """The confidence interval of the only treatment arm's overall effect."""
        return self._only().ci(level)

    def to_dict(self) -> dict[str, Any]:
        """Everything as plain values, ready for JSON when labels are."""
        return {
            "metrics": list(self.metrics),
            "treatment": self.treatment,
            "estimator": self.estimator,
            "mechanism": self.mechanism,
            "epsilon": self.guarantee.epsilon if self.guarantee else None,
            "delta": self.guarantee.delta if self.guarantee else None,
            "effects": [effect.to_dict(self.level) for effect in self.effects],
            "heterogeneity_tests": [test.to_dict() for test in self.tests],
            "distributions": [row for one in self.distributions for row in one.to_rows()],
            "lee_bounds": [one.to_dict() for one in self.bounds],
            "verdicts": [one.to_dict() for one in self.verdicts],
            "best_arm": [one.to_dict() for one in self.best],
            "adjusted_for": list(self.adjusted_for),
            **({"owner_covariates": dict(self.owner_covariates)} if self.owner_covariates else {}),
            "family": list(self.family),
            "checks": [check.to_dict() for check in self.checks],
            "warnings": list(self.warnings),
            "notes": list(self.notes),
            "method": list(self.method),
        }

    def to_rows(self) -> list[dict[str, Any]]:
        """One flat row per effect: the segment in words, and a column for each dimension.

        A column that has the name of one of ours is called `segment_NAME`.
        """
        rows = []
        for effect in self.effects:
            numbers, values = effect.to_dict(self.level), dict(effect.of.segment)
            words = {"segment": segment_label(effect.of.segment)}
            cut = {
                f"segment_{name}" if name in numbers else name: values.get(name)
                for name in self.segment_columns
            }
            rows.append({**words, **cut, **numbers, **words})
        return rows

    def to_polars(self) -> pl.DataFrame:
        """One row per effect, as a Polars frame."""
        import polars as pl

        return pl.DataFrame(self.to_rows(), infer_schema_length=None)

    def to_pandas(self) -> pd.DataFrame:
        """One row per effect, as a pandas frame."""
        import pandas as pd

        return pd.DataFrame(self.to_rows())

    def plot(self, path: str | Path | None = None) -> Figure:
        """A forest plot, which notebooks show; written to a .svg, .png or .pdf file if asked."""
        from clusterdp.estimation.report.forest import forest_plot

        return forest_plot(self, path)

    def to_html(self) -> str:
        """A page to share: a whole, self-contained document."""
        from clusterdp.estimation.report.document import report_page

        return report_page(self)

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        return self.to_polars().__arrow_c_stream__(requested_schema)

    def __repr__(self) -> str:
        return plain_text(estimate_text(self, terminal_width()), "\n")

    def _repr_html_(self) -> str:
        from clusterdp.estimation.report.document import notebook_part

        return notebook_part(self)

    def _why_not(self, key: Any, found: list[Effect]) -> str:
        named = {
            "metrics": (effect.of.metric for effect in found or self.effects),
            "arms": (effect.of.arm for effect in found or self.effects),
            "segments": (effect.of.label for effect in found or self.effects),
        }
        listed = {kind: list(dict.fromkeys(map(repr, each))) for kind, each in named.items()}
        if found:
            several = {kind: each for kind, each in listed.items() if len(each) > 1}
            has = "; ".join(f"several {kind} ({', '.join(each)})" for kind, each in several.items())
            parts = map(repr, key if isinstance(key, tuple) else (key,))
            example = ", ".join([*parts, *(each[0] for each in several.values())])
            return f"{key!r} has {has}; name one too: estimate[{example}]"
        known = "; ".join(f"the {kind} are {', '.join(each)}" for kind, each in listed.items())
        return f"no effect of {key!r}; {known}"

    def _only(self) -> Effect:
        overall = [effect for effect in self.effects if effect.of.label == "overall"]
        if len(overall) != 1:
            raise ParameterError(
                f"There are {len(overall)} overall effects. Fix: choose one with "
                "estimate[metric], estimate[arm] or estimate[metric, arm]."
            )
        return overall[0]
