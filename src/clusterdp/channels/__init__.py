"""From counts to a channel, on arrays alone.

Noise, noisy statistics, priors, the channels that rows go through, and what decodes them.
"""
