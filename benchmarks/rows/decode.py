"""Own the row `decode`: change envelopes turned into rows of canonical texts, alone, in one thread."""

from __future__ import annotations

import time
from binascii import b2a_base64
from collections.abc import Mapping, Sequence
from dataclasses import replace
from random import Random

import orjson

from benchmarks.context import Context
from benchmarks.results_file import Result
from service.core.model import Attribute, AttributeName, RawRecord, Table
from service.feed_wiring import tune_process
from service.process_memory import share_one_heap
from service.stream.envelope import Decoder
from service.usecases.batches import decode_each, separate

SEED = 7
ENVELOPES = 100_000
BATCH = 10_000

LINEITEM = {
    "l_orderkey": "bigint",
    "l_partkey": "bigint",
    "l_suppkey": "bigint",
    "l_linenumber": "integer",
    "l_quantity": "numeric(15,2)",
    "l_extendedprice": "numeric(15,2)",
    "l_discount": "numeric(15,2)",
    "l_tax": "numeric(15,2)",
    "l_returnflag": "character(1)",
    "l_linestatus": "character(1)",
    "l_shipdate": "date",
    "l_commitdate": "date",
    "l_receiptdate": "date",
    "l_shipinstruct": "character(25)",
    "l_shipmode": "character(10)",
    "l_comment": "character varying(44)",
}
_WORDS = [
    "carefully",
    "final",
    "deposits",
    "sleep",
    "furiously",
    "express",
    "ideas",
    "haggle",
    "quickly",
    "regular",
    "accounts",
]


def run(context: Context) -> list[Result]:
    """Decode the same changes of lineitem, a third of them each inserts, updates and deletes, in three shapes."""
    share_one_heap()  # as the consumer does
    tune_process()
    random = context.random("decode")
    count = context.scaled(ENVELOPES)
    rows = [_row(random, number) for number in range(count)]
    typed, texts = table(LINEITEM), table(dict.fromkeys(LINEITEM, "string"))
    plain = [record(number, row, random) for number, row in enumerate(rows)]
    return [
        Result("as Debezium's defaults send them", _rate(typed, plain), "envelopes/s", goal="value >= 30000"),
        Result("of a table with row images", _rate(kept(typed), plain), "envelopes/s"),
        Result("texts", _rate(texts, [_as_texts(one) for one in plain]), "envelopes/s", goal="value >= 30000"),
    ]


def table(columns: Mapping[str, str]) -> Table:
    """Make a tracked table of these columns."""
    attributes = tuple(
        Attribute(place + 1, AttributeName("public", "lineitem", column), place, data_type)
        for place, (column, data_type) in enumerate(columns.items())
    )
    return Table("public", "lineitem", attributes)


def kept(tracked: Table) -> Table:
    """Make a table one whose rows the state keeps."""
    return replace(tracked, key=(0, 3), row_images=True)


def record(number: int, row: dict[str, object], random: Random) -> RawRecord:
    """Make a record as Debezium's Postgres connector sends it with default settings, without schema."""
    op = "cud"[number % 3]
    changed = {**row, "l_quantity": _packed(random.randint(100, 5000)), "l_comment": _comment(random)}
    lsn = 24_399_368 + 144 * number
    source = {
        "version": "3.6.3.Final",
        "connector": "postgresql",
        "name": "shop",
        "ts_ms": 1_795_250_907_231 + number,
        "snapshot": "false",
        "db": "shop",
        "sequence": f'["{lsn - 144}","{lsn}"]',
        "ts_us": 1_795_250_907_231_000 + number,
        "ts_ns": 1_795_250_907_231_000_000 + number,
        "schema": "public",
        "table": "lineitem",
        "txId": 760 + number,
        "lsn": lsn,
        "xmin": None,
        "origin": None,
        "origin_lsn": None,
    }
    envelope = {
        "before": None if op == "c" else row,
        "after": None if op == "d" else changed,
        "source": source,
        "transaction": {"id": f"{760 + number}:{lsn}", "total_order": 1, "data_collection_order": 1},
        "op": op,
        "ts_ms": 1_795_250_907_456 + number,
    }
    key = orjson.dumps({"l_orderkey": row["l_orderkey"], "l_linenumber": row["l_linenumber"]})
    return RawRecord("shop.public.lineitem", 0, number, key, orjson.dumps(envelope), 0)


def _row(random: Random, number: int) -> dict[str, object]:
    day = random.randint(8036, 10561)
    return {
        "l_orderkey": number + 1,
        "l_partkey": random.randint(1, 200_000),
        "l_suppkey": random.randint(1, 10_000),
        "l_linenumber": random.randint(1, 7),
        "l_quantity": _packed(random.randint(100, 5000)),
        "l_extendedprice": _packed(random.randint(90_000, 10_000_000)),
        "l_discount": _packed(random.randint(0, 10)),
        "l_tax": _packed(random.randint(0, 8)),
        "l_returnflag": random.choice("ANR"),
        "l_linestatus": random.choice("OF"),
        "l_shipdate": day,
        "l_commitdate": day + random.randint(-30, 30),
        "l_receiptdate": day + random.randint(1, 30),
        "l_shipinstruct": "DELIVER IN PERSON".ljust(25),
        "l_shipmode": random.choice(("TRUCK", "AIR", "MAIL")).ljust(10),
        "l_comment": _comment(random),
    }


def _packed(unscaled: int) -> str:
    size = unscaled.bit_length() // 8 + 1
    return b2a_base64(unscaled.to_bytes(size, "big", signed=True), newline=False).decode()


def _comment(random: Random) -> str:
    return " ".join(random.choices(_WORDS, k=4))[:44]


def _as_texts(one: RawRecord) -> RawRecord:
    envelope = orjson.loads(one.value or b"")
    for image in ("before", "after"):
        if envelope[image] is not None:
            envelope[image] = {column: str(cell) for column, cell in envelope[image].items()}
    return one._replace(value=orjson.dumps(envelope))


def _rate(tracked: Table, records: Sequence[RawRecord]) -> float:
    """Decode all records in batches, as the consumer does; raise where one is not decoded.

    Measured is the processor's time, for the goal is one of a core.
    """
    decoder = Decoder([tracked])
    decode_each(decoder, records[:BATCH])
    begun = time.process_time()
    for start in range(0, len(records), BATCH):
        batch = records[start : start + BATCH]
        changes, _, bad = separate(batch, decode_each(decoder, batch))
        if len(changes) != len(batch):
            raise AssertionError(f"{len(bad)} of {len(batch)} envelopes were not decoded: {bad[:1]}")
    return len(records) / (time.process_time() - begun)
