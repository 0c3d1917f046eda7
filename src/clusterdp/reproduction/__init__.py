"""The paper's seven experiments, with a verdict for every claim: `clusterdp reproduce`."""
