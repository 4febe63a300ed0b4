"""The seam to numba: it compiles loops over packets, caches them on disk, and drops the GIL."""

from __future__ import annotations

import functools
import hashlib
import os
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, TypeVar, cast

import numpy as np
import numpy.typing as npt

from outcast import files
from outcast.errors import NoAnalysisError

try:
    import numba
    from llvmlite import ir
    from numba import types
    from numba.core.runtime import rtsys
    from numba.extending import intrinsic
except ModuleNotFoundError as error:
    raise NoAnalysisError(
        f"captures cannot be analysed, because {error.name} is missing; install outcast-testbed, "
        "and not outcast-test"
    ) from None

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
"""A number inside compiled code. Only numba knows its width and whether it is signed."""

FOLDER = "compiled-"
_PACKAGE = Path(__file__).parent
_USUAL = numba.config.CACHE_DIR
_SETTING = threading.Lock()
_LOADS_ALONE = ("0.68.",)
"""Versions of numba whose cached code is known to run without the compiler being prepared."""


def compiled(function: Function) -> Function:
    """Compiles a function at its first call; `scripts/warm.py` does it ahead."""
    kept = str(code_folder())
    # The setting is of the process, and several threads may import modules.
    with _SETTING:
        numba.config.CACHE_DIR = kept
        try:
            dispatcher = numba.njit(cache=True, nogil=True)(function)
        except RuntimeError:
            dispatcher = None
        finally:
            numba.config.CACHE_DIR = _USUAL
    cache = getattr(dispatcher, "_cache", None)
    if cache is None or not cache.cache_path.startswith(kept):
        # The folder cannot be written to, so each process compiles for itself.
        return cast(Function, numba.njit(nogil=True)(function))
    if numba.__version__.startswith(_LOADS_ALONE):
        cache.load_overload = partial(_load, cache)
    return cast(Function, dispatcher)


@functools.cache
def code_folder() -> Path:
    """The folder of machine code, named by the state of all files of the analysis.

    It is beside the modules, in the user's cache, or in NUMBA_CACHE_DIR. numba itself checks a
    function's own file alone (`_SourceFileBackedLocatorMixin` in numba/core/caching.py). So it may
    keep old code of a changed function in its callers of other files.
    """
    state = sorted(
        f"{path.relative_to(_PACKAGE)} {path.stat().st_mtime_ns} {path.stat().st_size}\n"
        for path in _PACKAGE.rglob("*.py")
    )
    name = f"{FOLDER}{hashlib.sha256(''.join(state).encode()).hexdigest()[:16]}"
    beside = _PACKAGE / "__pycache__" / name
    # Files that root makes under sudo are not writable for the user later.
    is_ours = os.access(_PACKAGE, os.W_OK) and (beside.exists() or files.caller() is None)
    return Path(_USUAL or (beside.parent if is_ours else files.cache_folder())) / name


def _load(cache: Any, signature: Any, context: Any) -> Any:
    """Loads machine code from numba's cache; None if it is not there.

    numba itself (`Cache.load_overload` in numba/core/caching.py) prepares its compiler first. That
    takes 0.25 s, half of it for scipy's BLAS. Loaded code needs only numba's runtime. Where
    nothing is in the cache, compiling prepares the compiler as ever.
    """
    rtsys.initialize(context)
    return cache._load_overload(signature, context)


@compiled
def first_at_least(values: I64, least: Scalar) -> int:
    """The index of the first of sorted values that is at least `least`.

    numpy's own search would bring scipy into every process that loads the caller's machine code.
    """
    low, high = 0, values.size
    while low < high:
        middle = (low + high) // 2
        if values[middle] < least:
            low = middle + 1
        else:
            high = middle
    return low


def _big_endian(bits: int) -> Callable[[U8, Scalar], Scalar]:
    """Returns a function that loads an unsigned big-endian word at any byte.

    It compiles to one instruction instead of one per byte. Like all compiled code it does not
    check bounds; the caller has to.
    """

    @intrinsic
    def load(typing_context: Any, data: Any, at: Any) -> Any:
        result = types.uint64 if bits == 64 else types.int64

        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            array = context.make_array(signature.args[0])(context, builder, arguments[0])
            word = ir.IntType(bits)
            place = builder.gep(array.data, [arguments[1]])
            value = builder.load(builder.bitcast(place, word.as_pointer()))
            value.align = 1
            value = builder.bswap(value)
            return value if bits == 64 else builder.zext(value, ir.IntType(64))

        return result(data, at), generate

    return cast(Callable[[U8, Scalar], Scalar], load)


load16 = _big_endian(16)
load32 = _big_endian(32)
load64 = _big_endian(64)
