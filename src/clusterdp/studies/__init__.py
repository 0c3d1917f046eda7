"""The paper's formulas and seven experiments, with a verdict for each claim (`reproduce`)."""
