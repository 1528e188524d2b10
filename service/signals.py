"""Own what SIGINT and SIGTERM do meanwhile."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager


@contextmanager
def handling_signals(handle: Callable[[int], object]) -> Iterator[None]:
    """Hand SIGINT and SIGTERM to a function, in the place of what they did before.

    On another thread than the main one, where no signal comes, nothing is changed.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {
        number: signal.signal(number, lambda given, _: handle(given)) for number in (signal.SIGINT, signal.SIGTERM)
    }
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def ending_on_signals(end: Callable[[], object]) -> AbstractContextManager[None]:
    """Call `end` on SIGINT and SIGTERM in the place of what they did before."""
    return handling_signals(lambda _: end())
