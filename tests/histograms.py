"""Own a feed in tests whose foreign keys' histograms are kept."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Mapping, Sequence

import numpy as np
import pytest

from service.core.foreign_keys.ranking import Method
from service.core.model import AttributeName
from service.core.quantile_grids import GridHistogram, QuantileGrid, histogram_over
from service.core.tuples import tuple_parts
from service.store.bulk import KeyRange, partition_name
from service.store.database import connect, make_engine
from service.store.foreign_key_refreshes import PostgresForeignKeys
from service.store.generation import (
    Generation,
    NewAttribute,
    NewTable,
    SourceDescription,
    create_registry,
    read_served,
)
from service.store.keys import NewKey
from service.store.publication import publish
from service.store.reader import PostgresSnapshot
from service.usecases.foreign_key_answers import ForeignKeyFinder
from service.usecases.foreign_key_ports import WantedGrid
from service.usecases.foreign_keys import ForeignKeys, Keys, Question, find_foreign_keys
from tests import states
from tests.following import COLUMNS, Stream
from tests.states import Tables

TUPLES = {"orders": [("customer", "note")], "customers": [("id", "name")]}
QUESTION = Question(Method.RANDOMNESS, theta=0.1, keys=Keys.DECLARED)
LOGGED = "select count(*) from value_change"
CUSTOMER = "select attribute_id from attribute where column_name = 'customer'"


def row_of(table: str, rng: random.Random) -> tuple[str | None, ...]:
    """Make a row of 300 ids, and 1,500 tuples, of which some are on both sides; and NULL."""
    number, name = str(rng.randrange(300)), f"n{rng.randrange(5)}"
    cells = {"id": number, "customer": number, "name": name, "note": name}
    return tuple(None if rng.random() < 0.05 else cells[column] for column in COLUMNS[table])


def change(stream: Stream, rng: random.Random, number: int) -> None:
    present = {table: list(rows.elements()) for table, rows in stream.tables.rows.items()}
    for _ in range(number):
        table = rng.choice(list(COLUMNS))
        rows = present[table]
        match rng.choice(["insert", "update", "delete"]):
            case "insert":
                rows.append(row_of(table, rng))
                stream.append(table, None, rows[-1])
            case "update":
                at = rng.randrange(len(rows))
                before, rows[at] = rows[at], row_of(table, rng)
                stream.append(table, before, rows[at])
            case "delete":
                stream.append(table, rows.pop(rng.randrange(len(rows))), None)
    stream.tables.rows = {table: Counter(rows) for table, rows in present.items()}


class Finding:
    """Find foreign keys, keep them, and count the keys of which all values were read."""

    def __init__(self, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
        self.engine = make_engine(url, "test")
        self.keys = PostgresForeignKeys(self.engine)
        self.read: list[int] = []
        spreads = PostgresSnapshot.spreads

        def counted(snapshot: PostgresSnapshot, wanted: WantedGrid, attribute_ids: Sequence[int]) -> object:
            self.read.append(wanted.key_id)
            return spreads(snapshot, wanted, attribute_ids)

        monkeypatch.setattr(PostgresSnapshot, "spreads", counted)
        self.looked_at: list[int] = []
        statistics = PostgresSnapshot.value_statistics

        def noted(snapshot: PostgresSnapshot, attribute_ids: Sequence[int]) -> object:
            self.looked_at += attribute_ids
            return statistics(snapshot, attribute_ids)

        monkeypatch.setattr(PostgresSnapshot, "value_statistics", noted)

    def find(self, question: Question = QUESTION) -> tuple[ForeignKeys, int]:
        self.read.clear()
        self.looked_at.clear()
        with self.keys.snapshot() as snapshot:
            return find_foreign_keys(snapshot, question), len(self.read)

    def refresh(self) -> int:
        self.read.clear()
        ForeignKeyFinder(self.keys).refresh(QUESTION)
        return len(self.read)


def require_exact(stream: Stream, found: ForeignKeys) -> None:
    """Hold all histograms against the rows, over the grids that they have."""
    cells = [{text.removeprefix("\0") for text in of if text is not None} for of in stream.tables.cells()]
    assert {len(one.columns) for one in found.histograms} == {1, 2}

    def same(of: GridHistogram, grids: tuple[QuantileGrid, ...], values: set[str]) -> None:
        rows = [[value] for value in values] if len(grids) == 1 else tuple_parts(values)
        expected = histogram_over(grids, rows)
        assert (of.cells.tolist(), of.counts.tolist()) == (expected.cells.tolist(), expected.counts.tolist())

    for one in found.histograms:
        grids = one.of_key.grids
        assert one.others
        for i, of in {one.key_id: one.of_key.tuples, **one.others}.items():
            same(of, grids, cells[i - 1])
        for column, grid, counts in zip(one.columns, grids, one.of_key.columns, strict=True):
            assert counts.tolist() == np.bincount(grid.cells_of(cells[column - 1]), minlength=len(grid)).tolist()


def grids_of(found: ForeignKeys) -> dict[int, tuple[QuantileGrid, ...]]:
    return {one.key_id: one.of_key.grids for one in found.histograms}


def bootstrap_again(
    url: str,
    tables: Tables,
    settings: Mapping[str, object] | None = None,
    telling: Callable[[str], None] = lambda _: None,
) -> None:
    """Put what tables hold now in the place of the state, as a bootstrap of their source with --replace does."""
    state, named = states.expected(tables), [f"s.{table}.{column}" for table, column in tables.names()]
    ids = {name: i for i, name in enumerate(named, 1)}
    clusters = {members: i for i, members in enumerate(state.clusters, 1)}
    whole, keys = KeyRange(0, 0), states.query(url, "select attribute_id, kind, is_primary from tracked_key")
    with connect(url, "test") as connection, connection.cursor() as cursor:
        served = read_served(connection)
        number = served.generation + 1
        partition = partition_name(number, 0)
        cursor.execute(f"create table {partition} (like gen_rec including defaults)")
        cursor.execute(f"alter table {partition} add constraint {partition}_range check ({whole.condition()})")
        for key, (value, found) in state.records.items():
            cells = sorted((ids[name], n) for name, n in found.items())
            row = key, value, clusters[frozenset(found)], [i for i, _ in cells], [n for _, n in cells]
            cursor.execute(f"insert into {partition} values (%s, %s, %s, %s, %s)", row)
        create_registry(connection, number)
        attributes = []
        for name, (table, column), parts in zip(named, tables.names(), tables.parts(), strict=True):
            place, key = (parts[0], tuple(parts)) if parts else (tables.columns[table].index(column), None)
            called = AttributeName("s", table, column)
            attributes.append(NewAttribute(ids[name], called, place, "string", *state.counters[name], key))
        generation = Generation(
            number,
            whole.bits,
            {i: (sorted(ids[name] for name in members), state.clusters[members]) for members, i in clusters.items()},
            attributes,
            np.array([(ids[a], ids[b]) for a, b in state.inds], np.int32).reshape(-1, 2),
            len(state.records),
            [NewTable("s", table, (None, "s", table)) for table in tables.columns],
            keys=[NewKey(*key) for key in keys],
        )
        source = SourceDescription("s", "csv", "-", settings or {}, insert_only=False)
        publish(connection, served, source, generation, telling)
