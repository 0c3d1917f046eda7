"""The paper's formulas, and releases drawn from counts, to check them and to predict with them."""
