"""From counts to means of arms with variances: decoding, calibration, adjustment."""
