"""The site: guides that are run, notebooks made of them, formulas without scripts of others.

`docs/conf.py` loads `sitepages.extension` into Sphinx, which the other modules know nothing of.
"""
