"""Files on disk.

The names and checksums of a published folder, and folders that appear complete or not at all.
"""
