"""The exported statements on a real Postgres: they add what they say, to names that need quoting as to others."""

from __future__ import annotations

from contextlib import closing

import psycopg2

from service.core.foreign_keys.sides import ForeignKey, Side
from service.usecases.foreign_key_export import as_sql
from tests import states

FOUND = """
select conrelid::regclass::text, pg_get_constraintdef(oid), convalidated
from pg_constraint where contype = 'f' order by oid
"""


def test_statements_add_foreign_keys_that_are_not_validated_yet(empty_database_url: str) -> None:
    with closing(psycopg2.connect(empty_database_url)) as connection, connection, connection.cursor() as cursor:
        cursor.execute(
            'create schema "my ""shop"""; create table "my ""shop"""."order" ("select" int, "größe; drop" int, '
            'unique ("select"), unique ("select", "größe; drop"));'
            'create table "my ""shop""".lines (line int, "select" int, "größe" int);'
            'insert into "my ""shop""".lines values (1, 7, 7)'
        )
        order = Side('my "shop"', "order", ("select",))
        of_order = ForeignKey(Side('my "shop"', "lines", ("select",)), order)
        composite = ForeignKey(
            Side('my "shop"', "lines", ("line", "größe")), Side('my "shop"', "order", ("select", "größe; drop"))
        )
        cursor.execute(as_sql([of_order, composite]))
    lines = '"my ""shop""".lines'
    assert states.query(empty_database_url, FOUND) == [
        (lines, 'FOREIGN KEY ("select") REFERENCES "my ""shop"""."order"("select") NOT VALID', False),
        (
            lines,
            'FOREIGN KEY (line, "größe") REFERENCES "my ""shop"""."order"("select", "größe; drop") NOT VALID',
            False,
        ),
    ]
