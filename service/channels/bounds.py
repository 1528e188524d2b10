"""Own the bound of what cannot be cut off, such as the resolution of a name: it is left to itself."""

from __future__ import annotations

import errno
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

T = TypeVar("T")


def within(seconds: float, call: Callable[[], T]) -> T:
    """Give what a call gives; raise what it raises, or TimeoutError when it takes longer, and goes on for nobody."""
    done: Future[T] = Future()

    def body() -> None:
        try:
            done.set_result(call())
        except BaseException as error:  # told to who waits
            done.set_exception(error)

    threading.Thread(target=body, name="subsetd-alert-bounded", daemon=True).start()
    try:
        return done.result(seconds)
    except TimeoutError:
        if done.done():
            raise
        raise TimeoutError(errno.ETIMEDOUT, "timed out") from None
