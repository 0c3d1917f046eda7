"""What is published together, and what that costs.

A mechanism is a choice of statistics and of how rows are randomized. `catalogue` has the builders,
`draw` takes the step from true counts to what is published about cells, `settling` the one from a
pilot to what is asked.
"""
