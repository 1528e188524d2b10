"""Own the proof that the keys and foreign keys of a Postgres source are read as its catalog declares them."""

from __future__ import annotations

from contextlib import closing

from service.store.source_constraints import Constraints, DeclaredKey, DeclaredReference
from service.store.source_reader import SourceSnapshot
from tests import states

SCHEMA = """
create schema s;
create table s.country (code char(2) primary key, name text unique, gone text unique);
alter table s.country drop gone;
create table s.city (province text, "the name" text, country char(2) references s.country, size int,
  unique (country, province, "the name"), primary key ("the name", province), check (size > 0));
create table s.river (id int, mouth_province text, mouth text, flows_into int, bed int, note text,
  primary key (id), foreign key (mouth_province, mouth) references s.city (province, "the name"),
  foreign key (flows_into) references s.river);
create unique index of_some on s.river (note) where id > 0;
create unique index of_expression on s.river (lower(note));
create unique index once_more on s.river (id);
create unique index plain on s.river (bed) include (note);
create table s.flow (day date, river int references s.river, primary key (river, day)) partition by range (day);
create table s.flow_1 partition of s.flow for values from ('2026-01-01') to ('2027-01-01');
create table s.bare (a int);
"""


def test_keys_and_foreign_keys_are_those_of_the_catalog(followed_url: str) -> None:
    states.execute(followed_url, SCHEMA)
    with closing(SourceSnapshot(followed_url)) as source:
        found = {table.name: table.constraints for table in source.tables() if table.schema == "s"}
    assert found == {
        "country": Constraints((DeclaredKey(("code",), True), DeclaredKey(("name",), False))),
        "city": Constraints(
            (
                DeclaredKey(("the name", "province"), True),
                DeclaredKey(("country", "province", "the name"), False),
            ),
            (DeclaredReference(("country",), "s", "country", ("code",)),),
        ),
        "river": Constraints(
            (DeclaredKey(("id",), True), DeclaredKey(("bed",), False)),
            (
                DeclaredReference(("mouth_province", "mouth"), "s", "city", ("province", "the name")),
                DeclaredReference(("flows_into",), "s", "river", ("id",)),
            ),
        ),
        "flow": Constraints(
            (DeclaredKey(("river", "day"), True),), (DeclaredReference(("river",), "s", "river", ("id",)),)
        ),
        "bare": Constraints(),
    }
