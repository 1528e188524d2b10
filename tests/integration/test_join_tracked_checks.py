"""The verification of the indexes of tracked tables: true ones pass whatever came, and each kind of damage is named."""

from __future__ import annotations

import random
from contextlib import closing

import psycopg2
import pytest

from service.core.row_key import row_key
from service.store.join_tracked_checks import check_indexes
from service.usecases.verify import Count
from tests import states
from tests.following import Stream, consume
from tests.integration.test_join_tracked import change, compact, index, row_of, send, stream

__all__ = ["stream"]

OLDEST = "segment_id = (select min(segment_id) from join_segment)"
CUSTOMERS = "(select table_id from tracked_table where table_name = 'customers')"


@pytest.fixture
def url(database_url: str, stream: Stream) -> str:
    """Index two tables, one of which has a segment of all rows, a newer one, and rows in the log."""
    rng = random.Random(21)
    index(database_url, "s.orders", "s.customers")
    for number in (100, 3, 5):
        send(stream, "orders", None, row_of("orders", str(number), rng))
        consume(database_url, stream)
        if number != 5:
            compact(database_url)
    return database_url


def checked(url: str) -> Count:
    with closing(psycopg2.connect(url.replace("+psycopg2", ""))) as connection:
        return check_indexes(connection)


@pytest.mark.parametrize("seed", range(2))
def test_true_indexes_pass_whatever_comes(database_url: str, stream: Stream, seed: int) -> None:
    rng = random.Random(seed)
    index(database_url, "s.orders", "s.customers")
    for _ in range(5):
        change(stream, rng, rng.choice([1, 5, 30]))
        consume(database_url, stream, records=rng.choice([1, 7, 100]))
        assert checked(database_url).examples == ()
        if rng.random() < 0.6:
            compact(database_url)
            assert checked(database_url).examples == ()


def test_all_rows_of_segments_are_looked_at(url: str) -> None:
    assert checked(url) == Count(38 + 2 + 40, 0, ())
    states.execute(url, "update join_tracked set built_version = null")
    assert checked(url) == Count(0, 0, ())


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        ("update row_image set cells[2] = 'x' where cells[1] = '100'", "s.orders: 1 rows of its join index are not"),
        ("update row_image set cells[3] = null where cells[1] = '7' and cells[3] is not null", "1 rows of its join"),
        (f"delete from row_image where table_id = {CUSTOMERS} and cells[1] = '38'", "s.customers: 1 rows of its join"),
        (
            f"insert into row_image values ({CUSTOMERS}, '{row_key(['x']).hex()}', '{{x,y,NULL,NULL}}')",
            "s.customers: 41 rows are kept, and 40 are in its join index",
        ),
        ("delete from join_change", "s.orders: 1 rows of its join index are not as they are kept"),
        ("delete from join_cover", "s.orders: 41 rows are kept, and 42 are in its join index"),
        ("delete from join_segment where segment_id = (select max(segment_id) from join_segment)", "are in its join"),
        (f"delete from join_rows where {OLDEST}", "of its 40 rows some are missing"),
        (f"delete from join_bucket where {OLDEST} and bucket = 0", "cells have values that are not there"),
        (f"update join_bucket set bucket = 7 where {OLDEST} and bucket = 1", "values are not in their buckets"),
        (
            f"update join_rows set super_keys = set_byte(super_keys, 3, 255 - get_byte(super_keys, 3)) where {OLDEST}",
            "its super keys are not those of its rows",
        ),
        (
            f"update join_rows set cells = overlay(cells placing substring(cells from 13 for 4) from 1) where {OLDEST}",
            "its postings are not those of its rows",
        ),
    ],
)
def test_damage_is_named_with_the_way_to_mend_it(url: str, damage: str, words: str) -> None:
    states.execute(url, damage)
    found = checked(url)
    assert found.violations
    assert any(words in one for one in found.examples), found
    assert all("`subsetd join-index untrack s." in one for one in found.examples)


def test_an_index_that_is_made_anew_is_mended(url: str) -> None:
    states.execute(url, "delete from join_bucket")
    assert checked(url).violations
    states.execute(url, "delete from join_tracked")
    index(url, "s.orders", "s.customers")
    assert checked(url) == Count(41 + 40, 0, ())
