"""Tuples of columns are attributes of their own: whatever the feed holds, theirs equal what SQL finds in the rows."""

from __future__ import annotations

import random
from collections import Counter
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import psycopg2
import pytest
from psycopg2.extras import execute_values

from service.core.errors import NotFoundError, RecordError, StateError
from service.core.model import SchemaDrift
from service.core.records import Deltas
from service.store.checks import PostgresVerifier
from service.store.database import make_engine
from service.store.reader import PostgresStateReader
from service.store.schema_changes import rename
from service.store.writer import PostgresWriter
from service.usecases import queries
from service.usecases.answers import AttributeFilter
from service.usecases.batches import ErrorPolicy
from service.usecases.key_values import KeyKind
from service.usecases.schema_changes import drop
from service.usecases.track_keys import CountedTuples, Wanted, find_table, read_beside, track
from service.usecases.track_keys import drop as drop_key
from service.usecases.verify import verify
from tests import states
from tests.asking import http_client
from tests.events import envelope, tracked_table
from tests.following import COLUMNS, Stream, begun, consume, random_changes
from tests.integration.serving import app_over, serving
from tests.shard_servers import spread
from tests.states import Tables, key_of

TUPLES = {"orders": [("id", "customer"), ("note", "id", "customer")], "customers": [("id", "name"), ("name", "id")]}

# By the definitions: a tuple with a NULL is none; its key is that of a NUL and its text.
RECOMPUTED = """
create schema again;
create table again.orders (id text, customer text, note text);
create table again.customers (id text, name text);
create view again.tuples (name, text) as
select 's.orders.(id, customer)', '[' || to_json(id) || ',' || to_json(customer) || ']' from again.orders
union all select 's.orders.(note, id, customer)',
    '[' || to_json(note) || ',' || to_json(id) || ',' || to_json(customer) || ']' from again.orders
union all select 's.customers.(id, name)', '[' || to_json(id) || ',' || to_json(name) || ']' from again.customers
union all select 's.customers.(name, id)', '[' || to_json(name) || ',' || to_json(id) || ']' from again.customers;
create view again.counted as
select name, text, count(*) as frequency from again.tuples where text is not null group by 1, 2;
"""
COUNTERS = """
select name, rows, nulls, coalesce(found, 0), coalesce(repeated, 0)
from (select name, count(*) as rows, count(*) - count(text) as nulls from again.tuples group by name) n
left join (select name, count(*) as found, count(*) filter (where frequency > 1) as repeated from again.counted
    group by name) c using (name)
"""
RECORDS = r"""
select encode(substring(sha256('\x00'::bytea || convert_to(text, 'UTF8')) for 16), 'hex'), name, frequency
from again.counted
"""
INDS = """
select d.name, r.name from (select distinct name from again.counted) d, (select distinct name from again.counted) r
where d.name <> r.name and not exists (
    select text from again.counted where name = d.name except select text from again.counted where name = r.name)
"""


@pytest.fixture
def stream(tmp_path: Path, database_url: str) -> Stream:
    tables = Tables(dict(COLUMNS), tuples=dict(TUPLES))
    tables.add("customers", ["1", "Ada"], ["2", "Bob"], ["3", None])
    tables.add("orders", ["1", "Ada", "first"], ["2", "Bob", None], ["1", "Ada", "Bob"])
    return begun(database_url, tables, tmp_path)


def many_changes(stream: Stream, rng: random.Random, number: int) -> None:
    """Append changes that leave some thousand rows: inserts twice as often as deletes, updates mostly of one cell."""
    present = {table: list(rows.elements()) for table, rows in stream.tables.rows.items()}
    cells = [*map(str, range(30)), 'a "b" \\', "x\ty\n\x01", "é" * 150, "", "]", None, None]
    for _ in range(number):
        table = rng.choice(list(COLUMNS))
        rows = present[table]
        match rng.choice(["insert", "insert", "update", "delete"] if rows else ["insert"]):
            case "insert":
                rows.append(tuple(rng.choice(cells) for _ in COLUMNS[table]))
                stream.append(table, None, rows[-1])
            case "update":
                at, place = rng.randrange(len(rows)), rng.randrange(len(COLUMNS[table]))
                before = rows[at]
                rows[at] = (*before[:place], rng.choice(cells), *before[place + 1 :])
                stream.append(table, before, rows[at])
            case "delete":
                stream.append(table, rows.pop(rng.randrange(len(rows))), None)
    stream.tables.rows = {table: Counter(rows) for table, rows in present.items()}


def require_sound(url: str) -> None:
    engine = make_engine(url, "test")
    with PostgresVerifier(engine).checks() as checks:
        assert [found for found in verify(checks) if found.violations] == []
    engine.dispose()


@pytest.mark.parametrize("records", [1, 7, 5000])
def test_any_history_in_any_batches_equals_recomputing(database_url: str, stream: Stream, records: int) -> None:
    random_changes(stream, random.Random(records), 120)
    consume(database_url, stream, records=records)
    assert states.read(database_url) == states.expected(stream.tables)
    require_sound(database_url)


def test_ten_thousand_changes_leave_what_sql_finds_in_the_rows(database_url: str, stream: Stream) -> None:
    many_changes(stream, random.Random(8), 10_000)
    assert consume(database_url, stream, records=700).records == 10_000
    found = states.read(database_url)
    with closing(psycopg2.connect(database_url)) as connection, connection, connection.cursor() as cursor:
        cursor.execute(RECOMPUTED)
        for table, rows in stream.tables.rows.items():
            execute_values(cursor, f"insert into again.{table} values %s", list((+rows).elements()), page_size=1000)
        cursor.execute(RECORDS)
        records: dict[str, dict[str, int]] = {}
        for key, name, frequency in cursor:
            records.setdefault(key, {})[name] = frequency
        cursor.execute(COUNTERS)
        counters = {name: tuple(counts) for name, *counts in cursor}
        cursor.execute(INDS)
        inds = set(cursor)
    of_tuples = {f"s.{table}.({', '.join(parts)})" for table, tuples in TUPLES.items() for parts in tuples}
    assert records == {key: members for key, (_, members) in found.records.items() if of_tuples & members.keys()}
    assert len(records) > 1000
    assert counters == {name: found.counters[name] for name in of_tuples}
    assert inds == {pair for pair in found.inds if of_tuples & set(pair)}


def test_a_composite_ind_breaks_and_appears_with_the_tuple_that_did_it(database_url: str, stream: Stream) -> None:
    pair = ("s.orders.(id, customer)", "s.customers.(id, name)")
    assert pair in states.read(database_url).inds
    stream.change("orders", None, ["1", "Bob", None])  # each of both is a customer's, together they are nobody's
    consume(database_url, stream)
    found = states.read(database_url).inds
    assert ("s.orders.id", "s.customers.id") in found
    assert pair not in found
    broke = "select kind, witness_value, cause_count from ind_transition where dependent_id = 6 order by version"
    assert states.query(database_url, broke) == [("broke", '["1","Bob"]', 1)]
    stream.change("orders", ["1", "Bob", None], ["1", None, None])
    consume(database_url, stream)
    assert pair in states.read(database_url).inds, "a tuple with a NULL is none"
    assert states.read(database_url) == states.expected(stream.tables)


def test_a_row_that_was_never_there_is_refused_though_each_of_its_cells_was(database_url: str, stream: Stream) -> None:
    stream.append("customers", ["1", "Bob"], None)
    with pytest.raises(RecordError, match=r"""takes the value '\["1","Bob"\]' out of s\.customers\.\(id, name\)"""):
        consume(database_url, stream)
    stream.change("customers", None, ["4", "Cleo"])
    assert consume(database_url, stream, on_error=ErrorPolicy.SET_ASIDE).dead == 1
    assert states.read(database_url) == states.expected(stream.tables)


def test_a_truncate_takes_the_tuples_of_its_table_with_it(database_url: str, stream: Stream) -> None:
    stream.change("orders", None, ["3", "9", "Ada"])
    stream.write(envelope("t", "s", "orders", None, None))
    stream.tables.rows["orders"] = Counter()
    stream.change("orders", None, ["2", "Bob", None])
    consume(database_url, stream)
    assert states.read(database_url) == states.expected(stream.tables)
    require_sound(database_url)


def test_a_part_that_is_renamed_renames_the_tuple(database_url: str, stream: Stream) -> None:
    rename(database_url, "s.orders.customer", "s.orders.buyer", print)
    columns = ["id", "buyer", "note"]
    stream.columns["orders"] = stream.tables.columns["orders"] = columns
    stream.tables.tuples["orders"] = [("id", "buyer"), ("note", "id", "buyer")]
    stream.change("orders", None, ["2", "Ada", "x"])
    consume(database_url, stream)
    assert states.read(database_url) == states.expected(stream.tables)


def test_a_tuple_is_as_stale_as_its_parts_and_goes_with_them(database_url: str, stream: Stream) -> None:
    stream.columns["orders"] = ["id", "customer"]
    stream.tables.columns["orders"] = ["id", "customer"]
    stream.tables.rows["orders"] = Counter(row[:2] for row in stream.tables.rows["orders"].elements())
    stream.change("orders", None, ["7", "8"])
    consume(database_url, stream)
    stale = "select column_name from attribute where stale_version is not null and dropped_version is null order by 1"
    assert states.query(database_url, stale) == [("(note, id, customer)",), ("note",)]
    _, gone = drop(PostgresWriter(database_url), "s.orders.note")
    assert [one.column for one in gone] == ["note", "(note, id, customer)"]
    stream.tables.tuples["orders"] = [("id", "customer")]
    stream.change("orders", ["7", "8"], ["7", "9"])
    consume(database_url, stream)
    assert states.read(database_url).records == states.expected(stream.tables).records
    require_sound(database_url)


def test_stale_tuples_can_be_dropped_alone(database_url: str, stream: Stream) -> None:
    stream.columns["orders"] = ["id", "customer"]
    stream.change("orders", None, ["7", "8"])
    consume(database_url, stream)
    states.execute(
        database_url,
        "insert into tracked_key (attribute_id, kind, since_version) select attribute_id, 'pinned', 1 from attribute "
        "where parts is not null and stale_version is not null",
    )
    with pytest.raises(NotFoundError, match=r"s\.orders\(id, note\) is not followed; `subsetd keys list"):
        drop_key(PostgresWriter(database_url), "s", "orders", ["id", "note"])
    drop_key(PostgresWriter(database_url), "s", "orders", ["note", "id", "customer"])
    left = (
        "select column_name from attribute where table_name = 'orders' and dropped_version is null and {} is not null"
    )
    assert states.query(database_url, left.format("parts")) == [("(id, customer)",)]
    assert states.query(database_url, left.format("stale_version")) == [("note",)]
    assert states.query(database_url, "select count(*) from tracked_key") == [(0,)]
    stream.change("orders", ["7", "8"], ["7", "9"])
    consume(database_url, stream)
    require_sound(database_url)


def test_a_rename_that_is_told_late_makes_the_tuples_current_again(database_url: str, stream: Stream) -> None:
    drift = SchemaDrift("drift", tracked_table("s", "orders", {}), [("buyer", "text")], ["customer"])
    with closing(PostgresWriter(database_url)) as writer:
        writer.acquire()
        writer.change_schema(drift, "test")
    rename(database_url, "s.orders.customer", "s.orders.buyer", print)
    stream.columns["orders"] = stream.tables.columns["orders"] = ["id", "buyer", "note"]
    stream.tables.tuples["orders"] = [("id", "buyer"), ("note", "id", "buyer")]
    stream.change("orders", None, ["2", "Ada", "x"])
    consume(database_url, stream)
    found, wanted = states.read(database_url), states.expected(stream.tables)
    assert (found.records, found.clusters, found.inds) == (wanted.records, wanted.clusters, wanted.inds)


def test_a_rename_that_is_told_late_leaves_a_key_of_the_new_column_alone(database_url: str, stream: Stream) -> None:
    drift = SchemaDrift("drift", tracked_table("s", "orders", {}), [("buyer", "text")], ["customer"])
    with closing(PostgresWriter(database_url)) as writer:
        writer.acquire()
        writer.change_schema(drift, "test")
    states.execute(
        database_url,
        "insert into attribute (attribute_id, source_id, schema_name, table_name, column_name, ordinal, row_count, "
        "null_count, distinct_count, repeated_count, parts) "
        "select attribute_id + 1, source_id, schema_name, table_name, '(buyer, id)', ordinal, row_count, row_count, 0, "
        "0, array[ordinal, 0] from attribute where column_name = 'buyer'",
    )
    for key in ("buyer, id", "buyer"):
        with pytest.raises(StateError, match=rf"subsetd keys drop 's\.orders\({key}\)'"):
            rename(database_url, "s.orders.customer", "s.orders.buyer", print)
        states.execute(
            database_url,
            "update attribute set dropped_version = 1 where column_name = '(buyer, id)'; "
            "insert into tracked_key (attribute_id, kind, since_version) "
            "select attribute_id, 'pinned', 1 from attribute where column_name = 'buyer' on conflict do nothing",
        )


def test_the_sketch_of_a_tracked_key_is_written_whole_and_nothing_into_the_log(
    database_url: str, tmp_path: Path
) -> None:
    """A row of the log is one text to the server, which has a limit; of a key there may be any number of tuples."""
    rows = [[str(i % 9), f"n{i % 40}"] for i in range(120)] + [["1", None]]
    tables = Tables(dict(COLUMNS), tuples={"customers": [("id", "name")]}).add("customers", *rows)
    stream = begun(database_url, replace(tables, tuples={}), tmp_path)
    tuples = sorted((key_of(text), text, n) for text, n in tables.cells()[-1].items() if text is not None)
    portions = [
        CountedTuples(Deltas.of({k: {6: n} for k, _, n in part}), [t[1:] for _, t, _ in part])
        for part in (tuples[:7], tuples[7:50], tuples[50:])
    ]
    writer = PostgresWriter(database_url, "test")
    writer.acquire()
    stored = writer.load()
    new = Wanted(6, find_table(stored, "s", "customers", ["id", "name"]), ["id", "name"])
    assert track(writer, stored, [new], None, portions, lambda: {6: len(rows)}, KeyKind.PINNED) == 2
    writer.close()
    assert states.query(database_url, "select count(*) from sketch_change") == [(0,)]
    assert states.read(database_url) == states.expected(tables)
    stream.tables = tables
    stream.change("customers", rows[0], ["1", "n1"])
    consume(database_url, stream)
    assert states.read(database_url) == states.expected(tables)


@pytest.mark.parametrize("place", ["one table", "shards", "servers"])
def test_tuples_that_are_read_anew_beside_new_ones_are_what_their_rows_are_then(
    database_url: str, east_url: str, tmp_path: Path, place: str
) -> None:
    rng, cells = random.Random(6), ["a", "b", "c", "d", None]
    rows = [[rng.choice(cells), rng.choice(cells)] for _ in range(30)]
    before = Tables(dict(COLUMNS), tuples={"customers": [("id", "name")]}).add("customers", *rows)
    before.add("orders", *([a, b, None] for a, b in rows[:9]))
    stream = begun(database_url, before, tmp_path)
    match place:
        case "shards":
            states.deal(database_url, 4)
        case "servers":
            spread(database_url, 2, east=(east_url, [1]))
    names = [name for _, name in rows]
    rng.shuffle(names)  # so that the columns are what they were
    now = Tables(before.columns, tuples={"customers": [("id", "name")], "orders": [("id", "customer")]})
    now.add("customers", *([a, name] for (a, _), name in zip(rows, names, strict=True)))
    now.rows["orders"] = before.rows["orders"]
    tuples: dict[str, dict[int, int]] = {}
    for attribute_id, counted in zip((6, 7), now.cells()[-2:], strict=True):
        for text, n in counted.items():
            if text is not None:
                tuples.setdefault(text, {})[attribute_id] = n
    texts = sorted(tuples, key=key_of)
    portions = [
        CountedTuples(Deltas.of({key_of(text): tuples[text] for text in part}), [text[1:] for text in part])
        for part in (texts[:5], texts[5:])
    ]
    kept = "insert into followed_attribute values (6, 1); insert into key_histogram values (1, 1, '{6, 1}', '')"
    states.execute(database_url, kept)
    writer = PostgresWriter(database_url, "test")
    writer.acquire()
    stored = writer.load()
    new = Wanted(7, find_table(stored, "s", "orders", ["id", "customer"]), ["id", "customer"])
    assert [found.attribute_id for found in read_beside(stored, [new])] == [6]
    assert read_beside(stored, [new._replace(columns=["id", "customer", "note"])]) == []
    count_rows = lambda: {6: 30, 7: 9}  # noqa: E731
    version = track(writer, stored, [new], "5:7:6", portions, count_rows, KeyKind.PINNED, [6])
    writer.close()
    if place == "servers":
        spread(database_url, 1)
    assert states.read(database_url) == states.expected(now)
    assert states.query(database_url, "select attribute_id, snapshot from attribute where parts is not null") == [
        (6, "5:7:6"), (7, "5:7:6")
    ]  # fmt: skip
    assert states.query(database_url, "select attribute_id, since_version from followed_attribute") == [(6, version)]
    assert states.query(database_url, "select from key_histogram") == []
    require_sound(database_url)
    stream.tables = now
    stream.change("customers", [rows[0][0], names[0]], ["a", "z"])
    consume(database_url, stream)
    assert states.read(database_url) == states.expected(now)


def test_texts_that_one_side_may_not_show_are_kept_where_the_other_may(database_url: str, tmp_path: Path) -> None:
    tables = Tables(dict(COLUMNS), tuples={"customers": [("id", "name")]})
    tables.add("customers", ["1", "a"], ["2", "b"]).add("orders", ["2", "b", None])
    begun(database_url, tables, tmp_path)
    states.execute(
        database_url,
        "update attribute set shown_characters = 0 where attribute_id = 6; "
        "update gen_rec set value = '' where attribute_ids = '{6}'",
    )
    found = {'["2","b"]': {6: 1, 7: 1}, '["3","c"]': {6: 1}}  # of customers the first one went, and another came
    ordered = sorted(found, key=lambda text: key_of("\0" + text))
    counted = CountedTuples(
        Deltas.of({key_of("\0" + text): of for text, of in found.items()}),
        [text if 7 in found[text] else "" for text in ordered],
    )
    writer = PostgresWriter(database_url, "test")
    writer.acquire()
    stored = writer.load()
    new = Wanted(7, find_table(stored, "s", "orders", ["id", "customer"]), ["id", "customer"])
    rows = {6: 2, 7: 1}
    track(writer, stored, [new], None, [counted], lambda: rows, KeyKind.PINNED, [6])
    writer.close()
    kept = "select value, attribute_ids from gen_rec where attribute_ids && '{6, 7}' order by 1"
    assert states.query(database_url, kept) == [("", [6]), ('["2","b"]', [6, 7])]


@pytest.mark.parametrize("shards", [1, 4])
def test_tuples_that_are_read_anew_may_all_be_what_they_were(database_url: str, tmp_path: Path, shards: int) -> None:
    tables = Tables(dict(COLUMNS), tuples={"customers": [("id", "name")]})
    tables.add("customers", ["1", "a"], ["2", "b"], ["3", "c"]).add("orders", ["1", "a", None])
    begun(database_url, tables, tmp_path)
    states.deal(database_url, shards)
    found = {'["1","a"]': {6: 1, 7: 1}, '["2","b"]': {6: 1}, '["3","c"]': {6: 1}}
    texts = sorted(found, key=lambda text: key_of("\0" + text))
    assert texts[0] == '["1","a"]', "both portions end with one that the new key has not"
    portions = [
        CountedTuples(Deltas.of({key_of("\0" + text): found[text] for text in part}), part)
        for part in (texts[:2], texts[2:])
    ]
    writer = PostgresWriter(database_url, "test")
    writer.acquire()
    stored = writer.load()
    new = Wanted(7, find_table(stored, "s", "orders", ["id", "customer"]), ["id", "customer"])
    track(writer, stored, [new], None, portions, lambda: {6: 3, 7: 1}, KeyKind.PINNED, [6])
    writer.close()
    now = Tables(tables.columns, rows=tables.rows, tuples={**tables.tuples, "orders": [("id", "customer")]})
    assert states.read(database_url) == states.expected(now)


def test_answers_leave_tuples_out_unless_their_arity_is_asked_for(database_url: str, stream: Stream) -> None:
    engine = make_engine(database_url, "test")
    columns = Tables(dict(COLUMNS), rows=stream.tables.rows)
    plain, whole = states.expected(columns), states.expected(stream.tables)
    with PostgresStateReader(engine).snapshot(with_values=True) as snapshot:
        counts = snapshot.counts()
        assert (counts.attributes, counts.values, counts.clusters, counts.uinds) == (
            5, len(plain.records), len(plain.clusters), len(plain.inds)
        )  # fmt: skip
        assert [source.attribute_count for source in snapshot.sources()] == [5]
        found = {one.dependent.name.column for one in queries.uinds(snapshot).items}
        assert len(queries.uinds(snapshot).items) == len(plain.inds) == len(snapshot.ind_pairs())
        assert not [column for column in found if "(" in column]
        assert len(queries.clusters(snapshot)[0].items) == len(plain.clusters)
        of_two = AttributeFilter(arity=2)
        assert [one.name.column for one in queries.attributes(snapshot, of_two).items] == [
            "(id, name)", "(name, id)", "(id, customer)"
        ]  # fmt: skip
        pairs = {
            (str(one.dependent.name), str(one.referenced.name)) for one in queries.uinds(snapshot, of_two, of_two).items
        }
        assert pairs == {pair for pair in whole.inds - plain.inds if pair[0] != "s.orders.(note, id, customer)"}
        asked = [queries.resolve(snapshot, name) for name in ("s.customers.(name, id)", "s.orders.(id, customer)")]
        missing = queries.explain(snapshot, *asked).missing_values.items
        assert [(one.value, one.is_cut) for one in sorted(missing, key=lambda one: one.value)] == [
            ('["Ada","1"]', False), ('["Bob","2"]', False)
        ]  # fmt: skip
    engine.dispose()


@pytest.mark.parametrize(("side", "other"), [("dependent", "referenced"), ("referenced", "dependent")])
def test_who_names_a_tuple_asks_of_tuples_of_as_many_columns(
    database_url: str, stream: Stream, side: str, other: str
) -> None:
    stream.change("customers", ["1", "Ada"], None)  # what was contained is no more
    consume(database_url, stream)
    engine = make_engine(database_url, "test")
    with serving(app_over(engine)) as address, http_client(base_url=f"{address}/api/v1/", timeout=60) as client:

        def found(path: str, **asked: object) -> list[tuple[str, str]]:
            answer = client.get(path, params=asked)
            assert answer.status_code == 200, answer.text
            return [(one["dependent"]["name"], one["referenced"]["name"]) for one in answer.json()["items"]]

        for path, more in ("uinds", {"as_of": 1}), ("changes", {}):
            pairs = found(path, arity=2, **more)
            assert pairs
            for name in {pair[side == "referenced"] for pair in pairs}:
                expected = [pair for pair in pairs if pair[side == "referenced"] == name]
                assert found(path, **{side: name}, **more) == expected
                assert found(path, **{side: name, "arity": 1}, **more) == []
                assert found(path, **{side: name, f"{other}_schema": "nowhere"}, **more) == []
                shared = {pair[side != "referenced"] for pair in found("coefficients", **{side: name})}
                assert shared
                assert all("(" in one for one in shared)
    engine.dispose()
