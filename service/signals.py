"""Own what SIGINT and SIGTERM do meanwhile."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from queue import SimpleQueue


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


@contextmanager
def ending_on_signals(end: Callable[[], object]) -> Iterator[None]:
    """Call `end` on SIGINT and SIGTERM in the place of what they did before, on a thread of its own.

    A handler runs within whatever the main thread does. If that had the lock of the event which `end` sets, because it
    begins to wait for it or sets it for an earlier signal, the two would wait for each other for ever.
    """
    came: SimpleQueue[bool] = SimpleQueue()  # of which `put` may be called within itself

    def listen() -> None:
        while came.get():
            end()

    listener = threading.Thread(target=listen, name="subsetd-signals", daemon=True)
    listener.start()
    try:
        with handling_signals(lambda _: came.put(True)):
            yield
    finally:
        came.put(False)
        listener.join()
