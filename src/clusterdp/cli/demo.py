"""`clusterdp demo`."""

from __future__ import annotations

from clusterdp.cli.console import reported_errors
from clusterdp.demo import main


@reported_errors()
def demo_command() -> None:
    """Try it all on a simulated experiment, into demo-output/.

    clusterdp demo
    """
    main()
