"""A release, as a value and as a folder.

Its manifest, its tables of cells, its rows, its README, and the checks that need no secret. Owner
and analyst share this package.
"""
