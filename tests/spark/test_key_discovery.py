"""Keys of several columns, and foreign keys that refer to them, are those that plain Python finds in the same files."""

from __future__ import annotations

import random
from itertools import permutations
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from service.core.errors import SourceError, StateError
from service.core.foreign_keys.candidates import coefficient
from spark_jobs import key_discovery
from spark_jobs.key_discovery import Search, describe, discover_keys
from spark_jobs.sources import Options
from tests import states
from tests.spark.oracle import write_csv
from tests.states import Tables
from tests.unit.test_key_search import Rows, minimal_keys

RANDOM = random.Random(20261122)
PLACES = sorted({(f"c{RANDOM.randrange(5)}", f"p{RANDOM.randrange(30)}") for _ in range(90)})
COLUMNS = {
    "province": ["country", "name", "size"],
    "city": ["id", "in_province", "in_country"],
    "no_key": ["a", "b"],
    "empty": ["x", "y"],
}


def rows() -> dict[str, Rows]:
    """Make provinces, cities in them (and two that are in none), and NULLs in cells of them."""
    cities: Rows = [(str(number), province, country) for number, (country, province) in enumerate(PLACES * 2)]
    cities += [("900", PLACES[0][1], None), ("901", None, "c1"), ("902", PLACES[0][1], next_to(PLACES[0]))]
    return {
        "province": [(country, name, RANDOM.choice("123")) for country, name in PLACES],
        "city": cities,
        "no_key": [("1", "2"), ("1", "2")],
        "empty": [],
    }


def next_to(place: tuple[str, str]) -> str:
    """Name a country without a province of this name."""
    return next(country for country in ("c0", "c1", "c2", "c3", "c4") if (country, place[1]) not in PLACES)


def written(folder: Path, url: str) -> dict[str, Rows]:
    """Write the tables as files, and the state that a bootstrap makes of them."""
    tables, found = Tables(COLUMNS), rows()
    for table, columns in COLUMNS.items():
        write_csv(folder / f"{table}.csv", columns, found[table], "\n")
        tables.add(table, *found[table])
    states.store(url, tables)
    return found


@pytest.mark.parametrize(("memory", "task_bytes"), [(1000, None), (1 << 20, 500)])
def test_keys_and_composite_foreign_keys_are_those_of_plain_python(
    spark: SparkSession, database_url: str, tmp_path: Path, memory: int, task_bytes: int | None
) -> None:
    """With little memory tables are read again and again, a share of the tuples at a time; or in several splits."""
    tables = written(tmp_path, database_url)
    search = Search(width=3, memory=memory, theta=0.9, column_theta=0.5)
    options = Options(str(tmp_path), "s", database_url, task_bytes=task_bytes)
    found = discover_keys(spark, options, search)
    assert {(key.table[1], key.columns) for key in found.keys} == {
        (table, tuple(COLUMNS[table][column] for column in key))
        for table, of_table in tables.items()
        for key in minimal_keys(of_table, 3)
    }
    assert found.incomplete == []
    assert not any(key.declared for key in found.keys)
    keys = [("province", columns) for columns in (("country", "name"),)]
    expected = {}
    for table, of_table in tables.items():
        for key_table, key in keys:
            for own in permutations(COLUMNS[table], 2):
                sides = [picked(of_table, table, own), picked(tables[key_table], key_table, key)]
                phi = coefficient(*sides)
                if (table, own) != (key_table, key) and phi >= 0.9:
                    expected[table, own, key_table, key] = phi, len(set(sides[0]) - set(sides[1]))
    assert {
        (one.dependent[0][1], columns(one.dependent), one.referenced[0][1], columns(one.referenced)): (
            one.coefficient,
            one.missing,
        )
        for one in found.foreign_keys
    } == expected
    (((_, city, _, _), (phi, missing)),) = expected.items()
    assert (city, missing) == (("in_country", "in_province"), 1)
    (one,) = found.foreign_keys
    assert one.suggested
    assert 0.6 <= one.score <= phi
    said = describe(found)
    assert f"-> s.province (country, name): {phi:.4f}, 1 tuples are missing; scores {one.score:.3f}, suggested" in said
    assert [str(side) for side in found.track] == ["s.province(country, name)", "s.city(in_country, in_province)"]
    assert "subsetd keys track 's.province(country, name)'" in said
    # What is followed need not be tracked, but for a key that is followed as something else.
    followed = (
        "insert into attribute (attribute_id, source_id, schema_name, table_name, column_name, ordinal, row_count, "
        "null_count, parts) select {id}, source_id, 's', '{table}', '{name}', 0, 0, 0, '{parts}' from source"
    )
    states.execute(database_url, followed.format(id=90, table="city", name="(b, a)", parts="{2,1}"))
    states.execute(database_url, followed.format(id=91, table="province", name="(x, y)", parts="{0,1}"))
    again = discover_keys(spark, Options(str(tmp_path), "s", database_url), search)
    assert (again.foreign_keys, again.track) == (found.foreign_keys, found.track[:1])
    states.execute(database_url, "insert into tracked_key values (default, 91, 'pinned', false, 1)")
    assert discover_keys(spark, Options(str(tmp_path), "s", database_url), search).track == []


def picked(of_table: Rows, table: str, names: tuple[str, ...]) -> list[tuple[str, ...]]:
    """Give the tuples of columns that have no NULL."""
    places = [COLUMNS[table].index(name) for name in names]
    tuples = [tuple(row[place] for place in places) for row in of_table]
    return [whole for whole in tuples if None not in whole]  # type: ignore[misc]


def columns(side: tuple[tuple[str, str, str], ...]) -> tuple[str, ...]:
    return tuple(name[2] for name in side)


def test_a_table_with_more_candidates_for_a_key_than_are_tried_is_named(
    spark: SparkSession, database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two columns of the same values fit a key of two both ways round; the key's own table has one other way."""
    columns = {"parent": ["a", "b"], "child": ["x", "y"]}
    found: dict[str, Rows] = {
        "parent": [(str(number // 6), str(number % 6)) for number in range(36)],
        "child": [(str(number % 6), str(number % 3)) for number in range(60)],
    }
    tables = Tables(columns)
    for table, names in columns.items():
        write_csv(tmp_path / f"{table}.csv", names, found[table], "\n")
        tables.add(table, *found[table])
    states.store(database_url, tables)
    options = Options(str(tmp_path), "s", database_url)
    assert discover_keys(spark, options, Search()).incomplete == []
    monkeypatch.setattr(key_discovery, "MOST_OF_A_TABLE", 1)
    cut = discover_keys(spark, options, Search())
    assert cut.incomplete == ["s.child: 1 candidates for s.parent(a, b) were tried, there are more"]
    assert "not complete: s.child: 1 candidates" in describe(cut)


def test_keys_are_to_be_tracked_of_columns_that_are_kept_current_whatever_other_sources_have(
    spark: SparkSession, database_url: str, tmp_path: Path
) -> None:
    """The table has a key of `a` with either of the others, which say the same in other words."""
    tables = Tables({"pair": ["a", "b", "c"]})
    found: Rows = [(str(number // 4), str(number % 4), f"x{number % 4}") for number in range(16)]
    write_csv(tmp_path / "pair.csv", tables.columns["pair"], found, "\n")
    states.store(database_url, tables.add("pair", *found))
    states.execute(
        database_url,
        "insert into source (name, kind, location, bootstrapped_version) values ('t', 'csv', '-', 1); "
        "insert into attribute (attribute_id, source_id, schema_name, table_name, column_name, ordinal, row_count, "
        "null_count, parts) select id, source_id, 't', 'pair', told, place, 0, 0, parts::int[] from source, "
        "(values (90, 'a', 0, null), (91, 'b', 1, null), (92, '(a, b)', 0, '{0,1}')) as of_t (id, told, place, parts) "
        "where source.name = 't'; "
        "insert into tracked_key values (default, 92, 'pinned', false, 1)",
    )
    options = Options(str(tmp_path), "s", database_url)
    assert [str(side) for side in discover_keys(spark, options, Search()).track] == ["s.pair(a, b)"]
    states.execute(database_url, "update attribute set stale_version = 1 where attribute_id = 2")
    assert [str(side) for side in discover_keys(spark, options, Search()).track] == ["s.pair(a, c)"]
    states.execute(database_url, "update attribute set stale_version = 1 where attribute_id = 1")
    assert discover_keys(spark, options, Search()).track == []


def test_a_search_that_stops_says_so_and_a_source_that_is_not_known_is_told(
    spark: SparkSession, database_url: str, tmp_path: Path
) -> None:
    written(tmp_path, database_url)
    found = discover_keys(spark, Options(str(tmp_path), "s", database_url), Search(most=3))
    assert "s.province: 3 combinations were tried, and there are more" in found.incomplete
    assert "not complete: s.province" in describe(found)
    with pytest.raises(StateError, match="There is no source 'other'"):
        discover_keys(spark, Options(str(tmp_path), "other", database_url), Search())
    with pytest.raises(SourceError, match="there is no such file or folder"):
        discover_keys(spark, Options(str(tmp_path / "gone"), "s", database_url), Search())
