"""A database that crashes, under load or for good: nothing is lost or applied twice, and the way out is told."""

from __future__ import annotations

import os
import random
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from service.config import load_settings
from service.core.errors import StateError
from service.store.embedded import EmbeddedPostgres
from service.store.migrate import upgrade
from service.store.writer import PostgresUnitOfWork, PostgresWriter
from service.wiring import state_database
from tests import states
from tests.following import Watch, consume, random_changes
from tests.integration.test_bad_input import consuming, make_stream
from tests.integration.test_verify import findings
from tests.waiting import wait_for


@pytest.fixture
def own_server() -> Iterator[EmbeddedPostgres]:
    """Give a durable server of this test alone, in a folder that its user can pass into."""
    with tempfile.TemporaryDirectory(prefix="subsetd-test-") as folder:
        server = EmbeddedPostgres(Path(folder), extra_settings={"shared_buffers": "32MB"})
        with server:
            yield server


def crash(server: EmbeddedPostgres) -> None:
    """End the server as `pg_ctl stop -m immediate` does."""
    os.kill(int((server.cluster / "postmaster.pid").read_text().split()[0]), signal.SIGQUIT)
    wait_for(lambda: not (server.cluster / "postmaster.pid").exists())


def crash_and_start(server: EmbeddedPostgres) -> None:
    """Crash the server, and start it again beside those who still count on it."""
    crash(server)
    again = EmbeddedPostgres(server.data_dir, extra_settings=server.settings)
    again.start()
    again.stop()


def test_a_database_that_crashes_under_load_again_and_again(own_server: EmbeddedPostgres, tmp_path: Path) -> None:
    url = own_server.url
    upgrade(url)
    stream = make_stream(url, tmp_path)
    random_changes(stream, random.Random(5), 1500)
    watch = Watch()
    with consuming(url, stream, watch, records=5, cache_bytes=2000) as errors:
        for crash in range(3):
            seen = len(watch.reports)
            wait_for(lambda seen=seen: len(watch.reports) > seen + 20 or errors)
            crash_and_start(own_server)
            wait_for(lambda crash=crash: len(watch.errors) > crash or errors)
    assert states.read(url) == states.expected(stream.tables)
    assert all(finding.holds for finding in findings(url))
    assert len(watch.followed) > 3
    versions = [report.version for report in watch.reports]
    assert versions == sorted(set(versions)), "no batch was told of twice"


def test_a_database_that_stays_away_is_given_up_with_its_address(own_server: EmbeddedPostgres, tmp_path: Path) -> None:
    url = own_server.url
    upgrade(url)
    stream = make_stream(url, tmp_path)
    stream.change("customers", None, ["4", "Dora"])

    watch = Watch()

    class CrashingWriter(PostgresWriter):
        def begin(self) -> PostgresUnitOfWork:
            if not watch.errors:
                crash(own_server)
            return super().begin()

    with pytest.raises(StateError, match=r"Cannot reach database 'postgres' at socket .*nothing was lost"):
        consume(url, stream, writer=CrashingWriter(url), watch=watch, retry_seconds=0.6)
    assert "was lost" in str(watch.errors[0])


def test_an_embedded_database_that_died_is_told_with_the_end_of_its_log(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("SUBSETD_DATABASE_URL", raising=False)
    with tempfile.TemporaryDirectory(prefix="subsetd-test-") as folder:
        settings = load_settings(data_dir=folder)

        def lose_the_database() -> None:
            with state_database(settings) as url:
                server = EmbeddedPostgres(Path(folder))
                crash(server)
                # The server removes its pid file before it writes the last line of its log.
                wait_for(lambda: server.log.read_text().endswith("database system is shut down\n"))
                PostgresWriter(url).acquire()

        with pytest.raises(StateError, match=rf"embedded Postgres in {folder} has ended.*\.log, says last: .+ is shut"):
            lose_the_database()
        with state_database(settings) as url:
            assert states.query(url, "select count(*) from state_version") == [(0,)], "it starts again where it was"
