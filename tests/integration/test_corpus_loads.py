"""The load of a refresh: what its tasks write, who may land when, and what is left of those that die."""

from __future__ import annotations

import multiprocessing
import signal
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from typing import Any, cast

import numpy as np
import psycopg2
import pytest

from service.core.errors import DamagedStateError, NotFoundError, StateError
from service.core.group_inds import Inds
from service.store import corpus_cleaning
from service.store.backup import BACKUP_NAME
from service.store.corpus_loads import Load, working_on
from service.store.join_loads import NewIndex
from service.usecases.corpora import CorpusFault, RefreshState
from tests import states
from tests.corpora import (
    WHOLE,
    GivenCorpus,
    inds_of,
    is_locked,
    load_tables,
    served,
    table,
    versions,
    whole_corpus,
)
from tests.waiting import BOUND_SECONDS, wait_for


@pytest.fixture
def lake(database_url: str) -> GivenCorpus:
    return whole_corpus(database_url)


def test_a_task_that_runs_twice_writes_once(lake: GivenCorpus) -> None:
    with working_on(lake.url, lake.queue()) as (_, refresh):
        load = Load.begin(lake.url, refresh.refresh_id)
        assert load.copy(7, [inds_of({(0, 1, 5)}), inds_of({(0, 2, 5)})]) == 2
        assert load.copy(7, [inds_of({(0, 3, 5)})]) == 2, "it is told what was written"
        assert load.build_indexes() == 2
        load.land(versions([]), np.empty(0, np.int32), None, [], {})
    assert served(lake) == [(0, 1, 5), (0, 2, 5)]


def test_a_task_that_dies_in_the_middle_of_its_blocks_has_written_nothing(lake: GivenCorpus) -> None:
    def blocks() -> Iterator[Inds]:
        yield inds_of({(0, 1, 5)})
        raise RuntimeError("killed")

    with working_on(lake.url, lake.queue()) as (_, refresh):
        load = Load.begin(lake.url, refresh.refresh_id)
        with pytest.raises(RuntimeError, match="killed"):
            load.copy(0, blocks())
        assert load.copy(0, [inds_of({(1, 0, 5)})]) == 1


@pytest.mark.parametrize("dies", [True, False])
def test_of_two_attempts_of_a_task_at_once_one_writes(lake: GivenCorpus, dies: bool) -> None:
    """The second waits for what becomes of the first."""
    is_writing, others_turn = threading.Event(), threading.Event()

    def blocks() -> Iterator[Inds]:
        is_writing.set()  # a lock of the table alone is had a moment before the task's row
        yield inds_of({(0, 1, 5)})
        assert others_turn.wait(BOUND_SECONDS)
        if dies:
            raise RuntimeError("killed")

    with working_on(lake.url, lake.queue()) as (_, refresh), ThreadPoolExecutor() as both:
        load = Load.begin(lake.url, refresh.refresh_id)
        first = both.submit(load.copy, 0, blocks())
        assert is_writing.wait(BOUND_SECONDS)
        second = both.submit(load.copy, 0, [inds_of({(0, 1, 5)})])
        wait_for(lambda: is_locked(lake.url, "transactionid", granted=False))
        others_turn.set()
        assert isinstance(first.exception(), RuntimeError) if dies else first.result() == 1
        assert second.result() == 1
        assert load.build_indexes() == 1


@pytest.mark.parametrize("steps", range(4))
def test_a_refresh_that_dies_after_any_step_leaves_what_is_served_and_the_next_one_clears_up(
    lake: GivenCorpus, steps: int
) -> None:
    """Begun; some tasks done; indexes built; in the middle of landing: its transaction is given up."""
    refresh_id = lake.queue()
    with working_on(lake.url, refresh_id):
        load = Load.begin(lake.url, refresh_id)
        if steps > 0:
            load.copy(0, [inds_of({(0, 1, 5)})])
        if steps > 1:
            load.build_indexes()
        if steps > 2:
            with pytest.raises(TypeError, match="not JSON serializable"):
                load.land(versions([table(0, 99)]), np.array([1], np.int32), None, [], {"bad": object()})
    assert served(lake) == sorted(WHOLE)
    assert len(load_tables(lake.url)) == 2

    with working_on(lake.url, refresh_id):  # the attempt after it
        again = Load.begin(lake.url, refresh_id)
        assert again.table in load_tables(lake.url)
        assert len(load_tables(lake.url)) == 2
        with pytest.raises(StateError, match="that died"):  # a task of the dead attempt, late
            load.copy(1, [inds_of({(0, 2, 5)})])
        again.copy(0, [inds_of({(0, 4, 5)})])
        again.build_indexes()
        again.land(versions([table(0, 99)]), np.array([1], np.int32), None, [], {})
    assert served(lake) == [(0, 4, 5)]
    with lake.corpora.snapshot("lake") as snapshot:
        assert [(t.path, t.row_count) for t in snapshot.tables(limit=9)] == [("t0.csv", 99)]


def test_a_late_task_of_an_attempt_whose_table_could_not_be_dropped_takes_no_other_s_place(
    lake: GivenCorpus, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As pg_dump, which keeps all tables in use for as long as it reads."""
    monkeypatch.setattr(corpus_cleaning, "DROP_TIMEOUT", "50ms")
    with (
        working_on(lake.url, lake.queue()) as (_, refresh),
        closing(psycopg2.connect(lake.url)) as reader,
        reader.cursor() as cursor,
    ):
        dead = Load.begin(lake.url, refresh.refresh_id)
        cursor.execute(f"lock table {dead.table} in access share mode")
        load = Load.begin(lake.url, refresh.refresh_id)
        assert dead.table in load_tables(lake.url)
        with pytest.raises(StateError, match=r"of an attempt of the refresh \d+ that died"):
            dead.copy(0, [inds_of({(0, 1, 5)})])
        assert load.copy(0, [inds_of({(0, 2, 5)})]) == 1
        load.build_indexes()
        land(load)
    assert served(lake) == [(0, 2, 5)]


def test_a_load_without_the_inds_that_its_tasks_told_of_does_not_land(lake: GivenCorpus) -> None:
    with working_on(lake.url, lake.queue()) as (_, refresh):
        load = Load.begin(lake.url, refresh.refresh_id)
        load.copy(0, [inds_of({(0, 1, 5), (0, 2, 5)})])
        states.execute(lake.url, f"delete from {load.table} where referenced = 2")
        with pytest.raises(DamagedStateError, match="has 1 INDs, and its tasks stored 2"):
            load.build_indexes()


def test_two_tasks_with_the_same_pair_are_refused(lake: GivenCorpus) -> None:
    with working_on(lake.url, lake.queue()) as (_, refresh):
        load = Load.begin(lake.url, refresh.refresh_id)
        for task in range(2):
            load.copy(task, [inds_of({(0, 1, 5)})])
        with pytest.raises(DamagedStateError, match=r"found a pair of columns twice \(Key \(dependent, referenced\)"):
            load.build_indexes()


def test_a_load_of_what_did_not_change_is_refused(lake: GivenCorpus) -> None:
    with pytest.raises(DamagedStateError, match=r"brought the pair of columns \(0, 1\), of which none changed"):
        lake.refresh({(0, 1, 5), (0, 3, 5)}, changed=[3, 4])
    assert served(lake) == sorted(WHOLE)


def test_faults_are_kept_of_generations_that_are_and_of_refreshes_that_failed_since(lake: GivenCorpus) -> None:
    for number in range(3):
        lake.refresh(WHOLE, faults=[CorpusFault(f"{number}.csv", "empty"), CorpusFault("x.csv", "binary")])
    refresh_id = lake.queue()
    with working_on(lake.url, refresh_id):
        Load.begin(lake.url, refresh_id).put_faults([CorpusFault("y.csv", "gone")])
    lake.corpora.end(refresh_id, RefreshState.FAILED, "too many faults")
    found = {r.refresh_id: lake.corpora.faults(r.refresh_id, limit=9) for r in lake.corpora.refreshes("lake", limit=9)}
    assert [len(faults) for faults in found.values()] == [1, 2, 2, 0, 0]
    assert lake.corpora.faults(refresh_id, after=-1, limit=1) == [(0, CorpusFault("y.csv", "gone"))]
    with lake.corpora.snapshot("lake") as snapshot:
        assert snapshot.faults(after=0, limit=9) == [(1, CorpusFault("x.csv", "binary"))]
        with pytest.raises(NotFoundError, match=r"no table 'x.csv' .*; it could not be read: binary\."):
            snapshot.table("x.csv")


@pytest.mark.parametrize("lands", [False, True])
def test_of_refreshes_that_fail_again_and_again_the_faults_of_the_last_are_kept(lake: GivenCorpus, lands: bool) -> None:
    if lands:
        lake.refresh(WHOLE, faults=[CorpusFault("x.csv", "binary")])
    failed = []
    for _ in range(3):
        failed.append(lake.queue())
        with working_on(lake.url, failed[-1]):
            Load.begin(lake.url, failed[-1]).put_faults([CorpusFault("y.csv", "torn"), CorpusFault("z.csv", "torn")])
        lake.corpora.end(failed[-1], RefreshState.FAILED, "too many faults")
    lake.corpora.cancel(lake.queue())
    lake.corpora.clean()
    assert [len(lake.corpora.faults(refresh_id, limit=9)) for refresh_id in failed] == [0, 0, 2]
    if lands:
        with lake.corpora.snapshot("lake") as snapshot:
            assert snapshot.faults(limit=9) == [(0, CorpusFault("x.csv", "binary"))]


def test_a_process_that_is_killed_while_it_lands_leaves_what_is_served(lake: GivenCorpus) -> None:
    """It waits for a lock in the middle of its transaction when it is killed."""
    refresh_id = lake.queue()
    with working_on(lake.url, refresh_id):
        load = lake.load({(0, 1, 5)})
        with closing(psycopg2.connect(lake.url)) as other, other.cursor() as cursor:
            cursor.execute("lock table corpus_load in exclusive mode")
            killed = multiprocessing.get_context("spawn").Process(target=land, args=(load,))
            killed.start()
            wait_for(lambda: is_locked(lake.url, "corpus_load", granted=False))
            killed.kill()
            killed.join()
        assert killed.exitcode == -signal.SIGKILL
        assert served(lake) == sorted(WHOLE)
        assert lake.corpora.refresh(refresh_id).state is RefreshState.RUNNING
        load = lake.load({(0, 2, 5)})
        load.land(versions([]), np.empty(0, np.int32), None, [], {})
    assert served(lake) == [(0, 2, 5)]


def land(load: Load) -> None:
    load.land(versions([]), np.empty(0, np.int32), None, [], {})


def test_what_was_ended_by_others_meanwhile_does_not_land(lake: GivenCorpus) -> None:
    with working_on(lake.url, lake.queue()) as (_, refresh):
        load = lake.load({(0, 1, 5)})
        lake.corpora.end(refresh.refresh_id, RefreshState.CANCELLED, "by hand")
        with pytest.raises(StateError, match=r"cannot land: it is cancelled"):
            land(load)
    assert served(lake) == sorted(WHOLE)


def test_what_is_cancelled_while_it_lands_does_not_land(lake: GivenCorpus) -> None:
    """Who ends a refresh does not wait for its landing."""
    with working_on(lake.url, lake.queue()) as (_, refresh), ThreadPoolExecutor() as other:
        load = lake.load({(0, 1, 5)})
        with closing(psycopg2.connect(lake.url)) as blocker, blocker.cursor() as cursor:
            cursor.execute("lock table corpus_load in exclusive mode")
            landing = other.submit(land, load)
            wait_for(lambda: is_locked(lake.url, "corpus_load", granted=False))
            assert lake.corpora.request_refresh("lake", requested_by="meanwhile").state is RefreshState.QUEUED
            lake.corpora.end(refresh.refresh_id, RefreshState.CANCELLED, "by hand")
        with pytest.raises(StateError, match=r"cannot land: it is cancelled"):
            landing.result()
    assert served(lake) == sorted(WHOLE)


def test_a_backup_that_has_begun_before_a_landing_is_waited_for(
    lake: GivenCorpus, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("service.store.corpus_loads.LANDING_TIMEOUT", "50ms")
    monkeypatch.setattr("service.store.corpus_loads.BACKUP_LOOK_SECONDS", 0.05)
    with working_on(lake.url, lake.queue()), ThreadPoolExecutor() as other:
        load = lake.load({(0, 1, 5)})
        with closing(psycopg2.connect(lake.url, application_name=BACKUP_NAME)) as backup, backup.cursor() as cursor:
            cursor.execute(f"lock table {load.table} in access share mode")
            landing = other.submit(land, load)
            with pytest.raises(TimeoutError):
                landing.result(0.5)
        landing.result(BOUND_SECONDS)
    assert served(lake) == [(0, 1, 5)]


@pytest.mark.parametrize("changed", [None, np.array([0], np.int32)])
def test_a_corpus_lands_while_another_one_s_landing_is_at_work(
    lake: GivenCorpus, monkeypatch: pytest.MonkeyPatch, changed: np.ndarray | None
) -> None:
    """Of the first nothing is left to write by then but that it is served."""
    monkeypatch.setattr("service.store.corpus_loads.LANDING_TIMEOUT", "1s")
    other = GivenCorpus(lake.url, "other")
    other.refresh(WHOLE, [table(0), table(1)])

    class Joins:
        def put(self, cursor: Any) -> None:
            other.refresh({(0, 2, 5)})

    with working_on(lake.url, lake.queue()):
        load = lake.load({(0, 1, 5)})
        load.land(versions([]), np.empty(0, np.int32), changed, [], {}, cast(NewIndex, Joins()))
    assert served(other) == [(0, 2, 5)]
    assert served(lake) == [(0, 1, 5), *(row for row in sorted(WHOLE) if changed is not None and 0 not in row[:2])]
    with lake.corpora.snapshot("lake") as snapshot:
        assert len(snapshot.changes(limit=99)) == len(WHOLE) - len(served(lake))
