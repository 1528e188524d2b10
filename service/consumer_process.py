"""Own the consumer of `subsetd run` as a process of its own: answers and changes do not wait for one interpreter.

The two share the state's database and nothing else. What the consumer's process has to tell goes over a pipe to the
observer of the process that serves, which counts and logs it. It ends behind the batch in hand when it is told to, and
at once when the process that started it is gone.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from multiprocessing import get_context
from multiprocessing.connection import Connection
from typing import Any

from service import feed_wiring
from service.config import Settings
from service.core.errors import RecordError, SubsetdError
from service.log import configure_logging
from service.observe import ConsumerObserver
from service.process_memory import share_one_heap
from service.signals import ending_on_signals
from service.upkeep import keeping_up

ENDED = "ended"

NICE = 5
"""An answer takes a millisecond, a batch a tenth of a second or more: where processors are short, answers go first."""

# What both need is loaded once, which is half of the time that a killed `subsetd run` takes to follow again. The fork
# comes before anything runs. macOS' libraries do not bear one.
START: Any = get_context("fork" if sys.platform == "linux" else "spawn")


class ConsumerProcessError(SubsetdError):
    """The consumer's process is gone, and did not say why."""


class ConsumerProcess:
    """Hold the process of a consumer.

    It is to be made before there are threads, signal handlers and connections.
    """

    def __init__(self) -> None:
        self._connection, theirs = START.Pipe()
        self._process = START.Process(target=_main, args=(theirs, self._connection))
        self._process.start()
        theirs.close()

    def __enter__(self) -> ConsumerProcess:
        return self

    def __exit__(self, *_: object) -> None:
        self._connection.close()
        self._process.join()

    @contextmanager
    def following(self, url: str, feed: str, settings: Settings) -> Iterator[None]:
        """Let the consumer follow: it loads the state while others get ready to hear what it tells.

        In the end it has ended: behind its batch if `heard_by` told it so, or else as if it were killed.
        """
        with self:
            with suppress(OSError):  # it may have ended, which is heard of below
                self._connection.send((url, feed, settings))
            yield

    @contextmanager
    def heard_by(self, observer: ConsumerObserver) -> Iterator[threading.Event]:
        """Hear the consumer; gives an event that is set when it ends. Ends it, and raises its error, at the end."""
        ended = threading.Event()
        errors: list[BaseException] = []

        def hear() -> None:
            try:
                while True:
                    try:
                        heard, *told = self._connection.recv()
                    except (EOFError, OSError):
                        self._process.join()
                        errors.append(_ended(self._process.exitcode or 0))
                        return
                    if heard == ENDED:
                        errors.extend(told)
                        return
                    if errors:
                        continue  # it ends, and tells what it does until then
                    try:
                        getattr(observer, heard)(*told)
                    except Exception as error:
                        errors.append(error)
                        ended.set()
            finally:
                ended.set()

        hearing = threading.Thread(target=hear, name="subsetd-consumer")
        hearing.start()
        try:
            yield ended
        finally:
            with suppress(OSError):
                self._connection.send(None)
            hearing.join()
            self._process.join()
        if errors:
            raise errors[0]


def _ended(code: int) -> ConsumerProcessError:
    by = f"by signal {-code} ({signal.strsignal(-code)})" if code < 0 else f"with exit code {code}"
    return ConsumerProcessError(
        f"The consumer's process ended {by}. Nothing that was committed is lost, the feed has the rest: "
        "start again; where memory was short (signal 9), lower SUBSETD_CACHE_BYTES."
    )


class _Teller:
    """Be the consumer's observer: hand over whatever it is to hear."""

    def __init__(self, connection: Connection[Any, Any]) -> None:
        self._connection = connection
        self._lock = threading.Lock()

    def __getattr__(self, heard: str) -> Any:
        return partial(self.tell, heard)

    def tell(self, *told: object) -> None:
        with self._lock:
            self._connection.send(told)


def _main(connection: Connection[Any, Any], of_parent: Connection[Any, Any]) -> None:
    """Be the consumer's process, at the other end of the pipe of the process that serves."""
    share_one_heap()
    of_parent.close()  # or its end would never be seen
    os.setsid()  # a terminal's signals are for the other: it tells us to end
    os.nice(NICE)
    try:
        url, feed, settings = connection.recv()
    except (EOFError, OSError):
        return  # the other ended before anything was to be followed
    configure_logging(settings.log_level)
    stop = threading.Event()

    def listen() -> None:
        try:
            connection.recv()
        except (EOFError, OSError):
            os._exit(1)  # as if it had been killed with the other: what is not committed is not to be
        stop.set()

    threading.Thread(target=listen, name="subsetd-parent", daemon=True).start()
    teller: Any = _Teller(connection)
    told: list[SubsetdError] = []
    with ending_on_signals(stop.set):
        try:
            consumer = feed_wiring.make_consumer(url, feed, settings, teller)
            feed_wiring.tune_process()
            with keeping_up(url, settings, teller):
                consumer.run(stop)
        except RecordError as error:
            told.append(RecordError(str(error)))  # its own kinds hold what cannot be handed over
        except SubsetdError as error:
            told.append(error)
    teller.tell(ENDED, *told)
