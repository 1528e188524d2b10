"""Own what every test may ask for: a database, a broker."""

from __future__ import annotations

from tests.broker import broker, running_broker, topic
from tests.postgres import database_url, empty_database_url, followed_url, logical_server, postgres_server

__all__ = [
    "broker",
    "database_url",
    "empty_database_url",
    "followed_url",
    "logical_server",
    "postgres_server",
    "running_broker",
    "topic",
]
