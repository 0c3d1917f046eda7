"""Pages that open in a browser from disk: one self-contained file each, with charts and tables.

Nothing here knows what a release is. What a page says is in the templates of the packages that
write it.
"""
