"""Array types shared by every stage.

Axes are named where an array is made. A leading ``...`` stands for replicates: the same functions
serve one release and thousands of simulated ones.
"""

from typing import Any

import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]
WordArray = npt.NDArray[np.uint64]
BoolArray = npt.NDArray[np.bool_]
# Codes index an axis; their width depends on how long the axis is.
CodeArray = npt.NDArray[np.integer[Any]]
