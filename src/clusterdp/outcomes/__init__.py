"""Declared outcomes: the values they can take, which combinations exist, and what is measured.

Read `declaration.py`, then `categories.py`, then `encoding.py`.
"""
