"""Before a release, with no outcome read.

Assumptions, how ε is split, which mechanism, and what to expect.
"""
