"""A source of which only sketches are kept, beside one whose values are: what its changes do, and what they cannot."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
from prometheus_client import CollectorRegistry

from service.core.errors import RecordError
from service.core.sketches.column import ColumnSketch
from service.store.database import make_engine
from service.store.schema_changes import COMMAND_NAME
from service.store.sketch_compaction import PostgresSketchLog
from service.store.sketch_reading import read_sketches
from service.store.writer import PostgresWriter
from service.usecases.batches import ErrorPolicy
from service.usecases.schema_changes import drop
from tests import states
from tests.asking import http_client
from tests.endurance.following import broken_invariants
from tests.events import envelope
from tests.following import Stream, consume
from tests.integration.serving import app_over, serving
from tests.states import Tables

COLUMNS = {"users": ["id", "name"]}
VISITS = ["user", "page"]
USER, PAGE = 11, 12


class Visits:
    """Keep a table of a sketch-only source in step with the feed of all changes."""

    def __init__(self, url: str, stream: Stream) -> None:
        self.url, self.stream = url, stream
        self.rows: Counter[tuple[str | None, ...]] = Counter()
        stream.columns["visits"] = VISITS

    def change(self, before: tuple[str | None, ...] | None, after: tuple[str | None, ...] | None) -> None:
        if before is not None:
            self.rows[before] -= 1
        if after is not None:
            self.rows[after] += 1
        self.stream.append("visits", before, after)

    def check(self) -> None:
        """Hold counters and sketches against the rows, occurrence by occurrence."""
        assert states.read(self.url).records == states.expected(self.stream.tables).records
        for place, attribute_id in enumerate((USER, PAGE)):
            cells = Counter(row[place] for row in (+self.rows).elements())
            nulls = cells.pop(None, 0)
            assert states.query(
                self.url,
                f"select row_count, null_count, distinct_count, repeated_count from attribute "
                f"where attribute_id = {attribute_id}",
            ) == [(cells.total() + nulls, nulls, None, None)]
            sketch = self.sketch(attribute_id)
            counted: Counter[tuple[int, int]] = Counter()
            for text, count in cells.items():
                counted[states.bucket_and_rho(hash_of(text), sketch.m)] += count
            counts = sketch.dense().counts.tolist()
            assert {(b, r): n for r, row in enumerate(counts, 1) for b, n in enumerate(row) if n} == counted
            assert (sketch.size, sketch.counts_values) == (cells.total(), False)
        assert broken_invariants(self.url) == []

    def short(self) -> set[str]:
        """Name the attributes whose smallest hashes the last folding found short."""
        stored = states.query(
            self.url, f"select attribute_id, sketch from sketch where attribute_id in ({USER}, {PAGE})"
        )
        names = {USER: "s.visits.user", PAGE: "s.visits.page"}
        return {names[id_] for id_, data in stored if ColumnSketch.from_bytes(bytes(data)).needs_rescan}

    def sketch(self, attribute_id: int) -> ColumnSketch:
        with states.one_version(self.url) as connection:
            found = read_sketches(connection, [attribute_id])
        assert found.faults == {}
        return found.by_id[attribute_id]


def served(url: str, name: str) -> tuple[bool, int, int]:
    """Ask the service whether a column's sketch needs a rescan, what spares it has left, and how many are short."""
    engine = make_engine(url, "test-sketches-only")
    registry = CollectorRegistry()
    with serving(app_over(engine, registry=registry)) as address, http_client(base_url=address, timeout=60) as client:
        listed = client.get("/api/v1/sketches").json()["items"]
        (one,) = (one for one in listed if one["column"]["name"] == name)
        short = client.get("/api/v1/state").json()["counts"]["short_sketches"]
        assert f"subsetd_short_sketches {short}.0\n" in client.get("/metrics").text
    engine.dispose()
    return one["needs_rescan"], one["spares_left"], short


def hash_of(text: str | None) -> int:
    assert text is not None
    return int.from_bytes(states.key_of(text)[:8], "big")


@pytest.fixture
def visits(database_url: str, tmp_path: Path) -> Visits:
    stream = Stream(tmp_path / "feed", Tables(COLUMNS), dict(COLUMNS))
    stream.tables.add("users", ["1", "Ada"], ["2", "Bob"])
    stream.path.touch()
    states.store(database_url, stream.tables)
    empty = ColumnSketch(*states.SKETCH_FORM, counts_values=False).to_bytes().hex()
    states.execute(
        database_url,
        "insert into source (name, kind, location, bootstrapped_version, sketch_only) "
        "values ('v', 'csv', '-', 1, true);"
        "insert into attribute (attribute_id, source_id, schema_name, table_name, column_name, ordinal, row_count, "
        "null_count) select id, source_id, 's', 'visits', column_name, id - 11, 0, 0 from source, "
        f"(values ({USER}, 'user'), ({PAGE}, 'page')) as new (id, column_name) where name = 'v';"
        f"insert into sketch values ({USER}, 1, '\\x{empty}'), ({PAGE}, 1, '\\x{empty}')",
    )
    return Visits(database_url, stream)


@pytest.fixture
def log(database_url: str) -> Iterator[PostgresSketchLog]:
    with closing(PostgresSketchLog(database_url)) as log:
        yield log


def test_changes_are_counted_by_sketches_alone(visits: Visits, log: PostgresSketchLog) -> None:
    rng = random.Random(5)
    for _ in range(6):
        for _ in range(12):
            present = sorted((+visits.rows).elements(), key=str)
            row = (rng.choice(["1", "2", "3", None]), rng.choice([f"/{i}" for i in range(20)]))
            match rng.choice(["insert", "insert", "update", "delete"] if present else ["insert"]):
                case "insert":
                    visits.change(None, row)
                case "update":
                    visits.change(rng.choice(present), row)
                case "delete":
                    visits.change(rng.choice(present), None)
        visits.stream.change("users", None, [str(rng.random()), "3"])
        consume(visits.url, visits.stream, records=5)
        visits.check()
        were_short = visits.short()
        told = log.fold(300)
        assert {one.partition(":")[0] for one in told or ()} == visits.short() - were_short
        visits.check()
    visits.stream.write(envelope("t", "s", "visits"))
    visits.rows.clear()
    visits.change(None, ("1", "/1"))
    consume(visits.url, visits.stream)
    visits.check()
    log.fold(1 << 30)
    visits.check()
    assert not log.rescan()  # there is nothing from which its smallest hashes could be read again


def test_smallest_hashes_that_run_short_are_told_once_and_served(visits: Visits, log: PostgresSketchLog) -> None:
    """Of 30 pages all but 2 go: a sketch that answers with 4 and has 2 spares has at most 2 left."""
    pages = [f"/{number}" for number in range(30)]
    for page in pages:
        visits.change(None, ("1", page))
    consume(visits.url, visits.stream)
    assert log.fold(1 << 30) == []
    assert served(visits.url, "s.visits.page") == (False, states.SKETCH_FORM[2], 0)
    for page in pages[2:]:
        visits.change(("1", page), None)
    consume(visits.url, visits.stream)
    left = visits.sketch(PAGE).bottom
    assert len(left.hashes) < 4
    assert not left.is_complete
    (told,) = log.fold(1 << 30) or ()
    assert told == (
        f"s.visits.page: {len(left.hashes)} of its 4 smallest hashes are left, and its source is sketch-only: "
        "coefficients are estimated from fewer; bootstrap its source again with --replace to have all"
    )
    assert served(visits.url, "s.visits.page") == (True, 0, 1)
    visits.change(("1", "/0"), None)
    consume(visits.url, visits.stream)
    assert log.fold(1 << 30) == [], "it is told once"
    visits.stream.write(envelope("t", "s", "visits"))
    consume(visits.url, visits.stream)
    assert served(visits.url, "s.visits.page") == (False, states.SKETCH_FORM[2], 0)


def test_what_cannot_have_been_removed_is_told_of_its_attribute(visits: Visits, log: PostgresSketchLog) -> None:
    """Rows and NULLs are counted, values are not: only a sketch can show that one was never there, and not always."""
    visits.change(None, ("1", "/1"))
    consume(visits.url, visits.stream)
    visits.change(("2", "/1"), None)
    consume(visits.url, visits.stream)
    (told,) = log.fold(1 << 30) or ()
    assert told.startswith("s.visits.user: hash d4735e3a265e16ee is removed more often than it was inserted")
    assert told.endswith("bootstrap its source again with --replace, which makes its sketch anew")
    assert [line for line in broken_invariants(visits.url) if not line.startswith("I5")] == []
    assert told in broken_invariants(visits.url)[0]
    visits.stream.append("visits", (None, "/hushed"), None)
    with pytest.raises(RecordError, match=r"takes a value out of s\.visits\.user, where it is not"):
        consume(visits.url, visits.stream)
    assert consume(visits.url, visits.stream, on_error=ErrorPolicy.SET_ASIDE).dead == 1
    ((letter, value),) = states.query(visits.url, "select dead_letter::text, record_value from dead_letter")
    assert (value, "hushed" in letter) == (None, False), "no value of the source is kept, not even in what is set aside"


def test_a_new_column_of_rows_that_nobody_keeps_is_stale(visits: Visits) -> None:
    visits.change(None, ("1", "/1"))
    visits.stream.columns["visits"] = [*VISITS, "device"]
    visits.stream.append("visits", None, ("1", "/1", "phone"))
    visits.rows[("1", "/1")] += 1
    consume(visits.url, visits.stream)
    visits.check()
    new = "select distinct_count, repeated_count, stale_version is not null from attribute where column_name = 'device'"
    assert states.query(visits.url, new) == [(None, None, True)]


def test_a_column_can_be_dropped(visits: Visits) -> None:
    visits.change(None, ("1", "/1"))
    consume(visits.url, visits.stream)
    drop(PostgresWriter(visits.url, COMMAND_NAME), "s.visits.page", force=True)
    assert states.query(visits.url, f"select from sketch where attribute_id = {PAGE}") == []
    assert broken_invariants(visits.url) == []
    assert np.array_equal(visits.sketch(USER).bottom.hashes, [hash_of("1")])
