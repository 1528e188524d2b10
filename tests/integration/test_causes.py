"""Causes: a transition names the change that brought or took its witness, not the last of the batch, and its row."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest

from service.store.masking import mask
from tests import states
from tests.events import envelope
from tests.following import MakeStream, Stream, consume, random_changes, shop_tables, store_tracked
from tests.states import Tables

TRANSITIONS = """
select d.table_name, d.column_name, r.table_name, r.column_name, witness_value, position, changed_row
from ind_transition t join attribute d on d.attribute_id = dependent_id
join attribute r on r.attribute_id = referenced_id where t.version > 1 order by t.version, dependent_id, referenced_id
"""


def keyed(database_url: str, make_stream: MakeStream) -> Stream:
    """Track tables whose rows are told apart by `id`."""
    tables = shop_tables()
    store_tracked(database_url, tables)
    states.execute(database_url, "update tracked_table set key_columns = '{id}'")
    return make_stream(tables)


@pytest.fixture
def stream(database_url: str, make_stream: MakeStream) -> Stream:
    return keyed(database_url, make_stream)


def of_customer(database_url: str) -> list[tuple[Any, ...]]:
    """Give value, offset and row of the transitions of orders.customer in customers.id."""
    found = states.query(database_url, TRANSITIONS)
    sides = ("orders", "customer", "customers", "id")
    return [(value, position["offset"], row) for *names, value, position, row in found if tuple(names) == sides]


def test_the_position_is_that_of_the_change_among_many(database_url: str, stream: Stream) -> None:
    stream.change("orders", None, ["13", "1", None])
    at = stream.end()
    stream.change("orders", ["13", "1", None], ["13", "9", "whose?"])
    stream.change("orders", ["13", "9", "whose?"], ["13", "9", "still whose?"])
    stream.change("customers", None, ["4", "Dan"])
    consume(database_url, stream)
    assert of_customer(database_url) == [("9", at, {"table": "s.orders", "key": {"id": "13"}, "cells": {}})]

    stream.change("customers", None, ["5", None])
    mended = stream.end()
    stream.change("customers", ["5", None], ["9", "Eve"])
    stream.change("orders", None, ["14", "1", None])
    consume(database_url, stream)
    assert of_customer(database_url)[1:] == [("9", mended, {"table": "s.customers", "key": {"id": "9"}, "cells": {}})]

    broken = stream.end()
    stream.change("customers", ["9", "Eve"], None)
    stream.change("orders", None, ["15", "1", None])
    consume(database_url, stream)
    assert of_customer(database_url)[2:] == [("9", broken, {"table": "s.customers", "key": {"id": "9"}, "cells": {}})]


def test_a_truncate_names_no_row(database_url: str, stream: Stream) -> None:
    at = stream.write(envelope("t", "s", "customers", None, None))
    consume(database_url, stream)
    ((value, offset, row),) = of_customer(database_url)
    assert (value in ("1", "2"), offset, row) == (True, at, None)


def test_a_row_without_a_key_is_told_by_its_cells(database_url: str, stream: Stream) -> None:
    states.execute(database_url, "update tracked_table set key_columns = '{}'")
    stream.change("orders", None, ["13", "9", None])
    consume(database_url, stream)
    ((_, _, row),) = of_customer(database_url)
    assert row == {"table": "s.orders", "key": {}, "cells": {"id": "13", "customer": "9", "note": None}}


def test_of_a_long_row_without_a_key_the_beginning_is_told(database_url: str, make_stream: MakeStream) -> None:
    tables = Tables({"wide": [f"c{number:02}" for number in range(20)], "few": ["id"]}).add("few", ["1"])
    store_tracked(database_url, tables)
    stream = make_stream(tables)
    stream.change("wide", None, ["x" * 100, *(str(number) for number in range(1, 20))])
    consume(database_url, stream)
    rows = [row for *_, row in states.query(database_url, TRANSITIONS) if row is not None]
    cells = {"c00": "x" * 64} | {f"c{number:02}": str(number) for number in range(1, 16)}
    assert rows
    assert all(row == {"table": "s.wide", "key": {}, "cells": cells} for row in rows)


@pytest.mark.parametrize(("characters", "shown"), [(0, {}), (2, {"note": "se"})])
def test_of_a_row_without_a_key_what_is_not_to_be_kept_is_not_told(
    database_url: str, stream: Stream, characters: int, shown: dict[str, str]
) -> None:
    states.execute(
        database_url,
        "update tracked_table set key_columns = '{}';"
        f"update attribute set shown_characters = {characters} where table_name = 'orders' and column_name = 'note'",
    )
    stream.change("orders", None, ["13", "9", "secret"])
    consume(database_url, stream)
    ((_, _, row),) = of_customer(database_url)
    assert row["cells"] == {"id": "13", "customer": "9", **shown}
    mask(database_url, "s.orders.id", "none", print)
    assert [row for *_, row in of_customer(database_url)] == [None], "what was told of it is forgotten"


@pytest.mark.parametrize(("characters", "shown"), [(0, None), (1, "1")])
def test_of_a_key_that_is_not_to_be_kept_nothing_is(
    database_url: str, stream: Stream, characters: int, shown: str | None
) -> None:
    where = "where table_name = 'orders' and column_name = 'id'"
    states.execute(database_url, f"update attribute set shown_characters = {characters} {where}")
    stream.change("orders", None, ["13", "9", None])
    consume(database_url, stream)
    ((_, _, row),) = of_customer(database_url)
    assert row == {"table": "s.orders", "key": {"id": shown}, "cells": {}}


def test_a_mask_forgets_the_rows_of_its_table(database_url: str, stream: Stream) -> None:
    stream.change("orders", None, ["13", "9", None])
    consume(database_url, stream)
    mask(database_url, "s.orders.id", "none", print)
    assert [(value, row) for value, _, row in of_customer(database_url)] == [("9", None)]


@pytest.mark.parametrize("records", [1, 7, 40])
def test_whatever_happened_the_change_at_the_position_is_the_last_that_moved_the_witness(
    database_url: str, stream: Stream, records: int
) -> None:
    random_changes(stream, random.Random(records), 200)
    consume(database_url, stream, records=records)
    changes, at = {}, 0
    for line in stream.path.read_bytes().splitlines(keepends=True):
        changes[at] = json.loads(line)
        at += len(line)
    batches = states.query(database_url, "select first_offset, next_offset from batch_position")
    found = states.query(database_url, TRANSITIONS)
    assert len(found) > 5
    for *names, value, position, row in found:
        sides = {tuple(names[:2]), tuple(names[2:])}
        (end,) = [end for first, end in batches if first <= position["offset"] < end]
        movers = [at for at, change in changes.items() if at < end and moves(change, sides, value)]
        assert movers[-1] == position["offset"]
        change = changes[position["offset"]]
        table = change["source"]["table"]
        ids = [cut(image["id"]) for image in (change["before"], change["after"]) if image is not None]
        assert (row["table"], row["key"]["id"] in ids) == (f"s.{table}", True)


def moves(change: dict[str, Any], sides: set[tuple[str, ...]], value: str) -> bool:
    """Tell whether a change brought the value to one of the columns, or took it."""

    def has(image: dict[str, str | None] | None, column: str) -> bool:
        return image is not None and cut(image[column]) == value

    own = [column for table, column in sides if table == change["source"]["table"]]
    return any(has(change["before"], column) != has(change["after"], column) for column in own)


def cut(text: str | None) -> str | None:
    return None if text is None else text.encode()[:256].decode(errors="ignore")
