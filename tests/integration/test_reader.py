"""Own the proof that answers are what the definitions say, and that each comes from one version."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import psycopg2
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import text
from sqlalchemy.event import listens_for

from service.core.errors import NotFoundError, StateError
from service.core.model import AttributeName, TransitionKind
from service.store.database import LostConnectionError, make_engine
from service.store.embedded import EmbeddedPostgres
from service.store.reader import PostgresStateReader
from service.usecases import coefficients, queries
from service.usecases.answers import AttributeFilter, TransitionFilter
from service.usecases.coefficient_table import Question
from tests.hand_made_state import TABLE_1, Columns, HandMadeState, inds_of, value_key
from tests.postgres import TEMPLATE, fresh_database

A, B, C, D = TABLE_1


@pytest.fixture
def reader(database_url: str) -> Iterator[PostgresStateReader]:
    """Read the test's database."""
    engine = make_engine(database_url, "test-reader", statement_timeout_ms=10_000)
    yield PostgresStateReader(engine)
    engine.dispose()


@pytest.fixture
def table_1(database_url: str) -> Iterator[HandMadeState]:
    """Hold the paper's running example."""
    state = HandMadeState(database_url, TABLE_1)
    yield state
    state.close()


# Example 1.1 of the paper: the second tuple (b, b, e, a) is deleted.
TABLE_1_WITHOUT_SECOND_TUPLE = {name: [cells[0], *cells[2:]] for name, cells in TABLE_1.items()}


def test_table_1_gives_the_clusters_and_inds_of_the_paper(reader: PostgresStateReader, table_1: HandMadeState) -> None:
    with reader.snapshot() as snapshot:
        clusters, names = queries.clusters(snapshot)
        inds = queries.uinds(snapshot).items
        found = queries.state(snapshot)
    letters = {number: one.name.column for number, one in names.items()}
    assert sorted(("".join(letters[one] for one in c.attribute_ids), c.value_count) for c in clusters.items) == [
        ("AB", 2),
        ("ABD", 1),
        ("BD", 1),
        ("C", 2),
    ]
    assert [(one.dependent.name, one.referenced.name) for one in inds] == [(A, B), (D, B)]
    assert (found.counts.values, found.counts.attributes, found.counts.tables, found.counts.uinds) == (6, 4, 1, 2)
    assert found.head.version == 1
    assert [(one.name, one.table_count, one.attribute_count) for one in found.sources] == [("hand", 1, 4)]


def test_a_deleted_tuple_breaks_an_ind_and_the_explanation_says_by_which_value(
    reader: PostgresStateReader, table_1: HandMadeState
) -> None:
    with reader.snapshot(with_values=True) as snapshot:
        before = queries.explain(snapshot, queries.resolve(snapshot, str(A)), queries.resolve(snapshot, str(B)))
    assert before.holds
    assert (before.since.version, before.since_reason, before.coefficient.coefficient) == (1, "bootstrap", 1.0)

    table_1.commit(TABLE_1_WITHOUT_SECOND_TUPLE)

    with reader.snapshot(with_values=True) as snapshot:
        after = queries.explain(snapshot, queries.resolve(snapshot, str(A)), queries.resolve(snapshot, str(B)))
        then = queries.uinds(snapshot, as_of=1).items
        now = queries.uinds(snapshot).items
    assert not after.holds
    assert (after.since.version, after.since_reason, after.missing_count) == (2, "broke", 1)
    assert after.since.committed_at is not None
    assert [(one.value, one.frequency) for one in after.missing_values.items] == [("b", 1)]
    assert after.coefficient.coefficient == 2 / 3
    assert [(one.version, one.kind, one.witness_value) for one in after.transitions] == [
        (2, TransitionKind.BROKE, "b"),
        (1, TransitionKind.APPEARED, None),
    ]
    assert [(one.dependent.name, one.until_version) for one in then] == [(A, 2), (D, None)]
    assert [one.dependent.name for one in now] == [D]


def test_a_pair_that_never_held_is_as_the_bootstrap_found_it(
    reader: PostgresStateReader, table_1: HandMadeState
) -> None:
    table_1.commit(TABLE_1)
    with reader.snapshot(with_values=True) as snapshot:
        answer = queries.explain(snapshot, queries.resolve(snapshot, str(C)), queries.resolve(snapshot, str(A)))
    assert (answer.holds, answer.since.version, answer.since_reason) == (False, 1, "bootstrap")
    assert (answer.coefficient.coefficient, answer.missing_count, answer.transitions) == (0.0, 2, [])
    assert sorted(one.value for one in answer.missing_values.items) == ["e", "f"]


def test_a_dependent_without_values_has_no_coefficient(reader: PostgresStateReader, database_url: str) -> None:
    empty, full = AttributeName("s", "t", "empty"), AttributeName("s", "t", "full")
    HandMadeState(database_url, {empty: [None, None], full: ["x", None]}).close()
    with reader.snapshot(with_values=True) as snapshot:
        answer = queries.explain(snapshot, queries.resolve(snapshot, str(empty)), queries.resolve(snapshot, str(full)))
        every = coefficients.page(snapshot, Question()).items
        unique = [(one.name.column, one.is_unique) for one in queries.attributes(snapshot).items]
    assert (answer.holds, answer.coefficient.coefficient, answer.missing_count) == (False, None, 0)
    assert every == []
    assert unique == [("empty", False), ("full", False)]


def test_a_long_value_is_shown_cut_and_says_so(reader: PostgresStateReader, database_url: str) -> None:
    one, other = AttributeName("s", "t", "one"), AttributeName("s", "t", "other")
    HandMadeState(database_url, {one: ["x" * 300, "y" * 256], other: ["z"]}).close()
    with reader.snapshot(with_values=True) as snapshot:
        pair = queries.resolve(snapshot, str(one)), queries.resolve(snapshot, str(other))
        found = queries.missing_values(snapshot, *pair).items
    assert {(value.value, value.is_cut, value.value_key) for value in found} == {
        ("x" * 256, True, value_key("x" * 300)),
        ("y" * 256, False, value_key("y" * 256)),
    }


def test_two_attributes_of_one_full_name_are_told_apart_by_id(reader: PostgresStateReader, database_url: str) -> None:
    dotted, plain = AttributeName("a.b", "c", "d"), AttributeName("a", "b", "c.d")
    HandMadeState(database_url, {dotted: ["1"], plain: ["1", "2"]}).close()
    with reader.snapshot() as snapshot:
        with pytest.raises(queries.AmbiguousNameError, match=r"id:1 is \('a', 'b', 'c.d'\); id:0 is") as caught:
            queries.resolve(snapshot, "a.b.c.d")
        assert sorted(one.name for one in caught.value.candidates) == sorted([dotted, plain])
        assert queries.resolve(snapshot, "id:1").name == plain
        for unknown in ("id:2", "a.b.c", "id:x", "", "a.b.c.\x00", "id:99999999999999999999"):
            with pytest.raises(NotFoundError):
                queries.resolve(snapshot, unknown)


def test_filters_choose_by_schema_table_attribute_and_part(reader: PostgresStateReader, database_url: str) -> None:
    names = [AttributeName(s, t, c) for s in ("s", "z") for t in ("t%", "u") for c in ("id", "a_id")]
    HandMadeState(database_url, {name: ["1"] for name in names}).close()
    with reader.snapshot() as snapshot:

        def chosen(**fields: object) -> list[AttributeName]:
            return [one.name for one in queries.attributes(snapshot, AttributeFilter(**fields)).items]

        assert chosen(schema="s") == [one for one in names if one.schema == "s"]
        assert chosen(schema="z", table="t%") == [one for one in names if one[:2] == ("z", "t%")]
        assert chosen(contains="a_id") == [one for one in names if one.column == "a_id"]
        assert chosen(contains="%") == [one for one in names if one.table == "t%"]  # % is no pattern
        assert chosen(contains="%.") == chosen(table="t%")
        assert chosen(schema="s\x00") == []
        pairs = queries.uinds(snapshot, AttributeFilter(table="u"), AttributeFilter(schema="z", contains=".id")).items
        assert {(one.dependent.name, one.referenced.name) for one in pairs} == {
            (left, right)
            for left in names
            for right in names
            if left.table == "u" and right.schema == "z" and right.column == "id" and left != right
        }


def test_versions_that_are_not_there_are_refused(reader: PostgresStateReader, table_1: HandMadeState) -> None:
    with reader.snapshot() as snapshot:
        for wrong in (0, 2):
            with pytest.raises(queries.UnknownVersionError, match="has 1 to 1"):
                queries.uinds(snapshot, as_of=wrong)
        assert queries.transitions(snapshot, TransitionFilter(since=1)).items == []
        with pytest.raises(queries.UnknownVersionError):
            queries.transitions(snapshot, TransitionFilter(since=2))


def test_before_the_first_bootstrap_there_is_version_0_and_nothing_in_it(reader: PostgresStateReader) -> None:
    with reader.snapshot(with_values=True) as snapshot:
        found = queries.state(snapshot)
        assert queries.uinds(snapshot, as_of=0).items == []
        assert coefficients.page(snapshot, Question()).items == []
    assert (found.head.version, found.head.generation, found.counts.values, found.sources) == (0, 0, 0, [])


def test_a_database_without_the_state_is_named_with_the_way_out(empty_database_url: str) -> None:
    engine = make_engine(empty_database_url, "test-reader")
    with pytest.raises(StateError, match="holds no state of subsetd; run `subsetd bootstrap`"):  # noqa: SIM117
        with PostgresStateReader(engine).snapshot():
            pass
    engine.dispose()


def cut_connections(database_url: str) -> int:
    """End the reader's connections at the server, as its restart does; give how many there were."""
    other = psycopg2.connect(database_url)
    with other, other.cursor() as cursor:
        cursor.execute(
            "select count(pg_terminate_backend(pid, 10000)) from pg_stat_activity"
            " where application_name = 'test-reader' and datname = current_database()"
        )
        (cut,) = cursor.fetchone() or (0,)
    other.close()
    return cut


def test_connections_that_the_server_cut_are_replaced(
    reader: PostgresStateReader, table_1: HandMadeState, database_url: str
) -> None:
    with reader.snapshot(), reader.snapshot():
        pass  # Two connections wait in the pool now.
    assert cut_connections(database_url) == 2
    with reader.snapshot() as snapshot:
        assert snapshot.head.version == 1


def test_a_connection_that_is_cut_in_mid_answer_is_an_error_that_says_so(
    reader: PostgresStateReader, table_1: HandMadeState, database_url: str
) -> None:
    with reader.snapshot() as snapshot:
        assert cut_connections(database_url) == 1
        with pytest.raises(LostConnectionError, match="was lost"):
            snapshot.counts()
    with reader.snapshot() as snapshot:
        assert snapshot.counts().attributes == 4


def test_the_reader_cannot_write(reader: PostgresStateReader, table_1: HandMadeState) -> None:
    with reader.snapshot() as snapshot, pytest.raises(Exception, match="read-only transaction"):
        snapshot._connection.execute(text("delete from uind"))


def test_a_statement_that_takes_too_long_is_an_error_that_says_so(database_url: str) -> None:
    engine = make_engine(database_url, "test-reader", statement_timeout_ms=20)
    # On a busy machine what is asked while it connects may take as long.
    with pytest.raises(StateError, match="longer than its time limit"), engine.connect() as connection:
        connection.execute(text("select pg_sleep(30)"))
    engine.dispose()


def test_all_connections_in_use_is_an_error_that_says_so(database_url: str) -> None:
    engine = make_engine(database_url, "test-reader", pool_size=1, max_overflow=0, pool_timeout_seconds=0.01)
    reader = PostgresStateReader(engine)
    with reader.snapshot(), pytest.raises(StateError, match=r"All connections to database .* are in use"):
        reader.snapshot().__enter__()
    engine.dispose()


# --- Against brute force -----------------------------------------------------------------------------------

NAMES = [AttributeName("s", table, column) for table in ("t", "u") for column in ("a", "b", "c")]
cells = st.lists(st.one_of(st.none(), st.sampled_from("vwxyz")), max_size=6)
states = st.lists(st.tuples(*[cells for _ in NAMES]), min_size=1, max_size=4)


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(history=states, limit=st.integers(1, 4))
def test_every_answer_equals_brute_force_at_every_page_size(
    postgres_server: EmbeddedPostgres, history: list[tuple[list[str | None], ...]], limit: int
) -> None:
    versions: list[Columns] = [dict(zip(NAMES, one, strict=True)) for one in history]
    with fresh_database(postgres_server, TEMPLATE) as url:
        state = HandMadeState(url, versions[0])
        for columns in versions[1:]:
            state.commit(columns)
        state.close()
        engine = make_engine(url, "test-reader")
        with PostgresStateReader(engine).snapshot(with_values=True) as snapshot:
            _check_against_brute_force(snapshot, versions, limit)
        engine.dispose()


def _check_against_brute_force(snapshot: queries.StateSnapshot, versions: list[Columns], limit: int) -> None:
    columns = versions[-1]
    sets = {name: {cell for cell in column if cell is not None} for name, column in columns.items()}
    infos = {one.name: one for one in queries.walk(lambda key: queries.attributes(snapshot, after=key, limit=limit))}
    assert list(infos) == NAMES
    for name, one in infos.items():
        column = columns[name]
        full = [cell for cell in column if cell is not None]
        assert (one.row_count, one.null_count, one.distinct_count) == (
            len(column), len(column) - len(full), len(sets[name]),
        )  # fmt: skip
        assert one.is_unique == (len(set(column)) == len(column) and None not in column)

    for version, past in enumerate(versions, 1):
        held = queries.walk(
            lambda key, v=version: queries.uinds(snapshot, as_of=v, after=key, limit=limit)  # type: ignore[misc]
        )
        pairs = [(one.dependent.name, one.referenced.name) for one in held]
        assert len(pairs) == len(set(pairs))
        assert set(pairs) == inds_of(past)

    expected = {}
    for left in NAMES:
        for right in NAMES:
            if left == right:
                continue
            lacking = sets[left] - sets[right]
            answer = queries.explain(snapshot, infos[left], infos[right])
            assert answer.holds == ((left, right) in inds_of(columns))
            assert answer.missing_count == len(lacking)
            found = list(
                queries.walk(
                    lambda key, pair=(infos[left], infos[right]): queries.missing_values(  # type: ignore[misc]
                        snapshot, *pair, after=key, limit=limit
                    )
                )
            )
            assert sorted(one.value for one in found) == sorted(lacking)
            assert all(one.frequency == columns[left].count(one.value) for one in found)
            if sets[left] & sets[right]:
                expected[left, right] = len(sets[left] & sets[right]) / len(sets[left])
            assert answer.since.version == _began(versions, left, right)
    for threshold in (0.0, 0.5, 1.0):
        question = Question(threshold=threshold)
        every = list(
            queries.walk(lambda key, q=question: coefficients.page(snapshot, q, key, limit))  # type: ignore[misc]
        )
        assert len(every) == len({(one.dependent, one.referenced) for one in every})
        assert {(one.dependent.name, one.referenced.name): one.estimate.phi for one in every} == {
            pair: share for pair, share in expected.items() if share >= threshold
        }

    events = list(queries.walk(lambda key: queries.transitions(snapshot, TransitionFilter(), after=key, limit=limit)))
    standing: set[tuple[AttributeName, AttributeName]] = set()
    for event in events:
        standing ^= {(event.dependent.name, event.referenced.name)}
    assert standing == inds_of(columns)


def _began(versions: list[Columns], left: AttributeName, right: AttributeName) -> int:
    """Find the version since which the pair is as it is, by walking back."""
    holding = [(left, right) in inds_of(one) for one in versions]
    began = len(holding)
    while began > 1 and holding[began - 2] == holding[-1]:
        began -= 1
    return began


@pytest.mark.parametrize(("bound", "value"), [("MAX_DEPENDENTS_A_PAGE", 2), ("MAX_WORK_A_PAGE", 0)])
def test_pages_of_all_coefficients_go_on_behind_their_bound(
    reader: PostgresStateReader, database_url: str, monkeypatch: pytest.MonkeyPatch, bound: str, value: int
) -> None:
    monkeypatch.setattr(coefficients, bound, value)
    names = [AttributeName("s", "t", f"c{number}") for number in range(5)]
    # The first three share little, the last two all: pages before theirs are empty and have a next one.
    columns = {name: ["all", "all"] if at > 2 else [str(at), "few", "all"] for at, name in enumerate(names)}
    HandMadeState(database_url, columns).close()
    with reader.snapshot() as snapshot:
        question = Question(threshold=0.9)
        first = coefficients.page(snapshot, question)
        assert first.items == []
        assert first.next_key is not None
        every = list(queries.walk(lambda key: coefficients.page(snapshot, question, key, 1)))
    assert [(one.dependent.name, one.referenced.name) for one in every] == [
        (left, right) for left in names[3:] for right in names if left != right
    ]


# --- One version -------------------------------------------------------------------------------------------


def test_partitions_cannot_be_swapped_under_an_answer_with_values(
    reader: PostgresStateReader, table_1: HandMadeState, database_url: str
) -> None:
    other = psycopg2.connect(database_url, options="-c lock_timeout=50")
    swap = "alter table gen_rec detach partition gen_rec_g1_p000"
    with other, other.cursor() as cursor, reader.snapshot(with_values=True):
        with pytest.raises(psycopg2.errors.LockNotAvailable):
            cursor.execute(swap)
        other.rollback()
    with other, other.cursor() as cursor:
        cursor.execute(swap)
    other.close()


@pytest.mark.parametrize("told", [KeyboardInterrupt, SystemExit])
def test_a_process_that_is_told_to_end_in_mid_statement_has_lost_no_connection(
    database_url: str, told: type[BaseException]
) -> None:
    engine = make_engine(database_url, "test")

    @listens_for(engine, "do_execute")
    def _interrupt(_cursor: object, statement: str, *_: object) -> None:
        if statement == "select 1":
            raise told

    with engine.connect() as connection, pytest.raises(told):
        connection.execute(text("select 1"))
    engine.dispose()


def test_every_answer_comes_from_one_version_while_another_commits(
    reader: PostgresStateReader, table_1: HandMadeState
) -> None:
    contents = {0: TABLE_1, 1: TABLE_1_WITHOUT_SECOND_TUPLE}  # Version v holds contents[(v + 1) % 2].
    stop = threading.Event()
    failures: list[BaseException] = []

    def write() -> None:
        try:
            while not stop.is_set():
                table_1.commit(contents[table_1.version % 2])
        except BaseException as error:
            failures.append(error)

    writer = threading.Thread(target=write)
    writer.start()
    seen = set()
    try:
        while len(seen) < 30 and not failures:
            with reader.snapshot(with_values=True) as snapshot:
                version = snapshot.head.version
                columns = contents[(version + 1) % 2]
                pair = queries.resolve(snapshot, str(A)), queries.resolve(snapshot, str(B))
                answer = queries.explain(snapshot, *pair)
                newest = queries.transitions(snapshot, TransitionFilter(since=version - 1)).items
            seen.add(version)
            lacking = set(columns[A]) - set(columns[B])
            assert answer.holds == (not lacking)
            assert answer.missing_count == len(lacking)
            assert {one.value for one in answer.missing_values.items} == lacking
            assert answer.dependent.row_count == len(columns[A])
            assert {one.version for one in newest} == {version}
    finally:
        stop.set()
        writer.join()
    assert failures == []
