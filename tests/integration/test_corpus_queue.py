"""The register of corpora and the queue of their refreshes: one of a corpus waits, one runs, and each ends once."""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from threading import Event
from time import monotonic, sleep
from types import SimpleNamespace
from typing import Any

import psycopg2
import pytest
from sqlalchemy import text

from service.core.corpus import CorpusKind, CorpusSettings
from service.core.errors import ConflictError, NotFoundError, StateError
from service.store import corpus_locks
from service.store.corpora import PostgresCorpora
from service.store.corpus_loads import working_on
from service.store.corpus_locks import CLEANER_NAME
from service.store.database import connect, make_engine
from service.store.locks import CORPUS_LOCK, JOIN_INDEX_LOCK
from service.usecases.corpora import NewCorpus, RefreshState
from tests import states
from tests.corpora import GivenCorpus, is_locked
from tests.joinable import no_spark
from tests.refreshing import Lake, write_tables
from tests.waiting import wait_for

LONG_AGO, FAR_OFF = datetime(2000, 1, 1, tzinfo=UTC), datetime(2100, 1, 1, tzinfo=UTC)


@pytest.fixture
def corpora(database_url: str) -> PostgresCorpora:
    """Give a register with two corpora, a and b."""
    register = PostgresCorpora(make_engine(database_url, "test"))
    for name in ("b", "a"):
        register.add(NewCorpus(name, f"/{name}", CorpusKind.JSONL))
    return register


def test_what_is_registered_is_read_back(corpora: PostgresCorpora) -> None:
    settings = CorpusSettings.from_json({"null_tokens": ["—", ""], "coverage": 0.2, "top": 3})
    new = NewCorpus("c", "s3://x", CorpusKind.CSV, settings, "0 4 * * *", 60, 2)
    corpus = corpora.add(new)
    assert corpus == corpora.named("c") == corpora.all()[-1]
    assert (corpus.settings, corpus.kind, corpus.schedule) == (settings, CorpusKind.CSV, "0 4 * * *")
    assert (corpus.time_limit_seconds, corpus.retries, corpus.generation) == (60, 2, None)
    assert [each.name for each in corpora.all()] == ["a", "b", "c"]
    with pytest.raises(StateError, match="There is a corpus 'c' already"):
        corpora.add(replace(new, location="/other"))


@pytest.mark.parametrize("name", ["nowhere", "\0"])
def test_what_is_not_there_is_named(corpora: PostgresCorpora, name: str) -> None:
    for ask in (corpora.named, corpora.remove, lambda n: corpora.request_refresh(n, requested_by="x")):
        with pytest.raises(NotFoundError, match="There is no corpus"):
            ask(name)
    for refresh_id in (99, 2**40, -1):
        with pytest.raises(NotFoundError, match=f"There is no refresh {refresh_id}"):
            corpora.refresh(refresh_id)
    with (
        pytest.raises(NotFoundError, match=r"No refresh of the corpus 'a' has landed yet.*corpus refresh a"),
        corpora.snapshot("a"),
    ):
        pass


def test_one_refresh_of_a_corpus_waits_and_becomes_full_when_asked(corpora: PostgresCorpora) -> None:
    first = corpora.request_refresh("a", requested_by="api")
    again = corpora.request_refresh("a", full=True, requested_by="cli")
    assert again.refresh_id == first.refresh_id
    assert (first.full, again.full, again.requested_by, again.state) == (False, True, "api", RefreshState.QUEUED)
    assert corpora.request_refresh("a", requested_by="cli").full is True


def test_corpora_take_turns_and_one_of_each_runs_at_a_time(corpora: PostgresCorpora) -> None:
    first, other = (corpora.request_refresh(name, requested_by="x").refresh_id for name in "ab")
    queued = corpora.next_queued()
    assert queued is not None
    assert queued.refresh_id == first
    assert corpora.claim(first) is True
    assert corpora.claim(first) is False
    behind = corpora.request_refresh("a", requested_by="x").refresh_id
    assert behind != first
    assert corpora.claim(behind) is False
    queued = corpora.next_queued()
    assert queued is not None
    assert queued.refresh_id == other
    corpora.end(first, RefreshState.FAILED, "no such file\0")
    corpora.end(first, RefreshState.CANCELLED, "too late")
    ended = corpora.refresh(first)
    assert (ended.state, ended.fault, ended.report) == (RefreshState.FAILED, "no such file\\x00", None)
    assert corpora.claim(behind) is True
    assert [r.refresh_id for r in corpora.refreshes("a", limit=9)] == [behind, first]
    assert [r.refresh_id for r in corpora.refreshes(before=behind, limit=1)] == [other]


def test_a_retry_waits_for_its_time_and_gives_way_to_a_later_request(corpora: PostgresCorpora) -> None:
    refresh_id = corpora.request_refresh("a", requested_by="x").refresh_id
    assert corpora.claim(refresh_id)
    corpora.requeue(refresh_id, 1, "Spark died", FAR_OFF)
    assert corpora.next_queued() is None
    assert corpora.refresh(refresh_id).fault == "Spark died"
    assert corpora.claim(refresh_id) is False

    other = corpora.request_refresh("b", requested_by="x").refresh_id
    assert corpora.claim(other)
    corpora.requeue(other, 1, "Spark died", LONG_AGO)
    assert corpora.claim(other)
    assert corpora.refresh(other).attempt == 2
    later = corpora.request_refresh("b", requested_by="x").refresh_id
    corpora.requeue(other, 1, "Whoever ran the first attempt wakes up", LONG_AGO)
    assert corpora.refresh(other).state is RefreshState.RUNNING
    corpora.requeue(other, 2, "Spark died again", LONG_AGO)
    assert corpora.refresh(other).state is RefreshState.FAILED
    assert corpora.claim(later)


def test_one_that_waits_is_cancelled_at_once_and_one_that_runs_is_told(corpora: PostgresCorpora) -> None:
    waits, runs = (corpora.request_refresh(name, requested_by="x").refresh_id for name in "ab")
    corpora.claim(runs)
    assert corpora.cancel(waits).state is RefreshState.CANCELLED
    assert corpora.progress(runs, "read", 0, 9) is False
    assert corpora.cancel(runs).state is RefreshState.RUNNING
    assert corpora.progress(runs, "read", 1, 9) is True
    assert corpora.progress(waits, "read", 1, 9) is True
    with pytest.raises(StateError, match=r"cannot be cancelled: it is over \(cancelled\)"):
        corpora.cancel(waits)


def test_progress_tells_when_a_stage_ends(corpora: PostgresCorpora) -> None:
    refresh_id = corpora.request_refresh("a", requested_by="x").refresh_id
    corpora.claim(refresh_id)
    corpora.progress(refresh_id, "read", 0, 10)
    assert corpora.refresh(refresh_id).expected_end is None
    corpora.progress(refresh_id, "read", 4, 10)
    found = corpora.refresh(refresh_id)
    assert (found.stage, found.done, found.total) == ("read", 4, 10)
    assert found.expected_end is not None
    assert found.stage_started_at is not None
    assert found.progressed_at is not None
    assert found.expected_end - found.stage_started_at == pytest.approx(
        2.5 * (found.progressed_at - found.stage_started_at), abs=timedelta(microseconds=2)
    )
    corpora.progress(refresh_id, "find", 0, 3)
    assert corpora.refresh(refresh_id).stage_started_at > found.stage_started_at


def test_who_is_at_work_is_known_and_one_that_died_too(database_url: str, corpora: PostgresCorpora) -> None:
    refresh_id = corpora.request_refresh("a", requested_by="x").refresh_id
    with working_on(database_url, refresh_id) as (corpus, refresh):
        assert (corpus.name, refresh.state, refresh.attempt) == ("a", RefreshState.RUNNING, 1)
        assert [(r.refresh_id, is_at_work) for r, is_at_work in corpora.running()] == [(refresh_id, True)]
        with (
            pytest.raises(StateError, match="Another refresh of the corpus 'a' is at work"),
            working_on(database_url, refresh_id),
        ):
            pass
        with pytest.raises(StateError, match="A refresh of the corpus 'a' is at work: cancel it first"):
            corpora.remove("a")
    assert [(r.refresh_id, is_at_work) for r, is_at_work in corpora.running()] == [(refresh_id, False)]
    corpora.end(refresh_id, RefreshState.FAILED, "its process died")
    with (
        pytest.raises(StateError, match=f"The refresh {refresh_id} cannot be run: it is failed"),
        working_on(database_url, refresh_id),
    ):
        pass
    corpora.remove("a")
    assert [each.name for each in corpora.all()] == ["b"]


def test_who_works_on_a_corpus_or_removes_it_waits_while_it_is_cleaned(
    database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_tables(tmp_path / "tables", {"a.csv": [["1", "2"]], "b.csv": [["1", "2"]]})
    lake = Lake(database_url, tmp_path / "tables", joinable=True)
    corpus_id = lake.corpora.named(lake.name).corpus_id
    tried = Event()  # the lock that is held, in vain

    def pause(_: float) -> None:
        tried.set()
        sleep(0.01)

    monkeypatch.setattr(corpus_locks, "time", SimpleNamespace(monotonic=monotonic, sleep=pause))
    with connect(database_url, CLEANER_NAME) as cleaner, cleaner.cursor() as cursor, ThreadPoolExecutor(1) as pool:

        def lock(number: int) -> None:
            cursor.execute("select pg_advisory_lock(%s, %s)", (number, corpus_id))

        def let_go(number: int, waiting: Future[Any]) -> None:
            tried.clear()
            wait_for(lambda: tried.is_set() or waiting.done())
            cursor.execute("select pg_advisory_unlock(%s, %s)", (number, corpus_id))

        lock(CORPUS_LOCK)
        lock(JOIN_INDEX_LOCK)
        refreshed = pool.submit(lake.refresh, no_spark)
        let_go(CORPUS_LOCK, refreshed)
        let_go(JOIN_INDEX_LOCK, refreshed)
        assert refreshed.result().generation == 1
        lock(CORPUS_LOCK)
        removed = pool.submit(lake.corpora.remove, lake.name)
        let_go(CORPUS_LOCK, removed)
        assert removed.result().name == lake.name
        cleaner.commit()


def test_a_cleaning_that_takes_too_long_is_not_waited_for(
    database_url: str, corpora: PostgresCorpora, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(corpus_locks, "CLEANING_SECONDS", 0.0)
    with connect(database_url, CLEANER_NAME) as cleaner, cleaner.cursor() as cursor:
        cursor.execute("select pg_advisory_lock(%s, %s)", (CORPUS_LOCK, corpora.named("a").corpus_id))
        with pytest.raises(ConflictError, match="is at work"):
            corpora.remove("a")


def test_a_refresh_that_is_asked_for_waits_for_who_removes_its_corpus_and_a_scheduled_one_does_not(
    database_url: str, corpora: PostgresCorpora
) -> None:
    engine = make_engine(database_url, "test", lock_timeout_ms=1000)
    with ThreadPoolExecutor(1) as pool, closing(psycopg2.connect(database_url)) as remover:
        remover.cursor().execute("delete from corpus where name = 'a'")
        asked = pool.submit(corpora.request_refresh, "a", requested_by="x")
        wait_for(lambda: asked.done() or is_locked(database_url, "transactionid", granted=False))
        with pytest.raises(NotFoundError, match="There is no corpus 'a'"):
            PostgresCorpora(engine).request_refresh("a", requested_by="schedule", due=LONG_AGO)
        assert not asked.done()
        remover.commit()
        with pytest.raises(NotFoundError, match="There is no corpus 'a'"):
            asked.result()
    engine.dispose()


def test_a_removed_corpus_leaves_nothing(database_url: str) -> None:
    corpus = GivenCorpus(database_url)
    corpus.refresh({(0, 1, 1)})
    corpus.refresh({(0, 1, 1), (1, 0, 1)})
    corpus.corpora.remove("lake")
    with make_engine(database_url, "test").connect() as connection:
        found = connection.scalars(
            text("select relname from pg_class where relname ~ '^corpus' and relkind = 'r'")
        ).all()
        counts = {name: connection.scalar(text(f"select count(*) from {name}")) for name in found}
    assert set(counts.values()) == {0}
    assert not [name for name in counts if name.startswith("corpus_ind_")]


def test_a_removal_may_take_longer_than_a_question(database_url: str) -> None:
    corpus = GivenCorpus(database_url)
    corpus.refresh({(0, 1, 1)})
    states.execute(
        database_url,
        "create function asks_for_time() returns trigger language plpgsql as $$ begin "
        "assert current_setting('statement_timeout') = '0', 'it has no time'; return old; end $$; "
        "create trigger asks_for_time before delete on corpus for each row execute function asks_for_time()",
    )
    engine = make_engine(database_url, "test", statement_timeout_ms=60_000)
    PostgresCorpora(engine).remove("lake")
    engine.dispose()
    assert states.query(database_url, "select from corpus") == []
