"""What is answered from memory is what the routes answer from the database, byte for byte, whatever happened before."""

from __future__ import annotations

import asyncio
import random
import select
import socket
import struct
import threading
from collections.abc import Callable, Coroutine, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx
import pytest
import uvloop
from fastapi import FastAPI
from sqlalchemy import Engine, make_url

from service.api import recent_history
from service.api.known_answers import KnownAnswers
from service.core.errors import StateError
from service.store import news
from service.store.database import make_engine
from service.store.news import PostgresNews
from service.store.reader import PostgresStateReader
from service.store.retention import drop_piece
from service.usecases.answers import NOTHING_KNOWN
from tests import states
from tests.hand_made_state import TABLE_1, HandMadeState
from tests.integration.serving import app_over

STEPS = 25

FIELDS = b"SWARNING\0C57P02\0Mterminating connection because of immediate shutdown command\0\0"
LAST_WORDS = b"N" + struct.pack("!i", 4 + len(FIELDS)) + FIELDS
"""A notice, after which more may come, as a server tells it that is stopped at once."""

TUPLES = """
insert into attribute (attribute_id, source_id, schema_name, table_name, column_name, ordinal, data_type, row_count,
                       null_count, distinct_count, repeated_count, parts)
select 10 + n, 1, 'paper', 'r', '(A, ' || n || ')', 10 + n, 'tuple', 0, 0, 0, 0, array[0, n]
from generate_series(1, 2) n
"""


class CountingReader(PostgresStateReader):
    """Count the answers that are read from the database."""

    snapshots = 0

    def snapshot(self, *, with_values: bool = False) -> Any:
        self.snapshots += 1
        return super().snapshot(with_values=with_values)


class RandomState:
    """Let at random happen what happens to a state, and ask at random what is asked of it."""

    def __init__(self, url: str, engine: Engine, chance: random.Random) -> None:
        self._url, self._engine, self._chance = url, engine, chance
        self.version = 1
        self._holding: set[tuple[int, int]] = set()
        states.execute(url, TUPLES)
        states.execute(url, "delete from ind_transition; delete from uind")

    def happen(self) -> None:
        """Commit a version, or drop history, or put an older state in the place of this one."""
        what = self._chance.choices(["batch", "schema", "drop", "restore"], [12, 1, 1, 1])[0]
        if what == "drop":
            drop_piece(self._engine, 0)
        elif what == "restore":
            # As a dump of another time has it: its versions have other times, and other things happened.
            states.execute(self._url, "update state_version set committed_at = committed_at + interval '1 s'")
            states.execute(self._url, "update ind_transition set cause_count = cause_count + 1")
        else:
            self._commit(what)

    def _commit(self, kind: str) -> None:
        self.version += 1
        pairs = [(a, b) for ids in (range(4), (11, 12)) for a in ids for b in ids if a != b]
        turned = self._chance.sample(pairs, self._chance.choice([0, 0, 0, 1, 2, 7]))
        script = [f"insert into state_version (version, generation, kind) values ({self.version}, 1, '{kind}')"]
        for a, b in turned:
            is_new = (a, b) not in self._holding
            kind_of = "appeared" if is_new else "broke"
            script.append(
                "insert into ind_transition (version, dependent_id, referenced_id, kind, witness_value, position)"
                f" values ({self.version}, {a}, {b}, '{kind_of}', 'ä\"{a}', '{{\"offset\": {a}}}')"
            )
            script.append(
                f"insert into uind (dependent_id, referenced_id, since_version) values ({a}, {b}, {self.version})"
                if is_new
                else f"update uind set until_version = {self.version} where (dependent_id, referenced_id) = ({a}, {b})"
                " and until_version is null"
            )
        if kind == "schema":
            script.append(f"update attribute set column_name = 'x{self.version}' where attribute_id = 1")
        self._holding ^= set(turned)
        states.execute(self._url, ";".join(script))

    def question(self) -> str:
        """Ask something: mostly as clients that poll do."""
        since, limit = (
            self._chance.randint(max(0, self.version - 8), self.version + 1),
            self._chance.choice([1, 3, 100]),
        )
        return self._chance.choice(
            [
                f"/changes?since={since}",
                f"/changes?since={since}",
                f"/changes?limit={limit}&since={since}",
                "/changes?limit=2",
                f"/changes?since={since}&kind=broke",
                f"/changes?newest_first=true&limit={limit}",
                "/uinds",
                f"/uinds?limit={limit}",
                "/uinds?dependent=id:1",
                "/uinds?dependent=paper.r.B",
                "/uinds?arity=2",
                f"/uinds?as_of={max(1, since - 1)}",
                "/attributes?limit=2",
            ]
        )


@pytest.fixture
def engine(database_url: str) -> Iterator[Engine]:
    HandMadeState(database_url, TABLE_1).close()
    engine = make_engine(database_url, "test-history")
    yield engine
    engine.dispose()


@pytest.mark.parametrize("seed", range(3))
def test_memory_answers_as_the_database_does(
    database_url: str, engine: Engine, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    """Also when little is kept, so that it ends again and again."""
    if seed:
        monkeypatch.setattr(recent_history, "MOST_BYTES", 3000)
        monkeypatch.setattr(news, "MOST_TRANSITIONS", 8)
    state = RandomState(database_url, engine, random.Random(seed))
    polled, plain = app_over(engine), app_over(engine)
    plain.user_middleware = [one for one in plain.user_middleware if one.cls is not KnownAnswers]
    reader = polled.state.reader = CountingReader(engine)

    async def run() -> None:
        asked = followed = 0
        cursor = ""
        async with asking(polled) as one, asking(plain) as other:
            for _ in range(STEPS):
                state.happen()
                questions = [state.question() for _ in range(4)] + ["/uinds", f"/changes?since={state.version - 1}"]
                questions += [f"/changes?limit=1&cursor={cursor}"] if cursor else []
                for question in questions:
                    found, expected = await one.get(f"/api/v1{question}"), await other.get(f"/api/v1{question}")
                    assert found.status_code == expected.status_code, question
                    if found.status_code == 200:
                        assert found.content == expected.content, question
                        assert found.headers == expected.headers, question
                        # A page that memory gave is gone on from as any other.
                        cursor = found.json()["next_cursor"] or "" if question.startswith("/changes?limit=") else cursor
                        followed += "cursor" in question
                    asked += 1
        polled.state.newest.close()
        assert followed
        assert reader.snapshots < asked * 0.8

    asyncio.run(run())


def asking(app: FastAPI) -> httpx.AsyncClient:
    """Ask an app without a server, on this loop."""
    return httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://127.0.0.1", timeout=60)


def test_a_connection_that_was_cut_is_replaced(database_url: str, engine: Engine) -> None:
    """Whether its end is heard of before the next question or with it."""
    reader = PostgresNews(engine)

    async def run() -> None:
        known = (await reader.read(NOTHING_KNOWN)).head
        for waits in (True, False):
            before = reader._connection
            states.execute(
                database_url, f"select pg_terminate_backend({before.info.backend_pid}, {60_000 if waits else 0})"
            )
            async with asyncio.timeout(60):
                while waits and reader._connection is before:
                    await asyncio.sleep(0.01)
            told = await reader.read(known)
            assert (told.head, told.goes_on, told.transitions) == (known, True, [])
            assert reader._connection is not before
        reader.close()

    asyncio.run(run())


@pytest.mark.parametrize("run", [asyncio.run, uvloop.run], ids=["asyncio", "uvloop"])
def test_a_connection_whose_server_dies_with_a_question_unread_is_replaced(
    database_url: str,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    run: Callable[[Coroutine[Any, Any, None]], None],
) -> None:
    dies = dying_server(tmp_path, database_url)
    engine = make_engine(str(make_url(database_url).set(query={"host": str(tmp_path)})), "test-dying")
    reader = PostgresNews(engine)

    async def read() -> None:
        known = (await reader.read(NOTHING_KNOWN)).head
        for _ in range(3):
            dies.set()
            async with asyncio.timeout(60):
                assert (await reader.read(known)).head == known
            assert not dies.is_set()
        reader.close()

    run(read())
    engine.dispose()
    assert not caplog.records, "whoever connects is not called twice"


def test_a_server_that_never_answers_is_given_up(
    database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its machine may be gone without a word, or asleep; who asks again has a new connection."""
    falls_silent = dying_server(tmp_path, database_url, b"")
    engine = make_engine(str(make_url(database_url).set(query={"host": str(tmp_path)})), "test-silent")
    reader = PostgresNews(engine)

    async def read() -> None:
        known = (await reader.read(NOTHING_KNOWN)).head
        falls_silent.set()
        with monkeypatch.context() as patching:
            patching.setattr(news, "ANSWER_SECONDS", 0.5)
            with pytest.raises(StateError, match=r"has not answered for 0\.5 s\. Look whether its machine is well"):
                await reader.read(known)
        falls_silent.clear()
        assert (await reader.read(known)).head == known
        reader.close()

    asyncio.run(read())
    engine.dispose()


def dying_server(folder: Path, url: str, last_words: bytes = LAST_WORDS) -> threading.Event:
    """Pass connections on to a server that, once the event is set, says so to who asks, and ends with all unread.

    Without last words it does not end, and hears without an answer.
    """
    path = make_url(url).query["host"]
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(folder / ".s.PGSQL.5432"))
    listener.listen()
    dies = threading.Event()

    def pass_on(client: socket.socket) -> None:
        # Who asks may be gone before the server's answer to its farewell.
        with client, socket.socket(socket.AF_UNIX) as server, suppress(ConnectionError):
            server.connect(f"{path}/.s.PGSQL.5432")
            while True:
                ready, _, _ = select.select([client, server], [], [])
                if client in ready and dies.is_set():
                    if not last_words:
                        with suppress(OSError):
                            while client.recv(1 << 16):
                                pass
                        return
                    client.sendall(last_words)
                    dies.clear()
                    return
                for one in ready:
                    data = one.recv(1 << 16)
                    if not data:
                        return
                    (server if one is client else client).sendall(data)

    def accept() -> None:
        while True:
            threading.Thread(target=pass_on, args=(listener.accept()[0],), daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()
    return dies


def test_all_readings_share_a_connection(engine: Engine) -> None:
    """Also when an answer takes a turn of the loop to come, in which it is heard of twice."""
    reader = PostgresNews(engine)

    async def run() -> None:
        known = (await reader.read(NOTHING_KNOWN)).head
        connection = reader._connection
        for _ in range(20):
            assert (await reader.read(known)).goes_on
            await asyncio.sleep(0)
        assert reader._connection is connection
        assert not connection.closed
        reader.close()

    asyncio.run(run())


def test_each_loop_has_a_connection_of_its_own(engine: Engine) -> None:
    reader = PostgresNews(engine)
    for _ in range(2):
        assert asyncio.run(reader.read(NOTHING_KNOWN)).head.version == 1
    reader.close()


def test_who_gives_up_leaves_no_answer_behind(engine: Engine) -> None:
    """The next one is not told what another has asked."""
    reader = PostgresNews(engine)

    async def run() -> None:
        known = (await reader.read(NOTHING_KNOWN)).head
        asked = asyncio.create_task(reader.read(NOTHING_KNOWN))
        await asyncio.sleep(0)
        asked.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asked
        assert (await reader.read(known)).goes_on
        reader.close()

    asyncio.run(run())


def test_a_database_without_a_state_says_so(engine: Engine, database_url: str) -> None:
    states.execute(database_url, "alter table ind_transition rename to elsewhere")
    with pytest.raises(StateError, match="holds no state of subsetd"):
        asyncio.run(PostgresNews(engine).read(NOTHING_KNOWN))
    away = make_engine("postgresql://nobody@127.0.0.1:1/none", "test-away")
    with pytest.raises(StateError, match="Cannot reach"):
        asyncio.run(PostgresNews(away).read(NOTHING_KNOWN))
