"""Noisy statistics of cells: what may be published beside rows, or instead of them.

Each statistic is one module. It knows what it costs, how it is drawn, the columns it is published
in, how these are read back, and what it estimates.
"""
