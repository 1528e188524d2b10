"""Shards on several Postgres servers: the answers of one, whoever dies, and what is no map of a state."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import pytest

from service.answer_commands import status
from service.api.problems import Check
from service.core.errors import ConflictError, StateError
from service.core.foreign_keys.sides import ForeignKey
from service.core.model import AttributeName
from service.shard_commands import list_, set_
from service.shard_lookout import Lookout
from service.store import shard_writing, shards
from service.store.contracts import PostgresContracts
from service.store.database import make_engine
from service.store.doctor_facts import read_operation
from service.store.embedded import EmbeddedPostgres
from service.store.shard_dealing import read_shards
from service.store.shard_servers import read_map, servers_away, servers_reached
from service.store.shards import ShardStore
from service.store.writer import PostgresWriter
from service.terminal import DocumentFormat, Format
from service.usecases.foreign_key_decisions import EXACT, ContractState
from service.usecases.key_values import KeyKind
from service.usecases.track_keys import Wanted, track
from tests import states
from tests.asking import http_client
from tests.events import envelope
from tests.following import COLUMNS, Stream, Watch, consume, random_changes, shop_tables
from tests.integration.serving import app_over, serving
from tests.integration.test_shards import Driver, asked, values_of
from tests.integration.test_verify import findings
from tests.postgres import name_of
from tests.shard_servers import killed, spread

OF = 3

WAITS = "select exists (select from pg_stat_activity where wait_event_type = 'Lock' and datname = current_database())"


@pytest.fixture
def stream(tmp_path: Path, database_url: str) -> Stream:
    tables = shop_tables()
    states.store(database_url, tables)
    return Stream.empty(tmp_path, tables)


@pytest.fixture
def spread_stream(database_url: str, stream: Stream, east_url: str, west_url: str) -> Stream:
    """Have shard 0 in the state's own database, 1 on another server, and 2 in another database."""
    spread(database_url, OF, east=(east_url, [1]), west=(west_url, [2]))
    return stream


def require_true(url: str, stream: Stream) -> None:
    """Hold all shards against recomputing: where they are, and brought into one database."""
    assert all(finding.holds for finding in findings(url))
    spread(url, 1)
    assert states.read(url) == states.expected(stream.tables)


@pytest.mark.parametrize("records", [1, 7])
def test_one_process_and_tasks_take_turns_on_several_servers(
    database_url: str, spread_stream: Stream, records: int
) -> None:
    rng = random.Random(records)
    for _ in range(2):
        random_changes(spread_stream, rng, 20)
        consume(database_url, spread_stream, records=records)
        random_changes(spread_stream, rng, 20)
        with Driver(database_url, spread_stream) as driver:
            driver.follow(records)
        assert all(finding.holds for finding in findings(database_url))
    require_true(database_url, spread_stream)


def test_what_reads_values_is_answered_as_by_one_server(
    database_url: str, spread_stream: Stream, east_url: str, west_url: str
) -> None:
    random_changes(spread_stream, random.Random(8), 60)
    consume(database_url, spread_stream)
    elsewhere = asked(database_url, spread_stream.tables)
    counted = states.query(east_url, "select count(*) from gen_rec") + states.query(west_url, "select 1 from gen_rec")
    assert counted[0][0] > 0, "there is something to be asked for elsewhere"
    assert len(counted) > 1
    spread(database_url, 1)
    assert elsewhere == asked(database_url, spread_stream.tables)


def test_a_server_that_is_killed_is_waited_for(
    database_url: str, spread_stream: Stream, east_server: EmbeddedPostgres
) -> None:
    """Nothing is applied meanwhile, and nothing is lost; what needs no values is answered as ever."""
    random_changes(spread_stream, random.Random(4), 20)
    consume(database_url, spread_stream, records=5)
    random_changes(spread_stream, random.Random(5), 20)
    lookout = Lookout(database_url)
    with killed(east_server):
        before = states.query(database_url, "select max(version) from state_version")
        with pytest.raises(StateError, match=r"server 'east' \(shard 1\): Cannot reach"):
            consume(database_url, spread_stream)
        with pytest.raises(StateError, match=r"server 'east' \(shard 1\)"):
            values_of(database_url)
        assert states.query(database_url, "select max(version) from state_version") == before
        found = read_shards(database_url)
        assert [(one.server, one.values is None) for one in found] == [(None, False), ("east", True), ("west", False)]
        engine = make_engine(database_url, "test")
        assert read_operation(engine, set(), lambda *_: None).shards_away == [found[1].away]
        engine.dispose()
        lookout.look()
        told = lookout.check()
        assert told is not None
        assert not told.ok
        assert re.match(r"server 'east' \(shard 1\): Cannot reach .*\. Answers stay at the last version", told.detail)
    lookout.look()
    assert lookout.check() == Check(name="shards", ok=True, detail="all servers that have shards are there")
    consume(database_url, spread_stream)
    assert [one.away for one in read_shards(database_url)] == [None] * OF
    require_true(database_url, spread_stream)


class KilledError(Exception):
    pass


shards_settle = shards.settle


def test_what_a_server_does_not_have_yet_is_not_answered(
    database_url: str, spread_stream: Stream, monkeypatch: pytest.MonkeyPatch
) -> None:
    random_changes(spread_stream, random.Random(6), 25)
    with monkeypatch.context() as patching:
        patching.setattr(shard_writing, "settle", _die)
        with pytest.raises(KilledError):
            consume(database_url, spread_stream)
    (version,) = states.query(database_url, "select max(version) from state_version")
    with pytest.raises(StateError, match=r"server 'east' \(shard 1\) has versions .* following ended between"):
        values_of(database_url)
    assert [one.ahead for one in read_shards(database_url)][1] is not None
    consume(database_url, spread_stream)
    assert states.query(database_url, "select max(version) from state_version") == [version], "it was all applied"
    assert values_of(database_url) == version[0]


def test_what_is_committed_is_not_told_to_be_tried_again(
    database_url: str, spread_stream: Stream, east_server: EmbeddedPostgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    random_changes(spread_stream, random.Random(6), 25)
    watch = Watch()
    with ExitStack() as dead, monkeypatch.context() as patching:

        def settle(*given: Any) -> None:
            dead.enter_context(killed(east_server))
            shards_settle(*given)

        patching.setattr(shard_writing, "settle", settle)
        with pytest.raises(StateError, match=r"server 'east' \(shard 1\): Cannot reach"):
            consume(database_url, spread_stream, watch=watch)
    (version,) = states.query(database_url, "select max(version) from state_version")
    told = str(watch.errors[0])
    assert re.match(rf"Version {version[0]} is committed, .* server 'east' \(shard 1\) gets it .*\)\.$", told)
    assert "try again" not in told
    consume(database_url, spread_stream)
    assert states.query(database_url, "select max(version) from state_version") == [version]
    require_true(database_url, spread_stream)


def _die(*_: object) -> None:
    raise KilledError


def _die_behind(function: Callable[..., object]) -> Callable[..., object]:
    def call(*given: object) -> None:
        function(*given)
        raise KilledError

    return call


@pytest.mark.parametrize("committed", range(OF + 1))
def test_a_driver_that_dies_between_any_two_servers_leaves_no_trace(
    database_url: str, spread_stream: Stream, committed: int
) -> None:
    rng = random.Random(committed)
    random_changes(spread_stream, rng, 15)
    with Driver(database_url, spread_stream) as driver:
        driver.read(15)
        driver.apply(range(committed))
        stale = ShardStore(driver.stores[1].place, 1 << 20), driver.parts[1]
    random_changes(spread_stream, rng, 5)
    with Driver(database_url, spread_stream) as driver:
        with closing(stale[0]), pytest.raises(ConflictError, match="Another has become the state's writer"):
            stale[0].apply(stale[1])
        driver.follow(4)
    require_true(database_url, spread_stream)


@pytest.mark.parametrize(
    ("spoil", "told"),
    [
        ("delete from shard", "It has no shard 1: bring back"),
        ("update shard set state = gen_random_uuid()", "It has shard 1 of another state"),
        ("update shard set server = 'north'", "It is the database of server 'north', too"),
        ("update shard set epoch = epoch + 1000000", "Shard 1 has had another writer"),
        ("update shard set batch = batch - 1", "restored from an older backup"),
        (
            "update shard set batch = batch + 7",
            "the state was restored from an older backup, or lost its newest versions .* `subsetd restore FILE",
        ),
        ("update alembic_version set version_num = '0019'", "Its schema revision is 0019, expected"),
        ("drop table alembic_version", "Its schema revision is none"),
        ("insert into state_version (version, generation, kind) values (1, 1, 'batch')", "It holds a state of its own"),
    ],
)
def test_a_server_that_does_not_fit_is_refused_by_name(
    database_url: str, spread_stream: Stream, east_url: str, spoil: str, told: str
) -> None:
    states.execute(east_url, spoil)
    with pytest.raises((StateError, ConflictError), match=rf"server 'east' \(shard 1\): .*{told}"):
        consume(database_url, spread_stream)


def test_a_state_that_was_moved_to_a_server_of_fewer_transactions_has_its_shards(
    database_url: str, spread_stream: Stream, east_url: str, west_url: str
) -> None:
    for url in (database_url, east_url, west_url):
        states.execute(url, "update shard set epoch = epoch + 1000000")
    for seed in range(2):
        random_changes(spread_stream, random.Random(seed), 20)
        with Driver(database_url, spread_stream) as driver:
            driver.follow(10)
    require_true(database_url, spread_stream)


TAKES_NO_WRITES = 'alter database "{}" set default_transaction_read_only = on'
WITHOUT_TABLES = "drop schema public cascade; create schema public"
OF_NOTHING = "delete from shard"


@pytest.mark.parametrize(
    ("spoil", "told"),
    [
        (TAKES_NO_WRITES, "is read-only"),
        (WITHOUT_TABLES, "Its schema revision is none"),
        (OF_NOTHING, "It has no shard 1 of this state"),
    ],
)
def test_a_server_that_answers_and_cannot_apply_is_away(
    database_url: str, spread_stream: Stream, east_url: str, spoil: str, told: str
) -> None:
    states.execute(east_url, spoil.format(name_of(east_url)))
    told = rf"server 'east' \(shard 1\): .*{told}"
    (away,) = servers_away(database_url) or ()
    assert re.match(told, away)
    found = read_shards(database_url)
    assert [(one.server, one.away) for one in found] == [(None, None), ("east", away), ("west", None)]
    engine = make_engine(database_url, "test")
    try:
        assert read_operation(engine, set(), lambda *_: None).shards_away == [away]
        if spoil != TAKES_NO_WRITES:
            names = AttributeName("s", "orders", "id"), AttributeName("s", "customers", "name")
            with pytest.raises(StateError, match=r"server 'east' \(shard 1\): It lacks (tables for )?shards"):
                PostgresContracts(engine).add(ForeignKey.of(*([name] for name in names)), EXACT, "test")
    finally:
        engine.dispose()


def test_executors_are_asked_for_the_servers_that_the_driver_reaches(
    database_url: str, stream: Stream, east_url: str, west_url: str
) -> None:
    assert servers_reached(database_url) == []
    spread(database_url, 3, east=(east_url, [1]), west=(west_url, [2]))
    assert [server.name for server in servers_reached(database_url)] == ["east", "west"]
    nowhere = "update shard set address = 'postgresql://u@127.0.0.1:1/x' where server = 'west'"
    states.execute(database_url, nowhere)
    assert [server.name for server in servers_reached(database_url)] == ["east"]
    states.execute(database_url, "drop table shard")
    assert servers_reached(database_url) == [], "a database that has no state yet, or an older one"


def test_the_state_says_which_servers_are_away(
    database_url: str, spread_stream: Stream, east_url: str, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    """What a client has of it is not that which it is behind that, though it is of the same version."""
    monkeypatch.setenv("SUBSETD_DATABASE_URL", database_url)
    engine = make_engine(database_url, "test")
    app, lookout = app_over(engine), Lookout(database_url)
    app.state.shards_away = lookout.away
    with serving(app) as address, http_client(base_url=f"{address}/api/v1", timeout=60) as client:
        before = client.get("/state")
        assert before.json()["shards_away"] == []
        states.execute(east_url, "delete from shard")
        lookout.look()
        told = client.get("/state", headers={"If-None-Match": before.headers["ETag"]})
        (away,) = told.json()["shards_away"]
        assert away.startswith("server 'east' (shard 1): It has no shard 1 of this state")
        again = client.get("/state", headers={"If-None-Match": told.headers["ETag"]})
        assert again.status_code == 304
    engine.dispose()
    status(DocumentFormat.JSON)
    assert json.loads(capsys.readouterr().out)["shards_away"] == [away]
    status(DocumentFormat.TABLE)
    assert "shards are away, and answers stay at this version: server 'east'" in capsys.readouterr().out


def test_two_followers_at_once_are_one(database_url: str, spread_stream: Stream) -> None:
    with closing(PostgresWriter(database_url)) as first:
        first.acquire()
        with pytest.raises(StateError, match="The state has another writer"):
            consume(database_url, spread_stream)


@pytest.mark.parametrize(
    ("written", "told"),
    [
        ("[east", "cannot be read"),
        ("east = 1", "needs an address and shards, and nothing else"),
        ("[east]\naddress = 'postgresql://h/d'\nshards = []", "its shards are a list of numbers"),
        ("[east]\naddress = 'postgresql://u:secret@h/d'\nshards = [0]", "has a password"),
        ("[east]\naddress = 'postgresql://h/d?passfile=p'\nshards = [0]", "has a password"),
        ("[east]\naddress = 'postgresql://h/d'\nshards = [3]", "has shard 3; a state of 3 has 0 to 2"),
        (
            "[e]\naddress='postgresql://h/d'\nshards=[0]\n[w]\naddress='postgresql://h/e'\nshards=[0]",
            "shard 0 is there more",
        ),
        (
            "[e]\naddress='postgresql://h/d'\nshards=[0]\n[w]\naddress='postgresql://h/d'\nshards=[1]",
            "address .* more than",
        ),
    ],
)
def test_a_map_that_cannot_be_is_refused(tmp_path: Path, written: str, told: str) -> None:
    path = tmp_path / "shards.toml"
    path.write_text(written)
    with pytest.raises(ConflictError, match=told) as refused:
        read_map(path, OF)
    assert "secret" not in str(refused.value)


def test_the_command_reads_a_map(
    database_url: str, stream: Stream, east_url: str, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    path = tmp_path / "shards.toml"
    path.write_text(f"[east]\naddress = '{east_url}'\nshards = [1]\n")
    monkeypatch.setenv("SUBSETD_DATABASE_URL", database_url)
    set_(2, path)
    assert "goes to server 'east'" in capsys.readouterr().err
    list_(Format.JSON)
    assert [one["server"] for one in json.loads(capsys.readouterr().out)] == [None, "east"]


def test_a_contract_finds_its_witness_wherever_it_is(database_url: str, stream: Stream, east_url: str) -> None:
    spread(database_url, 2, east=(east_url, [0, 1]))
    stream.change("orders", None, ["nobody's", None, None])
    consume(database_url, stream)
    engine = make_engine(database_url, "test")
    names = AttributeName("s", "orders", "id"), AttributeName("s", "customers", "name")
    found = PostgresContracts(engine).add(ForeignKey.of(*([name] for name in names)), EXACT, "test")
    engine.dispose()
    assert found.state is ContractState.VIOLATED
    ((value,),) = states.query(database_url, "select witness_value from contract_transition")
    assert value in {"10", "11", "12", "nobody's"}


def test_a_truncate_and_a_warm_up_reach_all_servers(database_url: str, spread_stream: Stream) -> None:
    random_changes(spread_stream, random.Random(2), 30)
    consume(database_url, spread_stream)
    with closing(PostgresWriter(database_url)) as writer:
        writer.acquire()
        writer.load()
        keys, records = writer.read_range(0, 0)
        found = writer.lookup(keys)
    assert [keys.key(place).hex() for place in range(len(keys.high))] == sorted(
        states.expected(spread_stream.tables).records
    )
    assert found.frequencies.tolist() == records.frequencies.tolist()
    spread_stream.write(envelope("t", "s", "orders"))
    spread_stream.tables.rows["orders"].clear()
    consume(database_url, spread_stream)
    require_true(database_url, spread_stream)


def test_tuples_of_a_table_without_rows_are_followed_over_servers(
    database_url: str, tmp_path: Path, east_url: str
) -> None:
    """What merges no value is a version of all shards as well."""
    tables = states.Tables({**COLUMNS, "notes": ["id", "body"]})
    states.store(database_url, tables)
    stream = Stream.empty(tmp_path, tables)
    spread(database_url, 2, east=(east_url, [1]))
    with closing(PostgresWriter(database_url)) as writer:
        writer.acquire()
        stored = writer.load()
        (table,) = (one for one in stored.tables if one.name == "notes")
        new_id = max(stored.counters) + 1
        track(writer, stored, [Wanted(new_id, table, ["id", "body"])], None, [], lambda: {new_id: 0}, KeyKind.PINNED)
    stream.change("orders", None, ["1", "2", "3"])
    consume(database_url, stream)
    assert all(finding.holds for finding in findings(database_url))
