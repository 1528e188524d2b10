"""Whatever type a column has, a change of it gives the text that a bootstrap of the same row gives."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import psycopg2
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from psycopg2.errors import FeatureNotSupported, UndefinedFile
from psycopg2.extensions import connection as Connection

from service.core.canonical import cell_decoder
from service.core.model import Attribute, AttributeName, RowChange, StoredPosition, Table
from service.store.source_reader import SourceSnapshot
from service.stream.pgoutput import PgoutputDecoder
from service.stream.postgres_address import parse_address
from service.stream.postgres_feed import PostgresFeed
from service.stream.postgres_slot import new_slot
from tests import postgres_following as source
from tests.canonical_cases import CASES
from tests.decoding import decode_all
from tests.waiting import wait_for

TYPES = """
CREATE SCHEMA s;
CREATE TYPE mood AS ENUM ('sad', 'very happy');
CREATE TYPE interval_unit AS ENUM ('day', 'month');
CREATE TYPE geometry;
CREATE FUNCTION geometry_in(cstring) RETURNS geometry LANGUAGE internal IMMUTABLE STRICT AS 'textin';
CREATE FUNCTION geometry_out(geometry) RETURNS cstring LANGUAGE internal IMMUTABLE STRICT AS 'textout';
CREATE TYPE geometry (INPUT = geometry_in, OUTPUT = geometry_out, LIKE = text, DELIMITER = ':');
ALTER EXTENSION plpgsql ADD TYPE geometry;
CREATE TYPE year AS ENUM ('first', 'second');
CREATE TYPE image AS ENUM ('CAFE');
CREATE TYPE duration AS (first integer, second text);
CREATE TYPE pair AS (first integer, second text);
CREATE DOMAIN price AS numeric(10, 2);
CREATE DOMAIN fine_price AS price CHECK (VALUE > 0);
CREATE DOMAIN prices AS price[];
"""

SPECIAL = [
    ("timestamp with time zone", ["infinity", "-infinity", "0044-03-15 12:00:00+00 BC", "20000-01-01 00:00+05:30"]),
    ("timestamp(3) with time zone", ["2026-11-21 01:00:00.5+02"]),
    ("timestamp without time zone", ["infinity", "0044-03-15 BC", "20000-01-01"]),
    ("date", ["infinity", "-infinity", "5874897-12-31", "0001-12-31 BC"]),
    ("time without time zone", ["24:00:00", "00:00:00.000001"]),
    ("time with time zone", ["24:00:00+00", "01:00:00.5+05:30:15", "23:59:59-15"]),
    ("interval", ["1 year 2 mons -3 days +04:05:06.007", "-1 day -00:00:00.5", "infinity", "0", "-13 months"]),
    ("numeric", ["NaN", "-Infinity", "1e20", "-0.000", "0.00010", "1e-20"]),
    ("money", ["-1012.50", "0", "92233720368547758.07"]),
    ("double precision", ["NaN", "Infinity", "1e23", "-0", "5e-324", "9007199254740993", "1e300"]),
    ("real", ["33554450", "1e-45", "-Infinity", "16777217"]),
    ("inet", ["192.168.0.1", "192.168.0.1/24", "FE80::1", "::/0"]),
    ("cidr", ["10.0.0.0/8", "10.1.2.3/32"]),
    ("macaddr", ["08:00:2B:01:02:03"]),
    ("bit(3)", ["101", "000"]),
    ("bit(1)", ["1"]),
    ("bit varying(5)", ["0101", ""]),
    ("bpchar", ["ab  "]),
    ("character varying(5)", ["ab  ", ""]),
    ('"char"', ["x"]),
    ("name", ["x"]),
    ("oid", ["4294967295"]),
    ("pg_lsn", ["16/B374D848"]),
    ("json", ['{"b": 1.0, "a": [true, null]}', '"text"', "1e400", "null"]),
    ("tsvector", ["'fat':2 'cat':3"]),
    ("point", ["(1.5,-2)"]),
    ("polygon", ["((0,0),(1,1),(1,0))"]),
    ("int4range", ["[1,5]", "empty"]),
    ("numrange", ["(1.50,2]"]),
    ("tstzrange", ["[2026-01-01 00:00:00+02,)"]),
    ("datemultirange", ["{[2026-01-01,2026-01-03],[2026-02-01,)}"]),
    ("mood", ["very happy"]),
    ("interval_unit", ["day"]),
    ("year", ["first"]),
    ("image", ["CAFE"]),
    ("pair", ['(1,"a b")', "(,)"]),
    ("price", ["1.50"]),
    ("fine_price", ["100.00"]),
    ("prices", ["{1.50,NULL}"]),
    ("jsonb[]", ['{"{\\"b\\": 1.0}","\\"x\\"",null}']),
    ("numeric[]", ["{1.50,NaN,-Infinity}", "{}", "{{1.0,2},{3,4}}", "[0:1]={7,8}"]),
    ("price[]", ["{1.50,NULL}"]),
    ("money[]", ["{1012.50}"]),
    ("bytea[]", ['{"\\\\x00ff"}']),
    ("boolean[]", ["{{t},{f}}"]),
    ("character(3)[]", ["{a}"]),
    ("inet[]", ["{192.168.0.1}"]),
    ("interval[]", ['{"1 day 00:00:01.5","-1 mon"}']),
    ("date[]", ['{"0044-03-15 BC",10000-01-01,infinity}']),
    ("timestamp with time zone[]", ['{"0044-03-15 BC"}']),
    ("time with time zone[]", ["{01:00:00+02}"]),
    ("bit(2)[]", ["{01}"]),
    ("mood[]", ['{"very happy",NULL}']),
    ("interval_unit[]", ["{day,NULL}"]),
    ("pair[]", ['{"(1,\\"a b\\")"}']),
    ("year[]", ["{first,NULL}"]),
    ("duration[]", ['{"(1,\\"a b\\")"}']),
    ("uuid[]", ["{00000000-0000-0000-0000-00000000000A}"]),
    ("real[]", ["{1e-45,16777217}"]),
    ("int4range[]", ['{"[1,5]"}']),
    ("geometry[]", ["{0101:00FF}"]),
    ("box[]", ["{(1,1),(0,0);(2,2),(1,1)}"]),
]

XML, HSTORE = "SELECT '<a/>'::xml", "CREATE EXTENSION hstore"


class Followed:
    """Follow one table with a column for each type, row by row."""

    def __init__(self, url: str, columns: list[str]) -> None:
        source.run(url, TYPES)
        listed = ", ".join(f'"c{i}" {data_type}' for i, data_type in enumerate(columns))
        source.run(url, f"CREATE TABLE s.kinds ({listed})", "ALTER TABLE s.kinds REPLICA IDENTITY FULL")
        self.url = url
        self.width = len(columns)
        address = parse_address(url, "s")
        with new_slot(address, [("s", "kinds")], replace=False) as start:
            position = start.position
        self.feed = PostgresFeed(address)
        self.feed.start({(address.slot, 0): StoredPosition(0, position.source_position)})
        attributes = tuple(Attribute(i, AttributeName("s", "kinds", f"c{i}"), i) for i in range(self.width))
        self.decoder = PgoutputDecoder([Table("s", "kinds", attributes, source="s", wire=(None, "s", "kinds"))], "s")
        self.connection: Connection = psycopg2.connect(url)

    def insert(self, cells: dict[int, str | None]) -> tuple[tuple[str | None, ...], tuple[str | None, ...]]:
        """Insert a row and take it away again; give it as the bootstrap reads it, and as its change tells it."""
        names = ", ".join(f'"c{i}"' for i in cells)
        with self.connection, self.connection.cursor() as cursor:
            cursor.execute(
                f"INSERT INTO s.kinds ({names}) VALUES ({', '.join(['%s'] * len(cells))})", list(cells.values())
            )
        (read,) = source.rows(source.read_tables(self.url), "kinds").elements()
        with self.connection, self.connection.cursor() as cursor:
            cursor.execute("DELETE FROM s.kinds")
        records = []
        while len(records) < 2:
            records += wait_for(lambda: self.feed.poll(100, 1 << 30, 0.1))
        changes, skipped, bad = decode_all(self.decoder, records)
        assert not skipped
        assert not bad, bad[0].error
        inserted, deleted = changes
        assert isinstance(inserted, RowChange)
        assert inserted.after is not None
        assert deleted.before == inserted.after
        return read, inserted.after

    def close(self) -> None:
        self.feed.close()
        self.connection.close()


@pytest.fixture
def cases(followed_url: str) -> Iterator[Followed]:
    with closing(Followed(followed_url, [case.postgres for case in CASES])) as followed:
        yield followed


def test_every_type_has_the_text_of_a_bootstrap(cases: Followed) -> None:
    values = st.fixed_dictionaries({i: st.none() | case.values.map(case.literal) for i, case in enumerate(CASES)})

    @settings(deadline=None, max_examples=30, suppress_health_check=list(HealthCheck))
    @given(values)
    def check(cells: dict[int, str | None]) -> None:
        read, told = cases.insert(cells)
        assert told == read

    check()


def test_what_is_special_of_postgres_has_the_text_of_a_bootstrap(followed_url: str) -> None:
    with closing(Followed(followed_url, [data_type for data_type, _ in SPECIAL])) as followed:
        for round_ in range(max(len(literals) for _, literals in SPECIAL)):
            cells = {i: literals[round_] for i, (_, literals) in enumerate(SPECIAL) if round_ < len(literals)}
            read, told = followed.insert(cells)
            for i, (data_type, _) in enumerate(SPECIAL):
                assert told[i] == read[i], data_type
                assert (told[i] is None) == (i not in cells)


def test_a_point_of_debezium_has_the_text_of_postgres(followed_url: str) -> None:
    floats = st.floats() | st.floats(1e14, 1e17) | st.floats(1e-6, 1e-3) | st.integers(-(10**6), 10**6).map(float)
    # Between 2^54 and 1e40 Postgres' shortest decimal of a whole number is now and then another one than Python's.
    with closing(psycopg2.connect(followed_url)) as connection, connection.cursor() as cursor:

        @settings(deadline=None, max_examples=300)
        @given(floats.filter(lambda number: not 2**54 <= abs(number) < 1e40), st.booleans())
        def check(number: float, is_negative: bool) -> None:
            number = -number if is_negative else number
            cursor.execute("SELECT point(%s::float8, 1)::text", (repr(number),))
            assert cell_decoder("point")({"x": number, "y": 1.0}) == cursor.fetchone()[0]

        check()


@pytest.mark.parametrize(
    ("data_type", "needs", "literals"),
    [
        (
            "xml",
            XML,
            ['<?xml version="1.0" encoding="UTF-8"?>\n<a/>', '<?xml version="1.1"?><a/>', "b "],
        ),
        ("xml[]", XML, ['{"<?xml version=\\"1.0\\"?>\n<a b=\\"1\\"/>",NULL,x}', "{}", "{{<a/>},{y}}"]),
        ("hstore", HSTORE, ['"b 1"=>"1.0", aa=>"NULL", a=>NULL', '"\\"\\\\"=>"x\\", \n", "{"=>""', ""]),
        ("hstore[]", HSTORE, ['{"\\"b\\"=>\\"1\\"",NULL,a=>NULL}', "{}"]),
        ("apart.hstore", f"CREATE SCHEMA apart; {HSTORE} SCHEMA apart", ['"b"=>"1"']),
    ],
)
def test_types_that_a_server_may_lack_have_the_text_of_a_bootstrap(
    followed_url: str, data_type: str, needs: str, literals: list[str]
) -> None:
    try:
        source.run(followed_url, needs)
    except (FeatureNotSupported, UndefinedFile) as error:
        pytest.skip(f"this server does not have it: {error}")
    with closing(Followed(followed_url, [data_type, "text"])) as followed:
        for literal in literals:
            read, told = followed.insert({0: literal})
            assert (told[0], told[1]) == (read[0], None)
            assert told[0] is not None
        read, told = followed.insert({1: "x"})
        assert (told[0], read[0]) == (None, None)


def test_a_type_of_an_extension_has_the_same_texts_in_any_schema_and_one_of_its_name_its_own(followed_url: str) -> None:
    source.run(followed_url, 'CREATE SCHEMA "a.""part"', 'CREATE EXTENSION vector SCHEMA "a.""part"')
    source.run(followed_url, "CREATE SCHEMA own", "CREATE TYPE own.vector AS (first integer, second text)")
    types = ['"a.""part".vector(2)', '"a.""part".vector[]', "own.vector", "own.vector[]"]
    with closing(Followed(followed_url, types)) as followed:
        read, told = followed.insert({0: "[1e-5,2]", 1: "{[1e-5],NULL}", 2: "(1,x)", 3: '{"(1,x)"}'})
    assert read == told == ("[0.00001,2]", "[[0.00001],null]", "(1,x)", '["(1,x)"]')
    assert read[0] == cell_decoder("vector")([1e-05, 2.0]), "as Debezium sends it"
    with closing(SourceSnapshot(followed_url)) as snapshot:
        (table,) = snapshot.tables()
    assert [data_type for _, data_type in table.columns] == ["vector(2)", "vector[]", "own.vector", "own.vector[]"]
