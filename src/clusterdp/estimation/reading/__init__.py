"""From released rows and the analyst's table to counts by segment, arm and response."""
