"""Own the composition of what keeps watches, and of the channels that the settings have."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from functools import partial

import structlog
from prometheus_client import CollectorRegistry, Counter
from sqlalchemy import Engine

from service.channels.addresses import Network, parse_networks
from service.channels.alert_channels import AlertChannels, Topic
from service.channels.mail import MailServer
from service.channels.webhook import WebhookSender
from service.config import ConfigError, Settings
from service.store.database import make_engine
from service.store.watch_looks import PostgresLooks
from service.store.watch_outbox import PostgresAlertOutbox
from service.store.watches import PostgresWatches
from service.usecases.watch_evaluation import Evaluator
from service.usecases.watch_register import WatchRegister
from service.usecases.watch_sender import WatchSender
from service.usecases.watches import ChannelKind

log = structlog.get_logger("subsetd.watches")


def make_watches(engine: Engine, settings: Settings) -> WatchRegister:
    """Make what adds and removes watches; raise ConfigError for settings of channels that cannot be used."""
    return WatchRegister(PostgresWatches(engine), make_channels(settings), partial(datetime.now, UTC))


@contextmanager
def watch_sender(
    url: str, settings: Settings, registry: CollectorRegistry, watch_id: int | None = None
) -> Iterator[tuple[WatchSender, PostgresLooks, Engine]]:
    """Make what lets watches look, and sends what they wrote, or what one of them did, with what it works on."""
    alerts = Counter(
        "subsetd_alerts", "Alerts by channel and what became of an attempt.", ["channel", "outcome"], registry=registry
    )

    for kind in ChannelKind:  # from 0 on: a rule of Prometheus does not see how a count begins
        for outcome in ("delivered", "failed", "given up"):
            alerts.labels(kind, outcome)

    def told(channel: str, outcome: str, fault: str | None) -> None:
        alerts.labels(channel, outcome).inc()
        if fault is not None:
            log.warning("alert not delivered", channel=channel, outcome=outcome, error=fault)

    engine = make_engine(url, "subsetd watches")
    try:
        with closing(PostgresLooks(engine)) as looks:
            sender = WatchSender(
                Evaluator(looks, time.monotonic),
                PostgresAlertOutbox(engine, watch_id),
                make_channels(settings),
                time.monotonic,
                random.random,
                told=told,
                failed=lambda fault: log.error("watches do not work", error=fault),
            )
            yield sender, looks, engine
    finally:
        engine.dispose()


def make_channels(settings: Settings) -> AlertChannels:
    """Make what sends alerts; raise ConfigError for settings that cannot be used."""
    networks: list[Network] = []
    mail = None
    try:
        networks = parse_networks(settings.webhook_allow or "")
    except ValueError as error:
        raise ConfigError(f"SUBSETD_WEBHOOK_ALLOW: {error}") from error
    if settings.smtp is not None:
        if settings.smtp_from is None:
            raise ConfigError("SUBSETD_SMTP needs SUBSETD_SMTP_FROM, the address that alerts come from.")
        try:
            mail = MailServer.of(settings.smtp.get_secret_value()), settings.smtp_from
        except ValueError as error:
            raise ConfigError(f"SUBSETD_SMTP: {error}.") from None
    webhooks = WebhookSender(networks, time.time)
    return AlertChannels(
        webhooks, mail, _topics(settings.alert_broker), partial(_uses_of, settings), partial(_reaches, settings)
    )


def _uses_of(settings: Settings, topic: str) -> list[tuple[str, str]]:
    """Say for what else than alerts the settings name a topic, and where."""
    from service.stream.kafka_address import names_topic

    uses = {
        "one of a feed that is followed": settings.feed,
        "that of transitions": settings.transitions_topic,
        "that of dead letters": settings.dead_letter_topic,
    }
    return [(use, address) for use, address in uses.items() if address is not None and names_topic(address, topic)]


def _reaches(settings: Settings, address: str | None) -> bool:
    """Tell whether alerts may come to the cluster of an address."""
    from service.stream.kafka_address import may_be_one_cluster

    return settings.alert_broker is not None and may_be_one_cluster(settings.alert_broker, address)


def _topics(broker: str | None) -> Callable[[str], Topic] | None:
    if broker is None:
        return None
    from service.stream.kafka_alerts import AlertTopic

    return partial(AlertTopic, broker)
