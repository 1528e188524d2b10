"""What is kept of coefficients over time is what the sets had, and where nobody looked there is a gap."""

from __future__ import annotations

import random
from collections.abc import Iterator
from fractions import Fraction
from itertools import pairwise

import pytest
from sqlalchemy import Engine

from service.core.model import AttributeName
from service.store.coefficient_samples import CoefficientLooks
from service.store.database import make_engine
from service.store.reader import PostgresStateReader
from service.store.retention import drop_piece
from service.store.watches import PostgresWatches
from service.usecases import coefficient_history, queries
from service.usecases.coefficient_history import CoefficientSpan
from tests import states
from tests.asking import http_client
from tests.hand_made_state import Columns, HandMadeState
from tests.integration.serving import app_over, serving
from tests.watching import new_watch, pair_rule

ORDERS, CUSTOMERS = AttributeName("s", "orders", "customer"), AttributeName("s", "customers", "id")
BILLS, NOTES = AttributeName("s", "bills", "customer"), AttributeName("s", "notes", "text")
HOLDING = {ORDERS: ["1", "2"], CUSTOMERS: ["1", "2", "3"], BILLS: ["1"], NOTES: ["x"]}
HALF = HOLDING | {ORDERS: ["1", "9"]}
CONTRACT = """
insert into contract (dependent_schema, dependent_table, dependent_columns, referenced_schema, referenced_table,
    referenced_columns, least_coefficient, created_by)
values ('s', 'orders', '{customer}', 's', 'customers', '{id}', 1, 'Ada')
"""


@pytest.fixture
def engine(database_url: str) -> Iterator[Engine]:
    engine = make_engine(database_url, "test-history")
    yield engine
    engine.dispose()


@pytest.fixture
def state(database_url: str) -> Iterator[HandMadeState]:
    made = HandMadeState(database_url, HOLDING)
    yield made
    made.close()


def phi(columns: Columns, pair: tuple[AttributeName, AttributeName]) -> Fraction | None:
    """Count what the sets share."""
    one, other = ({cell for cell in columns[name] if cell is not None} for name in pair)
    return Fraction(len(one & other), len(one)) if one else None


def spans(engine: Engine, pair: tuple[AttributeName, AttributeName], limit: int = 1000) -> list[CoefficientSpan]:
    """Go through the pages of a pair's history."""
    found: list[CoefficientSpan] = []
    after = None
    while True:
        with PostgresStateReader(engine).snapshot() as snapshot:
            sides = [queries.resolve(snapshot, str(name)) for name in pair]
            page = coefficient_history.history(snapshot, *sides, after, limit)
        found += page.items
        after = page.next_key
        if after is None:
            return found


def test_spans_say_what_the_sets_say(database_url: str, engine: Engine, state: HandMadeState) -> None:
    """Of random versions, some of which are looked at: each look is in a span, and no span says more than is so."""
    states.execute(database_url, CONTRACT)
    PostgresWatches(engine).add(new_watch(pair_rule(str(BILLS), str(CUSTOMERS)), "w"))
    watched = [(ORDERS, CUSTOMERS), (BILLS, CUSTOMERS)]
    chance = random.Random(11)
    looks, at = CoefficientLooks(engine, 100), {1: HOLDING}
    looked = []
    for _ in range(60):
        columns = {name: chance.choices(["1", "2", "3", "9", None], k=chance.randint(0, 3)) for name in HOLDING}
        if chance.random() < 0.4:
            columns = at[state.version]
        at[state.commit(columns)] = columns
        if chance.random() < 0.5:
            looks.look()
            looked.append(state.version)
    assert looks.look() == 0 or looked[-1] != state.version, "a version that was looked at is not looked at again"
    for pair in watched:
        found = spans(engine, pair)
        assert found == spans(engine, pair, 3)
        assert found[0].until_version <= state.version
        for newer, older in pairwise(found):
            assert older.until_version < newer.since_version
        for span in found:
            inside = range(span.since_version, span.until_version + 1)
            exact = [one for one in inside if span.holds or one in (*looked, span.since_version, span.until_version)]
            for version in exact:
                assert phi(at[version], pair) == (
                    1
                    if span.holds
                    else Fraction(span.overlap or 0, span.distinct_count)
                    if span.distinct_count
                    else None
                ), (pair, span, version)
            # While it does not hold by Φ = 1, no span says that it does.
            assert span.holds or all(phi(at[one], pair) != 1 for one in inside)
        for version in looked:
            assert any(one.since_version <= version <= one.until_version for one in found), (pair, version)
        holding = {version for version in at if phi(at[version], pair) == 1}
        assert holding == {v for one in found if one.holds for v in range(one.since_version, one.until_version + 1)}
        assert any(not one.holds and one.since_version < one.until_version for one in found), "none went on"


def test_where_nobody_looked_there_is_a_gap(database_url: str, engine: Engine, state: HandMadeState) -> None:
    states.execute(database_url, CONTRACT)
    looks = CoefficientLooks(engine, 100)
    state.commit(HALF)
    looks.look()
    state.commit(HALF)
    looks.look()
    assert [(one.since_version, one.until_version) for one in spans(engine, (ORDERS, CUSTOMERS))] == [(2, 3), (1, 1)]
    state.commit(HALF)
    states.execute(database_url, "update state_version set committed_at = committed_at - interval '4 minutes'")
    state.commit(HALF)
    looks.look()
    newest, before, held = spans(engine, (ORDERS, CUSTOMERS))
    assert [(one.since_version, one.until_version, one.coefficient) for one in (newest, before, held)] == [
        (5, 5, 0.5),
        (2, 3, 0.5),
        (1, 1, 1.0),
    ]
    assert newest.until_at is None
    assert newest.since_at is not None
    assert before.until_at is not None
    assert (newest.since_at - before.until_at).total_seconds() > coefficient_history.LOST_SECONDS
    assert held.until_at == before.since_at


def test_a_span_does_not_go_on_over_a_version_in_which_the_ind_held(
    database_url: str, engine: Engine, state: HandMadeState
) -> None:
    states.execute(database_url, CONTRACT)
    looks = CoefficientLooks(engine, 100)
    for columns in (HALF, HOLDING, HALF):
        state.commit(columns)
        if columns is HALF:
            looks.look()
    found = [(one.since_version, one.until_version, one.holds) for one in spans(engine, (ORDERS, CUSTOMERS))]
    assert found == [(4, 4, False), (3, 3, True), (2, 2, False), (1, 1, True)]


def test_the_watched_come_first_and_of_the_rest_those_that_nearly_hold(
    database_url: str, engine: Engine, state: HandMadeState
) -> None:
    many = [str(i) for i in range(20)]
    state.commit(HOLDING | {NOTES: many, CUSTOMERS: many})
    state.commit(HOLDING | {NOTES: many, CUSTOMERS: [*many[1:], "n"], BILLS: ["1", "b"]})
    kept = "select dependent_id, referenced_id, overlap, distinct_count from coefficient_sample order by 1, 2"
    ids = state.ids
    CoefficientLooks(engine, 100).look()
    # 19 of 20 nearly hold both ways, and half of the bills do not; nor do pairs count whose IND never held.
    both = [(ids[CUSTOMERS], ids[NOTES], 19, 20), (ids[NOTES], ids[CUSTOMERS], 19, 20)]
    assert states.query(database_url, kept) == both
    states.execute(database_url, "delete from coefficient_sample")
    PostgresWatches(engine).add(new_watch(pair_rule(str(BILLS), str(ORDERS)), "w"))
    CoefficientLooks(engine, 1).look()
    assert states.query(database_url, kept) == [(ids[BILLS], ids[ORDERS], 1, 2)]
    states.execute(database_url, "delete from coefficient_sample; update attribute set stale_version = 3")
    assert CoefficientLooks(engine, 100).look() == 0


def test_the_route_names_its_answer_after_the_looks_and_old_spans_go_with_the_history(
    database_url: str, engine: Engine, state: HandMadeState
) -> None:
    states.execute(database_url, CONTRACT)
    looks = CoefficientLooks(engine, 100)
    path = f"/api/v1/uinds/{ORDERS}/{CUSTOMERS}/history"
    with serving(app_over(engine)) as address, http_client(base_url=address, timeout=60) as client:
        state.commit(HALF)
        first = client.get(path)
        assert [one["holds"] for one in first.json()["items"]] == [True]
        looks.look()
        second = client.get(path, headers={"If-None-Match": first.headers["ETag"]})
        assert [(one["holds"], one["coefficient"]) for one in second.json()["items"]] == [(False, 0.5), (True, 1.0)]
        assert client.get(path, headers={"If-None-Match": second.headers["ETag"]}).status_code == 304
        state.commit(HOLDING)
        state.commit(HOLDING)
        states.execute(database_url, "update state_version set committed_at = now() - interval '2 days'")
        while drop_piece(engine, 24 * 60 * 60):
            pass
        (kept,) = client.get(path).json()["items"]
        assert (kept["since_version"], kept["holds"]) == (3, True)
        assert client.get(f"/api/v1/uinds/{ORDERS}/{ORDERS}/history").status_code == 422
