"""Values that are not to be kept are nowhere: not in the state, not in an answer, not in a message; the truth stays.

Where all are kept they are in each of these places, so that this can fail; masking the columns then removes them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import psycopg2
import pytest
from pyspark.sql import SparkSession
from typer.testing import CliRunner

from service.cli import app as command_line
from service.core.errors import ConflictError, StateError
from service.core.foreign_keys.ranking import Method
from service.core.foreign_keys.sides import ForeignKey, Side
from service.core.model import BadRecord
from service.core.watch_rules import Rule, RuleKind
from service.store import dead_letters
from service.store.contracts import PostgresContracts
from service.store.database import make_engine
from service.store.embedded import EmbeddedPostgres
from service.store.foreign_key_refreshes import PostgresForeignKeys
from service.store.masking import mask
from service.store.tables import metadata
from service.stream.kafka_dead_letters import headers
from service.usecases.batches import ErrorPolicy
from service.usecases.foreign_key_answers import ForeignKeyFinder
from service.usecases.foreign_key_decisions import EXACT
from service.usecases.foreign_keys import Keys, Question
from spark_jobs.bootstrap import run_bootstrap
from spark_jobs.outcome import describe
from spark_jobs.sources import Options
from tests import states
from tests.asking import http_client
from tests.events import envelope
from tests.following import Stream, consume
from tests.integration.serving import app_over, serving
from tests.postgres import TEMPLATE, fresh_database
from tests.states import State, Tables
from tests.watching import Watching, new_watch, pair_rule

COLUMNS = {"orders": ["id", "note"], "notes": ["text", "kind"], "customers": ["name"], "words": ["word"]}
HUSHED = ("HUSH", "Pub-H")
"""What is in values of which nothing is kept, and behind the beginning of those whose beginnings are."""
MASKED = {"s.orders.note": "none", "s.notes.text": "none", "s.customers.name": "prefix:4", "s.notes.extra": "none"}
OPEN = ("s.orders.id", "s.notes.kind", "s.words.word")
PLACES = (
    "gen_rec", "ind_transition", "contract_transition", "dead_letter", "key_histogram", "value_change",
    "foreign_key_candidate", "watch_alert", "watch_standing",
)  # fmt: skip
"""Tables in which values are where all are kept."""


class Letters:
    """Take what goes to the topic of dead letters."""

    def __init__(self) -> None:
        self.sent: list[BadRecord] = []

    def send(self, letters: Sequence[BadRecord]) -> None:
        self.sent += letters

    def close(self) -> None:
        pass


class Life:
    """Let a state be made and followed through all that keeps or shows a value."""

    def __init__(self, url: str, stream: Stream) -> None:
        self.url = url
        self.engine = make_engine(url, "test")
        self.stream = stream
        self.sink = Letters()

    def follow(self) -> None:
        consume(self.url, self.stream, records=1, on_error=ErrorPolicy.SET_ASIDE, sink=self.sink)

    def live(self) -> None:
        """Follow changes that break and mend what is watched, and such as cannot be applied; find foreign keys."""
        sides = Side("s", "orders", ("note",)), Side("s", "notes", ("text",))
        PostgresContracts(self.engine).add(ForeignKey(*sides), EXACT, "Ada")
        watching = Watching(self.engine)
        watching.watches.add(new_watch(pair_rule("s.orders.note", "s.notes.text"), with_values=True))
        watching.watches.add(new_watch(pair_rule("s.orders.note", "s.notes.text"), "late", 1000, with_values=True))
        letters = Rule(RuleKind.DEAD_LETTERS).checked()
        watching.watches.add(new_watch(letters, "letters", with_values=True))
        watching.look()
        ForeignKeyFinder(PostgresForeignKeys(self.engine)).refresh(
            Question(Method.RANDOMNESS, theta=0.1, keys=Keys.INFERRED)
        )
        stream = self.stream
        stream.append("orders", None, ["o100", "HUSH-new"])
        stream.append("orders", None, ["o101", "open-1"])
        self.follow()
        watching.look()
        stream.append("notes", None, ["HUSH-new", "k"])
        stream.append("notes", None, ["open-1", "k"])
        stream.append("customers", ["Pub-HUSH-003"], ["Pub-HUSH-moved"])
        stream.append("words", None, ["HUSH-005"])  # what an open column has is shown of that one
        stream.append("words", ["HUSH-005"], None)
        stream.append("orders", ["o7", "HUSH-007"], None)
        stream.write(b'{"HUSH": ')
        stream.append("notes", ["HUSH-never", "k"], None)
        stream.write(envelope("c", "s", "customers", None, {"name": {"HUSH": 1}}))
        stream.write(envelope("c", "s", "notes", None, {"text": "HUSH-t", "kind": "k", "extra": "HUSH-extra"}))
        self.follow()
        watching.look()
        stream.append("orders", None, ["o102", "HUSH-last"])
        self.follow()
        watching.look()
        watching.looks.close()

    def dump(self) -> dict[str, str]:
        """Give all rows of each table as text, bytes as they are."""
        with closing(psycopg2.connect(self.url)) as connection, connection.cursor() as cursor:
            cursor.execute("set bytea_output = 'escape'")
            found = {}
            for table in metadata.tables:
                cursor.execute(f"select t::text from {table} t")
                found[table] = "\n".join(row for (row,) in cursor)
            return found

    def shown(self, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[str, str]]:
        """Ask each route that can be asked, and commands; give what was asked with the answer."""
        pair = {"dependent": "s.orders.note", "referenced": "s.notes.text"}
        with serving(app_over(self.engine)) as base, http_client(base_url=base, timeout=60) as client:
            document = client.get("/api/v1/openapi.json").json()
            for template, of_path in document["paths"].items():
                if "get" not in of_path or "stream" in template:
                    continue
                path = re.sub("{.*?}", "1", template)
                names = {one["name"] for one in of_path["get"].get("parameters", ())}
                given = {**pair, "attribute": "s.orders.note", "values": 100, "method": "randomness", "since": 0}
                answer = client.get(path, params={name: given[name] for name in names & given.keys()})
                assert answer.status_code < 500, answer.text
                yield path, answer.text
            for one in self.names():
                yield one, client.get("/api/v1/uinds/pair", params={**pair, "dependent": one}).text
        monkeypatch.setenv("SUBSETD_DATABASE_URL", self.url)
        for command in (
            ["explain", *pair.values()], ["keys", "list", "--values", "9"], ["dead-letters", "list"],
            ["foreign-keys", "--min-coefficient", "0.1"],
            ["contract", "list"], ["watch", "history"],
        ):  # fmt: skip
            ran = CliRunner().invoke(command_line, command)
            assert ran.exit_code == 0, f"{command}: {ran.output}"
            yield " ".join(command), ran.output

    def names(self) -> list[str]:
        return [
            name
            for (name,) in states.query(
                self.url,
                "select schema_name || '.' || table_name || '.' || column_name from attribute where parts is null",
            )
        ]


def write_files(folder: Path) -> Path:
    rows: dict[str, list[list[str]]] = {
        "orders": [[f"o{i}", f"HUSH-{i:03d}"] for i in range(40)],
        "notes": [[f"HUSH-{i:03d}", "k"] for i in range(60)],
        "customers": [[f"Pub-HUSH-{i:03d}"] for i in range(20)],
        "words": [[f"open-{i}"] for i in range(5)],
    }
    folder.mkdir()
    for table, columns in COLUMNS.items():
        lines = [columns, *rows[table]]
        (folder / f"{table}.csv").write_text("".join(",".join(line) + "\n" for line in lines))
    return folder


def test_no_value_that_is_not_to_be_kept_is_anywhere(
    spark: SparkSession, postgres_server: EmbeddedPostgres, database_url: str, tmp_path: Path, monkeypatch: Any
) -> None:
    folder = write_files(tmp_path / "s")
    tracked = (("orders", ("id", "note")),)
    masks = (*((name, "full") for name in OPEN), ("s.customers.name", "prefix:4"))
    options = Options(str(folder), "s", database_url, store_values="none", masks=masks, tracked_keys=tracked)
    with fresh_database(postgres_server, TEMPLATE) as other_url:
        lives = []
        for url, of in ((database_url, options), (other_url, replace(options, store_values=None, masks=()))):
            summary = run_bootstrap(spark, replace(of, database_url=url))
            assert "HUSH" not in describe(summary)
            feed = tmp_path / f"{len(lives)}.jsonl"
            feed.touch()
            lives.append(Life(url, Stream(feed, Tables(dict(COLUMNS)), dict(COLUMNS))))
            lives[-1].live()
        hushed, open_ = lives
        assert vars_of(states.read(hushed.url)) == vars_of(states.read(open_.url)), "what holds does not depend on it"

        texts = open_.dump()
        assert [place for place in PLACES if "HUSH" not in texts[place]] == [], "here all that could show them is done"
        assert "HUSH-new" in str(dict(open_.shown(monkeypatch)))

        checked = replace(options, store_values=None, masks=(), check=True)
        differences = run_bootstrap(spark, checked).differences
        assert differences != [], "the feed has gone on"
        told = {
            **hushed.dump(),
            **dict(hushed.shown(monkeypatch)),
            "letters": str([(letter.record, headers(letter)) for letter in hushed.sink.sent]),
            "verify": str(differences),
        }
        assert found_in(told) == []
        assert "open-1" in told["gen_rec"], "the open column keeps it"
        assert "open-1" not in told["ind_transition"], "the witness is of a column that keeps nothing"
        assert "Pub-" in told["gen_rec"]
        ids = [i for (i,) in states.query(hushed.url, "select dead_letter_id from dead_letter")]
        assert len(ids) == len(hushed.sink.sent) == 2
        with pytest.raises(ConflictError, match="place in the feed alone"):
            dead_letters.read(hushed.engine, ids)
        assert dead_letters.read(hushed.engine) == []

        for name, keep in MASKED.items():
            assert keep in mask(open_.url, name, keep, print)
        assert found_in({**open_.dump(), **dict(open_.shown(monkeypatch))}) == []
        assert open_.dump()["gen_rec"].count("Pub-") == hushed.dump()["gen_rec"].count("Pub-")
        assert states.read(open_.url) == states.read(hushed.url), "as if it had never kept more"
        with pytest.raises(StateError, match="can only be read again"):
            mask(open_.url, "s.orders.note", "prefix", print)
        for life in lives:
            life.engine.dispose()


def found_in(told: dict[str, str]) -> list[tuple[str, str]]:
    """Name the places in which something stands that should not, with what is around it."""
    places = [(where, text, text.find(one)) for where, text in told.items() for one in HUSHED if one in text]
    return [(where, text[max(at - 80, 0) : at + 80]) for where, text, at in places]


def vars_of(state: State) -> tuple[Any, ...]:
    """Give all of a state but its texts."""
    return {key: of for key, (_, of) in state.records.items()}, state.clusters, state.counters, state.inds
