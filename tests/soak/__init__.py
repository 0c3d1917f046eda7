"""Faults and load, measured. `make soak` runs all of it; the tests run a short version of each."""
