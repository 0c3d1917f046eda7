"""Long runs: what chance and malice find in hours, tried in minutes."""
