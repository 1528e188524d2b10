"""Own the following of a feed: sessions, one after the other, for as long as what fails may come back."""

from __future__ import annotations

import gc
import threading
import time
from collections.abc import Callable

from service.core.errors import (
    ConflictError,
    DamagedStateError,
    FeedAwayError,
    FeedError,
    FullDiskError,
    ShardAwayError,
    StateError,
)
from service.usecases.batches import Totals
from service.usecases.feed_session import BeginAnew, Session
from service.usecases.following import Following

RETRY_SECONDS = 0.5
ROOM_SECONDS = 5.0
"""How long each time until it is tried again: whoever makes room takes longer than a server that is started anew."""


class Consumer(Following):
    """Follow one feed and keep the state current, as its one writer."""

    make_session: Callable[[Following], Session] = Session

    def run(self, stop: threading.Event, until_end: bool = False) -> Totals:
        """Follow the feed until `stop` is set, or (`until_end`) until all that was there at the start is applied.

        The batch in hand is ended and committed first. A database that fails in mid-batch is tried again until
        nothing could be committed for `retry_seconds`, though there was something, but for a full disk and a shard's
        server: without `until_end` room and server are waited for as long as it takes. The state is loaded anew and the
        feed, which may be away for as long, goes on where it stands. Raises RecordError (with `ErrorPolicy.STOP`,
        everything before that record committed), FeedError, and StateError.
        """
        failing_since: float | None = None
        stood_at = 0
        has_followed = False
        while True:
            session = None
            try:
                if not self.writer.acquire(stop if has_followed else None):
                    return self.totals
                session = self.make_session(self)
                has_followed = True
                session.follow(stop, until_end)
                return self.totals
            except BeginAnew:
                failing_since = None
                self.observer.waiting(None)  # until a session reads the feed again, nobody knows what waits there
            except DamagedStateError:
                raise
            except (StateError, FeedError) as error:
                now = time.monotonic()
                if not has_followed or (session is None and isinstance(error, ConflictError)):
                    raise  # who changed the state meanwhile has made it one that is not followed in this way
                if session is not None and isinstance(error, FeedError) and not isinstance(error, FeedAwayError):
                    raise
                has_rested = session is not None and session.rested > self.retry_seconds
                if failing_since is None or has_rested or self.totals.version > stood_at:
                    failing_since, stood_at = now, self.totals.version
                waits = isinstance(error, FullDiskError | ShardAwayError) and not until_end
                if now - failing_since > self.retry_seconds and not waits:
                    raise
                self.observer.retrying(error)
                if stop.wait(ROOM_SECONDS if waits else RETRY_SECONDS):
                    raise
            finally:
                try:
                    if session is not None:
                        session.close()
                finally:
                    self.writer.close()
                # What a session and its feed leave are cycles, and a tuned collector looks at old objects hardly ever.
                session = None
                gc.collect()
