"""Studies of speed, variance and coverage, each a program. Some tests repeat parts of them."""
