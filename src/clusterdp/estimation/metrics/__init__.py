"""What can be estimated: means, ratios, shares, quantiles, effects on the exposed, differences."""
