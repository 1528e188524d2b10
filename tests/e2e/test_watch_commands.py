"""Watches from the command line, and the service that looks and tells, as processes of their own."""

from __future__ import annotations

import json
from pathlib import Path

from tests import states
from tests.commands import Commands
from tests.following import COLUMNS, Stream
from tests.states import Tables
from tests.waiting import wait_for
from tests.watching import receiving

PAIR = ("--dependent", "s.orders.customer", "--referenced", "s.customers.id")


def test_a_service_tells_a_webhook_what_breaks_and_a_command_what_was_told(
    database_url: str, subsetd: Commands, tmp_path: Path
) -> None:
    tables = Tables(dict(COLUMNS))
    states.store(database_url, tables.add("customers", ["1", "Ada"]).add("orders", ["10", "1", None]))
    stream = Stream(tmp_path / "feed.jsonl", tables)
    stream.path.touch()
    (tmp_path / "secret").write_text("of both sides\n")
    allowed = {"webhook_allow": "127.0.0.0/8"}
    with receiving() as receiver:
        told = ("--webhook", receiver.url, "--secret-file", str(tmp_path / "secret"), "--debounce", "0s")
        assert subsetd.run("watch", "add", "orders", "ind", *PAIR, *told, "--by", "Ada") == (
            0,
            "Watch 1, orders: tells when s.orders.customer ⊆ s.customers.id is broken.\n",
        )
        code, said = subsetd.run("watch", "add", "both", "ind", *PAIR, "--slack", receiver.url, "--email", "a@b.c")
        assert (code, "one channel" in said) == (2, True)
        assert subsetd.run("watch", "test", "1", **allowed)[0] == 0
        code, said = subsetd.run("watch", "test", "1")
        assert (code, "SUBSETD_WEBHOOK_ALLOW" in said) == (1, True)
        service = subsetd.start("run", "--feed", f"file:{stream.path}", **allowed)
        stream.change("orders", None, ["11", "9", None])
        wait_for(lambda: any(message["kind"] == "fired" for _, _, message in receiver.requests))
        assert subsetd.run("watch", "test", "1")[0] == 0, "the service sends it, by its own settings"
        subsetd.end(service)
        kinds = [message["kind"] for _, _, message in receiver.requests]
        assert kinds == ["test", "fired", "test"]
        assert all("X-Subsetd-Signature" in headers for _, headers, _ in receiver.requests)
    code, said = subsetd.run("watch", "history", "--format", "json")
    assert [(one["kind"], one["state"]) for one in json.loads(said)] == [
        ("test", "delivered"),
        ("fired", "delivered"),
        ("test", "failed"),
        ("test", "delivered"),
    ]
    assert "of both sides" not in subsetd.said(service)


def test_a_secret_that_is_no_text_is_refused_in_words(database_url: str, subsetd: Commands, tmp_path: Path) -> None:
    states.store(database_url, Tables(dict(COLUMNS)))
    (tmp_path / "secret").write_bytes(b"\xff\x00\x80")
    told = ("--webhook", "https://alerts.example/x", "--secret-file", str(tmp_path / "secret"))
    code, said = subsetd.run("watch", "add", "w", "dead-letters", *told)
    assert (code, "no text in UTF-8" in said, "Traceback" in said) == (2, True, False)


def test_a_test_sends_what_its_own_watch_has_to_tell_and_nothing_of_others(
    database_url: str, subsetd: Commands
) -> None:
    tables = Tables(dict(COLUMNS))
    states.store(database_url, tables.add("customers", ["1", "Ada"]).add("orders", ["10", "9", None]))
    with receiving() as receiver:
        for name in ("first", "second"):
            told = ("--webhook", f"{receiver.url}/{name}", "--debounce", "0s")
            assert subsetd.run("watch", "add", name, "ind", *PAIR, *told)[0] == 0
        for _ in range(2):  # what the first one's look found goes out before the second one
            assert subsetd.run("watch", "test", "2", webhook_allow="127.0.0.0/8")[0] == 0
    assert [(path, message["kind"]) for path, _, message in receiver.requests] == [
        ("/hook/second", kind) for kind in ("test", "fired", "test")
    ]
    history = json.loads(subsetd.run("watch", "history", "--format", "json")[1])
    assert {(one["watch"], one["state"]) for one in history} == {("first", "pending"), ("second", "delivered")}


def test_silences_and_loads(database_url: str, subsetd: Commands) -> None:
    tables = Tables(dict(COLUMNS))
    states.store(database_url, tables.add("customers", ["1", "Ada"]).add("orders", ["10", "1", None]))
    assert subsetd.run("watch", "silence", "--for", "2h", "--pattern", "s.*", "--reason", "x")[1].startswith(
        "Silence 1"
    )
    assert subsetd.run("watch", "unsilence", "1") == (0, "Silence 1 has ended.\n")
    assert subsetd.run("watch", "quiet", "s.orders", "--until-loaded")[1].startswith("Load 1: watches wait until")
    assert subsetd.run("watch", "loads", "--format", "csv")[1].splitlines()[1].startswith("1,s,orders,")
    assert subsetd.run("watch", "loaded", "1") == (0, "Load 1 has ended.\n")
    states.execute(database_url, "update attribute set schema_name = 'south.public' where table_name = 'orders'")
    for name in ("south.public.orders", "south.public"):  # as --qualify names what is in two sources
        assert subsetd.run("watch", "quiet", name, "--until-loaded")[0] == 0
    listed = subsetd.run("watch", "loads", "--format", "csv")[1].splitlines()
    assert [line.split(",")[1:3] for line in sorted(listed[1:])[1:]] == [
        ["south.public", "orders"],
        ["south.public", ""],
    ]
    assert subsetd.run("watch", "history", "--watch", "3000000000", "--format", "csv")[0] == 0
    for arguments, told in (
        (("quiet", "s.nothing", "--for", "1h"), "No table s.nothing is followed"),
        (("silence", "--for", "soon", "--pattern", "x", "--reason", "y"), "no time such as"),
        (("silence", "--for", "9999999d", "--pattern", "x", "--reason", "y"), "longer than there are years"),
        (("add", "n", "contract", "--contract", str(10**30), "--slack", "https://192.0.2.1/x"), f"contract {10**30}"),
    ):
        code, said = subsetd.run("watch", *arguments)
        assert code != 0
        assert told in " ".join(said.split())
