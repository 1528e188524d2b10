"""The verification: a true state passes, and each kind of damage is found and named."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import psycopg2
import pytest

from service.store.checks import PostgresVerifier
from service.store.database import make_engine
from service.usecases.verify import Finding, verify
from tests import kept_rows, states
from tests.following import COLUMNS, Stream, consume
from tests.states import Tables


def test_no_bootstrap_swaps_the_records_while_they_are_checked(url: str) -> None:
    engine = make_engine(url, "test")
    with PostgresVerifier(engine).checks(), pytest.raises(psycopg2.errors.LockNotAvailable):
        states.execute(url, "lock table gen_rec in access exclusive mode nowait")
    engine.dispose()


@pytest.fixture
def url(database_url: str, tmp_path: Path) -> str:
    tables = Tables(COLUMNS)
    tables.add("customers", ["1", "Ada"], ["2", "Bob"], ["3", '\x1f\u2028"é\\\n' * 60])
    tables.add("orders", ["10", "1", "first"], ["11", "2", None], ["12", "1", "Bob"])
    states.store(database_url, tables)
    kept_rows.keep(database_url, tables, {"customers": ["name", "id"]})
    (tmp_path / "feed").touch()
    stream = Stream(tmp_path / "feed", tables)
    for i in range(4):
        stream.change("orders", None, [str(20 + i), "1", None])
        consume(database_url, stream)
    return database_url


def findings(url: str) -> list[Finding]:
    engine = make_engine(url, "test")
    try:
        with PostgresVerifier(engine).checks() as checks:
            return list(verify(checks))
    finally:
        engine.dispose()


def test_a_true_state_passes_every_check(url: str) -> None:
    found = findings(url)
    assert [finding.invariant for finding in found] == ["I1", "I1", "I2", "I3", "I3", "I4", "I5", "I6", "J"]
    *others, joins = found
    assert all(finding.holds and finding.checked for finding in others)
    assert (joins.holds, joins.checked) == (True, 0), "no table is indexed for joins"


@pytest.mark.parametrize(
    ("damage", "invariants", "words"),
    [
        ("update gen_rec set frequencies[1] = 0 where value = 'Ada'", {"I1", "I3"}, "the record of 'Ada'"),
        ("update gen_rec set value = 'Adah' where value = 'Ada'", {"I1"}, "the record of 'Adah'"),
        ("update gen_rec set attribute_ids = '{5}' where value = '2'", {"I1", "I3", "I5"}, "the record of '2'"),
        ("delete from gen_rec where value = '20'", {"I2", "I3", "I5"}, "counts"),
        ("delete from sketch_change where version = 3", {"I5"}, "s.orders.id: its sketch, of 6 values, is not that"),
        ("update sketch set version = 3", {"I5"}, "s.orders.id: its sketch, of 5 values, is not that of its records"),
        ("delete from sketch where attribute_id = 1", {"I5"}, "s.orders.id: it has no sketch"),
        (
            "update sketch set sketch = set_byte(sketch, 60, get_byte(sketch, 60) # 1) where attribute_id = 2",
            {"I5"},
            "s.orders.customer: the bytes of the sketch are corrupt",
        ),
        ("update cluster set value_count = value_count + 1", {"I2", "I3"}, "counts"),
        ("update attribute set row_count = row_count + 1 where attribute_id = 1", {"I3"}, "s.orders.id: 8 rows"),
        ("update attribute set repeated_count = 1 where attribute_id = 1", {"I3"}, "1 repeated"),
        (
            "delete from uind where dependent_id = 2",
            {"I4"},
            "s.orders.customer ⊆ s.customers.id holds and is not served",
        ),
        ("insert into uind values (3, 1, 1)", {"I4"}, "s.orders.note ⊆ s.orders.id is served and does not hold"),
        ("delete from row_image where cells[2] = 'Ada'", {"I3"}, "s.customers.id: 3 rows with 3 values are counted, 2"),
        ("update row_image set cells[1] = null where cells[1] = '1'", {"I3"}, "3 rows with 3 values are counted, 2"),
        ("update feed_position set next_offset = 1", {"I6"}, "the stored position is 1"),
        ("update batch_position set first_offset = 1 where version = 3", {"I6"}, "the batch begins at 1"),
    ],
)
def test_damage_is_found(url: str, damage: str, invariants: set[str], words: str) -> None:
    with closing(psycopg2.connect(url)) as connection, connection, connection.cursor() as cursor:
        cursor.execute(damage)
    broken = [finding for finding in findings(url) if not finding.holds]
    assert {finding.invariant for finding in broken} == invariants
    assert any(words in example for finding in broken for example in finding.examples)
