"""Watches look at a real state: what stands is told once, what is half there waits, and nothing is lost on the way."""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterator
from datetime import timedelta
from decimal import Decimal
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry
from sqlalchemy import Engine

from service.config import load_settings
from service.core.errors import ConflictError, NotFoundError, RecordError, StateError
from service.core.foreign_keys.sides import ForeignKey
from service.core.model import AttributeName
from service.core.watch_rules import Rule, RuleKind
from service.observe import ConsumerObserver
from service.store import feeds, watch_looks
from service.store.contracts import PostgresContracts
from service.store.database import make_engine
from service.store.embedded import EmbeddedPostgres
from service.store.watch_looks import PostgresLook
from service.usecases.batches import ErrorPolicy
from service.usecases.foreign_key_decisions import EXACT
from service.usecases.watches import AlertState
from service.watch_runner import report_lag
from service.watch_runner import watching as watching_beside
from tests import states
from tests.following import COLUMNS, Stream, consume
from tests.integration.test_bad_input import full_disk
from tests.states import Tables
from tests.waiting import wait_for
from tests.watching import Watching, below, new_watch, pair_rule

LATER = timedelta(hours=1)
BROKEN, MENDED = ("fired", 1, 0), ("resolved", 0, 1)
BAD_ORDER = ["11", "9", None]


@pytest.fixture
def stream(tmp_path: Path, database_url: str) -> Stream:
    tables = Tables(dict(COLUMNS))
    tables.add("customers", ["1", "Ada"], ["2", "Bob"]).add("orders", ["10", "1", None])
    states.store(database_url, tables)
    (tmp_path / "feed.jsonl").touch()
    return Stream(tmp_path / "feed.jsonl", tables)


@pytest.fixture
def engine(database_url: str, stream: Stream) -> Iterator[Engine]:
    made = make_engine(database_url, "test-watches")
    yield made
    made.dispose()


@pytest.fixture
def watching(engine: Engine) -> Iterator[Watching]:
    made = Watching(engine)
    yield made
    made.looks.close()


def break_it(url: str, stream: Stream) -> None:
    stream.change("orders", None, BAD_ORDER)
    consume(url, stream)


def mend_it(url: str, stream: Stream) -> None:
    stream.change("orders", BAD_ORDER, None)
    consume(url, stream)


@pytest.mark.parametrize("rule", [pair_rule(), Rule(RuleKind.CONTRACT).checked(), below("0.5")])
def test_of_what_a_bootstrap_turns_no_more_is_held_than_watches_speak_of(
    database_url: str, stream: Stream, watching: Watching, rule: Rule
) -> None:
    watching.watches.add(new_watch(rule))
    watching.look()
    many = 20_000
    states.execute(
        database_url,
        "insert into attribute (attribute_id, source_id, schema_name, table_name, column_name, ordinal, "
        "row_count, null_count) "
        f"select 1000 + i, source_id, 's', 'wide', 'c' || i, i, 0, 0 from source, generate_series(1, {many}) as i; "
        "insert into state_version (version, generation, kind, source_name) values (2, 2, 'bootstrap', 's'); "
        "insert into ind_transition (version, dependent_id, referenced_id, kind) "
        f"select 2, 1000 + i, 1, 'appeared' from generate_series(1, {many}) as i",
    )
    tracemalloc.start()
    try:
        watching.look()
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert most < many * 300, "less than the events alone, which have the names and the detail of each"


def test_a_pair_that_breaks_and_holds_again_is_told_of_with_the_value_that_did_it(
    database_url: str, stream: Stream, watching: Watching
) -> None:
    watching.watches.add(new_watch(pair_rule(), with_values=True))
    assert watching.look() == []
    break_it(database_url, stream)
    assert watching.look() == [BROKEN]
    assert watching.look() == []
    mend_it(database_url, stream)
    assert watching.look() == [MENDED]
    mended, broken = watching.alerts()
    (subject,) = broken.body["subjects"]
    assert (broken.version, subject["name"], subject["witness_value"]) == (2, "s.orders.customer ⊆ s.customers.id", "9")
    assert set(subject["position"]) == {"topic", "partition", "offset"}
    assert (mended.version, mended.state, mended.body["bad"], broken.body["bad"]) == (3, AlertState.PENDING, 0, 1)


def test_values_are_told_only_where_the_watch_says_so(database_url: str, stream: Stream, watching: Watching) -> None:
    watching.watches.add(new_watch(pair_rule()))
    break_it(database_url, stream)
    watching.look()
    (alert,) = watching.alerts()
    assert "witness_value" not in alert.body["subjects"][0]
    assert alert.body["summary"] == "s.orders.customer ⊆ s.customers.id is broken"


def test_what_does_not_stand_for_the_debounce_is_never_told(
    database_url: str, stream: Stream, watching: Watching
) -> None:
    watching.watches.add(new_watch(pair_rule(), debounce=30))
    break_it(database_url, stream)
    assert watching.look() == []
    assert watching.look(29) == []
    mend_it(database_url, stream)
    assert watching.look(5) == []
    break_it(database_url, stream)
    assert watching.look() == []
    assert watching.look(30) == [BROKEN]


def test_without_a_debounce_each_turn_is_told_though_nobody_looked_between(
    database_url: str, stream: Stream, watching: Watching
) -> None:
    watching.watches.add(new_watch(pair_rule()))
    watching.watches.add(new_watch(pair_rule(), "patient", debounce=1))
    for _ in range(2):
        break_it(database_url, stream)
        mend_it(database_url, stream)
    assert watching.look() == [BROKEN, MENDED, BROKEN, MENDED]
    assert [one.version for one in watching.alerts()] == [5, 4, 3, 2]
    assert watching.look(60) == []


def test_a_clock_that_was_stored_is_not_needed_after_a_restart(
    database_url: str, stream: Stream, watching: Watching
) -> None:
    watching.watches.add(new_watch(pair_rule(), debounce=30))
    break_it(database_url, stream)
    watching.look()
    watching.restart()
    watching.clock.now = -1e9  # another machine's clock begins elsewhere
    assert watching.look() == []
    assert watching.look(29) == []
    assert watching.look(1) == [BROKEN]


def test_a_pattern_tells_of_many_in_one_alert_and_of_nothing_that_stood_before(
    database_url: str, stream: Stream, watching: Watching
) -> None:
    watching.watches.add(new_watch(pair_rule("s.*", "s.*"), debounce=10))
    watching.watches.add(new_watch(pair_rule("s.*", "s.*", "holding"), "comes", debounce=10, tell_resolved=False))
    watching.watches.add(new_watch(pair_rule("t.*", "s.*"), "of others", debounce=10))
    assert watching.look(20) == []
    stream.change("customers", None, ["10", "1"])
    consume(database_url, stream)
    ((appeared,),) = states.query(database_url, "select count(*) from ind_transition where kind = 'appeared'")
    assert appeared > 1
    assert watching.look() == []
    assert watching.look(10) == [("fired", appeared, 0)]
    stream.change("orders", None, BAD_ORDER)
    consume(database_url, stream)
    ((broke,),) = states.query(database_url, "select count(*) from ind_transition where kind = 'broke'")
    watching.look()
    assert watching.look(10) == [("fired", broke, 0)]
    assert watching.alerts()[0].watch == "w"


def test_what_stands_when_a_pair_is_watched_is_told(database_url: str, stream: Stream, watching: Watching) -> None:
    break_it(database_url, stream)
    watching.watches.add(new_watch(pair_rule()))
    assert watching.look() == [BROKEN]


def test_a_contract_is_told_of_also_one_that_is_violated_when_it_is_added(
    database_url: str, stream: Stream, watching: Watching, engine: Engine
) -> None:
    contracts = PostgresContracts(engine)
    key = ForeignKey.of([AttributeName("s", "orders", "customer")], [AttributeName("s", "customers", "id")])
    watching.watches.add(new_watch(Rule(RuleKind.CONTRACT).checked()))
    made = contracts.add(key, EXACT, "Ada")
    assert watching.look() == []
    break_it(database_url, stream)
    assert watching.look() == [BROKEN]
    assert watching.alerts()[0].body["subjects"][0]["name"].startswith(f"contract {made.contract_id}, ")
    contracts.remove(made.contract_id)
    assert watching.look() == [], "what is gone is not told of"
    contracts.add(key, EXACT, "Ada")
    assert watching.look() == [BROKEN]
    watching.watches.add(new_watch(Rule(RuleKind.CONTRACT, "held").checked(), "held"))
    assert watching.look() == []
    mend_it(database_url, stream)
    assert watching.look() == [MENDED, BROKEN]
    assert watching.alerts()[0].body["summary"] == "any contract is held"


def test_a_coefficient_comes_back_by_its_margin(database_url: str, stream: Stream, watching: Watching) -> None:
    watching.watches.add(new_watch(below("0.75", "0.2")))
    break_it(database_url, stream)  # 1 of 2
    assert watching.look() == [BROKEN]
    assert watching.alerts()[0].body["subjects"][0]["coefficient"] == 0.5
    for i, customer in enumerate(["1", "2"]):
        stream.change("orders", None, [str(20 + i), customer, None])
    stream.change("customers", None, ["7", "Eve"])
    stream.change("orders", None, ["30", "7", None])
    consume(database_url, stream)  # 3 of 4: at the bound, not behind its margin
    assert watching.look() == []
    mend_it(database_url, stream)
    assert watching.look() == [MENDED]


def test_uniqueness_of_a_column_and_of_tracked_keys(database_url: str, stream: Stream, watching: Watching) -> None:
    watching.watches.add(new_watch(Rule(RuleKind.UNIQUE, attribute="s.customers.id").checked()))
    watching.watches.add(new_watch(Rule(RuleKind.UNIQUE, attribute="s.*").checked(), "keys"))
    assert watching.look() == []
    states.execute(
        database_url,
        "insert into tracked_key (attribute_id, kind, since_version) "
        "select attribute_id, 'pinned', 1 from attribute where column_name = 'id'",
    )
    assert watching.look() == []
    back = Rule(RuleKind.UNIQUE, "regained", attribute="s.customers.id").checked()
    watching.watches.add(new_watch(back, "regained"))
    assert watching.look() == [BROKEN], "it is unique, which this one tells of"
    stream.change("customers", None, ["1", "Twin"])
    consume(database_url, stream)
    assert watching.look() == [BROKEN, BROKEN, MENDED]
    assert watching.alerts()[1].body["subjects"][0]["name"] == "s.customers.id"
    stream.change("customers", ["1", "Twin"], None)
    consume(database_url, stream)
    assert watching.look() == [MENDED, MENDED, BROKEN]
    assert watching.alerts()[0].body["summary"] == "s.customers.id has regained its uniqueness"


def test_a_lag_stands_and_grows_when_its_consumer_reports_no_more(watching: Watching) -> None:
    watching.looks.report_lag(3, 500.0, "records")
    rule = Rule(RuleKind.LAG, bound=Decimal(10)).checked()
    watching.watches.add(new_watch(rule, debounce=5))
    assert watching.look(60) == [], "before there was a watch nobody reported"
    watching.looks.report_lag(3, 2.0, "records")
    assert watching.look() == []
    assert watching.look(8) == []
    assert watching.look(1) == [], "11 s now, but only just"
    assert watching.look(5) == [BROKEN]
    watching.looks.forget_lag()
    assert watching.look(60) == [], "what is not known is not over"
    watching.looks.report_lag(0, 0.0, "records")
    assert watching.look() == []
    assert watching.look(5) == [MENDED]


@pytest.mark.parametrize("until_end", [False, True])
def test_a_consumer_that_is_stopped_falls_behind_unless_it_has_read_all_or_is_followed_no_more(
    database_url: str, watching: Watching, until_end: bool
) -> None:
    watching.watches.add(new_watch(Rule(RuleKind.LAG, bound=Decimal(10)).checked()))
    observer = ConsumerObserver(CollectorRegistry())
    observer.following(1, None, 2, 3, {})
    observer.waiting({})
    with watching_beside(database_url, load_settings(), CollectorRegistry(), observer, has_read_all=lambda: until_end):
        wait_for(lambda: states.query(database_url, "select from consumer_lag"))
    assert watching.look() == []
    assert watching.look(11) == ([] if until_end else [BROKEN])
    feeds.forget(watching.engine, "some feed")
    assert watching.look(60) == []
    report_lag(watching.looks, observer)
    assert watching.look() == ([] if until_end else [MENDED]), "another consumer, which is not behind"


def test_a_consumer_that_ends_and_is_started_again_and_again_falls_behind(
    database_url: str, stream: Stream, watching: Watching
) -> None:
    watching.watches.add(new_watch(Rule(RuleKind.LAG, bound=Decimal(60)).checked(), debounce=30))
    states.execute(database_url, "update state_version set committed_at = committed_at - interval '2 minutes'")
    stream.write(b"no change\n")
    told = []
    for _ in range(10):  # each life lasts for 8 s, and ends in front of the same record
        observer = ConsumerObserver(CollectorRegistry())
        report_lag(watching.looks, observer)
        told += watching.look(3)
        with pytest.raises(RecordError):
            consume(database_url, stream, watch=observer)
        report_lag(watching.looks, observer)
        told += watching.look(5)
    assert told == [BROKEN]
    consume(database_url, stream, on_error=ErrorPolicy.SET_ASIDE, watch=observer)
    report_lag(watching.looks, observer)
    assert [watching.look(), watching.look(30)] == [[], [MENDED]]


def test_a_consumer_that_does_not_follow_yet_leaves_what_was_told_of_the_one_before(watching: Watching) -> None:
    watching.watches.add(new_watch(Rule(RuleKind.LAG, bound=Decimal(10)).checked()))
    watching.looks.report_lag(3, 2.0, "records")
    assert watching.look() == []
    for _ in range(9):
        report_lag(watching.looks, ConsumerObserver(CollectorRegistry()))
        assert watching.look(1) == ([] if watching.clock.now <= 1008 else [BROKEN])


def test_a_lag_in_bytes_is_told_in_bytes(watching: Watching) -> None:
    watching.looks.report_lag(0, 0.0, "records")
    watching.watches.add(new_watch(Rule(RuleKind.LAG, "records", bound=Decimal(1000)).checked()))
    watching.looks.report_lag(4096, 2.0, "bytes")
    assert watching.look() == [BROKEN]
    body = watching.alerts()[0].body
    assert body["summary"] == (
        "the consumer is more than 1000 records (of a file or a slot: bytes) behind: 2.0 s, 4096 bytes"
    )
    assert body["subjects"][0]["unit"] == "bytes"


def test_dead_letters_are_counted_and_told_once(database_url: str, stream: Stream, watching: Watching) -> None:
    def add_letters(*offsets: int) -> None:
        for offset in offsets:
            states.execute(
                database_url,
                "insert into dead_letter (feed, topic, partition, record_offset, error_class, message, record, version)"
                f" values ('f', 't', 0, {offset}, 'RecordError', 'value 9 is bad', '', 1)",
            )

    add_letters(1)
    watching.watches.add(new_watch(Rule(RuleKind.DEAD_LETTERS).checked(), debounce=10))
    assert watching.look(60) == []
    add_letters(2)
    assert watching.look() == []
    add_letters(3)
    assert watching.look(10) == [BROKEN]
    alert = watching.alerts()[0]
    assert alert.body["summary"] == "2 dead letters came"
    assert "9 is bad" not in str(alert.body)
    assert watching.look(60) == []
    add_letters(4)
    assert watching.look() == []
    assert watching.look(10) == [BROKEN]


def test_a_refresh_that_fails_and_one_that_lands(database_url: str, watching: Watching) -> None:
    states.execute(database_url, "insert into corpus (name, location, kind, settings) values ('lake', '', 'csv', '{}')")
    watching.watches.add(new_watch(Rule(RuleKind.REFRESH, corpus="l*").checked()))
    for state, told in (("landed", []), ("failed", [BROKEN]), ("running", []), ("landed", [MENDED])):
        states.execute(
            database_url,
            "insert into corpus_refresh (corpus_id, state, requested_by, fault) "
            f"values (1, '{state}', 'x', 'no such folder')",
        )
        assert watching.look() == told
        states.execute(database_url, "update corpus_refresh set state = 'cancelled' where state = 'running'")


def test_a_column_that_is_renamed_is_no_longer_what_the_watch_speaks_of(
    database_url: str, stream: Stream, watching: Watching
) -> None:
    watching.watches.add(new_watch(pair_rule()))
    break_it(database_url, stream)
    assert watching.look() == [BROKEN]
    states.execute(database_url, "update attribute set column_name = 'who' where column_name = 'customer'")
    assert watching.look() == []
    (watch,) = watching.watches.all(0, 10)
    assert watch.bad == 0


def test_watches_are_added_replaced_and_removed(database_url: str, stream: Stream, watching: Watching) -> None:
    watches = watching.watches
    made = watches.add(new_watch(pair_rule()))
    with pytest.raises(ConflictError, match="There is a watch 'w' already"):
        watches.add(new_watch(pair_rule()))
    for rule in (
        pair_rule("s.orders.nothing"),
        Rule(RuleKind.UNIQUE, attribute="s.orders.nothing").checked(),
        Rule(RuleKind.CONTRACT, contract_id=7).checked(),
        Rule(RuleKind.REFRESH, corpus="lake").checked(),
    ):
        with pytest.raises(NotFoundError, match=r"There is no (attribute s.orders.nothing|contract 7|corpus lake);"):
            watches.add(new_watch(rule, "x"))
    break_it(database_url, stream)
    watching.look()
    other = watches.replace(made.watch_id, new_watch(pair_rule("s.customers.id", "s.orders.customer"), "v", debounce=3))
    assert (other.watch_id, other.name, other.debounce, other.bad, other.seen_version) == (made.watch_id, "v", 3, 0, 2)
    watches.remove(made.watch_id)
    assert watches.all(0, 10) == []
    (alert,) = watching.alerts()
    assert (alert.watch, alert.watch_id, alert.state, alert.fault) == (
        "w",
        None,
        AlertState.FAILED,
        "the watch was removed",
    )
    for unknown in (watches.get, watches.remove, watches.test):
        with pytest.raises(NotFoundError, match="There is no watch 1"):
            unknown(made.watch_id)


STEPS = ["watched", "events", "pair", "quiet", "silences", "save", "add_alert"]


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("when", ["before", "after"])
def test_a_crash_at_any_step_of_a_look_loses_no_alert_and_makes_none_twice(
    database_url: str, stream: Stream, watching: Watching, monkeypatch: pytest.MonkeyPatch, step: str, when: str
) -> None:
    watching.watches.add(new_watch(pair_rule()))
    watching.look()
    break_it(database_url, stream)
    real = getattr(PostgresLook, step)

    def crash(*given: object) -> None:
        if when == "after":
            real(*given)
        raise StateError("the plug was pulled")

    with monkeypatch.context() as patched:
        patched.setattr(PostgresLook, step, crash)
        with pytest.raises(StateError, match="the plug was pulled"):
            watching.evaluator.evaluate()
    assert watching.alerts() == []
    watching.restart()
    assert watching.look() == [BROKEN]
    assert watching.look() == []


def test_a_full_disk_loses_no_alert(
    postgres_server: EmbeddedPostgres, database_url: str, stream: Stream, watching: Watching
) -> None:
    watching.watches.add(new_watch(pair_rule()))
    watching.look()
    break_it(database_url, stream)
    watching.looks.close()
    watching.engine.dispose()  # processes of the server have the file open
    with full_disk(postgres_server, database_url, "watch_alert"), pytest.raises(StateError, match="is full"):
        watching.evaluator.evaluate()
    assert watching.look() == [BROKEN]


def test_the_history_is_bounded_and_keeps_what_is_on_its_way(
    database_url: str, stream: Stream, watching: Watching, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watch_looks, "KEPT_ALERTS", 2)
    watching.watches.add(new_watch(pair_rule()))
    for _ in range(3):
        break_it(database_url, stream)
        mend_it(database_url, stream)
    watching.look()
    assert len(watching.alerts()) == 6
    states.execute(database_url, "update watch_alert set state = 'delivered' where alert_id > 1")
    break_it(database_url, stream)
    watching.look()
    assert [one.alert_id for one in watching.alerts()] == [7, 6, 1]
