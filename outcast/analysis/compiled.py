"""The seam to numba: loops over packets are compiled, cached on disk and run without the GIL."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast

import numba
import numpy as np
import numpy.typing as npt

Function = TypeVar("Function", bound=Callable[..., object])

I64 = npt.NDArray[np.int64]
I32 = npt.NDArray[np.int32]
I8 = npt.NDArray[np.int8]
U64 = npt.NDArray[np.uint64]
U32 = npt.NDArray[np.uint32]
U16 = npt.NDArray[np.uint16]
U8 = npt.NDArray[np.uint8]
Bool = npt.NDArray[np.bool_]
Array = npt.NDArray[Any]
Scalar = Any
"""A number inside compiled code: numba, not mypy, knows whether it is signed and how wide."""


def compiled(function: Function) -> Function:
    """Compiles at the first call; `python -m outcast.analysis.warm` does it ahead of time."""
    return cast(Function, numba.njit(cache=True, nogil=True)(function))
