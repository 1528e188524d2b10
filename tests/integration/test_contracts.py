"""Contracts follow the data: violated once, mended once, whatever comes between; the rows themselves are the judge."""

from __future__ import annotations

import random
from collections.abc import Iterator
from decimal import Decimal
from itertools import pairwise
from pathlib import Path

import pytest
from sqlalchemy import Engine, text

from service.core.contracts import ContractKind
from service.core.errors import ConflictError, NotFoundError
from service.core.foreign_keys.sides import ForeignKey
from service.core.model import AttributeName
from service.store.contracts import EVENTS, PostgresContracts
from service.store.database import make_engine
from service.store.reader import PostgresStateReader
from service.store.schema_changes import rename
from service.store.writer import PostgresWriter
from service.usecases import schema_changes
from service.usecases.foreign_key_decisions import EXACT, Contract, ContractEvent, ContractState, Verdict
from tests import states
from tests.events import envelope
from tests.following import COLUMNS, Stream, consume, random_changes, shop_tables
from tests.states import Tables

CUSTOMER = AttributeName("s", "orders", "customer")
ID = AttributeName("s", "customers", "id")
OF_CUSTOMERS = ForeignKey.of([CUSTOMER], [ID])


@pytest.fixture
def stream(tmp_path: Path, database_url: str) -> Stream:
    tables = shop_tables()
    states.store(database_url, tables)
    return Stream.empty(tmp_path, tables)


@pytest.fixture
def engine(database_url: str) -> Iterator[Engine]:
    made = make_engine(database_url, "test-contracts")
    yield made
    made.dispose()


@pytest.fixture
def contracts(engine: Engine) -> PostgresContracts:
    return PostgresContracts(engine)


def all_contracts(engine: Engine) -> list[Contract]:
    with PostgresStateReader(engine).snapshot() as snapshot:
        return snapshot.contracts(0, 1000)


def events(engine: Engine, contract_id: int | None = None) -> list[ContractEvent]:
    with PostgresStateReader(engine).snapshot() as snapshot:
        return snapshot.contract_events(contract_id, (0, 0), 1000)


def told(engine: Engine) -> list[tuple[int, ContractKind, str | None, int]]:
    return [(one.version, one.kind, one.witness_value, one.cause_count) for one in events(engine)]


def values_of(stream: Stream, name: AttributeName) -> set[str]:
    at = list(stream.columns[name.table]).index(name.column)
    return {value for row in (+stream.tables.rows[name.table]) if (value := row[at]) is not None}


def is_violated(stream: Stream, contract: Contract) -> bool:
    """Say it by the rows, in whole numbers."""
    (dependent,), (referenced,) = (side.names for side in contract.foreign_key)
    values = values_of(stream, dependent)
    numerator, denominator = contract.least_coefficient.as_integer_ratio()
    return len(values & values_of(stream, referenced)) * denominator < numerator * len(values)


def test_a_contract_is_violated_once_and_mended_once(
    database_url: str, stream: Stream, engine: Engine, contracts: PostgresContracts
) -> None:
    made = contracts.add(OF_CUSTOMERS, EXACT, "Ada")
    assert (made.state, made.overlap, made.missing_count, made.coefficient) == (ContractState.HELD, 2, 0, 1.0)
    stream.change("orders", None, ["13", "9", "for whom?"])
    stream.change("orders", None, ["14", "9", "again"])
    stream.change("orders", None, ["15", "8", "and for whom?"])
    stream.change("orders", None, ["16", "1", "as others"])
    consume(database_url, stream, records=1)
    assert told(engine) == [(2, ContractKind.VIOLATED, "9", 1)]
    (now,) = all_contracts(engine)
    assert (now.state, now.violated_since, now.missing_count) == (ContractState.VIOLATED, 2, 2)
    stream.change("customers", None, ["9", "Cleo"])
    stream.change("orders", ["15", "8", "and for whom?"], None)
    stream.change("customers", None, ["4", "Dan"])
    consume(database_url, stream, records=1)
    assert told(engine)[1:] == [(7, ContractKind.MENDED, "8", 1)]
    assert all_contracts(engine)[0].state is ContractState.HELD
    with PostgresStateReader(engine).snapshot() as snapshot:
        since_first = snapshot.contract_events(None, (2, 0), 10, since=2)
    # What changes brought is told once: of the version that was seen nothing comes again.
    assert [one.kind for one in since_first] == [ContractKind.MENDED]


def test_the_position_is_that_of_the_row_that_did_it(
    database_url: str, stream: Stream, engine: Engine, contracts: PostgresContracts
) -> None:
    contracts.add(OF_CUSTOMERS, EXACT, "Ada")
    stream.change("orders", None, ["16", "1", "9"])  # has the value elsewhere
    at = stream.path.stat().st_size
    stream.change("orders", ["10", "1", "first"], ["10", "9", "first"])
    stream.change("orders", ["10", "9", "first"], ["10", "9", "note"])
    consume(database_url, stream)
    gone = stream.path.stat().st_size
    stream.change("orders", ["10", "9", "note"], None)
    stream.change("customers", None, ["7", None])
    consume(database_url, stream)
    violated, mended = events(engine)
    topic = str(stream.path)
    assert violated.position == {"topic": topic, "partition": 0, "offset": at}
    assert mended.position == {"topic": topic, "partition": 0, "offset": gone}


def test_a_deleted_key_violates_and_an_empty_dependent_keeps_a_contract(
    database_url: str, stream: Stream, engine: Engine, contracts: PostgresContracts
) -> None:
    contracts.add(OF_CUSTOMERS, EXACT, "Ada")
    stream.change("customers", ["2", "Bob"], None)
    consume(database_url, stream)
    stream.write(envelope("t", "s", "orders"))
    stream.tables.rows["orders"].clear()
    consume(database_url, stream)
    # Nothing was in the IND in between: no uIND appears or breaks where the first order is for nobody.
    stream.change("orders", None, ["13", "9", None])
    consume(database_url, stream)
    assert [(kind, witness) for _, kind, witness, _ in told(engine)] == [
        (ContractKind.VIOLATED, "2"),
        (ContractKind.MENDED, "2"),
        (ContractKind.VIOLATED, "9"),
    ]


@pytest.mark.parametrize("least", ["1", "0.75", "0.07"])
def test_random_changes_leave_what_the_rows_say(
    database_url: str, stream: Stream, engine: Engine, contracts: PostgresContracts, least: str
) -> None:
    """Contracts come and go between the runs; of each the transitions alternate, and end with how it stands."""
    rng = random.Random(7)
    names = [AttributeName("s", table, column) for table, column in stream.tables.names()]
    pairs = [(a, b) for a in names for b in names if a != b]
    rng.shuffle(pairs)
    for number, (a, b) in enumerate(pairs):
        made = contracts.add(ForeignKey.of([a], [b]), Decimal(least), "Ada")
        assert (made.state is ContractState.VIOLATED) == is_violated(stream, made)
        if number % 5 == 4:
            random_changes(stream, rng, 40)
            consume(database_url, stream, records=7)
        if number % 7 == 6:
            contracts.remove(made.contract_id)
    found = all_contracts(engine)
    assert {one.kind for one in events(engine)} == set(ContractKind)
    for one in found:
        assert (one.state is ContractState.VIOLATED) == is_violated(stream, one), one
        kinds = [event.kind for event in events(engine, one.contract_id)]
        assert all(x is not y for x, y in pairwise(kinds)), one
        assert (kinds[-1:] == [ContractKind.VIOLATED]) == (one.state is ContractState.VIOLATED)
    assert len(events(engine)) > len(found)


def test_a_contract_that_comes_while_the_feed_is_followed_is_watched_from_the_next_batch(
    database_url: str, stream: Stream, engine: Engine, contracts: PostgresContracts
) -> None:
    first = contracts.add(ForeignKey.of([CUSTOMER], [AttributeName("s", "orders", "id")]), EXACT, "Ada")
    assert first.state is ContractState.VIOLATED
    lookups = 0

    class Watched(PostgresWriter):
        def lookup(self, keys):  # type: ignore[no-untyped-def]
            nonlocal lookups
            lookups += 1
            if lookups == 3:
                contracts.add(OF_CUSTOMERS, EXACT, "Bob")
                contracts.remove(first.contract_id)
            return super().lookup(keys)

    for number in range(4):
        stream.change("orders", None, [f"2{number}", "1", f"fine {number}"])
    stream.change("orders", None, ["30", "9", "for whom?"])
    stream.change("orders", ["30", "9", "for whom?"], None)
    consume(database_url, stream, records=1, writer=Watched(database_url), cache_bytes=0)
    assert lookups > 3
    assert [(version, kind, witness) for version, kind, witness, _ in told(engine)] == [
        (6, ContractKind.VIOLATED, "9"),
        (7, ContractKind.MENDED, "9"),
    ]


def test_the_same_contract_twice_is_refused_and_so_are_columns_that_are_not_followed(
    stream: Stream, engine: Engine, contracts: PostgresContracts
) -> None:
    made = contracts.add(OF_CUSTOMERS, EXACT, "Ada")
    with pytest.raises(ConflictError, match=f"Contract {made.contract_id} is on s.orders.customer → s.customers.id"):
        contracts.add(OF_CUSTOMERS, Decimal("0.5"), "Ada")
    with pytest.raises(NotFoundError, match=r"No attribute s\.orders\.client is followed in state version 1"):
        contracts.add(ForeignKey.of([AttributeName("s", "orders", "client")], [ID]), EXACT, "Ada")
    with pytest.raises(NotFoundError, match="There is no contract 77"):
        contracts.remove(77)
    assert len(all_contracts(engine)) == 1


def test_a_decision_outlives_its_columns_and_follows_their_names(
    database_url: str, stream: Stream, engine: Engine, contracts: PostgresContracts
) -> None:
    def decisions() -> list[tuple[str, str, bool, bool]]:
        with PostgresStateReader(engine).snapshot() as snapshot:
            listed = snapshot.decisions(None, 10)
        return [(str(one.foreign_key), one.verdict.value, one.is_current, one.is_stale) for one in listed]

    contracts.decide(OF_CUSTOMERS, Verdict.PIN, "Ada", "looks right")
    contracts.decide(OF_CUSTOMERS, Verdict.ACCEPT, "Bob")
    named = "s.orders.customer → s.customers.id"
    assert decisions() == [(named, "accept", True, False), (named, "pin", False, False)]
    (contract,) = all_contracts(engine)
    assert (contract.foreign_key, contract.state, contract.decision_id) == (OF_CUSTOMERS, ContractState.HELD, 2)

    rename(database_url, "s.customers", "s.clients", print)
    renamed = "s.orders.customer → s.clients.id"
    assert decisions()[0] == (renamed, "accept", True, False)
    assert all_contracts(engine)[0].state is ContractState.HELD

    schema_changes.drop(PostgresWriter(database_url), "s.clients", force=True)
    assert decisions() == [(renamed, "accept", True, True), (renamed, "pin", False, True)]
    (contract,) = all_contracts(engine)
    assert (contract.state, contract.unknown, contract.missing_count) == (
        ContractState.UNKNOWN,
        ("s.clients.id",),
        None,
    )
    assert events(engine) == []


@pytest.mark.parametrize(
    ("gone", "dropped", "renamed", "new"),
    [
        (AttributeName("s", "customers", "name"), "s.customers.name", "s.customers.id", "s.customers.name"),
        (AttributeName("s", "clients", "id"), "s.clients", "s.customers", "s.clients"),
    ],
)
def test_what_is_renamed_takes_the_place_of_what_is_gone(
    gone: AttributeName, dropped: str, renamed: str, new: str, database_url: str, engine: Engine
) -> None:
    contracts = PostgresContracts(engine)
    columns = {**COLUMNS, "clients": ["id"]}
    states.store(database_url, Tables(columns).add("customers", ["1", "1"]).add("clients", ["1"]))
    of_gone = ForeignKey.of([CUSTOMER], [gone])
    contracts.decide(OF_CUSTOMERS, Verdict.ACCEPT, "Ada", "looks right")
    contracts.decide(of_gone, Verdict.ACCEPT, "Bob")
    contracts.add(ForeignKey.of([CUSTOMER], [AttributeName("s", "orders", "id")]), EXACT, "Bob")
    contracts.decide(of_gone, Verdict.PIN, "Cy")
    schema_changes.drop(PostgresWriter(database_url), dropped, force=True)
    states.execute(database_url, "update attribute set stale_version = 2 where column_name = 'id'")  # renamed at once
    rename(database_url, renamed, new, print)
    assert [one.contract_id for one in all_contracts(engine)] == [1, 3]
    with PostgresStateReader(engine).snapshot() as snapshot:
        listed = snapshot.decisions(None, 10)
    decided = [(one.verdict, one.decided_by, one.note, one.is_current) for one in listed]
    assert decided[0] == (Verdict.ACCEPT, "Ada", "looks right", True)
    assert sum(is_current for *_, is_current in decided) == 1
    assert len({one.foreign_key for one in listed}) == 1


def test_to_reject_ends_the_contract_of_an_acceptance_and_no_other(
    stream: Stream, engine: Engine, contracts: PostgresContracts
) -> None:
    contracts.decide(OF_CUSTOMERS, Verdict.ACCEPT, "Ada")
    contracts.decide(OF_CUSTOMERS, Verdict.REJECT, "Bob", "it only looks so")
    assert all_contracts(engine) == []
    contracts.add(OF_CUSTOMERS, EXACT, "Ada")
    contracts.decide(OF_CUSTOMERS, Verdict.ACCEPT, "Ada")
    contracts.decide(OF_CUSTOMERS, Verdict.REJECT, "Bob")
    assert [one.decision_id for one in all_contracts(engine)] == [None]


def test_a_contract_on_tuples_is_watched_as_one_on_columns(
    tmp_path: Path, database_url: str, engine: Engine, contracts: PostgresContracts
) -> None:
    """Each half of the pair is there all the time, the pair is not."""
    parts = {"orders": [("id", "customer")], "customers": [("id", "name")]}
    tables = Tables(dict(COLUMNS), tuples=parts)
    tables.add("customers", ["1", "2"], ["2", "1"], ["1", None]).add("orders", ["1", "2", "x"], ["7", None, "no pair"])
    states.store(database_url, tables)
    stream = Stream(tmp_path / "feed.jsonl", tables)
    pair = ForeignKey.of(
        [AttributeName("s", "orders", one) for one in ("id", "customer")],
        [AttributeName("s", "customers", one) for one in ("id", "name")],
    )
    made = contracts.decide(pair, Verdict.ACCEPT, "Ada")
    assert str(made.foreign_key) == "s.orders(id, customer) → s.customers(id, name)"
    assert [(one.state, one.overlap) for one in all_contracts(engine)] == [(ContractState.HELD, 1)]
    stream.change("orders", None, ["2", "1", "there"])
    at = stream.path.stat().st_size
    stream.change("orders", None, ["1", "1", "not there"])
    consume(database_url, stream)
    (violated,) = events(engine)
    assert (violated.kind, violated.witness_value) == (ContractKind.VIOLATED, '["1","1"]')
    assert violated.position == {"topic": str(stream.path), "partition": 0, "offset": at}
    stream.change("customers", ["1", None], ["1", "1"])
    consume(database_url, stream)
    assert events(engine)[1].kind is ContractKind.MENDED
    assert states.read(database_url) == states.expected(stream.tables)


@pytest.mark.parametrize("is_masked", [False, True])
def test_a_truncate_violates_a_contract_on_tuples_of_which_the_state_has_no_whole_text(
    tmp_path: Path, database_url: str, engine: Engine, contracts: PostgresContracts, is_masked: bool
) -> None:
    """Text of a tuple is cut where it is long, and empty where a column of it is masked."""
    name = "x" * 300
    parts = {"orders": [("customer", "note")], "customers": [("id", "name")]}
    tables = Tables(dict(COLUMNS), tuples=parts)
    tables.add("customers", ["1", name]).add("orders", ["10", "1", name])
    states.store(database_url, tables)
    if is_masked:
        states.execute(database_url, "update attribute set shown_characters = 0")
        states.execute(database_url, "update gen_rec set value = ''")
    stream = Stream.empty(tmp_path, tables)
    pair = ForeignKey.of(
        [AttributeName("s", "orders", one) for one in ("customer", "note")],
        [AttributeName("s", "customers", one) for one in ("id", "name")],
    )
    contracts.add(pair, EXACT, "Ada")
    at = stream.write(envelope("t", "s", "customers"))
    consume(database_url, stream)
    (violated,) = events(engine)
    assert (violated.kind, violated.cause_count) == (ContractKind.VIOLATED, 1)
    assert violated.position == {"topic": str(stream.path), "partition": 0, "offset": at}
    assert violated.witness_value == (None if is_masked else f'["1","{name}'[:256])


def test_a_composite_that_is_not_tracked_cannot_be_told(
    stream: Stream, engine: Engine, contracts: PostgresContracts
) -> None:
    both = [AttributeName("s", "orders", one) for one in ("id", "customer")]
    made = contracts.add(
        ForeignKey.of(both, [AttributeName("s", "customers", one) for one in ("id", "name")]), EXACT, "Ada"
    )
    assert (made.state, made.unknown) == (
        ContractState.UNKNOWN,
        ("s.orders(id, customer)", "s.customers(id, name)"),
    )


def test_the_transitions_of_one_contract_are_found_among_many(database_url: str, engine: Engine) -> None:
    """Pages read are counted: the primary key begins by versions, of which there are many."""
    states.execute(
        database_url,
        "with added as (insert into contract (dependent_schema, dependent_table, dependent_columns, referenced_schema, "
        "referenced_table, referenced_columns, least_coefficient, created_by) "
        "select 's', i, array['a'], 's', i, array['b'], 1, 'me' from generate_series(1, 9999) i returning contract_id) "
        "insert into contract_transition (version, contract_id, kind, cause_count) "
        "select contract_id / 2, contract_id, 'violated', 1 from added; analyze contract, contract_transition",
    )
    asked = {"version": 0, "contract_id": 0, "since": -1, "newer_than": 0, "one": 777, "limit": 100}
    with engine.connect() as connection:
        (found,) = connection.scalar(text(f"explain (analyze, buffers, format json) {EVENTS}"), asked)
    assert found["Plan"]["Actual Rows"] == 1
    assert found["Plan"]["Shared Hit Blocks"] + found["Plan"]["Shared Read Blocks"] < 30
