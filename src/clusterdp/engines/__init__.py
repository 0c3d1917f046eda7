"""Two passes over a table.

Count it, then randomize it. `base` defines what an engine is; `local` and `spark` are engines.
"""
