"""Own what watches are outside of their rules: channels, alerts, silences, announced loads, and who keeps them."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any, NamedTuple, Protocol
from uuid import UUID

from service.core.watch_rules import Rule, WatchError, matches

MOST_ATTEMPTS = 16
"""How often an alert is tried to be delivered, over some three quarters of an hour; then it is given up."""


class ChannelKind(StrEnum):
    """Name how an alert goes out."""

    WEBHOOK = "webhook"
    SLACK = "slack"
    EMAIL = "email"
    KAFKA = "kafka"


@dataclass(frozen=True, slots=True)
class Channel:
    """Say where alerts go: a `url` (webhook, slack), addresses `to` (email), or a `topic` (kafka).

    A url may be a secret itself, as Slack's are; the `secret` signs what goes to a webhook.
    """

    kind: ChannelKind
    url: str | None = None
    to: tuple[str, ...] = ()
    topic: str | None = None
    secret: str | None = None


class AlertKind(StrEnum):
    """Tell why an alert was made."""

    FIRED = "fired"
    RESOLVED = "resolved"
    TEST = "test"


class AlertState(StrEnum):
    """Name where an alert is: on its way, or at one of its three ends."""

    PENDING = "pending"
    DELIVERED = "delivered"
    FAILED = "failed"
    SILENCED = "silenced"


@dataclass(frozen=True, slots=True)
class NewWatch:
    """Hold a watch as it is asked for; `debounce` are seconds that something has to stand before it is told."""

    name: str
    rule: Rule
    channel: Channel
    debounce: float
    tell_resolved: bool
    with_values: bool
    created_by: str


@dataclass(frozen=True, slots=True)
class Watch:
    """Hold a watch; `bad` counts its subjects that are told to be bad, `seen_version` is up to where it looked."""

    watch_id: int
    name: str
    rule: Rule
    channel: Channel
    debounce: float
    tell_resolved: bool
    with_values: bool
    created_by: str
    created_at: datetime
    seen_version: int
    bad: int


@dataclass(frozen=True, slots=True)
class Alert:
    """Hold an alert as the history has it; `delivery_id` is what its receiver knows it by, at each attempt."""

    alert_id: int
    delivery_id: UUID
    watch_id: int | None
    watch: str
    kind: AlertKind
    version: int
    created_at: datetime
    body: Mapping[str, Any]
    state: AlertState
    attempts: int
    fault: str | None
    ended_at: datetime | None


@dataclass(frozen=True, slots=True)
class Silence:
    """Hold a silence of a watch, or of all that a pattern matches: names of watches, or of columns."""

    silence_id: int
    watch_id: int | None
    pattern: str | None
    until: datetime
    reason: str
    created_by: str
    created_at: datetime
    is_active: bool

    def covers(self, watch_id: int, *names: str) -> bool:
        """Tell whether it silences a watch, or what has one of these names."""
        of_names = self.pattern is not None and any(matches(self.pattern, name) for name in names)
        return self.watch_id == watch_id or of_names


@dataclass(frozen=True, slots=True)
class Load:
    """Hold an announced load of a table, or of all tables of a schema (`table` is None), which watches wait for.

    One `until_loaded` ends with the bootstrap of its source, when somebody says so, or at `until`.
    """

    load_id: int
    schema: str
    table: str | None
    until: datetime
    until_loaded: bool
    created_by: str
    created_at: datetime
    is_active: bool


class DeliveryHealth(NamedTuple):
    """Count what does not go out: alerts that are tried again, and those given up within a day."""

    retried: int
    given_up: int
    fault: str | None


class Watches(Protocol):
    """Keep watches, their history, silences and announced loads. Every method may raise `StateError`."""

    def add(self, watch: NewWatch) -> Watch:
        """Add a watch, which looks from the present version on; raise ConflictError when its name is taken."""

    def replace(self, watch_id: int, watch: NewWatch) -> Watch:
        """Put another in its place, with its id; without a secret it keeps its own, if its channel is of one kind."""

    def remove(self, watch_id: int) -> None:
        """Forget a watch; what of it was not delivered has failed. Raise NotFoundError when there is none."""

    def all(self, after: int, limit: int) -> list[Watch]:
        """List watches by (watch_id)."""

    def get(self, watch_id: int) -> Watch:
        """Find a watch; raise NotFoundError when there is none."""

    def test(self, watch_id: int) -> Alert:
        """Let a watch send an alert that says it is a test."""

    def alerts(self, watch_id: int | None, state: AlertState | None, before: int | None, limit: int) -> list[Alert]:
        """List alerts, newest first: by descending (alert_id), those below `before`."""

    def alert(self, alert_id: int) -> Alert:
        """Find an alert; raise NotFoundError when there is none."""

    def silence(self, watch_id: int | None, pattern: str | None, until: datetime, reason: str, by: str) -> Silence:
        """Let a watch, or all that a pattern matches, be silent until a time."""

    def silences(self) -> list[Silence]:
        """List silences: all in force, and behind them the last that were; of each the newest first."""

    def end_silence(self, silence_id: int) -> None:
        """End a silence now; raise NotFoundError when there is none in force."""

    def announce(self, schema: str, table: str | None, until: datetime, until_loaded: bool, by: str) -> Load:
        """Let watches wait for a load; raise NotFoundError when no such table is followed."""

    def loads(self) -> list[Load]:
        """List announced loads: all in force, and behind them the last that were; of each the newest first."""

    def end_load(self, load_id: int) -> None:
        """Say that a load has ended; raise NotFoundError when there is none in force."""

    def health(self) -> DeliveryHealth:
        """Tell what does not go out."""

    def uses_of(self, topic: str) -> Sequence[tuple[str, str | None]]:
        """Say of a topic that a feed has, or that transitions are sent to, what it is, and its address if known."""


def own_topic(topic: str, use: str) -> WatchError:
    """Refuse to send alerts to a topic that this service itself reads or writes."""
    return WatchError(
        f"The topic {topic} is {use}: whoever reads it would take alerts for records. Give alerts a topic of their own."
    )


class ChannelError(Exception):
    """An alert did not go out; `is_final` when trying again would do no better. The message names no secret."""

    def __init__(self, message: str, *, is_final: bool = False) -> None:
        super().__init__(message)
        self.is_final = is_final


class Channels(Protocol):
    """Send alerts to the outside."""

    def check(self, channel: Channel) -> None:
        """Raise WatchError for a channel that this service cannot use, as the settings are."""

    def refuse(self, topic: str, uses: Iterable[tuple[str, str | None]]) -> None:
        """Raise WatchError for a topic of which one of the uses (what for, address) may be in the alerts' cluster."""

    def send(self, channel: Channel, alert: Alert) -> None:
        """Send an alert and wait until it is taken, for some seconds at most; raise ChannelError when it is not."""

    def close(self) -> None:
        """Release connections."""


class Outbox(Protocol):
    """Keep what is to be delivered. Every method may raise `StateError`."""

    def pending(self, begun: Collection[int]) -> Sequence[tuple[Alert, Channel]]:
        """List the oldest alert of each watch that is on its way, those tried least often first.

        What a silence has come over since is not among them, unless an attempt at it has `begun`.
        """

    def delivered(self, alert_id: int) -> None:
        """Remember that an alert was taken."""

    def failed(self, alert_id: int, fault: str, *, is_given_up: bool) -> None:
        """Remember that an attempt failed, and whether it was the last."""
