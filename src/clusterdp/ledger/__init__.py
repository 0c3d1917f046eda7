"""Budgets: what releases about the same people cost together, and whether one more is allowed."""
