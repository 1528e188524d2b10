"""A backup of a state with shards on servers is all of it, of one version; what is restored needs no server."""

from __future__ import annotations

import random
from contextlib import closing
from pathlib import Path

import pytest
from sqlalchemy import make_url

from service.core.errors import ConflictError, ShardAwayError, StateError
from service.store import migrate, shard_reading
from service.store.backup import back_up, restore
from service.store.database import connect
from service.store.embedded import EmbeddedPostgres
from service.store.shard_dealing import read_shards
from service.store.shards import ShardStore
from tests import states
from tests.following import Stream, consume, random_changes
from tests.integration.test_backup import HISTORY, INTERVALS, POSITIONS, moved_under_load, quietly
from tests.integration.test_shard_servers import OF, require_true, spread_stream, stream
from tests.integration.test_shards import Driver
from tests.integration.test_verify import findings
from tests.shard_servers import killed, spread

__all__ = ["spread_stream", "stream"]


def test_a_feed_goes_on_from_a_backup_that_was_taken_of_all_servers_under_load(
    database_url: str, empty_database_url: str, spread_stream: Stream, tmp_path: Path
) -> None:
    rng = random.Random(11)
    random_changes(spread_stream, rng, 120)
    moved_under_load(database_url, empty_database_url, spread_stream, tmp_path)
    assert [one.server for one in read_shards(empty_database_url)] == [None] * OF
    assert all(finding.holds for finding in findings(empty_database_url))
    random_changes(spread_stream, rng, 40)
    for url in (database_url, empty_database_url):
        consume(url, spread_stream, records=1)
        assert all(finding.holds for finding in findings(url)), "neither knows of the other"
    for question in (HISTORY, INTERVALS, POSITIONS):
        assert states.query(empty_database_url, question) == states.query(database_url, question)
    require_true(empty_database_url, spread_stream)
    require_true(database_url, spread_stream)


def test_what_is_restored_leaves_the_servers_to_the_state_that_has_them(
    database_url: str, empty_database_url: str, spread_stream: Stream, east_url: str, tmp_path: Path
) -> None:
    back_up(database_url, tmp_path / "state.backup")
    restore(empty_database_url, tmp_path / "state.backup", replace=False, telling=quietly)
    with pytest.raises(StateError, match=r"server 'east' \(shard 1\): It has shard 1 of another state"):
        spread(empty_database_url, OF, east=(east_url, [1]))
    require_true(empty_database_url, spread_stream)
    require_true(database_url, spread_stream)


def test_a_state_whose_server_is_lost_is_replaced_by_its_backup(
    database_url: str, spread_stream: Stream, east_server: EmbeddedPostgres, tmp_path: Path
) -> None:
    back_up(database_url, tmp_path / "state.backup")
    with killed(east_server):
        restore(database_url, tmp_path / "state.backup", replace=True, telling=quietly)
        assert [one.server for one in read_shards(database_url)] == [None] * OF
        random_changes(spread_stream, random.Random(2), 20)
        consume(database_url, spread_stream)
        require_true(database_url, spread_stream)


def test_what_was_under_way_for_the_state_before_does_not_come_into_the_one_that_is_restored(
    database_url: str, spread_stream: Stream, tmp_path: Path
) -> None:
    """The backup has the epoch of the driver that followed meanwhile."""
    random_changes(spread_stream, random.Random(4), 15)
    with Driver(database_url, spread_stream) as driver:
        back_up(database_url, tmp_path / "state.backup")
        driver.read(15)
        stale = ShardStore(driver.stores[0].place, 1 << 20), driver.parts[0]
    restore(database_url, tmp_path / "state.backup", replace=True, telling=quietly)
    with closing(stale[0]), pytest.raises(ConflictError, match="Another has become the state's writer"):
        stale[0].apply(stale[1])


def test_a_backup_does_not_wait_for_long_where_somebody_has_a_servers_locks(
    database_url: str, spread_stream: Stream, east_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All shards would wait with it: no batch begins meanwhile."""
    monkeypatch.setattr(shard_reading, "LOCK_TIMEOUT_MS", 200)
    with connect(east_url, "test") as other, other.cursor() as cursor:
        cursor.execute("set idle_in_transaction_session_timeout = '20s'; lock table gen_rec_shard_1")
        with pytest.raises(ShardAwayError, match=r"server 'east' \(shard 1\): Others were in the way"):
            back_up(database_url, tmp_path / "state.backup")
    back_up(database_url, tmp_path / "state.backup")


def test_a_backup_is_idle_at_servers_while_it_reads_the_states_own_tables(
    database_url: str, spread_stream: Stream, east_url: str, tmp_path: Path
) -> None:
    name = make_url(east_url).database
    states.execute(east_url, f'alter database "{name}" set idle_in_transaction_session_timeout = 100')
    back_up(database_url, tmp_path / "state.backup")


def test_servers_of_a_state_of_an_older_release_are_in_its_backup(
    database_url: str, empty_database_url: str, spread_stream: Stream, tmp_path: Path
) -> None:
    migrate.downgrade(database_url, "0020")
    back_up(database_url, tmp_path / "state.backup")
    restore(empty_database_url, tmp_path / "state.backup", replace=False, telling=quietly)
    require_true(empty_database_url, spread_stream)


def test_a_batch_that_was_left_half_done_is_in_no_backup(
    database_url: str, spread_stream: Stream, east_server: EmbeddedPostgres, tmp_path: Path
) -> None:
    random_changes(spread_stream, random.Random(3), 30)
    with Driver(database_url, spread_stream) as driver:
        driver.read(30)
        driver.apply([0, 2])
    with pytest.raises(StateError, match=r"server 'west' \(shard 2\) has versions .*: following ended between the two"):
        back_up(database_url, tmp_path / "state.backup")
    with killed(east_server), pytest.raises(StateError, match=r"server 'east' \(shard 1\): "):
        back_up(database_url, tmp_path / "state.backup")
    assert list(tmp_path.glob("*.backup*")) == []
    consume(database_url, spread_stream)
    back_up(database_url, tmp_path / "state.backup")
