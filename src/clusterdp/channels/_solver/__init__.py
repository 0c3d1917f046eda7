"""The search for a channel of least variance: a cone program whose columns are generated."""
