"""What people read, and how it is drawn: tables as text, pages that open from disk, charts.

Nothing here knows what a release is. What a page says is in the templates of the packages that
write it.
"""
