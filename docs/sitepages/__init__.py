"""The site: guides that are run, notebooks made of them, formulas that are drawn.

`docs/conf.py` loads `sitepages.extension` into Sphinx. Pages are read and run without it.
"""
