"""What things cost: exact (ε, δ) of one release, and of several together."""
