"""Ranges apart: what they are netted to, cut by shard and summed again, is what the batch is netted to in one piece."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.core.canonical import value_keys
from service.core.model import Operation, RawRecord, Row
from service.core.records import Deltas
from service.stream.envelope import Decoder
from service.usecases.batches import decode_each, separate
from service.usecases.netted_ranges import (
    BatchFacts,
    RangeFacts,
    Valued,
    net_range,
    split_deltas,
    sum_deltas,
)
from service.usecases.netting import Netted, net
from service.usecases.screening import Screen
from tests.events import envelope, tracked_table

TABLE = tracked_table("s", "t", {"a": "string", "b": "string"})
ROWS = st.tuples(*[st.sampled_from(["x", "y", "z", "äö", None])] * 2)
CHANGES = st.lists(st.tuples(st.none() | ROWS, st.none() | ROWS).filter(any), max_size=12)
SHARDS = 3


def event(before: Row | None, after: Row | None) -> bytes:
    op = "u" if before and after else "c" if after else "d"
    return envelope(
        op, "s", "t", *(None if row is None else dict(zip("ab", row, strict=True)) for row in (before, after))
    )


def records_of(given: Sequence[tuple[Row | None, Row | None]]) -> list[RawRecord]:
    return [RawRecord("s.t", 0, place, None, event(*change), 0) for place, change in enumerate(given)]


def netted_range(records: Sequence[RawRecord], partition: int = 0) -> tuple[RangeFacts, Netted | None]:
    return net_range(("s.t", partition), 0, 100, records, Decoder([TABLE]), Screen({}, {}), value_keys)


def as_dict(deltas: Deltas) -> dict[bytes, dict[int, int]]:
    cells = [
        dict(zip(deltas.attribute_ids[first:end].tolist(), deltas.differences[first:end].tolist(), strict=True))
        for first, end in pairwise(deltas.starts.tolist())
    ]
    return {deltas.keys.key(place): of_value for place, of_value in enumerate(cells)}


@given(CHANGES, st.integers(0, 12), st.integers(0, 12))
def test_ranges_summed_by_shard_are_the_whole(
    given: list[tuple[Row | None, Row | None]], first: int, second: int
) -> None:
    records = records_of(given)
    cuts = [0, *sorted((min(first, len(records)), min(second, len(records)))), len(records)]
    found = [netted_range(records[begin:end]) for begin, end in pairwise(cuts)]
    whole = net(separate(records, decode_each(Decoder([TABLE]), records))[0], value_keys)
    parts = [split_deltas(netted, SHARDS) for _, netted in found if netted is not None]
    shards = [sum_deltas(of_shard) for of_shard in zip(*parts, strict=True)]
    together: dict[bytes, dict[int, int]] = {}
    for number, shard in enumerate(shards):
        high = shard.deltas.keys.high
        assert [value * SHARDS >> 64 for value in high.tolist()] == [number] * len(high)
        assert list(as_dict(shard.deltas)) == sorted(as_dict(shard.deltas))
        keys = value_keys(list(shard.texts))
        assert [keys.key(i) for i in range(len(shard.texts))] == list(as_dict(shard.deltas))
        together |= as_dict(shard.deltas)
    assert together == as_dict(whole.deltas)
    facts = BatchFacts([facts for facts, _ in found])
    assert (facts.rows, facts.nulls) == (whole.rows, whole.nulls)
    counts = facts.counts
    assert (counts.records, counts.inserted, counts.updated, counts.deleted) == (
        len(records),
        whole.inserted,
        whole.updated,
        whole.deleted,
    )


def test_an_order_by_key_and_attribute_holds_where_parts_have_other_attributes_of_a_value() -> None:
    one = Valued(Deltas.of({b"k" * 16: {1: 1, 3: 2}, b"l" * 16: {1: 1}}), ["k", "l"])
    other = Valued(Deltas.of({b"a" * 16: {9: 1}, b"k" * 16: {1: -1, 2: 5}}), ["a", "k"])
    summed = sum_deltas([one, other])
    assert as_dict(summed.deltas) == {b"a" * 16: {9: 1}, b"k" * 16: {2: 5, 3: 2}, b"l" * 16: {1: 1}}
    assert summed.texts == ["a", "k", "l"]


@pytest.mark.parametrize(
    ("record", "why"),
    [
        (b"no JSON", "is not JSON"),
        (envelope("t", "s", "t"), "empties s.t"),
        (envelope("c", "s", "t", None, {"a": "x", "b": "y", "c": "new"}), "c"),
        (envelope("r", "s", "t", None, {"a": "x", "b": "y"}), "snapshot"),
    ],
)
def test_what_is_rare_is_said_and_nothing_is_netted(record: bytes, why: str) -> None:
    facts, netted = netted_range([*records_of([(None, ("x", "y"))]), RawRecord("s.t", 0, 1, None, record, 0)])
    assert netted is None
    assert why in (BatchFacts([facts]).why_not_apart({}) or "")


def test_fewer_than_no_nulls_is_for_a_session() -> None:
    facts, _ = netted_range(records_of([(("x", None), None)]))
    null = TABLE.attributes[1].attribute_id
    assert BatchFacts([facts]).why_not_apart({null: 1}) is None
    assert BatchFacts([facts]).why_not_apart({null: 0}) is not None
    other, _ = netted_range(records_of([(None, ("x", None))]), partition=1)
    assert BatchFacts([facts, other]).why_not_apart({null: 0}) is None


def test_what_positions_are_told_of_is_the_newest_change_and_the_last() -> None:
    records = [
        RawRecord("s.t", 0, at, None, envelope("c", "s", "t", None, {"a": "x", "b": "y"}, ts_ms=ts_ms), 0)
        for at, ts_ms in ((3, 10), (5, 30), (8, 20))
    ]
    facts, _ = netted_range(records)
    assert [change.source_position["ts_ms"] for change in facts.last] == [30, 20]
    assert (facts.begun, facts.ended) == (records[0].position, records[-1].position)
    assert {change.operation for change in facts.last} == {Operation.CREATE}
