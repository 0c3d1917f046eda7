"""`python -m clusterdp` is the command `clusterdp`."""

from clusterdp.cli.app import app

app(prog_name="clusterdp")
