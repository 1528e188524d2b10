"""Who makes databases for tests goes on behind a server that was killed and started anew."""

from __future__ import annotations

from pathlib import Path

from service.store.embedded import EmbeddedPostgres
from tests.integration.test_database_crash import crash_and_start
from tests.postgres import administer


def test_databases_are_made_behind_a_server_that_was_killed(tmp_path: Path) -> None:
    with EmbeddedPostgres(tmp_path) as server:
        for name in ("before", "behind_it", "behind_another"):
            administer(server, f"create database {name} template template0")
            crash_and_start(server)
        administer(server, "drop database behind_another")
