"""A change of a table's columns is a version of its own: what is before it is applied, and the feed goes on behind."""

from __future__ import annotations

import random
import shlex
import string
from collections import Counter
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace

import orjson
import psycopg2
import pytest
from typer.testing import CliRunner

from service.cli import app
from service.core.errors import NotFoundError, RecordError, StateError
from service.core.model import AttributeName, SchemaDrift
from service.feed_wiring import drop_attributes
from service.store.database import connect
from service.store.generation import NewAttribute, NewName, assign_attribute_ids
from service.store.publication import _put_attributes
from service.store.schema_changes import rename
from service.store.writer import PostgresWriter
from service.usecases.batches import ErrorPolicy
from service.usecases.schema_changes import KnownColumn, SchemaChange, drop, plan_change
from tests import states
from tests.events import envelope, tracked_table, with_schema
from tests.following import MakeStream, Stream, Watch, consume, store_tracked
from tests.states import Tables

COLUMNS = {"orders": ["id", "customer"], "customers": ["id", "name"]}


@pytest.fixture
def stream(make_stream: MakeStream, database_url: str) -> Stream:
    tables = Tables(dict(COLUMNS))
    tables.add("customers", ["1", "Ada"], ["2", "Bob"])
    tables.add("orders", ["10", "1"], ["11", "2"], ["12", None])
    store_tracked(database_url, tables)
    return make_stream(tables)


def alter(stream: Stream, table: str, columns: list[str], row: Callable[[tuple], tuple]) -> None:
    """Change the columns of a table: nothing of it is told to the feed."""
    stream.columns[table] = columns
    stream.tables.columns[table] = columns
    stream.tables.rows[table] = Counter({row(old): n for old, n in stream.tables.rows[table].items()})


def kinds(url: str) -> list[str]:
    return [kind for (kind,) in states.query(url, "select kind from state_version order by version")]


def stale(url: str) -> list[str]:
    query = "select column_name from attribute where stale_version is not null and dropped_version is null order by 1"
    return [column for (column,) in states.query(url, query)]


def never(_: str) -> None:
    raise AssertionError("nobody has the state, so nobody is waited for")


def test_a_new_column_becomes_an_attribute_that_is_null_in_all_rows_there_are(
    database_url: str, stream: Stream
) -> None:
    stream.change("orders", None, ["13", "1"])
    alter(stream, "orders", ["id", "customer", "note"], lambda row: (*row, None))
    stream.change("orders", None, ["14", "2", "Ada"])
    stream.change("orders", ["10", "1", None], ["10", "1", "Bob"])
    watch = Watch()
    consume(database_url, stream, watch=watch)
    assert states.read(database_url) == states.expected(stream.tables)
    assert kinds(database_url) == ["bootstrap", "batch", "schema", "batch"]
    assert watch.schema == [("s.orders", ("note",), ())]
    assert states.query(database_url, "select ordinal from attribute where column_name = 'note'") == [(2,)]


def test_a_column_that_is_gone_keeps_its_values_and_is_stale_until_it_is_dropped(
    database_url: str, stream: Stream
) -> None:
    before = states.read(database_url)
    alter(stream, "orders", ["id"], lambda row: row[:1])
    stream.change("orders", None, ["14"])
    stream.change("orders", ["10"], None)
    stream.change("customers", None, ["3", "Cleo"])
    consume(database_url, stream)
    assert stale(database_url) == ["customer"]
    assert states.read(database_url).counters["s.orders.customer"] == before.counters["s.orders.customer"]
    assert ("s.orders.customer", "s.customers.id") in states.read(database_url).inds

    version, gone = drop(PostgresWriter(database_url), "s.orders.customer")
    assert [one.column for one in gone] == ["customer"]
    broken = f"select kind, dependent_id from ind_transition where version = {version}"
    assert states.query(database_url, broken) == [("broke", 2)]
    assert kinds(database_url)[-1] == "schema"
    found, wanted = states.read(database_url), states.expected(stream.tables)
    assert (found.records, found.clusters, found.inds) == (wanted.records, wanted.clusters, wanted.inds)

    stream.change("orders", None, ["15"])
    consume(database_url, stream)
    assert states.read(database_url).records == states.expected(stream.tables).records


def test_what_is_followed_is_dropped_by_force_alone_and_comes_back_stale_with_the_next_change(
    database_url: str, stream: Stream
) -> None:
    for name in ("s.customers.name", "s.customers"):
        with pytest.raises(StateError, match=r"is followed.*--force, as for a table that is gone"):
            drop(PostgresWriter(database_url), name)
    with pytest.raises(NotFoundError, match=r"no attribute or table 's\.nothing'"):
        drop(PostgresWriter(database_url), "s.nothing")
    drop(PostgresWriter(database_url), "s.customers.name", force=True)
    stream.change("customers", None, ["3", "Cleo"])
    consume(database_url, stream)
    found = states.query(
        database_url,
        "select attribute_id, row_count, null_count, distinct_count, stale_version from attribute "
        "where column_name = 'name' order by 1",
    )
    assert found == [(4, 0, 0, 0, None), (5, 2, 2, 0, 3)], "what its older rows hold is not counted any more"


def test_a_table_is_dropped_with_all_of_its_columns(database_url: str, stream: Stream) -> None:
    drop(PostgresWriter(database_url), "s.orders", force=True)
    found = states.read(database_url)
    assert {name for _, members in found.records.values() for name in members} == {"s.customers.id", "s.customers.name"}
    assert states.query(database_url, "select table_name from tracked_table") == [("customers",)]
    stream.append("orders", None, ["13", "1"])
    with pytest.raises(RecordError, match=r"s\.orders.*not tracked"):
        consume(database_url, stream)


def test_columns_whose_values_are_not_counted_are_dropped_with_their_values(database_url: str) -> None:
    tables = Tables(COLUMNS, insert_only=True)
    tables.add("customers", ["1", "Ada"], ["2", None]).add("orders", ["10", "1"])
    states.store(database_url, tables)
    drop(PostgresWriter(database_url), "s.customers", force=True)
    found = states.read(database_url)
    assert {name for _, members in found.records.values() for name in members} == {"s.orders.id", "s.orders.customer"}
    assert not found.inds


def test_a_default_that_was_never_sent_poisons_nothing(database_url: str, stream: Stream) -> None:
    """Postgres gives old rows of a new column its default, and tells nobody before they are changed."""
    alter(stream, "orders", ["id", "customer", "state"], lambda row: (*row, "new"))
    stream.change("orders", None, ["13", "1", "paid"])
    stream.change("orders", ["10", "1", "new"], ["10", "1", "paid"])
    stream.change("orders", ["11", "2", "new"], None)
    watch = Watch()
    consume(database_url, stream, watch=watch)
    assert watch.schema == [("s.orders", ("state",), ()), ("s.orders", (), ("state",))]
    assert stale(database_url) == ["state"], "what it holds is not known, and that is said"
    found, wanted = states.read(database_url), states.expected(stream.tables)
    for name in ("s.orders.id", "s.orders.customer", "s.customers.id"):
        assert found.counters[name] == wanted.counters[name]


def test_a_column_whose_name_no_index_takes_is_a_bad_record(database_url: str, stream: Stream) -> None:
    """Postgres compresses what it can, as a question of a survey; what it cannot is random here."""
    name = "".join(random.Random(1).choices(string.ascii_letters, k=4000))
    with connect(database_url, "test") as connection, pytest.raises(StateError, match=r"too long.*--no-header"):
        assign_attribute_ids(connection, "more", [NewName(AttributeName("s", "long", name))])
    with connect(database_url, "test") as connection:
        asked = [NewName(AttributeName("s", "long", name[:1600])), NewName(AttributeName("s", "long", 100 * name[:40]))]
        assert len(assign_attribute_ids(connection, "more", asked)[0]) == 2
    stream.append("customers", None, ["7", "Eve"])
    alter(stream, "orders", ["id", "customer", name], lambda row: (*row, None))
    at = stream.end()
    stream.append("orders", None, ["13", "1", "x"])
    with pytest.raises(RecordError, match=rf"offset {at}: .*its name is too long for the state to find it by"):
        consume(database_url, stream)
    totals = consume(database_url, stream, on_error=ErrorPolicy.SET_ASIDE)
    assert (totals.dead, kinds(database_url)) == (1, ["bootstrap", "batch", "batch"])


def test_a_record_that_is_wrong_is_blamed_although_a_default_is_there_too(database_url: str, stream: Stream) -> None:
    alter(stream, "orders", ["id", "customer", "state"], lambda row: (*row, "new"))
    stream.change("orders", None, ["13", "1", "paid"])
    stream.change("orders", ["10", "1", "new"], ["10", "1", "paid"])
    ghost = stream.end()
    stream.append("orders", ["99", "7", "new"], None)
    stream.change("orders", ["11", "2", "new"], None)
    with pytest.raises(RecordError, match=rf"offset {ghost}: .*never inserted"):
        consume(database_url, stream)
    totals = consume(database_url, stream, on_error=ErrorPolicy.SET_ASIDE)
    assert totals.dead == 1
    assert states.read(database_url).counters["s.orders.id"] == states.expected(stream.tables).counters["s.orders.id"]


def test_a_rename_that_was_announced_keeps_the_attribute_and_its_values(database_url: str, stream: Stream) -> None:
    said = rename(database_url, "s.orders.customer", "s.orders.buyer", never)
    assert said == "s.orders.customer becomes s.orders.buyer with the first change that calls it so."
    stream.change("orders", None, ["13", "1"])
    alter(stream, "orders", ["id", "buyer"], lambda row: row)
    stream.change("orders", ["13", "1"], ["13", "2"])
    consume(database_url, stream)
    assert states.read(database_url) == states.expected(stream.tables)
    assert ("s.orders.buyer", "s.customers.id") in states.read(database_url).inds
    assert states.query(database_url, "select kind from ind_transition") == []


def test_a_rename_that_was_announced_outlives_a_bootstrap_that_reads_the_old_name(
    database_url: str, stream: Stream
) -> None:
    rename(database_url, "s.orders.customer", "s.orders.buyer", never)
    columns = "source_id, attribute_id, schema_name, table_name, column_name, ordinal, data_type, "
    counters = "row_count, null_count, distinct_count, repeated_count"
    found = states.query(database_url, f"select {columns}{counters} from attribute where parts is null")
    again = [NewAttribute(row[1], AttributeName(*row[2:5]), *row[5:]) for row in found]
    with closing(psycopg2.connect(database_url)) as connection, connection, connection.cursor() as cursor:
        _put_attributes(cursor, found[0][0], again, 2)
    alter(stream, "orders", ["id", "buyer"], lambda row: row)
    stream.change("orders", None, ["13", "2"])
    consume(database_url, stream)
    assert states.read(database_url) == states.expected(stream.tables)
    assert stale(database_url) == []


def test_a_rename_that_was_not_announced_can_be_told_before_anything_was_applied(
    database_url: str, stream: Stream
) -> None:
    drift = SchemaDrift("drift", tracked_table("s", "orders", {}), [("buyer", "text")], ["customer"])
    writer = PostgresWriter(database_url)
    writer.acquire()
    writer.change_schema(drift, "test")
    writer.close()
    assert stale(database_url) == ["customer"]
    said = rename(database_url, "s.orders.customer", "s.orders.buyer", never)
    assert said == "s.orders.customer is now s.orders.buyer, since version 3."
    alter(stream, "orders", ["id", "buyer"], lambda row: row)
    stream.change("orders", ["10", "1"], ["10", "2"])
    consume(database_url, stream)
    dropped = states.read(database_url).counters
    assert states.read(database_url).inds == states.expected(stream.tables).inds
    assert dropped["s.orders.buyer"] in [(3, 1, 1, 1), (0, 0, 0, 0)]


def test_a_rename_that_comes_too_late_is_refused(database_url: str, stream: Stream) -> None:
    alter(stream, "orders", ["id", "buyer"], lambda row: row)
    stream.change("orders", None, ["13", "1"])
    consume(database_url, stream)
    with pytest.raises(StateError, match=r"changes were applied since.*--replace"):
        rename(database_url, "s.orders.customer", "s.orders.buyer", never)


def test_a_renamed_table_is_followed_under_its_new_name(database_url: str, stream: Stream) -> None:
    assert "is now s.sales" in rename(database_url, "s.orders", "s.sales", never)
    for of in (stream.columns, stream.tables.columns, stream.tables.rows):
        of["sales"] = of.pop("orders")  # type: ignore[attr-defined]
    stream.change("sales", None, ["13", "1"])
    consume(database_url, stream)
    assert states.read(database_url) == states.expected(stream.tables)
    assert states.query(
        database_url, "select source_schema, source_table from tracked_table where table_name = 'sales'"
    ) == [("s", "sales")]


@pytest.mark.usefixtures("stream")
def test_a_table_that_took_the_name_of_one_that_is_gone_is_renamed_as_it_is_told(database_url: str) -> None:
    with pytest.raises(StateError, match="is gone at the source") as told:
        rename(database_url, "s.orders", "s.customers", never)
    *_, said = str(told.value).partition("subsetd attribute drop ")
    name, *options = shlex.split(said)
    drop_attributes(database_url, name, force="--force" in options, telling=never)
    assert "is now s.customers" in rename(database_url, "s.orders", "s.customers", never)


def test_an_old_record_that_is_applied_already_changes_no_columns(database_url: str, stream: Stream) -> None:
    """A slot that is older than the bootstrap sends rows as they were before the last ALTER TABLE."""
    states.execute(database_url, "update source set snapshot = '100:100:'")
    old = [
        envelope("c", "s", "orders", None, {"id": str(number)}, txId=number, connector="postgresql")
        for number in range(50, 53)
    ]
    for line in old:
        stream.write(line)
    new = {"id": "13", "customer": "1"}
    stream.write(envelope("c", "s", "orders", None, new, txId=200, connector="postgresql"))
    stream.tables.add("orders", ["13", "1"])
    watch = Watch()
    totals = consume(database_url, stream, watch=watch)
    assert (totals.skipped, totals.inserted, watch.schema) == (3, 1, [])
    assert states.read(database_url) == states.expected(stream.tables)
    assert kinds(database_url) == ["bootstrap", "batch"]


def test_a_record_that_another_source_catches_up_to_changes_no_columns(database_url: str, stream: Stream) -> None:
    stream.write(envelope("c", "s", "orders", None, {"id": "9"}))
    states.execute(
        database_url,
        f"insert into feed_catch_up select 'file:{stream.path}', '{stream.path}', 0, source_id, "
        f"{stream.path.stat().st_size} from source",
    )
    stream.change("orders", None, ["13", "1"])
    totals = consume(database_url, stream)
    assert (totals.skipped, totals.inserted) == (1, 1)
    assert states.read(database_url) == states.expected(stream.tables)
    assert states.query(database_url, "select count(*) from feed_catch_up") == [(0,)]


def test_the_commands_say_what_they_did(database_url: str, stream: Stream, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SUBSETD_DATABASE_URL", database_url)

    def said(*arguments: str) -> str:
        return " ".join(CliRunner().invoke(app, arguments).stdout.split())

    alter(stream, "orders", ["id"], lambda row: row[:1])
    stream.change("orders", None, ["13"])
    consume(database_url, stream)
    assert "s,orders,customer,string,3,1,2,0,False,2" in said("attributes", "--format", "csv")
    assert said("attribute", "rename", "s.orders.customer", "s.orders.buyer").startswith("s.orders.customer is now")
    assert said("attribute", "drop", "s.orders.buyer") == "s.orders.buyer is gone since version 5."
    refused = CliRunner().invoke(app, ["attribute", "drop", "s.orders.id"])
    assert "--force" in str(refused.exception)


def known(**more: object) -> list[KnownColumn]:
    one = KnownColumn(1, "s", "t", "a", "integer", False, None)
    return [one._replace(**more), KnownColumn(2, "s", "t", "b", "text", False, None)]  # type: ignore[arg-type]


def drifting(added: list[tuple[str, str]], missing: list[str]) -> SchemaDrift:
    return SchemaDrift("topic t, partition 0, offset 7: drift", tracked_table("s", "t", {}), added, missing)


def retyping(data_type: str) -> SchemaDrift:
    drift = drifting([], [])
    drift.retyped = (("a", data_type),)
    return drift


def test_a_column_of_a_type_in_which_its_values_have_the_same_texts_is_the_same_attribute() -> None:
    assert plan_change(known(), retyping("bigint")) == SchemaChange(retyped={1: "bigint"})


def test_a_column_of_a_type_in_which_its_values_have_other_texts_is_stale_unless_it_has_none() -> None:
    assert plan_change(known(), retyping("date")) == SchemaChange(stale=(1,))
    assert plan_change(known(is_empty=True), retyping("date")) == SchemaChange(retyped={1: "date"})
    assert plan_change(known(is_key=True), retyping("bigint")) == SchemaChange(retyped={1: "bigint"})
    with pytest.raises(RecordError, match=r"part of the key.*was integer.*--replace"):
        plan_change(known(is_key=True), retyping("date"))


def test_a_drift_that_says_nothing_new_is_a_bad_record() -> None:
    with pytest.raises(RecordError, match="offset 7"):
        plan_change(known(), retyping("integer"))


def test_an_announced_name_is_taken_when_the_old_one_is_gone() -> None:
    plan = plan_change(known(renamed_to="c"), drifting([("c", "bigint"), ("d", "text")], ["a"]))
    assert plan == SchemaChange(added=(("d", "text"),), renamed={1: "c"}), "its type shows under its new name"


@pytest.mark.parametrize(
    ("filled", "row_images", "unknown"),
    [
        (None, False, set()),
        (None, True, {"c", "d"}),
        (frozenset({"d"}), True, {"d"}),
        (frozenset({"d"}), False, {"d"}),
        (frozenset(), True, set()),
    ],
)
def test_what_older_rows_hold_of_a_new_column_is_known_or_not(
    filled: frozenset[str] | None, row_images: bool, unknown: set[str]
) -> None:
    """A schema or catalog says it; else whole rows before will, and kept rows never would."""
    drift = drifting([("c", "text"), ("d", "text")], [])
    drift.table = replace(drift.table, row_images=row_images)
    drift.filled = filled
    assert plan_change(known(), drift).unknown == unknown


@pytest.mark.parametrize(("row_images", "is_empty", "unknown"), [(1, 0, {"c"}), (0, 0, set()), (1, 1, set())])
def test_a_column_that_comes_as_another_goes_may_hold_its_values_where_nothing_would_show_them(
    row_images: int, is_empty: int, unknown: set[str]
) -> None:
    """It may have been renamed without a word, whatever is known of its default."""
    drift = drifting([("c", "integer")], ["a"])
    drift.table = replace(drift.table, row_images=bool(row_images))
    drift.filled = frozenset()
    plan = plan_change(known(is_empty=bool(is_empty)), drift)
    assert (plan.unknown, plan.stale) == (unknown, (1,))


def test_kept_rows_outlive_a_change_of_columns(database_url: str, stream: Stream) -> None:
    states.execute(
        database_url,
        "update tracked_table set key_columns = '{id}', row_images = true where table_name = 'customers'",
    )
    stream.write(with_schema(["id", "name"], "c", "customers", None, {"id": "3", "name": "Cleo"}))
    stream.write(with_schema(["id"], "u", "customers", None, {"id": "3"}))
    stream.write(with_schema(["id", "note"], "u", "customers", None, {"id": "3", "note": "x"}))
    stream.write(with_schema(["id", "note"], "u", "customers", None, {"id": "3", "note": "y"}))
    watch = Watch()
    consume(database_url, stream, watch=watch)
    assert watch.schema == [("s.customers", (), ("name",)), ("s.customers", ("note",), ())]
    counters = states.read(database_url).counters
    assert counters["s.customers.note"] == (3, 2, 1, 0)
    assert counters["s.customers.id"] == (3, 0, 3, 0)
    assert states.query(database_url, "select cells from row_image") == [(["3", None, "y"],)]
    stream.write(with_schema(["ident", "note"], "d", "customers", {"ident": "3", "note": None}, None))
    assert "becomes" in rename(database_url, "s.customers.id", "s.customers.ident", never)
    consume(database_url, stream)
    assert states.read(database_url).counters["s.customers.ident"] == (2, 0, 2, 0)
    assert states.query(database_url, "select key_columns from tracked_table where row_images") == [(["ident"],)]
    assert states.query(database_url, "select count(*) from row_image") == [(0,)]


def test_a_new_column_with_a_default_is_stale_from_the_start_where_the_schema_tells_of_it(
    database_url: str, stream: Stream
) -> None:
    def fields(*told: dict[str, object]) -> dict[str, object]:
        rows = [{"field": which, "type": "struct", "optional": True, "fields": told} for which in ("before", "after")]
        return {"type": "struct", "fields": [*rows, {"field": "op", "type": "string"}]}

    text = {"type": "string", "optional": True}
    schema = fields(
        {"field": "id", **text}, {"field": "name", **text}, {"field": "note", **text},
        {"field": "state", **text, "default": "new"},
    )  # fmt: skip
    after = {"id": "3", "name": "Cleo", "note": "x", "state": "new"}
    payload = orjson.loads(envelope("c", "s", "customers", None, after))
    stream.write(orjson.dumps({"schema": schema, "payload": payload}))
    consume(database_url, stream)
    assert stale(database_url) == ["state"]
    query = "select row_count, null_count, distinct_count from attribute where column_name = 'note'"
    assert states.query(database_url, query) == [(3, 2, 1)]


def test_a_column_of_the_key_of_kept_rows_cannot_be_left_stale() -> None:
    with pytest.raises(RecordError, match=r"part of the key.*attribute rename s\.t\.a NEW"):
        plan_change(known(is_key=True), drifting([], ["a"]))


def test_dead_letters_of_a_refused_change_name_their_own_places(database_url: str, stream: Stream) -> None:
    states.execute(
        database_url,
        "update tracked_table set key_columns = '{id}', row_images = true where table_name = 'customers'",
    )
    offsets = [
        stream.write(envelope("c", "s", "customers", None, {"number": number, "name": "x"})) for number in ("7", "8")
    ]
    totals = consume(database_url, stream, on_error=ErrorPolicy.SET_ASIDE)
    assert totals.dead == 2
    letters = states.query(database_url, "select record_offset, message from dead_letter order by 1")
    assert [offset for offset, _ in letters] == offsets
    assert all(f"offset {offset}: " in message for offset, message in letters)
