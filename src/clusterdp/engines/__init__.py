"""Two passes over a table.

Count it, then randomize it. `base` says what an engine is; `local` and `spark` are engines.
"""
