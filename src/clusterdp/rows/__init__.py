"""One batch of rows.

Its columns as codes, its checks, its randomness, and its randomized rows. Nothing here depends on
where rows come from or go to.
"""
