"""The command as a user types it, on a stored state: answers in every format, and errors as one message."""

from __future__ import annotations

import csv
import io
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path

import httpx
import psutil
import pytest

from service import cli, verify_command
from service.core.sketches.column import ColumnSketch
from service.job_process import run_attached
from service.store import migrate
from service.store.tables import SCHEMA_REVISION
from tests import states
from tests.asking import http_client
from tests.following import COLUMNS, Stream
from tests.states import Tables
from tests.waiting import BOUND_SECONDS, wait_for, wait_for_end

ANOTHER_SOURCE = """
insert into source (name, kind, location, insert_only, bootstrapped_version)
values ('other', 'csv', '/nowhere', false, 3);
insert into state_version (version, generation, kind, source_name) values (3, 2, 'bootstrap', 'other')
"""
"""A source without tables that was read behind a change of another one."""


@pytest.fixture
def stream(database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Stream:
    tables = Tables(COLUMNS)
    tables.add("customers", ["1", "Ada"], ["2", "[b]"], ["3", None])
    tables.add("orders", ["10", "1", "first"], ["11", "2", None])
    states.store(database_url, tables)
    monkeypatch.setenv("SUBSETD_DATABASE_URL", database_url)
    monkeypatch.setenv("SUBSETD_LOG_LEVEL", "error")
    path = tmp_path / "feed.jsonl"
    path.touch()
    return Stream(path, tables)


class Command:
    """Run the command in this process and read what it printed."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
        self._monkeypatch, self._capsys = monkeypatch, capsys

    def __call__(self, *arguments: object) -> str:
        code, out, err = self.ended(*arguments)
        assert code == 0, err
        return out

    def ended(self, *arguments: object) -> tuple[int, str, str]:
        self._monkeypatch.setattr(sys, "argv", ["subsetd", *map(str, arguments)])
        try:
            cli.main()
            code = 0
        except SystemExit as end:
            code = int(end.code or 0)
        return code, *self._capsys.readouterr()


@pytest.fixture
def subsetd(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Command:
    return Command(monkeypatch, capsys)


def test_inds_in_every_format(stream: Stream, subsetd: Command) -> None:
    table = subsetd("inds").splitlines()
    assert table[0].split() == ["dependent", "referenced"]
    assert table[1].split() == ["s.orders.customer", "⊆", "s.customers.id"]
    rows = list(csv.reader(io.StringIO(subsetd("inds", "--format", "csv"))))
    assert rows == [
        [f"{side}_{part}" for side in ("dependent", "referenced") for part in ("schema", "table", "column")],
        ["s", "orders", "customer", "s", "customers", "id"],
    ]
    assert json.loads(subsetd("inds", "--format", "json"))[0]["referenced_column"] == "id"
    assert len(subsetd("inds", "--table", "customers").splitlines()) == 1


def test_a_column_is_not_compared_with_itself(stream: Stream, subsetd: Command) -> None:
    twice = ("s.orders.customer", "s.orders.customer")
    for asked in (["explain", *twice], ["coefficients", "--dependent", twice[0], "--referenced", twice[1]]):
        code, _, err = subsetd.ended(*asked)
        assert (code, "is on both sides" in err) == (1, True), asked


def test_of_many_sketches_the_one_that_is_refused_is_named(stream: Stream, tmp_path: Path, subsetd: Command) -> None:
    (tmp_path / "good.sketch").write_bytes(ColumnSketch().to_bytes())
    (tmp_path / "bad.sketch").write_bytes(ColumnSketch().to_bytes()[:-1])
    code, out, err = subsetd.ended("sketch", "upload", tmp_path / "good.sketch", tmp_path / "bad.sketch")
    assert (code, out) == (1, "sketch:good: 0 distinct values, new\n")
    assert err.startswith("error: sketch:bad: the sketch has a length of")


def test_names_and_values_are_shown_as_they_are(
    database_url: str, tmp_path: Path, subsetd: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither the markup of the terminal's library nor its pictures are in what people named their columns."""
    monkeypatch.setenv("SUBSETD_DATABASE_URL", database_url)
    odd, other = "a\\[bold]b", ":smile: [/] \\"
    states.store(database_url, Tables({"t": [odd, other]}).add("t", ["[red]x\\", "y :key:"]))
    listed = [line.split() for line in subsetd("attributes").splitlines()[1:]]
    assert [" ".join(line[2:-6]) for line in listed] == [odd, other]
    shown = subsetd("explain", f"s.t.{odd}", f"s.t.{other}")
    assert f"s.t.{odd} ⊄ s.t.{other}" in shown
    assert repr("[red]x\\") in shown
    assert subsetd("explain", f"s.t.{odd}", f"s.t.{other}", "--missing", 0).endswith("1 values are missing:\n  ...\n")


def test_explain_names_what_breaks_a_dependency_and_since_when(stream: Stream, subsetd: Command) -> None:
    assert "s.orders.customer ⊆ s.customers.id" in subsetd("explain", "s.orders.customer", "s.customers.id")
    stream.change("orders", None, ["12", "[9]", None])
    subsetd("consume", "--feed", f"file:{stream.path}", "--until-end")
    said = subsetd("explain", "s.orders.customer", "s.customers.id")
    assert "s.orders.customer ⊄ s.customers.id" in said
    assert "0.666667 (2 of 3 values)" in said
    assert "since version 2" in said
    assert "1 values are missing:\n  '[9]'" in said
    assert subsetd("inds", "--as-of", 1) != subsetd("inds")


def test_explain_of_an_unknown_attribute(stream: Stream, subsetd: Command) -> None:
    code, _, err = subsetd.ended("explain", "s.orders.nothing", "s.customers.id")
    assert code == 1
    assert "s.orders.nothing" in err
    assert "Traceback" not in err


def test_attributes_status_and_verify(stream: Stream, subsetd: Command) -> None:
    rows = json.loads(subsetd("attributes", "--format", "json"))
    assert [(r["column"], r["rows"], r["nulls"], r["distinct"], r["unique"]) for r in rows] == [
        ("id", 3, 0, 3, True),
        ("name", 3, 1, 2, False),
        ("id", 2, 0, 2, True),
        ("customer", 2, 0, 2, True),
        ("note", 2, 1, 1, False),
    ]
    assert "[b]" not in subsetd("attributes")
    assert "version 1" in subsetd("status")
    assert json.loads(subsetd("status", "--format", "json"))["counts"]["uinds"] == 1
    assert subsetd.ended("status", "--format", "csv")[0] == 2, "refused, not answered with a table"
    assert subsetd("verify", "--sql-only").count("holds") == 9
    code, out, err = subsetd.ended("verify", "--sql-only", "--source", "s=/data")
    assert (code, out, "recomputes no source" in err) == (2, "", True), "--source is not taken for unknown"


def test_verify_ends_with_1_on_a_damaged_state(stream: Stream, subsetd: Command, database_url: str) -> None:
    states.execute(database_url, "delete from uind")
    code, out, _ = subsetd.ended("verify", "--sql-only")
    assert code == 1
    assert "s.orders.customer ⊆ s.customers.id holds and is not served" in out


@pytest.mark.parametrize("code", [130, 143])
def test_verify_that_is_stopped_recomputes_no_other_source_and_finds_nothing_wrong(
    stream: Stream, subsetd: Command, database_url: str, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    """A job hears of the signal in place of the command, whose code is the job's."""
    states.execute(database_url, ANOTHER_SOURCE)
    stopped = [sys.executable, "-c", f"raise SystemExit({code})"]
    monkeypatch.setattr(verify_command, "spark_bootstrap", lambda *_: run_attached(stopped, []))
    ended, out, _ = subsetd.ended("verify", "--source=s=/s", "--source=other=/other")
    assert (ended, out.count("recomputing"), "differs" in out) == (code, 1, False)


def test_verify_recomputes_no_source_that_was_followed_before_another_one_was_read(
    stream: Stream, subsetd: Command, database_url: str
) -> None:
    stream.change("orders", None, ["12", "1", None])
    subsetd("consume", "--feed", f"file:{stream.path}", "--until-end")
    states.execute(database_url, ANOTHER_SOURCE)
    code, out, _ = subsetd.ended("verify", "--source=other=/gone")
    assert "s is not recomputed: changes have been applied since" in out
    assert "recomputing other from the address that was given" in out
    assert code == 1, "it cannot be read"


def test_dead_letters_are_listed(stream: Stream, subsetd: Command) -> None:
    stream.write(b"[1]")
    subsetd("consume", "--feed", f"file:{stream.path}", "--until-end", "--on-error", "all")
    (letter,) = json.loads(subsetd("dead-letters", "--format", "json"))
    assert (letter["offset"], letter["record"]) == (0, "[1]")
    assert "object with op" in subsetd("dead-letters")


def test_consume_writes_its_figures(stream: Stream, subsetd: Command, tmp_path: Path) -> None:
    stream.change("orders", None, ["12", "2", None])
    stats = tmp_path / "stats.json"
    _, _, err = subsetd.ended("consume", "--feed", f"file:{stream.path}", "--until-end", "--stats-json", stats)
    assert "1 records in 1 batches: 1 inserted" in err
    figures = json.loads(stats.read_text())
    assert figures["inserted"] == 1
    assert figures["without_caches"] >= figures["read"] + figures["written"]
    assert {"decode", "net", "look_up", "apply", "store"} <= figures["seconds"].keys()


def test_figures_that_cannot_be_written_hide_nothing(stream: Stream, subsetd: Command) -> None:
    stream.write(b"no json")
    feed = ["--feed", f"file:{stream.path}", "--until-end", "--stats-json"]
    code, _, err = subsetd.ended("consume", *feed, "/no/such/folder/stats.json")
    assert (code, "there is no folder /no/such/folder. Name another file" in err) == (1, True)
    code, _, err = subsetd.ended("consume", *feed, "/dev/full")
    assert (code, "/dev/full: it cannot be written" in err, "offset 0: is not JSON" in err) == (1, True, True)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["consume", "--feed", "ftp://x"], "neither kafka:// nor postgresql:// nor file:"),
        (["consume", "--feed", "file:/nowhere/at/all"], "/nowhere/at/all"),
        (["run"], "--feed or SUBSETD_FEED"),
        (["bootstrap", "/nowhere", "--name", "n", "--feed-position", "a,b"], "FEED,TOPIC,PARTITION,OFFSET"),
        (
            ["bootstrap", "/nowhere", "--name", "n", "--feed-position", f"a,t,0,{1 << 63}"],
            "is not FEED,TOPIC,PARTITION",
        ),
        (
            ["bootstrap", "/nowhere", "--name", "n", "--feed-position", f"a,t,{1 << 31},0"],
            "is not FEED,TOPIC,PARTITION",
        ),
        (["bootstrap", "/nowhere", "--name", "n", "--only-table", "s.t"], "s.t: the source is no Postgres"),
    ],
)
def test_bad_arguments_are_one_message(stream: Stream, subsetd: Command, arguments: list[str], words: str) -> None:
    code, out, err = subsetd.ended(*arguments)
    assert code == 1
    assert words in err.replace("\n", " ")
    assert out == ""


@pytest.mark.parametrize("arguments", [["inds", "--schema", "s\udcff"], ["explain", "s\udcff", "s.orders.id"]])
def test_names_that_are_not_utf8_are_one_message(stream: Stream, subsetd: Command, arguments: list[str]) -> None:
    assert subsetd.ended(*arguments) == (1, "", "error: s\\udcff: it is not UTF-8, as all names here are.\n")


@pytest.mark.parametrize("command", ["status", "inds", "verify", "serve"])
def test_a_database_that_is_not_there(subsetd: Command, monkeypatch: pytest.MonkeyPatch, command: str) -> None:
    monkeypatch.setenv("SUBSETD_DATABASE_URL", "postgresql://u:secret@127.0.0.1:1/nothing")
    code, _, err = subsetd.ended(command)
    assert code == 1
    assert "127.0.0.1:1" in err
    assert "secret" not in err


def test_a_database_of_an_unknown_schema(subsetd: Command, database_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    states.execute(database_url, "update alembic_version set version_num = '9999'")
    monkeypatch.setenv("SUBSETD_DATABASE_URL", database_url)
    for command in (["consume", "--feed", "file:/dev/null"], ["run", "--feed", "file:/dev/null"]):
        code, _, err = subsetd.ended(*command)
        assert code == 1
        assert "9999" in err


def test_a_state_that_no_feed_goes_to_is_migrated_by_run(
    database_url: str, subsetd: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SUBSETD_DATABASE_URL", database_url)
    migrate.downgrade(database_url, "0010")
    code, _, err = subsetd.ended("status")
    assert (code, "`subsetd run` once, which migrates it" in err) == (1, True), err
    code, _, err = subsetd.ended("run")
    assert (code, "No feed is named" in err, migrate.found_revision(database_url)) == (1, True, SCHEMA_REVISION), err


def test_a_port_in_use(stream: Stream, subsetd: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        monkeypatch.setenv("SUBSETD_PORT", str(port))
        code, _, err = subsetd.ended("serve")
    assert code == 1
    assert f"127.0.0.1:{port} is in use" in err


def test_no_key_no_other_address_than_loopback(
    stream: Stream, subsetd: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SUBSETD_HOST", "0.0.0.0")
    code, _, err = subsetd.ended("serve")
    assert code == 2
    assert "SUBSETD_API_KEY" in err


def test_the_environments_key_alone_is_one(stream: Stream, subsetd: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    """The image listens so. The address is nobody's (RFC 5737): to have got as far as that is enough."""
    monkeypatch.setenv("SUBSETD_HOST", "192.0.2.1")
    monkeypatch.setenv("SUBSETD_API_KEY", "k")
    code, _, err = subsetd.ended("serve")
    assert (code, "192.0.2.1:8321 cannot be had" in err) == (1, True), err


def test_run_follows_serves_and_ends_cleanly(stream: Stream, tmp_path: Path) -> None:
    """Run the real process: a change in the feed is answered, the key is asked for, SIGTERM ends it with 0."""
    environment = {**os.environ, "SUBSETD_PORT": "0", "SUBSETD_API_KEY": "k", "SUBSETD_LOG_LEVEL": "info"}
    log = (tmp_path / "log").open("w+")
    process = subprocess.Popen(
        [sys.executable, "-m", "service.cli", "run", "--feed", f"file:{stream.path}"], env=environment, stderr=log
    )
    with log, ExitStack() as opened:
        opened.callback(process.wait)
        opened.callback(process.kill)
        base = wait_for(
            lambda: next((w for w in (tmp_path / "log").read_text().split() if w.startswith("http://")), None)
        )
        client = opened.enter_context(http_client(base_url=base, headers={"Authorization": "Bearer k"}, timeout=60))
        assert httpx.get(f"{base}/healthz", timeout=60).status_code == 200
        assert httpx.get(f"{base}/api/v1/state", timeout=60).status_code == 401
        stream.change("orders", None, ["12", "9", None])
        wait_for(lambda: client.get("/api/v1/state").json()["version"] == 2)
        pair = client.get("/api/v1/uinds/s.orders.customer/s.customers.id").json()
        assert (pair["holds"], pair["version"]) == (False, 2)
        wait_for(lambda: client.get("/readyz").status_code == 200)
        # The consumer's process tells of a version behind its commit, when it may be answered already.
        wait_for(lambda: 'subsetd_consumer_records_total{outcome="inserted"} 1.0' in client.get("/metrics").text)
        process.send_signal(signal.SIGTERM)
        assert process.wait(BOUND_SECONDS) == 0


def test_a_defect_is_one_line_of_the_log(stream: Stream, database_url: str, tmp_path: Path) -> None:
    """Nobody expects a column that is gone; what the server says of that can be read as all other lines are."""
    log = tmp_path / "log"
    with log.open("w") as said, ExitStack() as opened:
        environment = {**os.environ, "SUBSETD_PORT": "0", "SUBSETD_LOG_LEVEL": "info"}
        process = subprocess.Popen([sys.executable, "-m", "service.cli", "serve"], env=environment, stderr=said)
        opened.callback(process.wait)
        opened.callback(process.kill)
        base = wait_for(lambda: next((w for w in log.read_text().split() if w.startswith("http://")), None))
        states.execute(database_url, "alter table contract rename column violated_since to bad_since")
        assert httpx.get(f"{base}/api/v1/contracts", timeout=60).status_code == 500
        process.send_signal(signal.SIGTERM)
        assert process.wait(BOUND_SECONDS) == 0
    address, *lines = log.read_text().splitlines()
    assert address.startswith("Serving on http://")
    (told,) = [line for line in map(json.loads, lines) if line["level"] == "error" and "exception" in line]
    assert (told["logger"], told["event"].strip()) == ("uvicorn.error", "Exception in ASGI application")
    assert told["exception"].startswith("Traceback")
    assert "UndefinedColumn" in told["exception"]


def test_run_ends_with_the_consumers_error(stream: Stream) -> None:
    stream.write(b"no json")
    environment = {**os.environ, "SUBSETD_PORT": "0"}
    command = [sys.executable, "-m", "service.cli", "run", "--feed", f"file:{stream.path}"]
    ended = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=BOUND_SECONDS, check=False)
    assert ended.returncode == 1
    assert "offset 0: is not JSON" in ended.stderr
    assert "Traceback" not in ended.stderr


def test_run_sets_aside_and_knows_the_source_as_consume_does_and_so_does_who_tries_again(
    stream: Stream, database_url: str, subsetd: Command, tmp_path: Path
) -> None:
    """Two sources have a table that changes call s.orders; a delete comes before its insert."""
    for statement in (
        "insert into source (name, kind, location, bootstrapped_version) values ('north', 'csv', '-', 1)",
        "insert into attribute (attribute_id, source_id, schema_name, table_name, column_name, ordinal, "
        "row_count, null_count, distinct_count, repeated_count) "
        "select attribute_id + 10, (select source_id from source where name = 'north'), 'north.s', table_name, "
        "column_name, ordinal, 0, 0, 0, 0 from attribute where table_name = 'orders'",
        "insert into tracked_table (source_id, schema_name, table_name, source_schema, source_table) "
        "select distinct source_id, schema_name, table_name, 's', table_name from attribute",
    ):
        states.execute(database_url, statement)
    stream.append("orders", ["12", "2", None], None)
    stream.append("orders", None, ["12", "2", None])
    command = [sys.executable, "-m", "service.cli", "run", "--feed", f"file:{stream.path}"]
    environment = {**os.environ, "SUBSETD_PORT": "0", "SUBSETD_BATCH_RECORDS": "1"}
    said = tmp_path / "log"
    with said.open("w") as log, ExitStack() as opened:
        process = subprocess.Popen([*command, "--on-error=all", "--source=s"], env=environment, stderr=log)
        opened.callback(process.wait)
        opened.callback(process.kill)
        wait_for(lambda: "http://" in said.read_text() or process.poll() is not None)
        wait_for(lambda: version(database_url) == 3 or process.poll() is not None)
        process.send_signal(signal.SIGTERM)
        assert process.wait(BOUND_SECONDS) == 0, said.read_text()
    code, out, _ = subsetd.ended("dead-letters", "retry", "--all")
    assert (code, "0 applied, 0 skipped, 1 still set aside" in out) == (1, True), out
    assert "1 applied, 0 skipped, 0 still set aside" in subsetd("dead-letters", "retry", "--all", "--source", "s")


@pytest.fixture
def of_run(stream: Stream, tmp_path: Path) -> Iterator[tuple[subprocess.Popen[bytes], psutil.Process]]:
    """Give the two processes of a `run` that serves: the one that was called, and its consumer."""
    command = [sys.executable, "-m", "service.cli", "run", "--feed", f"file:{stream.path}"]
    log = (tmp_path / "log").open("w+")
    process = subprocess.Popen(command, env={**os.environ, "SUBSETD_PORT": "0"}, stderr=log)
    with log, ExitStack() as opened:
        opened.callback(process.wait)
        opened.callback(process.kill)
        wait_for(lambda: "http://" in (tmp_path / "log").read_text())
        (consumer,) = wait_for(lambda: consumers(psutil.Process(process.pid)))
        yield process, consumer


@pytest.mark.parametrize("victim", ["consumer", "service"])
def test_of_the_two_processes_of_run_none_lives_without_the_other(
    of_run: tuple[subprocess.Popen[bytes], psutil.Process], tmp_path: Path, victim: str
) -> None:
    process, consumer = of_run
    (process if victim == "service" else consumer).kill()
    wait_for_end(consumer)
    assert process.wait(BOUND_SECONDS) == (-9 if victim == "service" else 1)
    told = "The consumer's process ended by signal 9 (Killed). Nothing that was committed is lost"
    assert (told in (tmp_path / "log").read_text()) == (victim == "consumer")


def test_the_consumer_of_run_has_one_heap(of_run: tuple[subprocess.Popen[bytes], psutil.Process]) -> None:
    """Nothing has begun a thread before its threads are to share one; those that answer have a heap each."""
    process, consumer = of_run
    wait_for(lambda: consumer.num_threads() > 3)
    wait_for(lambda: heaps_of_threads(process.pid) > 1)
    assert heaps_of_threads(consumer.pid) == 0
    process.send_signal(signal.SIGTERM)
    assert process.wait(BOUND_SECONDS) == 0


def heaps_of_threads(pid: int) -> int:
    """Count the heaps that glibc has made for threads of a process: the first parts of 64 MB that it reserves."""
    mappings = [line.split() for line in Path(f"/proc/{pid}/maps").read_text().splitlines()]
    nameless = [(place, rights) for place, rights, *rest in mappings if len(rest) == 3]
    spans = [[int(end, 16) for end in place.split("-")] for place, rights in nameless if rights == "rw-p"]
    reserved = [int(place.split("-")[1], 16) for place, rights in nameless if rights == "---p"]
    size = 64 << 20
    return sum(begin % size == 0 and end - begin < size and begin + size in reserved for begin, end in spans)


def consumers(run: psutil.Process) -> list[psutil.Process]:
    """Give the children that are what `run` is, once there is one: any other is so only until it begins its program."""
    found = []
    for child in run.children():
        with suppress(psutil.NoSuchProcess):
            if child.cmdline() == run.cmdline():
                found.append(child)
    return found if len(found) == 1 else []


def version(url: str) -> int:
    return int(states.query(url, "select max(version) from state_version")[0][0])
