"""Shards that move between servers: nothing is lost whoever dies, and no server keeps what it has no more."""

from __future__ import annotations

import random
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import make_url

from service.core.errors import FullDiskError, StateError
from service.store import migrate, shard_moving, shards
from service.store.backup import back_up
from service.store.database import connect, place
from service.store.embedded import EmbeddedPostgres
from service.store.shard_dealing import read_shards, set_shards
from service.store.writer import PostgresWriter
from service.store.writer_lock import take_writer_lock
from tests import states
from tests.following import Stream, consume, random_changes
from tests.integration.test_shard_servers import (
    OF,
    WAITS,
    KilledError,
    _die,
    _die_behind,
    require_true,
    spread_stream,
    stream,
)
from tests.integration.test_shards import values_of
from tests.integration.test_verify import findings
from tests.shard_servers import killed, spread
from tests.waiting import BOUND_SECONDS, wait_for

__all__ = ["spread_stream", "stream"]

FULL = """
create function is_full() returns trigger language plpgsql as $$ begin raise disk_full; end $$;
create trigger is_full before insert on gen_rec for each row execute function is_full()
"""


@contextmanager
def writing(url: str) -> Iterator[None]:
    """Be the state's writer."""
    with connect(url, "another writer") as connection:
        take_writer_lock(connection, print)
        yield


def test_shards_move_from_server_to_server_and_back(
    database_url: str, stream: Stream, east_url: str, west_url: str
) -> None:
    rng = random.Random(3)
    east, west = (east_url, [0, 2]), (west_url, [1])
    maps = [{"east": east}, {"east": east, "west": west}, {"west": (west_url, [0, 1, 2])}, {}, {"west": west}]
    for servers in maps:
        spread(database_url, OF, **servers)
        assert {one.server or "here" for one in read_shards(database_url)} == {*servers} | (
            {"here"} if sum(len(shards) for _, shards in servers.values()) < OF else set()
        )
        random_changes(stream, rng, 8)
        consume(database_url, stream, records=3)
        assert all(finding.holds for finding in findings(database_url))
    spread(database_url, 2, east=(east_url, [1]))
    random_changes(stream, rng, 8)
    consume(database_url, stream)
    require_true(database_url, stream)
    for url in (east_url, west_url):
        assert states.query(url, "select count(*) from shard union all select count(*) from gen_rec") == [(0,), (0,)]


@pytest.mark.parametrize(
    ("before", "after"),
    [((3, [1]), (4, [1])), ((4, [1, 2]), (8, [1, 2])), ((4, [1, 2]), (8, [2])), ((8, [2, 3]), (4, [1]))],
)
def test_a_server_keeps_the_number_of_a_shard_while_the_number_of_shards_changes(
    database_url: str, stream: Stream, east_url: str, before: tuple[int, list[int]], after: tuple[int, list[int]]
) -> None:
    rng = random.Random(9)
    for of, shards_of_east in (before, after):
        spread(database_url, of, east=(east_url, shards_of_east))
        assert [one.shard for one in read_shards(database_url) if one.server == "east"] == shards_of_east
        random_changes(stream, rng, 20)
        consume(database_url, stream)
        assert all(finding.holds for finding in findings(database_url))
    require_true(database_url, stream)


def test_where_a_server_does_not_fit_none_comes_home_either(
    database_url: str, stream: Stream, east_url: str, west_url: str
) -> None:
    spread(database_url, OF, east=(east_url, [1]))
    before = read_shards(database_url), states.query(database_url, "select max(version) from state_version")
    states.execute(west_url, "insert into state_version (version, generation, kind) values (1, 1, 'batch')")
    with pytest.raises(StateError, match=r"server 'west' \(shard 2\): It holds a state of its own"):
        spread(database_url, 4, east=(east_url, [1]), west=(west_url, [2]))
    assert before == (read_shards(database_url), states.query(database_url, "select max(version) from state_version"))
    require_true(database_url, stream)


def test_a_state_of_an_older_release_is_left_to_it(
    database_url: str, stream: Stream, east_url: str, west_url: str
) -> None:
    states.execute(west_url, "insert into state_version (version, generation, kind) values (1, 1, 'batch')")
    for url in (east_url, west_url):
        migrate.downgrade(url, "0020")
    with pytest.raises(StateError, match=r"server 'west' \(shard 2\): It holds a state of its own"):
        spread(database_url, OF, east=(east_url, [1]), west=(west_url, [2]))
    assert {migrate.found_revision(url) for url in (east_url, west_url)} == {"0020"}


def test_one_database_under_two_addresses_is_refused(database_url: str, stream: Stream, east_url: str) -> None:
    """The second waits for a lock of the first's at most as long as its address says."""
    again = make_url(east_url).update_query_dict({"options": "-c lock_timeout=2s"})
    with pytest.raises(StateError, match=r"server 'west' \(shard 2\): .* the database of another server, too"):
        spread(database_url, OF, east=(east_url, [1]), west=(again.render_as_string(hide_password=False), [2]))
    assert [one.server for one in read_shards(database_url)] == [None] * OF
    spread(database_url, OF, east=(east_url, [1, 2]))
    require_true(database_url, stream)


def test_an_address_without_the_shards_is_not_kept(
    database_url: str, spread_stream: Stream, east_url: str, west_url: str
) -> None:
    with pytest.raises(StateError, match=r"server 'east' \(shard 1\): "):
        spread(database_url, OF, east=(west_url, [1]))
    assert states.query(database_url, "select address from shard where server = 'east'") == [(east_url,)]
    require_true(database_url, spread_stream)


def test_an_address_without_the_shards_is_not_even_tried(
    database_url: str, spread_stream: Stream, east_url: str, west_url: str
) -> None:
    """Who follows would go there as soon as it is committed: it is looked at first, while others write the state."""
    with writing(database_url), pytest.raises(StateError, match=r"server 'east' .*: It has no shard 1 of this state"):
        spread(database_url, OF, east=(west_url, [1]))


def test_what_fails_in_the_states_own_database_is_not_said_to_be_a_servers(
    database_url: str, spread_stream: Stream
) -> None:
    states.execute(database_url, FULL)
    with pytest.raises(FullDiskError) as raised:
        spread(database_url, OF)
    assert f"The disk of {place(make_url(database_url))} is full" in str(raised.value)
    assert "server '" not in str(raised.value)


def test_a_move_that_died_can_be_begun_again(
    database_url: str, stream: Stream, east_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From one shard, whose state no server had heard of before; and back to one, which the server never heard."""
    with monkeypatch.context() as patching:
        patching.setattr(shard_moving.ShardMove, "commit", _commit_elsewhere_and_die)
        with pytest.raises(KilledError):
            spread(database_url, OF, east=(east_url, [1]))
    spread(database_url, OF, east=(east_url, [1]))
    with monkeypatch.context() as patching:
        patching.setattr(shard_moving, "drop_if_unread", _die)
        with pytest.raises(KilledError):
            spread(database_url, 1)
    assert states.query(east_url, "select shard from shard") == [(1,)]
    random_changes(stream, random.Random(1), 20)
    consume(database_url, stream)
    spread(database_url, 2, east=(east_url, [0]))
    assert states.query(east_url, "select shard from shard") == [(0,)]
    require_true(database_url, stream)


def test_a_server_that_dies_when_all_have_moved_is_told_and_the_others_drop_what_has_left(
    database_url: str, spread_stream: Stream, east_url: str, west_url: str, east_server: EmbeddedPostgres,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    said: list[str] = []
    drop_if_unread = shard_moving.drop_if_unread
    with ExitStack() as dead, monkeypatch.context() as patching:

        def drop(cursor: Any, shard: int, seconds: float) -> bool:
            if shard == 1:
                dead.enter_context(killed(east_server))
            return drop_if_unread(cursor, shard, seconds)

        patching.setattr(shard_moving, "drop_if_unread", drop)
        set_shards(database_url, OF, said.append)
        assert said[-1].startswith("Server 'east' keeps what it had of shard 1 until it is next written or sent")
    assert states.query(east_url, "select shard from shard") == [(1,)]
    assert states.query(west_url, "select shard from shard") == []
    spread(database_url, OF, east=(east_url, [2]))
    assert states.query(east_url, "select shard from shard") == [(2,)]
    require_true(database_url, spread_stream)


def test_what_is_being_read_is_left_where_it_is_for_now(
    database_url: str, spread_stream: Stream, east_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shard_moving, "DROP_SECONDS", 0.1)
    said: list[str] = []
    with connect(east_url, "test") as reader, reader.cursor() as cursor:
        cursor.execute("select 1 from gen_rec limit 1")
        set_shards(database_url, 1, said.append)
    assert said[-1] == "Server 'east' keeps the empty table of shard 1: somebody reads there."
    spread(database_url, OF, east=(east_url, [2]))
    assert states.query(east_url, "select shard from shard") == [(2,)]
    require_true(database_url, spread_stream)


def test_what_has_left_is_in_no_answer_while_it_is_still_read(
    database_url: str, stream: Stream, east_url: str, west_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One shard stays where it is and the other goes, beside a reader that reads both to its end."""
    monkeypatch.setattr(shard_moving, "DROP_SECONDS", 0.1)
    monkeypatch.setattr(shards, "DROP_SECONDS", 0.1)
    spread(database_url, OF, east=(east_url, [1, 2]))
    rng, count = random.Random(5), "select count(*) from gen_rec where cluster_id >> 32 = 2"
    random_changes(stream, rng, 60)
    consume(database_url, stream)
    with connect(east_url, "test") as reader, reader.cursor() as cursor:
        cursor.execute("set transaction isolation level repeatable read")
        cursor.execute(count)
        read = cursor.fetchone()
        spread(database_url, OF, east=(east_url, [1]), west=(west_url, [2]))
        (version,) = states.query(database_url, "select max(version) from state_version")
        assert values_of(database_url) == version[0]
        assert back_up(database_url, tmp_path / "state.backup").version == version[0]
        for _ in range(2):
            random_changes(stream, rng, 20)
            consume(database_url, stream)
            assert all(finding.holds for finding in findings(database_url))
        with closing(PostgresWriter(database_url)) as writer:
            writer.acquire()
            writer.load()
            keys, _ = writer.read_range(0, 0)
        assert len(keys.high) == len(states.expected(stream.tables).records)
        cursor.execute(count)
        assert cursor.fetchone() == read != (0,)
    assert states.query(east_url, count) == [(0,)]
    consume(database_url, stream)
    assert states.query(east_url, "select to_regclass('gen_rec_shard_2')") == [(None,)]
    require_true(database_url, stream)


def test_a_backup_that_begins_while_shards_move_ends(
    database_url: str, spread_stream: Stream, east_url: str, west_url: str, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """No two sessions wait for each other, each in another database, where no server would see it."""
    send, backups = shard_moving.ShardMove._send, ThreadPoolExecutor(1)
    under_way: list[Future[object]] = []

    def send_beside_a_backup(*given: Any) -> None:
        send(*given)
        under_way.append(backups.submit(back_up, database_url, tmp_path / "state.backup"))
        wait_for(lambda: under_way[0].done() or states.query(east_url, WAITS) == [(True,)])

    monkeypatch.setattr(shard_moving.ShardMove, "_send", send_beside_a_backup)
    spread(database_url, OF, east=(east_url, [0, 1]), west=(west_url, [2]))
    with backups:
        assert under_way[0].result(BOUND_SECONDS) is not None
    require_true(database_url, spread_stream)


@pytest.mark.parametrize("point", ["_send", "commit"])
def test_a_move_that_dies_has_moved_nothing(
    database_url: str, spread_stream: Stream, east_url: str, monkeypatch: pytest.MonkeyPatch, point: str
) -> None:
    with monkeypatch.context() as patching:
        if point == "commit":  # what servers were sent is there, and the state never said so
            patching.setattr(shard_moving.ShardMove, "commit", _commit_elsewhere_and_die)
        else:
            patching.setattr(shard_moving.ShardMove, "_send", _die_behind(shard_moving.ShardMove._send))
        with pytest.raises(KilledError):
            spread(database_url, OF, east=(east_url, [0, 1]))
    assert [one.server for one in read_shards(database_url)] == [None, "east", "west"]
    if point == "commit":
        with pytest.raises(StateError, match=r"server 'east' .* has shards \[0\], which the state has elsewhere"):
            values_of(database_url)
    random_changes(spread_stream, random.Random(1), 20)
    consume(database_url, spread_stream)
    require_true(database_url, spread_stream)


def _commit_elsewhere_and_die(move: shard_moving.ShardMove, _: object) -> None:
    for other in move._connections.values():
        other.commit()
    raise KilledError
