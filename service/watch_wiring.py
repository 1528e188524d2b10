"""Own the composition of what keeps watches, and of the channels that the settings have."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial

from sqlalchemy import Engine

from service.channels.addresses import Network, parse_networks
from service.channels.alert_channels import AlertChannels, Topic
from service.channels.mail import MailServer
from service.channels.webhook import WebhookSender
from service.config import ConfigError, Settings
from service.store.watches import PostgresWatches
from service.usecases.watch_register import WatchRegister


def make_watches(engine: Engine, settings: Settings) -> WatchRegister:
    """Make what adds and removes watches; raise ConfigError for settings of channels that cannot be used."""
    return WatchRegister(PostgresWatches(engine), make_channels(settings), partial(datetime.now, UTC))


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
    return AlertChannels(WebhookSender(networks, time.time), mail, _topics(settings.alert_broker))


def _topics(broker: str | None) -> Callable[[str], Topic] | None:
    if broker is None:
        return None
    from service.stream.kafka_alerts import AlertTopic

    return partial(AlertTopic, broker)
