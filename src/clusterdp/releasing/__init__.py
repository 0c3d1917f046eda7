"""The owner's half.

A table in, a release out, in memory or into a folder; and the journal that lets an interrupted
release be finished.
"""
