"""A second opinion on ε: what the integers of a published folder cost, by enumeration.

Nothing here is shared with the code that designed a release or stated its ε: a test holds that
these modules import none of it. Read them in this order:

outcomes.py   which outcome combinations exist, and what each adds to every published sum
losses.py     how much the odds of two combinations change by each published part, and by all
folder.py     what a folder publishes, as numbers: its manifest and three tables
"""
