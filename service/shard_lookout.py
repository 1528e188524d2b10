"""Own what looks beside a service whether the servers that have shards are there, and tells it in the overview."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

from service.core.errors import StateError
from service.feed_wiring import beside
from service.store.shard_servers import servers_away

if TYPE_CHECKING:  # loading it takes longer than a consumer that follows again may wait
    from service.api.problems import Check

LOOK_SECONDS = 10.0
"""A server is asked so often, and for some seconds at most."""


@contextmanager
def looking_for_servers(url: str, service: Any) -> Iterator[Callable[[], Check | None]]:
    """Look now and then, on a thread of its own, and let answers of the service about the state say who is away.

    Gives what tells how it stands, None where no shard is elsewhere.
    """
    lookout = Lookout(url)
    service.state.shards_away = lookout.away
    with beside(lookout.run, "subsetd-shards"):
        yield lookout.check


class Lookout:
    """Remember which servers were away when they were last looked for; nothing where the state has none."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._away: Sequence[str] | None = None

    def run(self, stop: threading.Event) -> None:
        """Look until `stop` is set."""
        while True:
            self.look()
            if stop.wait(LOOK_SECONDS):
                return

    def look(self) -> None:
        """Look once."""
        with suppress(StateError):  # the state's own database is away, which its check tells
            self._away = servers_away(self._url)

    def away(self) -> Sequence[str]:
        """Say of each server that is of no use why."""
        return self._away or ()

    def check(self) -> Check | None:
        """Tell of the servers; while one is away answers stand still, and nothing else is unready."""
        from service.api.problems import Check

        if self._away is None:
            return None
        if not self._away:
            return Check(name="shards", ok=True, detail="all servers that have shards are there")
        return Check(
            name="shards",
            ok=False,
            detail=f"{'; '.join(self._away)}. Answers stay at the last version that all shards have, and what needs "
            "values of theirs is answered with 503.",
        )
