"""Histograms that are kept follow the feed: without values being read again they are those of the rows as they are."""

from __future__ import annotations

import random
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import psycopg2
import pytest
from sqlalchemy import Engine, event

from service.core.foreign_keys.ranking import Method
from service.core.histogram_changes import Histograms
from service.core.quantile_grids import GridHistogram, KeyHistogram
from service.store import histograms as store
from service.store.database import connect, make_engine
from service.store.foreign_key_refreshes import PostgresForeignKeys
from service.store.writer import PostgresWriter
from service.usecases.finding_progress import FindingCancelledError
from service.usecases.foreign_keys import ForeignKeys
from service.usecases.schema_changes import drop
from tests import states
from tests.events import envelope
from tests.following import COLUMNS, Stream, begun, consume
from tests.histograms import (
    CUSTOMER,
    LOGGED,
    QUESTION,
    TUPLES,
    Finding,
    bootstrap_again,
    change,
    grids_of,
    require_exact,
    row_of,
)
from tests.states import Tables
from tests.waiting import wait_for


@pytest.fixture
def stream(tmp_path: Path, database_url: str) -> Stream:
    rng = random.Random(5)
    tables = Tables(dict(COLUMNS), tuples=dict(TUPLES))
    for table in COLUMNS:
        tables.add(table, *(row_of(table, rng) for _ in range(700)))
    stream = begun(database_url, tables, tmp_path)
    states.execute(
        database_url,
        "insert into tracked_key (attribute_id, kind, is_primary, since_version) "
        "select attribute_id, 'declared', false, 1 from attribute "
        "where table_name = 'customers' and column_name in ('id', '(id, name)')",
    )
    return stream


@pytest.fixture
def finding(database_url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Finding]:
    finding = Finding(database_url, monkeypatch)
    yield finding
    finding.engine.dispose()


def test_after_ten_thousand_changes_they_are_those_of_the_rows_on_the_old_grids(
    database_url: str, stream: Stream, finding: Finding
) -> None:
    rng = random.Random(6)
    change(stream, rng, 50)
    consume(database_url, stream)
    assert states.query(database_url, LOGGED) == [(0,)], "nobody ranks: nothing is logged"
    assert finding.refresh() == 2
    first, read = finding.find()
    assert read == 0, "what was just measured is kept"
    for number in (6_000, 4_000):
        change(stream, rng, number)
        assert consume(database_url, stream, records=700).records >= number
        found, read = finding.find()
        assert read == 0
        assert grids_of(found) == grids_of(first)
        require_exact(stream, found)
        assert states.query(database_url, LOGGED) != [(0,)]
        assert finding.refresh() == 0
        assert states.query(database_url, LOGGED) == [(0,)], "what is kept has them"
    # On grids of their own, one cell for each value, histograms hide nothing.
    exact, read = finding.find(replace(QUESTION, cells=10_000, tuple_cells=10_000))
    assert read == 2
    assert exact.spreads.keys() == found.spreads.keys()
    for candidate, spread in found.spreads.items():
        expected = exact.spreads[candidate].randomness
        assert abs(spread.randomness.distance - expected.distance) <= spread.randomness.error + expected.error
    assert states.read(database_url) == states.expected(stream.tables)


def test_a_grid_that_has_drifted_is_built_anew(database_url: str, stream: Stream, finding: Finding) -> None:
    """All new ids are behind the last bound: 12 beside 300 are few, 60 too many for 256 cells, 900 for 16."""
    for most, drifted in ((12, 0), (60, 1), (900, 2)):
        finding.refresh()
        first, _ = finding.find()
        for number in range(most):
            stream.change("customers", None, [str(1000 * most + number), "n1"])
        consume(database_url, stream)
        found, read = finding.find()
        assert read == drifted
        require_exact(stream, found)
        anew = [key for key, grids in grids_of(found).items() if grids != grids_of(first)[key]]
        assert len(anew) == drifted
        assert max(spread.randomness.error for spread in found.spreads.values()) <= 2 * 2 / 16
    finding.refresh()
    assert finding.find()[1] == 0


def test_what_a_truncate_empties_is_measured_anew(database_url: str, stream: Stream, finding: Finding) -> None:
    finding.refresh()
    stream.write(envelope("t", "s", "orders"))
    stream.tables.rows["orders"].clear()
    present = [row for row in stream.tables.rows["customers"].elements() if None not in row][:9]
    for number, (customer, note) in enumerate(present):
        stream.change("orders", None, [str(number), customer, note])
    consume(database_url, stream)
    found, read = finding.find()
    assert read == 2
    require_exact(stream, found)
    # As if they had been measured in front of the truncate.
    finding.keys.follow(found.version - 2, found.histograms, found.statistics)
    assert states.query(database_url, "select count(*) from key_histogram") == [(0,)]
    assert finding.refresh() == 2
    stream.change("orders", ["0", *present[0]], None)
    consume(database_url, stream)
    found, read = finding.find()
    assert read == 0
    require_exact(stream, found)


def test_nothing_is_left_of_values_of_an_attribute_that_was_dropped(
    database_url: str, stream: Stream, finding: Finding
) -> None:
    finding.refresh()
    change(stream, random.Random(8), 40)
    consume(database_url, stream)
    assert states.query(database_url, LOGGED) != [(0,)]
    kept = "select count(*) from key_histogram"
    assert states.query(database_url, kept) != [(0,)]
    dropped = "select schema_name || '.' || table_name || '.' || column_name from followed_attribute join attribute "
    ((name,), *_) = states.query(database_url, dropped + "using (attribute_id) where parts is null order by 1")
    drop(PostgresWriter(database_url), name, force=True)
    assert states.query(database_url, kept) == [(0,)]
    assert states.query(database_url, LOGGED) == [(0,)]


def test_what_is_bootstrapped_again_is_measured_anew_though_it_has_as_many_values(
    database_url: str, stream: Stream, finding: Finding
) -> None:
    finding.refresh()
    for table, rows in stream.tables.rows.items():
        moved = Counter[tuple[str | None, ...]]()
        for row, n in rows.items():
            moved[tuple(str(1000 + 7 * int(cell)) if cell and cell.isdigit() else cell for cell in row)] += n
        stream.tables.rows[table] = moved
    bootstrap_again(database_url, stream.tables)
    assert states.read(database_url) == states.expected(stream.tables)
    found, read = finding.find()
    assert read == 2
    require_exact(stream, found)
    with finding.keys.snapshot() as snapshot:
        assert found.statistics == dict(snapshot.value_statistics(sorted(found.statistics)))
    # As if they had been measured in front of the bootstrap.
    finding.keys.follow(found.version - 1, found.histograms, found.statistics)
    assert states.query(database_url, "select count(*) from key_histogram") == [(0,)]


def test_what_changed_before_it_was_logged_is_not_kept(database_url: str, stream: Stream, finding: Finding) -> None:
    rng = random.Random(7)
    found, _ = finding.find()
    change(stream, rng, 300)
    consume(database_url, stream)
    finding.keys.follow(found.version, found.histograms, found.statistics)
    assert states.query(database_url, "select count(*) from key_histogram") == [(0,)]
    change(stream, rng, 300)
    consume(database_url, stream)
    assert finding.refresh() == 2, "the next finding measures them once more"
    change(stream, rng, 300)
    consume(database_url, stream)
    found, read = finding.find()
    assert read == 0
    require_exact(stream, found)
    finding.refresh()
    finding.keys.follow(found.version - 1, found.histograms, found.statistics)  # as if another had been slower
    assert states.query(database_url, "select count(*) from key_histogram") == [(0,)]


def test_what_changes_while_they_are_measured_is_counted(database_url: str, stream: Stream, finding: Finding) -> None:
    """The feed goes on between the snapshot that is read and the keeping of what was found in it."""
    rng = random.Random(10)
    keep = finding.keys.keep

    def meanwhile(*arguments: Any) -> int:
        change(stream, rng, 300)
        consume(database_url, stream, records=100)
        return keep(*arguments)

    finding.keys.keep = meanwhile  # type: ignore[method-assign]
    assert finding.refresh() == 2
    assert states.query(database_url, "select distinct version from key_histogram") == [(1,)]
    found, read = finding.find()
    assert (found.version > 1, read) == (True, 0)
    require_exact(stream, found)
    finding.keys.keep = keep  # type: ignore[method-assign]
    concerned = set().union(*(one.attribute_ids for one in found.histograms))
    assert {i for (i,) in states.query(database_url, "select attribute_id from followed_attribute")} == concerned


def test_a_finding_that_ends_early_leaves_followed_what_was_followed_before(
    database_url: str, stream: Stream, finding: Finding
) -> None:
    """Cancelled or failed: the feed does not log for it what nobody will read; kept histograms stay exact."""
    keep = finding.keys.keep

    def cancelled(*arguments: Any) -> int:
        change(stream, random.Random(12), 200)
        consume(database_url, stream, records=100)
        raise FindingCancelledError

    def followed() -> set[int]:
        return {i for (i,) in states.query(database_url, "select attribute_id from followed_attribute")}

    finding.keys.keep = cancelled  # type: ignore[method-assign]
    with pytest.raises(FindingCancelledError):
        finding.refresh()
    assert (followed(), states.query(database_url, LOGGED)) == (set(), [(0,)])
    finding.keys.keep = keep  # type: ignore[method-assign]
    finding.refresh()
    before = followed()
    finding.keys.keep = cancelled  # type: ignore[method-assign]
    with pytest.raises(FindingCancelledError):
        finding.refresh()
    assert followed() == before != set()
    found, read = finding.find()
    assert read == 0
    require_exact(stream, found)


def test_how_values_look_is_read_anew_where_they_have_changed(
    database_url: str, stream: Stream, finding: Finding
) -> None:
    """Whatever is kept, answers are those of reading all values."""
    rng = random.Random(11)
    finding.refresh()
    for number in (0, 1, 3, 300):
        names = [row[0] for row in states.query(database_url, "select attribute_id from attribute order by 1")]
        before = dict(zip(names, stream.tables.cells(), strict=True))
        change(stream, rng, number)
        if number:
            consume(database_url, stream)
        after = dict(zip(names, stream.tables.cells(), strict=True))
        found, _ = finding.find()
        concerned = found.statistics.keys()
        kept = set().union(*(one.attribute_ids for one in found.histograms))
        same = {i for i in kept if set(before[i]) - {None} == set(after[i]) - {None}}
        assert same
        # Who is in no histogram, as values of another order are, has nothing that is kept.
        assert set(finding.looked_at) == concerned - same
        with finding.keys.snapshot() as snapshot:
            assert found.statistics == dict(snapshot.value_statistics(sorted(concerned)))
        finding.refresh()


def test_a_batch_that_began_before_they_are_followed_is_waited_for(
    database_url: str, stream: Stream, finding: Finding
) -> None:
    found, _ = finding.find()
    with closing(psycopg2.connect(database_url)) as batch, batch.cursor() as cursor:
        cursor.execute(store.FOLLOWED)
        keeping = threading.Thread(target=finding.keys.follow, args=(found.version, found.histograms, found.statistics))
        keeping.start()
        wait_for(lambda: states.query(database_url, "select from pg_locks where not granted"))
        cursor.execute("insert into state_version (version, generation, kind) values (2, 1, 'batch')")
        batch.commit()
        keeping.join()
    assert states.query(database_url, "select distinct since_version from followed_attribute") == [(2,)]
    assert states.query(database_url, "select count(*) from key_histogram") == [(0,)]


@pytest.mark.parametrize("has_kept_before", [True, False])
def test_what_is_kept_while_a_column_is_dropped_is_forgotten_with_it(
    database_url: str, stream: Stream, finding: Finding, monkeypatch: pytest.MonkeyPatch, has_kept_before: bool
) -> None:
    """The drop waits for whoever keeps histograms, and sees what he has kept."""
    found, _ = finding.find()
    if has_kept_before:
        finding.keys.follow(found.version, found.histograms, found.statistics)
    else:
        store.follow_all(finding.engine)
    dropping: list[threading.Thread] = []

    def dropping_first(*arguments: Any) -> bytes:
        if not dropping:
            ((attribute_id,),) = states.query(database_url, CUSTOMER)
            dropping.append(threading.Thread(target=drop_it, args=(attribute_id,)))
            dropping[0].start()
            wait_for(lambda: states.query(database_url, "select from pg_locks where not granted"))
        return to_bytes(*arguments)

    def drop_it(attribute_id: int) -> None:
        with connect(database_url, "dropping") as connection:
            with connection.cursor() as cursor:
                store.forget_if_had(cursor, [attribute_id])
            connection.commit()

    to_bytes = store._to_bytes
    monkeypatch.setattr(store, "_to_bytes", dropping_first)
    finding.keys.follow(found.version, found.histograms, found.statistics)
    dropping[0].join()
    for table in ("followed_attribute", "key_histogram", "value_change"):
        assert states.query(database_url, f"select count(*) from {table}") == [(0,)]


@pytest.mark.parametrize("records", [10, 10_000], ids=["many versions", "the first one"])
def test_nobody_asks_for_long_and_they_are_forgotten(
    database_url: str, stream: Stream, finding: Finding, monkeypatch: pytest.MonkeyPatch, records: int
) -> None:
    finding.refresh()
    monkeypatch.setattr(store, "MOST_BYTES", 2000)
    change(stream, random.Random(8), 400)
    consume(database_url, stream, records=records)
    for table in ("followed_attribute", "key_histogram", "value_change"):
        assert states.query(database_url, f"select count(*) from {table}") == [(0,)]
    found, read = finding.find()
    assert read == 2
    require_exact(stream, found)


def test_another_question_and_another_order_have_grids_of_their_own(
    database_url: str, stream: Stream, finding: Finding
) -> None:
    finding.refresh()
    assert finding.find(replace(QUESTION, method=Method.COMBINED))[1] == 0
    assert finding.find(replace(QUESTION, cells=9))[1] == 1
    assert finding.find(replace(QUESTION, tuple_cells=9))[1] == 1
    stream.change("customers", None, ["a word", "n1"])  # ids are numbers no more
    consume(database_url, stream)
    found, read = finding.find()
    assert read == 2
    require_exact(stream, found)


def test_what_cannot_be_is_measured_anew(database_url: str, stream: Stream, finding: Finding) -> None:
    """Kept histograms that lack a value, and those that lack one that goes."""
    finding.refresh()
    kept, _ = finding.find()
    for one in kept.histograms:
        tuples = one.of_key.tuples
        counts = tuples.counts.copy()
        counts[-1] += 1
        damaged = KeyHistogram(one.of_key.grids, one.of_key.columns, GridHistogram(tuples.shape, tuples.cells, counts))
        wrong = Histograms(one.key_id, one.columns, one.cells, damaged, one.others)
        finding.keys.follow(kept.version, [wrong], kept.statistics)
        assert finding.find()[1] == 2
        finding.refresh()
    nothing = np.zeros(0, np.int64)
    empty = [
        Histograms(
            one.key_id, one.columns, one.cells, one.of_key,
            {i: GridHistogram(of.shape, nothing, nothing) for i, of in one.others.items()},
        )
        for one in kept.histograms
    ]  # fmt: skip
    finding.keys.follow(kept.version, empty, kept.statistics)
    stream.change("orders", next(stream.tables.rows["orders"].elements()), None)
    consume(database_url, stream)
    found, read = finding.find()
    assert read == 2
    require_exact(stream, found)


class Gone(BaseException):
    """Stand for the process being gone."""


def test_a_keeper_that_ends_at_any_statement_has_kept_nothing_or_all(
    database_url: str, stream: Stream, finding: Finding
) -> None:
    rng = random.Random(9)
    finding.refresh()
    step = 0
    while True:
        change(stream, rng, 20)
        consume(database_url, stream)
        found, read = finding.find()
        assert read == 0
        require_exact(stream, found)
        if dies(database_url, step, found):
            step += 1
            continue
        break
    assert step >= 10
    assert states.query(database_url, LOGGED) == [(0,)]


def dies(url: str, step: int, found: ForeignKeys) -> bool:
    """Keep histograms, and end at a step; tell whether there was one."""
    left = [step]

    def count(*_: object) -> None:
        left[0] -= 1
        if left[0] < 0:
            raise Gone

    engine: Engine = make_engine(url, "test")
    event.listen(engine, "before_cursor_execute", count)
    event.listen(engine, "commit", count)
    try:
        PostgresForeignKeys(engine).follow(found.version, found.histograms, found.statistics)
    except Gone:
        return True
    finally:
        engine.dispose()
    return False
