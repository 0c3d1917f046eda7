"""The command line: `plan`, `release` and `ledger` for owners, `estimate` for analysts.

Both use `inspect` and `verify`; `reproduce` repeats the paper's experiments.
"""
