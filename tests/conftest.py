"""Own what every test may ask for: a database, a broker."""

from __future__ import annotations

from hypothesis import settings

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

# No test asserts a time, and the first call of a compiled function takes long.
settings.register_profile("subsetd", deadline=None)
settings.load_profile("subsetd")
