"""Own the adding of watches, silences and announced loads: what is refused, and in which words."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta

from service.core.watch_rules import LONGEST_DEBOUNCE, WatchError
from service.usecases.watches import Alert, Channel, Channels, Load, NewWatch, Silence, Watch, Watches

LONGEST_LOAD = timedelta(days=7)
UNTIL_LOADED = timedelta(hours=24)
"""When a load that nobody ends is over."""

LONGEST_NAME = 200


class WatchRegister:
    """Add, replace, silence; `now` is the time with its zone. Every method may raise `StateError`, `WatchError`."""

    def __init__(self, watches: Watches, channels: Channels, now: Callable[[], datetime]) -> None:
        self.watches = watches
        self._channels = channels
        self._now = now

    def add(self, watch: NewWatch) -> Watch:
        """Add a watch."""
        return self.watches.add(self._checked(watch))

    def replace(self, watch_id: int, watch: NewWatch) -> Watch:
        """Put a watch in the place of another."""
        return self.watches.replace(watch_id, self._checked(watch))

    def test(self, watch_id: int) -> Alert:
        """Let a watch send a test, if this service has its channel."""
        self._check(self.watches.get(watch_id).channel)
        return self.watches.test(watch_id)

    def silence(self, watch_id: int | None, pattern: str | None, until: datetime, reason: str, by: str) -> Silence:
        """Silence a watch, or all that a pattern matches."""
        if (watch_id is None) == (pattern is None):
            raise WatchError("A silence is of a watch, or of all that a pattern matches.")
        return self.watches.silence(watch_id, pattern, self._future(until), reason, by)

    def announce(self, schema: str, table: str | None, until: datetime | None, by: str) -> Load:
        """Announce a load that takes until a time, or (None) until its source is bootstrapped or somebody says so."""
        ends = self._now() + UNTIL_LOADED if until is None else self._future(until, LONGEST_LOAD)
        return self.watches.announce(schema, table, ends, until is None, by)

    def _future(self, until: datetime, longest: timedelta | None = None) -> datetime:
        now = self._now()
        if until.tzinfo is None:
            raise WatchError("A time needs its zone, as in 2026-11-22T14:00:00Z.")
        try:
            until = until.astimezone(UTC)  # databases know fewer zones
        except OverflowError:
            raise WatchError("There is no such time in UTC.") from None
        if until <= now:
            raise WatchError(f"The end {until.isoformat()} is past.")
        if longest is not None and until > now + longest:
            raise WatchError(f"The end {until.isoformat()} is more than {longest.days} days away.")
        return until

    def _checked(self, watch: NewWatch) -> NewWatch:
        if not 0 <= watch.debounce <= LONGEST_DEBOUNCE:
            raise WatchError(f"A watch waits from 0 to {LONGEST_DEBOUNCE:.0f} s before it tells.")
        if not 0 < len(watch.name) <= LONGEST_NAME or re.search(r"[\x00-\x1f\x7f]", watch.name):
            raise WatchError(f"The name of a watch has from 1 to {LONGEST_NAME} characters, none of them a control.")
        if re.search(r"[\x00\ud800-\udfff]", watch.channel.secret or ""):
            raise WatchError("A secret has no NUL in it, and no half of a character.")
        self._check(watch.channel)
        return replace(watch, rule=watch.rule.checked())

    def _check(self, channel: Channel) -> None:
        self._channels.check(channel)
        if channel.topic is not None:
            self._channels.refuse(channel.topic, self.watches.uses_of(channel.topic))
