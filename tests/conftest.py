"""Own what every test may ask for: a database."""

from __future__ import annotations

from tests.postgres import database_url, empty_database_url, postgres_server

__all__ = ["database_url", "empty_database_url", "postgres_server"]
