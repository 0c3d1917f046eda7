"""A page of all parts, for tests."""
