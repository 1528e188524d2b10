"""Own the consumer of `subsetd run` as a process of its own: answers and changes do not wait for one interpreter.

The two share the state's database and nothing else. What the consumer's process has to tell goes over a socket to the
observer of the process that serves, which counts and logs it. It ends behind the batch in hand when it is told to, and
at once when the process that started it is gone.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from multiprocessing.connection import Connection
from typing import Any

from service import feed_wiring
from service.config import Settings
from service.core.errors import RecordError, SubsetdError
from service.log import configure_logging
from service.observe import ConsumerObserver
from service.server import ending_on_signals
from service.upkeep import keeping_up

ENDED = "ended"

NICE = 5
"""An answer takes a millisecond, a batch a tenth of a second or more: where processors are short, answers go first."""


class ConsumerProcessError(SubsetdError):
    """The consumer's process is gone, and did not say why."""


@contextmanager
def consumer_apart(url: str, feed: str, settings: Settings, observer: ConsumerObserver) -> Iterator[threading.Event]:
    """Run a consumer in a process of its own; gives an event that is set when it ends. Raises its error at the end."""
    ours, theirs = socket.socketpair()
    with theirs:
        process = subprocess.Popen(
            [sys.executable, "-m", __name__, str(theirs.fileno())],
            stdin=subprocess.DEVNULL,
            pass_fds=[theirs.fileno()],
            start_new_session=True,  # a terminal's signals are for us: we tell it to end
        )
    connection = Connection(ours.detach())
    with suppress(OSError):  # it may have ended, which is heard of below
        connection.send((url, feed, settings))
    ended = threading.Event()
    errors: list[BaseException] = []

    def hear() -> None:
        try:
            while (told := connection.recv())[0] != ENDED:
                getattr(observer, told[0])(*told[1:])
            errors.extend(told[1:])
        except (EOFError, OSError):
            code = process.wait()
            by = f"by signal {-code} ({signal.strsignal(-code)})" if code < 0 else f"with exit code {code}"
            errors.append(
                ConsumerProcessError(
                    f"The consumer's process ended {by}. Nothing that was committed is lost, the feed has the rest: "
                    "start again; where memory was short (signal 9), lower SUBSETD_CACHE_BYTES."
                )
            )
        finally:
            ended.set()

    hearing = threading.Thread(target=hear, name="subsetd-consumer")
    hearing.start()
    try:
        yield ended
    finally:
        with suppress(OSError):
            connection.send(None)
        hearing.join()
        process.wait()
        connection.close()
    if errors:
        raise errors[0]


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


def main() -> int:
    """Be the consumer's process, at the other end of the socket that the command line names."""
    os.nice(NICE)
    connection: Connection[Any, Any] = Connection(int(sys.argv[1]))
    url, feed, settings = connection.recv()
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
            with keeping_up(url, settings):
                consumer.run(stop)
        except RecordError as error:
            told.append(RecordError(str(error)))  # its own kinds hold what cannot be handed over
        except SubsetdError as error:
            told.append(error)
    teller.tell(ENDED, *told)
    return 0


if __name__ == "__main__":
    sys.exit(main())
