"""Estimates as text, notebook, page and figure."""
