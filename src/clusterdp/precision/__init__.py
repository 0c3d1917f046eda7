"""What standard errors a release can be expected to give, from public numbers alone."""
