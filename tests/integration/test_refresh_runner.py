"""Refreshes on a real Postgres: one at a time for each corpus, cancelled, limited, tried again, and never lost."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from sqlalchemy import text

from service.api.corpus_metrics import CorpusMetrics
from service.config import load_settings
from service.core.errors import NotFoundError, StateError
from service.refresh_service import refreshing_corpora
from service.store.corpus_loads import working_on
from service.usecases.corpora import Corpus, Refresh, RefreshState
from service.usecases.refresh_corpora import (
    END_SECONDS,
    FIRST_PAUSE,
    GONE_SECONDS,
    SCHEDULE,
    cancel_all,
)
from tests.refresh_house import House
from tests.waiting import wait_for


@pytest.fixture
def house(database_url: str) -> Iterator[House]:
    found = House(database_url)
    yield found
    found.engine.dispose()


def test_a_refresh_runs_and_what_its_job_landed_is_told(house: House) -> None:
    asked = house.ask(house.add())
    runner = house.runner()
    runner.look()
    assert house.state(asked) is RefreshState.RUNNING
    (job,) = house.jobs
    assert job.refresh.refresh_id == asked
    house.corpora.end(asked, RefreshState.LANDED, None)  # as the job's landing does
    job.code = 0
    runner.look()
    assert house.observed.events == [("began", asked), ("landed", asked)]
    assert job.heard == ["close"]


def test_of_one_corpus_one_refresh_runs_and_of_several_as_many_as_are_allowed(house: House) -> None:
    names = [house.add(name) for name in ("a", "b", "c")]
    first = {name: house.ask(name) for name in names}
    one, other = house.runner(at_once=2), house.runner()
    one.look()
    assert [job.refresh.corpus for job in house.jobs] == ["a", "b"]
    again = house.ask("a")
    assert again != first["a"], "the one that runs may have read the files already"
    assert house.ask("a") == again, "one waits, and that is enough"
    other.look()
    assert house.jobs[-1].refresh.corpus == "c"
    house.jobs[1].code = 1
    one.look()
    one.look()
    assert house.state(again) is RefreshState.QUEUED, "the first of a still runs"
    house.jobs[0].code = 1
    one.look()
    assert house.state(again) is RefreshState.RUNNING


def test_a_job_that_fails_is_tried_again_after_a_pause_that_doubles(house: House) -> None:
    asked = house.ask(house.add(retries=2))
    runner = house.runner()
    for attempt in (1, 2, 3):
        runner.look()
        assert len(house.jobs) == attempt
        house.jobs[-1].last_words = f"[ 1.0 s] reading\nerror: /lake is away for the\n{attempt}. time\n"
        house.jobs[-1].code = 1
        # The database goes by its own clock: for it the pause is over when it began long enough ago.
        house.shift = -FIRST_PAUSE * 2 ** (attempt - 1)
        before = datetime.now(UTC)
        runner.look()
        refresh = house.corpora.refresh(asked)
        if attempt < 3:
            assert refresh.not_before is not None
            assert timedelta(0) <= refresh.not_before - before < timedelta(minutes=1)
    assert (refresh.state, refresh.fault) == (RefreshState.FAILED, "/lake is away for the\n3. time")
    assert [event for event, _ in house.observed.events if event != "began"] == ["failed, again"] * 2 + ["failed"]


def test_a_job_that_dies_without_a_word_is_told_by_its_code(house: House) -> None:
    asked = house.ask(house.add())
    runner = house.runner()
    runner.look()
    house.jobs[0].last_words, house.jobs[0].code = "reading: 7 tasks\n\nKilled", 137
    runner.look()
    fault = "Its process ended with exit code 137.\nreading: 7 tasks\nKilled"
    assert house.corpora.refresh(asked).fault == fault


def test_while_the_database_is_away_nothing_is_forgotten(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = house.ask(house.add())
    runner = house.runner()
    runner.look()
    house.jobs[0].code = 1

    def away(*_: object) -> None:
        raise StateError("The database is away.")

    for method in ("refresh", "end"):
        with monkeypatch.context() as patch:
            patch.setattr(house.corpora, method, away)
            for _ in range(2):
                with pytest.raises(StateError, match="away"):
                    runner.look()
    runner.look()
    assert house.state(asked) is RefreshState.FAILED
    assert house.observed.events == [("began", asked), ("failed", asked)]


def test_a_corpus_that_is_removed_while_its_job_starts_takes_the_job_with_it(house: House) -> None:
    house.ask(house.add())
    house.ask(house.add("other"))
    runner = house.runner()
    runner.look()
    house.corpora.remove("lake")
    runner.look()
    assert house.jobs[0].heard == ["kill", "close"]
    assert house.jobs[1].refresh.corpus == "other"
    house.corpora.remove("other")
    runner.close()
    assert house.jobs[1].heard == ["end", "close"]


def test_a_pause_is_kept(house: House) -> None:
    house.ask(house.add(retries=1))
    runner = house.runner()
    runner.look()
    house.jobs[0].code = 1
    runner.look()
    runner.look()
    assert len(house.jobs) == 1
    house.ask()  # who asks does not mean in half a minute
    runner.look()
    assert len(house.jobs) == 2


def test_a_refresh_is_cancelled_while_it_waits_and_while_it_runs(house: House) -> None:
    house.add(retries=5)
    waiting = house.ask()
    assert [one.refresh_id for one in cancel_all(house.corpora, "lake")] == [waiting]
    assert house.state(waiting) is RefreshState.CANCELLED
    runner = house.runner()
    runner.look()
    assert house.jobs == []

    running = house.ask()
    runner.look()
    cancel_all(house.corpora, "lake")
    runner.look()
    assert house.jobs[0].heard == ["end"]
    runner.look()
    assert house.state(running) is RefreshState.CANCELLED, "no attempt follows what was cancelled"
    assert house.observed.events[-1] == ("cancelled", running)
    with pytest.raises(NotFoundError, match="waits or runs"):
        cancel_all(house.corpora, "lake")


def test_a_cancel_while_an_attempt_fails_is_heard(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    house.add(retries=5)
    asked = house.ask()
    runner = house.runner()
    runner.look()
    real = house.corpora.requeue

    def meddling(*values: Any, **options: Any) -> None:
        cancel_all(house.corpora, "lake")
        real(*values, **options)

    monkeypatch.setattr(house.corpora, "requeue", meddling)
    house.jobs[0].code = 1
    runner.look()
    ended = house.corpora.refresh(asked)
    assert (ended.state, ended.ended_at is None) == (RefreshState.CANCELLED, False)
    assert house.ask() != asked


def test_a_job_that_does_not_end_is_killed(house: House) -> None:
    asked = house.ask(house.add())
    runner = house.runner()
    runner.look()
    house.jobs[0].obeys = False
    house.corpora.cancel(asked)
    runner.look()
    house.seconds += END_SECONDS
    runner.look()
    assert house.jobs[0].heard == ["end"]
    house.seconds += 1
    runner.look()
    assert house.jobs[0].heard == ["end", "kill"]
    runner.look()
    assert house.state(asked) is RefreshState.CANCELLED


def test_a_refresh_that_landed_before_it_heard_that_it_is_cancelled_has_landed(house: House) -> None:
    asked = house.ask(house.add())
    runner = house.runner()
    runner.look()
    house.corpora.cancel(asked)
    house.corpora.end(asked, RefreshState.LANDED, None)
    runner.look()
    runner.look()
    assert house.state(asked) is RefreshState.LANDED
    assert house.observed.events[-1] == ("landed", asked)


def test_a_refresh_that_takes_too_long_fails_for_good(house: House) -> None:
    asked = house.ask(house.add(time_limit_seconds=60, retries=5))
    runner = house.runner()
    runner.look()
    house.seconds = 60
    runner.look()
    assert house.jobs[0].heard == []
    house.seconds = 61
    runner.look()
    runner.look()
    refresh = house.corpora.refresh(asked)
    assert (refresh.state, refresh.fault) == (RefreshState.FAILED, "It took longer than its time limit of 60 s.")


def test_a_service_that_ends_leaves_its_refresh_to_the_next(house: House) -> None:
    asked = house.ask(house.add())
    first = house.runner()
    first.look()
    first.close()
    assert house.jobs[0].heard == ["end", "close"]
    assert house.state(asked) is RefreshState.QUEUED
    second = house.runner()
    second.look()
    assert house.state(asked) is RefreshState.RUNNING
    second.close(cancel=True)
    assert house.state(asked) is RefreshState.CANCELLED


def test_a_service_that_ends_takes_no_attempt_from_a_refresh(house: House) -> None:
    asked = house.ask(house.add(retries=1))
    for _ in range(3):
        ending = house.runner()
        ending.look()
        ending.close()
    runner = house.runner()
    runner.look()
    house.jobs[-1].code = 1
    runner.look()
    assert house.state(asked) is RefreshState.QUEUED, "it is tried again"
    house.ask()
    runner.look()
    assert [job.refresh.attempt for job in house.jobs] == [1, 1, 1, 1, 2]
    house.jobs[-1].code = 1
    runner.look()
    assert house.state(asked) is RefreshState.FAILED


def test_a_refresh_without_a_process_is_taken_up_by_another_runner(house: House) -> None:
    asked = house.ask(house.add(retries=1))
    house.runner().look()  # and this service is killed, with its job
    other = house.runner()
    other.look()
    house.seconds += GONE_SECONDS
    other.look()
    assert house.state(asked) is RefreshState.RUNNING, "its job may be about to take the lock"
    house.shift = -FIRST_PAUSE
    house.seconds += 1
    other.look()
    assert house.state(asked) is RefreshState.RUNNING
    assert [job.refresh.attempt for job in house.jobs] == [1, 2]
    other.close(cancel=True)


def test_a_job_that_outlives_its_service_goes_on(house: House) -> None:
    asked = house.ask(house.add())
    other = house.runner()
    with working_on(house.url, asked):
        for _ in range(3):
            other.look()
            house.seconds += GONE_SECONDS
        assert house.state(asked) is RefreshState.RUNNING
    other.look()
    house.seconds += GONE_SECONDS + 1
    other.look()
    assert house.state(asked) is RefreshState.FAILED


def in_half_an_hour() -> str:
    """Give an hourly schedule whose time does not come while a test runs."""
    return f"{(datetime.now(UTC).minute + 30) % 60} * * * *"


def test_a_scheduled_refresh_is_asked_for_once_also_when_nobody_was_here_at_its_time(house: House) -> None:
    house.add("unscheduled")
    house.add(schedule=in_half_an_hour())
    runners = [house.runner(), house.runner()]
    for runner in runners:
        runner.request_due()
    assert house.corpora.refreshes(limit=9) == []
    house.shift = timedelta(hours=5)
    for runner in runners * 2:
        runner.request_due()
    (refresh,) = house.corpora.refreshes(limit=9)
    assert (refresh.corpus, refresh.requested_by) == ("lake", SCHEDULE)
    house.shift = timedelta(0)
    house.corpora.cancel(refresh.refresh_id)
    runners[0].request_due()
    assert len(house.corpora.refreshes(limit=9)) == 1
    house.shift = timedelta(hours=2)
    runners[0].request_due()
    assert len(house.corpora.refreshes(limit=9)) == 2


def test_a_scheduled_refresh_is_asked_for_once_also_by_a_clock_that_is_ahead_of_the_databases(house: House) -> None:
    house.add(schedule=in_half_an_hour())
    house.shift = timedelta(minutes=45)
    runner = house.runner()
    runner.request_due()
    (refresh,) = house.corpora.refreshes(limit=9)
    house.corpora.cancel(refresh.refresh_id)  # it is over before the database comes to that time
    runner.request_due()
    assert len(house.corpora.refreshes(limit=9)) == 1


def test_a_corpus_that_is_removed_meanwhile_keeps_no_other_from_its_refresh_or_metrics(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    listed = house.corpora.all

    def remove_one_that_was_listed() -> list[Corpus]:
        found = listed()
        house.corpora.remove("a")
        return found

    monkeypatch.setattr(house.corpora, "all", remove_one_that_was_listed)
    house.add("a", schedule="0 0 * * *")
    house.add("b", schedule="0 0 * * *")
    house.shift = timedelta(days=2)
    house.runner().request_due()
    assert [one.corpus for one in house.corpora.refreshes(limit=9)] == ["b"]
    house.add("a")
    samples = [sample for family in CorpusMetrics(house.corpora).collect() for sample in family.samples]
    assert {sample.labels["corpus"] for sample in samples} == {"b"}


def attending(house: House, asked: int, each_look: Callable[[int], None]) -> tuple[Refresh, list[RefreshState]]:
    """Attend a refresh; `each_look` does something between two looks."""
    seen: list[RefreshState] = []

    def pause() -> bool:
        each_look(len(seen))
        assert len(seen) < 10
        return False

    ended = house.runner().attend(asked, lambda refresh: seen.append(refresh.state), pause)
    return ended, seen


def test_who_waits_for_a_refresh_runs_it_unless_another_does(house: House) -> None:
    asked = house.ask(house.add())

    def land(_: int) -> None:
        house.corpora.end(asked, RefreshState.LANDED, None)
        house.jobs[0].code = 0

    ended, seen = attending(house, asked, land)
    assert ended.state is RefreshState.LANDED
    assert seen == [RefreshState.QUEUED, RefreshState.LANDED]

    other = house.runner()
    taken = house.ask()
    other.look()

    def land_there(look: int) -> None:
        if look == 3:
            house.corpora.end(taken, RefreshState.LANDED, None)

    ended, seen = attending(house, taken, land_there)
    assert ended.state is RefreshState.LANDED
    assert len(house.jobs) == 2, "only the other runner has started a job"
    assert seen.count(RefreshState.RUNNING) == 3


def test_who_waits_is_not_held_up_for_ever_by_one_that_has_died(house: House) -> None:
    died = house.ask(house.add())
    house.runner().look()  # and its command is killed, with its job; no service runs
    asked = house.ask()

    def wait_and_land(_: int) -> None:
        house.seconds += GONE_SECONDS
        if len(house.jobs) == 2:
            house.corpora.end(asked, RefreshState.LANDED, None)
            house.jobs[1].code = 0

    ended, _ = attending(house, asked, wait_and_land)
    assert ended.state is RefreshState.LANDED
    assert house.state(died) is RefreshState.FAILED


@pytest.mark.parametrize("closes", [False, True])
def test_a_runner_that_slept_leaves_a_later_attempt_of_another_alone(house: House, closes: bool) -> None:
    asked = house.ask(house.add(retries=5))
    slept, other = house.runner(), house.runner()
    slept.look()
    other.look()
    house.seconds += GONE_SECONDS + 1
    other.look()  # nobody works on it: it has failed, and waits
    house.shift = FIRST_PAUSE * 2
    with house.engine.begin() as connection:
        connection.execute(text("update corpus_refresh set not_before = now()"))
    other.look()
    assert (house.corpora.refresh(asked).attempt, len(house.jobs)) == (2, 2)
    house.jobs[0].code = 1
    if closes:
        slept.close()
    else:
        slept.look()
    refresh = house.corpora.refresh(asked)
    assert (refresh.state, refresh.attempt) == (RefreshState.RUNNING, 2)


def test_a_service_drops_what_dead_refreshes_and_removed_corpora_have_left(house: House) -> None:
    with house.engine.begin() as connection:
        connection.execute(text("create table corpus_ind_l999 (like corpus_ind)"))
        connection.execute(text("create table corpus_change_l999 (like corpus_change)"))
    left = "select count(*) from pg_class where relname in ('corpus_ind_l999', 'corpus_change_l999')"
    with refreshing_corpora(house.url, load_settings(database_url=house.url)), house.engine.connect() as connection:
        reading = connection.execution_options(isolation_level="AUTOCOMMIT")
        wait_for(lambda: reading.scalar(text(left)) == 0)
