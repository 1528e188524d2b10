"""Netting: what a batch counts is what its rows have more and less, cell by cell, whatever the order of its changes."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from service.core.canonical import value_key, value_keys
from service.core.model import (
    Attribute,
    AttributeName,
    DerivedAttribute,
    FeedPosition,
    Operation,
    Row,
    RowChange,
    Table,
)
from service.usecases.netting import emptied_by, net
from service.usecases.screening import Screen

TABLES = [
    Table("s", name, tuple(Attribute(first + i, AttributeName("s", name, c), i, "string") for i, c in enumerate("ab")))
    for name, first in (("t", 5), ("u", 1))
]
ROWS = st.tuples(*[st.sampled_from(["x", "y", "z", None])] * 2)
CHANGES = st.lists(st.tuples(st.sampled_from(TABLES), st.none() | ROWS, st.none() | ROWS).filter(lambda c: any(c[1:])))
OPERATIONS = {(True, True): Operation.UPDATE, (True, False): Operation.DELETE, (False, True): Operation.CREATE}


@given(CHANGES)
def test_a_batch_nets_to_its_cells_counted_one_by_one(given: list[tuple[Table, Row | None, Row | None]]) -> None:
    cells: Counter[tuple[int, str | None]] = Counter()
    for table, before, after in given:
        for row, sign in ((before, -1), (after, 1)):
            for attribute, cell in zip(table.attributes, row or (), strict=row is not None):
                cells[attribute.attribute_id, cell] += sign
    netted = net(
        [
            RowChange(table, OPERATIONS[before is not None, after is not None], before, after, FeedPosition("f", 0, i))
            for i, (table, before, after) in enumerate(given)
        ],
        value_keys,
    )
    found: dict[tuple[int, bytes | None], int] = {}
    deltas = netted.deltas
    for place in range(deltas.size):
        for i in range(deltas.starts[place], deltas.starts[place + 1]):
            found[int(deltas.attribute_ids[i]), deltas.keys.key(place)] = int(deltas.differences[i])
    found |= {(attribute_id, None): difference for attribute_id, difference in netted.nulls.items()}
    expected = {(a, None if cell is None else value_key(cell)): n for (a, cell), n in cells.items() if n}
    assert found == expected
    assert netted.updated == sum(before is not None and after is not None for _, before, after in given)


def test_the_snapshot_of_one_tuple_leaves_another_its_rows() -> None:
    columns = TABLES[0].attributes
    tuples = [
        DerivedAttribute(Attribute(number, AttributeName("s", "t", name), 0, "tuple"), places, snapshot)
        for number, name, places, snapshot in ((8, "(a, b)", (0, 1), "100:100:"), (9, "(b, a)", (1, 0), None))
    ]
    for derived in (tuples, tuples[::-1]):
        table = Table("s", "t", columns, derived=tuple(derived))
        seen, unseen = (
            RowChange(
                table, Operation.CREATE, None, (a, "y"), FeedPosition("f", 0, txid), source_position={"txId": txid}
            )
            for a, txid in (("x", 50), ("z", 150))
        )
        netted = net([seen, unseen], value_keys)
        assert netted.rows == {5: 2, 6: 2, 8: 1, 9: 2}
        assert sorted(netted.deltas.attribute_ids.tolist()) == [5, 5, 6, 8, 9, 9]


def test_the_snapshot_of_a_tuple_stays_old_while_transactions_come_round() -> None:
    """A feed names them by 32 bits: which of those with the same ones it means is told by the newest, not by it."""
    snapshot, number = "3000000000:3000000000:", 3_000_000_000
    tuples = Attribute(8, AttributeName("s", "t", "(a, b)"), 0, "tuple")
    table = replace(TABLES[0], source="shop", derived=(DerivedAttribute(tuples, (0, 1), snapshot),))
    screen = Screen({"shop": snapshot}, {})
    for _ in range(5):
        number += 1_100_000_000
        told = {"txId": number % 2**32}
        created = RowChange(table, Operation.CREATE, None, ("x", "y"), FeedPosition("f", 0, 0), dict(told))
        truncated = RowChange(table, Operation.TRUNCATE, None, None, FeedPosition("f", 0, 1), dict(told))
        screened = screen.screen([created, truncated])
        screen.advance(screened.seen)
        assert screened.changes == [created, truncated]
        assert net([created], value_keys).rows[8] == 1
        assert 8 in emptied_by(truncated)
