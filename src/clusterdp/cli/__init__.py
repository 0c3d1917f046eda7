"""The command line: `release`, `inspect` and `verify` for owners, `estimate` for analysts."""
