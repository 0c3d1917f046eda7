"""The figure of a plan: what cannot be told apart is drawn once, under all of its names."""

from __future__ import annotations

from clusterdp.planning.figure import _merged
from clusterdp.planning.trade_off import Curve

EPSILONS = (1.0, 2.0)


def test_curves_that_are_the_same_share_a_line() -> None:
    curves = [
        Curve("one", EPSILONS, (1.0, 0.5)),
        Curve("other", EPSILONS, (1.0, 0.7)),
        Curve("chosen", EPSILONS, (1.01, 0.501)),
    ]
    drawn = _merged(curves, "chosen")
    assert [one.names for one in drawn] == [("chosen", "one"), ("other",)]
    assert drawn[0].curve == curves[2]
