"""How rows are randomized, on arrays alone.

A row rule has the parameters of the rows and their cost. It designs, from a prior, the channel that
rows go through: probabilities in integers, and what each output counts as.
"""
