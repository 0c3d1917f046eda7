"""The analyst's half.

Effects with intervals from a release, overall and in segments. It uses nothing of the owner's half.
"""
