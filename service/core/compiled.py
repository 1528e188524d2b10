"""Own how kernels are compiled: once for each kind of arguments, then loaded from numba's cache; they hold no GIL."""

from __future__ import annotations

from collections.abc import Callable
from inspect import isfunction
from typing import Any, TypeVar, cast

import numba.np.linalg
from numba import njit
from numba.core.compiler_lock import global_compiler_lock

from service.core.kernel_turns import turn

Kernel = TypeVar("Kernel", bound=Callable[..., Any])


def kernel(function: Kernel) -> Kernel:
    """Compile a function of arrays and numbers; a division by zero raises ZeroDivisionError."""
    return cast("Kernel", _by_one_process(njit(cache=True, nogil=True)(function)))


def dividing_kernel(function: Kernel) -> Kernel:
    """Compile a function of arrays and numbers; a division by zero gives infinity or NaN, as numpy's."""
    return cast("Kernel", _by_one_process(njit(cache=True, nogil=True, error_model="numpy")(function)))


def _by_one_process(dispatcher: Any) -> Any:
    """Let one process compile a kernel or load it: who comes meanwhile finds it in numba's cache."""
    if isfunction(dispatcher):  # where NUMBA_DISABLE_JIT is set
        return dispatcher
    compile_or_load = dispatcher.compile

    def in_turn(signature: Any) -> Any:
        with global_compiler_lock, turn(f"{dispatcher.__module__}.{dispatcher.__qualname__}"):
            return compile_or_load(signature)

    dispatcher.compile = in_turn
    return dispatcher


def _without_blas() -> None:
    raise ImportError("the kernels of subsetd need no linear algebra")


# Before its first kernel numba looks whether scipy has linear algebra to compile calls of. That imports all of
# scipy.linalg, a third of a second in each process that calls a kernel, and no kernel of ours multiplies matrices.
numba.np.linalg.ensure_blas = _without_blas
