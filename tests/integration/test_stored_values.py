"""What is kept of values, followed by the consumer: the truth is that of a state with all values, the texts are cut."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path

import pytest

from service.core.errors import RecordError, StateError
from service.store.checks import PostgresVerifier
from service.store.database import connect, make_engine
from service.store.masking import mask
from service.store.shown_values import read_shown
from service.usecases.batches import ErrorPolicy
from tests import states
from tests.events import envelope
from tests.following import COLUMNS, begun, consume, random_changes, shop_tables
from tests.histograms import bootstrap_again
from tests.states import State, Tables

SHOWN = {"s.orders.customer": 2, "s.orders.note": 0, "s.customers.name": 0}
"""Characters that are kept of columns; all of the others."""


def cut(state: State) -> State:
    """Say what the records of a state are where columns are cut: the most open column that has a value decides."""
    records = {
        key: (value if set(members) - SHOWN.keys() else value[: max(SHOWN[member] for member in members)], members)
        for key, (value, members) in state.records.items()
    }
    return State(records, state.clusters, state.counters, state.inds)


def restrict(url: str) -> None:
    for name, characters in SHOWN.items():
        _, table, column = name.split(".")
        states.execute(
            url,
            f"update attribute set shown_characters = {characters} "
            f"where (table_name, column_name) = ('{table}', '{column}');",
        )
    states.execute(
        url,
        "update gen_rec set value = left(value, (select max(coalesce(shown_characters, 1000)) from attribute "
        "where attribute_id = any (attribute_ids)))",
    )


@pytest.mark.parametrize(("records", "cache_bytes"), [(1, 0), (7, 2000), (5000, 1 << 20)])
def test_any_history_is_that_of_all_values_with_the_texts_cut(
    database_url: str, tmp_path: Path, records: int, cache_bytes: int
) -> None:
    tables = shop_tables()
    stream = begun(database_url, tables, tmp_path)
    restrict(database_url)
    assert states.read(database_url) == cut(states.expected(tables))
    random_changes(stream, random.Random(f"{records}"), 120)
    consume(database_url, stream, records=records, cache_bytes=cache_bytes)
    assert states.read(database_url) == cut(states.expected(tables))

    stream.write(envelope("t", "s", "customers", None, None))
    tables.rows["customers"] = Counter()
    consume(database_url, stream, records=records, cache_bytes=cache_bytes)
    assert states.read(database_url) == cut(states.expected(tables)), "what an open column held is cut with it"

    witnesses = states.query(
        database_url,
        "select schema_name || '.' || table_name || '.' || column_name, witness_key::text, witness_value "
        "from ind_transition join attribute on attribute_id = dependent_id where witness_key is not null",
    )
    assert {name for name, _, _ in witnesses} & SHOWN.keys(), "there are witnesses of columns that are cut"
    for name, _, value in witnesses:
        shown = SHOWN.get(name, 1000)
        assert value is None if not shown else len(value) <= shown
    engine = make_engine(database_url, "test")
    with PostgresVerifier(engine).checks() as checks:
        for found in (checks.records_fit_clusters(), checks.keys_fit_values(), checks.counters_fit_records()):
            assert (found.violations, found.examples) == (0, ())
    states.execute(
        database_url,
        "update gen_rec set value = 'Adalbert' where value_key = (select value_key from gen_rec "
        "where attribute_ids <@ (select array_agg(attribute_id) from attribute where shown_characters is not null) "
        "limit 1)",
    )
    with PostgresVerifier(engine).checks() as checks:
        found = checks.keys_fit_values()
    engine.dispose()
    assert found.violations == 1, "a text that is longer than what may be kept is told, by its key"
    assert "Adalbert" not in found.examples[0]


def test_a_record_that_stops_the_feed_shows_no_value(database_url: str, tmp_path: Path) -> None:
    tables = Tables(COLUMNS)
    tables.add("orders", ["10", "1", "first"])
    stream = begun(database_url, tables, tmp_path)
    restrict(database_url)
    stream.append("orders", ["10", "1", "hushed"], None)
    stream.write(b'{"op": "hushed", "source": {"schema": "s", "table": "orders"}}')
    for _ in range(2):
        with pytest.raises(RecordError, match=r"takes a value out of s\.orders\.note") as stopped:
            consume(database_url, stream)
        assert "hushed" not in str(stopped.value)
    consume(database_url, stream, on_error=ErrorPolicy.SET_ASIDE)
    letters = states.query(database_url, "select dead_letter::text from dead_letter")
    assert len(letters) == 2
    assert "hushed" not in str(letters)
    assert b"hushed".hex() not in str(letters)


def test_records_of_a_table_whose_masked_column_is_stale_show_none_of_its_values(
    database_url: str, tmp_path: Path
) -> None:
    tables = Tables(COLUMNS)
    tables.add("orders", ["10", "1", "first"])
    stream = begun(database_url, tables, tmp_path)
    states.execute(
        database_url, "update attribute set shown_characters = 0, stale_version = 1 where column_name = 'note'"
    )
    stream.append("orders", ["10", "no such customer", "hushed"], None)
    consume(database_url, stream, on_error=ErrorPolicy.SET_ASIDE)
    ((letter, value),) = states.query(database_url, "select dead_letter::text, record_value from dead_letter")
    assert value is None
    assert "hushed" not in letter


def test_a_mask_leaves_letters_of_the_first_release_their_place(database_url: str, tmp_path: Path) -> None:
    """Their records are there as texts alone."""
    stream = begun(database_url, shop_tables(), tmp_path)
    stream.append("orders", ["10", "no such customer", "hushed"], None)
    consume(database_url, stream, on_error=ErrorPolicy.SET_ASIDE)
    states.execute(
        database_url,
        "update dead_letter set record_key = null, record_value = null, headers = null, table_name = null",
    )
    mask(database_url, "s.orders.note", "none", print)
    ((letter, message),) = states.query(database_url, "select dead_letter::text, message from dead_letter")
    assert "hushed" not in letter
    assert message.endswith("why is not kept either")


def test_a_mask_cuts_witnesses_of_what_had_the_column_and_is_followed_no_longer(
    database_url: str, tmp_path: Path
) -> None:
    begun(database_url, shop_tables(), tmp_path)
    add = (
        "insert into attribute (attribute_id, source_id, schema_name, table_name, column_name, ordinal, data_type, "
        "row_count, null_count, dropped_version, parts) select attribute_id + {more}, source_id, schema_name, "
        "table_name, {name}, ordinal + {after}, 'string', 0, 0, 1, {parts} from attribute "
        "where (table_name, column_name) = ('orders', 'note') and attribute_id < 100;"
    )
    gone = [  # the column as it was before, tuples with either of them, and one with neither
        add.format(more=100, name="'note'", after=10, parts="null"),
        add.format(more=200, name="'(note, id)'", after=0, parts="array[ordinal, 0]"),
        add.format(more=300, name="'(id, note)'", after=0, parts="array[0, ordinal + 10]"),
        add.format(more=400, name="'(id, other)'", after=0, parts="array[0, ordinal + 11]"),
    ]
    transitions = (
        "insert into ind_transition (version, dependent_id, referenced_id, kind, witness_key, witness_value) "
        "select 1, attribute_id, 0, 'broke', gen_random_uuid(), 'HUSH' from attribute where attribute_id >= 100"
    )
    states.execute(database_url, "".join(gone) + transitions)
    mask(database_url, "s.orders.note", "none", print)
    left = "select column_name from ind_transition join attribute on attribute_id = dependent_id where witness_value "
    assert states.query(database_url, left + "is not null") == [("(id, other)",)]
    assert len(states.query(database_url, left + "is null and witness_key is not null and attribute_id >= 100")) == 3


def test_a_column_that_comes_back_is_kept_as_its_source_says_by_now(database_url: str, tmp_path: Path) -> None:
    tables = shop_tables()
    stream = begun(database_url, tables, tmp_path)
    gone = (
        "insert into attribute (attribute_id, source_id, schema_name, table_name, column_name, ordinal, data_type, "
        "row_count, null_count, dropped_version, shown_characters) select attribute_id + {more}, source_id, "
        "schema_name, table_name, '{name}', ordinal + {more}, 'string', 0, 0, 1, {shown} from attribute "
        "where (table_name, column_name) = ('orders', 'note');"
        "insert into ind_transition (version, dependent_id, referenced_id, kind, witness_key, witness_value) "
        "select 1, attribute_id, 0, 'broke', gen_random_uuid(), 'HUSH' from attribute where column_name = '{name}';"
    )
    states.execute(
        database_url, gone.format(more=100, name="gone", shown="null") + gone.format(more=200, name="told", shown=3)
    )
    bootstrap_again(database_url, tables, {"store_values": "none"})
    witnesses = "select column_name, witness_value from ind_transition join attribute on attribute_id = dependent_id "
    told = states.query(database_url, witnesses + "where column_name in ('gone', 'told') order by 1")
    assert told == [("gone", None), ("told", "HUSH")]
    stream.columns["orders"] = [*COLUMNS["orders"], "gone", "told"]
    stream.append("orders", None, ["10", "1", "x", "y", "z"])
    consume(database_url, stream)
    shown = "select column_name, shown_characters from attribute where dropped_version is null and column_name in "
    assert states.query(database_url, shown + "('gone', 'told') order by 1") == [("gone", 0), ("told", 3)]

    with connect(database_url, "test") as connection:
        assert read_shown(connection, "s")[1]["s.orders.gone"] == 0


def test_a_column_of_which_whole_rows_are_kept_is_not_masked(database_url: str, tmp_path: Path) -> None:
    begun(database_url, shop_tables(), tmp_path)
    states.execute(database_url, "update tracked_table set row_images = true where table_name = 'orders'")
    with pytest.raises(StateError, match=r"the rows of its table are kept whole.* --row-images never --mask s\.orders"):
        mask(database_url, "s.orders.note", "none", print)
    shown = states.query(database_url, "select distinct shown_characters from attribute")
    assert (shown, states.query(database_url, "select max(version) from state_version")) == ([(None,)], [(1,)])
