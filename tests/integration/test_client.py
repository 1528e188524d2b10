"""Own the proof that the Python client asks, waits and refuses as its page says, against the real service."""

from __future__ import annotations

import asyncio
import doctest
import inspect
import io
import json
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any, get_type_hints, is_typeddict

import httpx
import pyarrow as pa
import pytest

import subsetd
from service.core.sketches.column import ColumnSketch
from service.store.database import make_engine
from service.usecases.joinable import read_query
from subsetd import _sync_client, shapes
from subsetd._asking import csv_of
from subsetd.client import AsyncClient, Client, JobFailed, Problem, Rows
from tests.corpora import GivenCorpus
from tests.hand_made_state import TABLE_1, HandMadeState
from tests.integration.example_state import TABLES, served_examples
from tests.integration.serving import app_over, serving
from tools import make_client

PAGE = Path(__file__).parents[2] / "docs" / "client.md"
ORDERS, CUSTOMERS = "demo.orders.customer_id", "demo.customers.id"
SIDES = [("demo", "orders", "customer_id")], [("demo", "customers", "id")]
IN_LAKE = {"dependent_table": "2019/orders.csv", "dependent_position": 1,
           "referenced_table": "customers.csv", "referenced_position": 0}  # fmt: skip


@pytest.fixture
def address(database_url: str) -> Iterator[str]:
    with served_examples(database_url) as address:
        yield address


@pytest.fixture
def client(address: str) -> Iterator[Client]:
    with Client(address) as client:
        yield client


def test_the_page_is_true(address: str) -> None:
    text = re.sub("^```.*$", "", PAGE.read_text(), flags=re.MULTILINE).replace("http://127.0.0.1:8321", address)
    lesson = doctest.DocTestParser().get_doctest(text, {}, "client.md", str(PAGE), 0)
    assert len(lesson.examples) > 20
    runner = doctest.DocTestRunner(verbose=False)
    said: list[str] = []
    runner.run(lesson, out=said.append)
    assert runner.summarize(verbose=False).failed == 0, "".join(said)


def calls(client: Client) -> list[tuple[Callable[..., Any], dict[str, Any]]]:
    """Give each method with what it is asked here, in an order in which what one needs is there."""
    sides = {"dependent": SIDES[0], "referenced": SIDES[1]}
    pair = {"dependent": ORDERS, "referenced": CUSTOMERS}
    regions = {"dependent": [("demo", "customers", "region")], "referenced": [("demo", "regions", "id")]}
    rule = {"kind": "ind", **pair}
    watch = {"name": "a", "rule": rule, "channel": {"kind": "slack", "url": "https://alerts.example/at"}, "by": "Ada"}
    until = datetime(2999, 1, 1, tzinfo=UTC)
    paths = {"from_table": "demo.orders", "to_table": "demo.regions"}
    return [
        (client.state, {}), (client.attributes, {"contains": "id"}), (client.clusters, {}), (client.dead_letters, {}),
        (client.audits, {}), (client.uinds, {"as_of": 1}), (client.pair, pair), (client.missing, pair),
        (client.history, pair), (client.changes, {"since": 1}), (client.coefficients, {"top": 3}),
        (client.coefficient_matrix, {"level": 0.9}), (client.estimates, {**pair, "level": 0.9}),
        (client.sketches, {}), (client.download_sketch, {"column": ORDERS}),
        (client.upload_sketch, {"name": "far/away", "sketch": ColumnSketch(13, 1536, 512).to_bytes()}),
        (client.delete_sketch, {"name": "far/away"}), (client.keys, {"values": 2}),
        (client.find_foreign_keys, {"method": "names"}), (client.foreign_keys, {"method": "names"}),
        (client.declared_foreign_keys, {}), (client.bootstraps, {}),
        (client.foreign_key_evidence, {**pair, "method": "names"}), (client.export_foreign_keys, {"format": "dbt"}),
        (client.decide, {**sides, "verdict": "accept", "by": "Ada"}), (client.decisions, {}),
        (client.add_contract, {**regions, "by": "Ada", "least_coefficient": 0.5}), (client.contracts, {}),
        (client.contract, {"contract_id": 1}), (client.contract_transitions, {}),
        (client.contract_transitions, {"contract_id": 1}), (client.remove_contract, {"contract_id": 1}),
        (client.watches, {}), (client.add_watch, {**watch, "debounce_seconds": 0}),
        (client.show_watch, {"watch_id": 2}), (client.replace_watch, {**watch, "watch_id": 2, "name": "b"}),
        (client.test_watch, {"watch_id": 2}), (client.alerts, {"watch_id": 2}), (client.remove_watch, {"watch_id": 2}),
        (client.silences, {}),
        (client.add_silence, {"until": until, "reason": "moving", "by": "Ada", "pattern": "demo.*"}),
        (client.end_silence, {"silence_id": 1}), (client.loads, {}),
        (client.announce_load, {"schema": "demo", "by": "Ada", "table": "orders"}), (client.end_load, {"load_id": 1}),
        (client.corpora, {}), (client.corpus, {"corpus": "lake"}), (client.corpus_refreshes, {"corpus": "lake"}),
        (client.corpus_inds, {"corpus": "lake"}), (client.corpus_pair, {"corpus": "lake", **IN_LAKE}),
        (client.corpus_changes, {"corpus": "lake"}), (client.corpus_tables, {"corpus": "lake"}),
        (client.corpus_columns, {"corpus": "lake", "table": "2019/orders.csv"}),
        (client.add_corpus, {"name": "a b", "location": "/data", "kind": "csv", "settings": {"min_values": 2}}),
        (client.remove_corpus, {"corpus": "a b"}), (client.graph, {}), (client.graph, {"corpus": "lake"}),
        (client.graph_components, {}), (client.graph_tables, {"contains": "cust"}),
        (client.graph_excerpt, {"around": "demo.orders"}), (client.join_paths, paths),
        (client.export_graph, {"format": "csv"}), (client.get, {"path": "/api/v1/overview"}),
    ]  # fmt: skip


ELSEWHERE = {"close", "drop_key", "joinable", "refresh_corpus", "stream", "track_key", "watch"}
"""Methods that have tests of their own."""


def test_every_method_gets_an_answer_of_its_shape(client: Client) -> None:
    asked = calls(client)
    methods = {name for name, _ in inspect.getmembers(Client, inspect.isfunction) if not name.startswith("_")}
    assert {method.__name__ for method, _ in asked} | ELSEWHERE == methods
    for method, arguments in asked:
        answer = method(**arguments)
        if isinstance(answer, Rows):
            items = answer.list()
            assert answer.arrow().num_rows == len(items), method.__name__
            answer = items[0] if items else {}
            shape = inspect.signature(method, eval_str=True).return_annotation.__args__[0]
        else:
            shape = inspect.signature(method, eval_str=True).return_annotation
        if isinstance(answer, dict) and answer and shape is not Any:
            assert get_type_hints(shape).keys() <= answer.keys(), method.__name__


def test_rows_go_through_all_pages(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    all_at_once = client.attributes().list()
    monkeypatch.setattr(_sync_client, "LARGEST_PAGE", 1)
    rows = client.attributes()
    assert len(list(rows.pages())) == len(all_at_once) > 3
    assert list(rows) == all_at_once == list(rows)  # and once more from the beginning


def test_tables_have_one_form_whatever_was_found(client: Client) -> None:
    table = client.uinds().arrow()
    assert table.column("dependent.name").to_pylist() == [ORDERS, "demo.customers.region"]
    assert table.schema.field("since_at").type == pa.timestamp("us", tz="UTC")
    assert all(one < datetime.now(UTC) for one in table.column("since_at").to_pylist())
    assert table.schema == client.uinds(dependent_table="none").arrow().schema
    letters = client.dead_letters(feed="none").arrow()
    assert (letters.num_rows, letters.schema.field("record_offset").type) == (0, pa.int64())
    refreshes = client.corpus_refreshes("lake").arrow()
    assert refreshes.schema.field("report").type == pa.string()  # an object of any shape: JSON


def test_refusals_have_the_fields_of_the_problem(client: Client) -> None:
    with pytest.raises(Problem, match=r"404: .*nothing") as caught:
        client.pair("demo.orders.nothing", CUSTOMERS)
    assert (caught.value.status, caught.value.kind) == (404, "unknown-attribute")
    with pytest.raises(Problem) as caught:
        client.get("/api/v1/uinds", tabel="orders")
    assert caught.value.kind == "invalid-request"
    assert caught.value.errors[0]["location"] == ["query", "tabel"]
    assert caught.value.instance == "/api/v1/uinds"


class Replies(httpx.MockTransport):
    """Be a service that gives these replies, one after the other, and keep what was asked."""

    def __init__(self, *replies: httpx.Response) -> None:
        self.asked: list[httpx.Request] = []
        waiting = iter(replies)

        def reply(request: httpx.Request) -> httpx.Response:
            self.asked.append(request)
            return next(waiting)

        super().__init__(reply)


BUSY = httpx.Response(503, headers={"Retry-After": "0"}, json={"type": "/docs#unavailable", "detail": "away"})
FULL = httpx.Response(429, headers={"Retry-After": "0"}, json={"detail": "too many"})
DONE = httpx.Response(200, json={"version": 7})


def test_a_busy_service_is_asked_again() -> None:
    transport = Replies(BUSY, FULL, DONE)
    assert Client(transport=transport, key="secret").state() == {"version": 7}
    assert [one.headers["Authorization"] for one in transport.asked] == ["Bearer secret"] * 3


def test_what_changes_something_is_not_sent_again_after_a_503() -> None:
    with pytest.raises(Problem, match="503: away"):
        Client(transport=Replies(BUSY)).find_foreign_keys()
    assert Client(transport=Replies(FULL, DONE)).find_foreign_keys() == {"version": 7}


def test_what_is_none_is_not_asked() -> None:
    transport = Replies(httpx.Response(200, text="digraph"))
    Client(transport=transport).export_graph(format=None)  # type: ignore[arg-type]
    assert not transport.asked[0].url.params


def test_patience_ends() -> None:
    late = httpx.Response(503, headers={"Retry-After": "20"}, json={"detail": "away"})
    with pytest.raises(Problem, match="away"):
        Client(transport=Replies(late), patience=10).state()


def test_patience_ends_also_where_no_time_is_to_be_waited() -> None:
    transport = Replies(*[BUSY] * 100)
    with pytest.raises(Problem, match="away"):
        Client(transport=transport, patience=0.5).state()
    assert len(transport.asked) == 3


def test_a_refusal_of_a_proxy_is_told_as_it_is() -> None:
    with pytest.raises(Problem, match="502: <html>no gateway") as caught:
        Client(transport=Replies(httpx.Response(502, text="<html>no gateway"))).state()
    assert caught.value.kind == "about:blank"


def test_a_watch_gives_each_transition_once(database_url: str) -> None:
    state = HandMadeState(database_url, TABLE_1)
    engine = make_engine(database_url, "test-watch")
    with serving(app_over(engine)) as address, Client(address) as client:
        seen = client.watch(since=1, every=0.01)
        found = []
        for rows in (slice(2, None), slice(None), slice(1, 3)):
            state.commit({name: cells[rows] for name, cells in TABLE_1.items()})
            expected = client.changes(since=state.version - 1).list()
            assert expected
            found += [next(seen) for _ in expected]
        assert found == client.changes(since=1).list()
        assert {one["version"] for one in found} == {2, 3, 4}
    state.close()
    engine.dispose()


def test_a_watch_polls_with_the_version_that_it_knows() -> None:
    page = {"version": 9, "next_cursor": None, "items": [{"version": 9}]}
    transport = Replies(httpx.Response(304), httpx.Response(200, json=page))
    seen = Client(transport=transport).watch(since=7, every=0)
    assert next(seen)["version"] == 9
    assert [one.headers["If-None-Match"] for one in transport.asked] == ['"7"', '"7"']
    assert [one.url.params["since"] for one in transport.asked] == ["7", "7"]


def test_a_watch_gives_what_came_first_first() -> None:
    page = {"version": 9, "next_cursor": None, "items": [{"version": 8}, {"version": 9}]}
    transport = Replies(httpx.Response(200, json=page))
    assert next(Client(transport=transport).watch(since=7, newest_first=True))["version"] == 8
    assert "newest_first" not in transport.asked[0].url.params


def test_a_stream_gives_the_same_as_a_watch(database_url: str) -> None:
    state = HandMadeState(database_url, TABLE_1)
    engine = make_engine(database_url, "test-stream")
    with serving(app_over(engine)) as address, Client(address) as client:
        seen = client.stream(since=1)
        for rows in (slice(2, None), slice(None)):
            state.commit({name: cells[rows] for name, cells in TABLE_1.items()})
            expected = client.changes(since=state.version - 1).list()
            assert expected
            assert [next(seen) for _ in expected] == expected
        seen.close()
    state.close()
    engine.dispose()


def test_a_stream_that_is_lost_goes_on_where_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    class Cut(httpx.SyncByteStream):
        def __iter__(self) -> Iterator[bytes]:
            yield b'event: transitions\nid: 8\ndata: {"version": 8, "items": [{"version": 8}]}\n\n'
            yield b'event: transitions\nid: 9.1.2\ndata: {"version": 9, "it'
            raise httpx.ReadError("the connection was lost")

    whole = b': ping\n\nevent: version\nid: 9\ndata: {"version": 9}\n\nid: 10\ndata: {"items": [{"version": 10}]}\n\n'
    transport = Replies(httpx.Response(200, stream=Cut()), DONE, httpx.Response(200, content=whole), DONE, BUSY)
    monkeypatch.setattr(_sync_client.time, "sleep", lambda _: None)
    seen = Client(transport=transport).stream(since=7)
    assert [next(seen)["version"], next(seen)["version"]] == [8, 10]
    with pytest.raises(Problem, match="503"):
        next(seen)
    asked = [one.headers.get("Last-Event-ID") for one in transport.asked]
    assert asked == ["7", None, "8", None, "10"]


def test_a_stream_holds_values_with_what_ends_a_line_elsewhere() -> None:
    odd = "a\u2028b\u2029c\x85d\x0be\x0cf\x1cg é"
    items = json.dumps({"items": [{"version": 8, "witness_value": odd}]}, ensure_ascii=False)
    told = f"id: 8\ndata: {items}\n\n".encode()

    class Torn(httpx.SyncByteStream):
        def __iter__(self) -> Iterator[bytes]:
            yield from (told[i : i + 1] for i in range(len(told)))

    for sent in (httpx.Response(200, content=told), httpx.Response(200, stream=Torn())):
        seen = Client(transport=Replies(sent)).stream(since=7)
        assert next(seen)["witness_value"] == odd
        seen.close()


class Frame:
    """Be a frame that gives itself as Arrow, as those of pandas and polars do."""

    def __init__(self, table: pa.Table) -> None:
        self._table = table

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return self._table.__arrow_c_stream__(requested_schema)


def test_rows_to_join_come_in_every_form(database_url: str, tmp_path: Path) -> None:
    path = tmp_path / "cities.csv"
    path.write_text('city,note\nberlin,"a ""b"""\nrome,\n')
    rows = [{"city": "berlin", "note": 'a "b"'}, {"city": "rome", "note": None}]
    table = pa.Table.from_pylist(rows)
    lake = GivenCorpus(database_url)
    lake.refresh(set(), TABLES)
    lake.index()
    engine = make_engine(database_url, "test-join")
    with serving(app_over(engine)) as address, Client(address) as client:
        views = table.cast(pa.schema([(name, pa.string_view()) for name in table.column_names]))  # as polars has texts
        for sent in (path, str(path), path.read_bytes(), rows, iter(rows), table, Frame(table), Frame(views)):
            answer = client.joinable(sent, corpus="lake", key=["city", "note"])
            assert (answer["rows"], answer["keys"], answer["empty"]) == (2, 1, 1)
        with pytest.raises(Problem) as caught:
            client.joinable(rows, corpus="lake", key=["country"])
        assert caught.value.kind == "refused-query"
    engine.dispose()


def test_an_index_without_a_name_is_no_column() -> None:
    def frame(**columns: list[int]) -> Frame:
        told = {"index_columns": [*columns][1:], "columns": []}  # as pandas writes it, of all rows but some
        return Frame(pa.table(columns).replace_schema_metadata({"pandas": json.dumps(told)}))

    assert csv_of(frame(a=[5, 6], __index_level_0__=[3, 4])) == b'"a"\n5\n6\n'
    assert csv_of(frame(a=[5, 6], id=[3, 4])) == b'"a","id"\n5,3\n6,4\n'
    assert csv_of(Frame(pa.table({"a": [5], "__index_level_0__": [3]}))) == b'"a","__index_level_0__"\n5,3\n'
    orders, customers = (
        frame(customer=[3, 4, 4], __index_level_0__=[1, 2, 5]),
        frame(id=[3, 4], __index_level_0__=[1, 2]),
    )
    found = subsetd.find_relationships({"orders": orders, "customers": customers}, only_suggested=False)
    assert {(one.from_column, one.to_column) for one in found} == {("customer", "id")}


def test_an_index_that_counts_is_a_column_if_it_has_a_name() -> None:
    def frame(name: str | None, start: int, stop: int) -> Frame:
        counts = {"kind": "range", "name": name, "start": start, "stop": stop, "step": 2}  # as pandas writes it
        told = json.dumps({"index_columns": [counts], "columns": []})
        return Frame(pa.table({"a": [5, 6]}).replace_schema_metadata({"pandas": told}))

    assert csv_of(frame("id", 7, 11)) == b'"a","id"\n5,7\n6,9\n'
    assert csv_of(frame(None, 7, 11)) == b'"a"\n5\n6\n'
    assert csv_of(frame("a", 7, 11)) == b'"a"\n5\n6\n'
    assert csv_of(frame("id", 0, 20)) == b'"a"\n5\n6\n', "rows were taken out since"


@pytest.mark.parametrize(
    "cells",
    [
        pa.array(["x", None, ""]),
        pa.array(["x", None, ""], pa.string_view()),
        pa.array(["x", None, "x"]).dictionary_encode(),
        pa.DictionaryArray.from_arrays(pa.array([0, None, 0]), pa.array(["x"], pa.string_view())),
        pa.array([1, None, 2]),
        pa.array([Decimal("1.50"), None, Decimal("2.00")]),
        pa.array([None, None, None]),
    ],
    ids=["texts", "views", "categories", "categories of views", "numbers", "decimals", "nothing"],
)
def test_a_null_of_the_only_column_is_a_row(cells: pa.Array) -> None:
    """An empty line is none, and shares of rows are of all of them."""
    table = pa.table({"a": cells})
    (column,) = read_query(io.StringIO(csv_of(table).decode(), newline=""), ["a"]).columns
    assert column.to_pylist() == ["" if one is None else str(one) for one in cells.to_pylist()]
    beside = read_query(io.StringIO(csv_of(table.append_column("b", pa.array([1, 2, 3]))).decode(), newline=""), ["a"])
    assert beside.columns[0].to_pylist() == column.to_pylist()


def test_a_column_of_lists_is_refused_by_its_name() -> None:
    with pytest.raises(ValueError, match=r"The column 'tags' has values of the type list.*: leave it out"):
        csv_of(pa.table({"id": [1], "tags": [["a", "b"]]}))


def job(state: str, status: int = 200, **more: Any) -> httpx.Response:
    told = {"search_id": 3, "tracking_id": 3, "refresh_id": 3, "message": None, "fault": None, "answer": None}
    return httpx.Response(status, json={**told, "state": state, **more})


def test_jobs_are_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    waits: list[float] = []
    monkeypatch.setattr(_sync_client.time, "sleep", waits.append)
    transport = Replies(job("queued", 202), job("running"), job("done", answer={"tables": []}))
    assert Client(transport=transport).joinable(b"a\n1\n", corpus="lake", key=["a"]) == {"tables": []}
    assert [one.url.path for one in transport.asked] == ["/api/v1/joinable", *["/api/v1/joinable/3"] * 2]
    landed = Replies(job("queued", 202), job("landed", generation=4))
    assert Client(transport=landed).refresh_corpus("a/b", full=True)["generation"] == 4
    assert [one.url.raw_path for one in landed.asked][1] == b"/api/v1/corpora/a%2Fb/refreshes/3"
    tracked = Replies(job("queued", 202), job("tracked"))
    assert Client(transport=tracked).track_key("demo", "orders", ["id"])["state"] == "tracked"
    assert tracked.asked[1].url.path == "/api/v1/keys/trackings/3"
    assert waits == [0.2, 0.4, 0.2, 0.2]


@pytest.mark.parametrize(("state", "why"), [("failed", "no disk"), ("cancelled", None)])
def test_jobs_that_fail_say_why(monkeypatch: pytest.MonkeyPatch, state: str, why: str | None) -> None:
    monkeypatch.setattr(_sync_client.time, "sleep", lambda _: None)
    with pytest.raises(JobFailed, match=why or "cancelled"):
        Client(transport=Replies(job("queued", 202), job(state, fault=why))).refresh_corpus("lake")


def test_watches_and_silences_are_what_was_said(client: Client) -> None:
    rule = {"kind": "coefficient", "dependent": ORDERS, "referenced": CUSTOMERS, "bound": 0.9}
    channel = {"kind": "webhook", "url": "https://alerts.example/at", "secret": "of both sides"}
    with pytest.raises(Problem, match="referenced"):
        client.add_watch("orders", {"kind": "coefficient", "dependent": ORDERS, "bound": 0.9}, channel, by="Ada")
    watch = client.add_watch("orders", rule, channel, by="Ada", debounce_seconds=5)
    assert client.show_watch(watch["watch_id"]) == watch == client.watches().list()[-1]
    assert (watch["created_by"], watch["debounce_seconds"]) == ("Ada", 5)
    assert rule.items() <= watch["rule"].items()
    alert = client.test_watch(watch["watch_id"])
    assert client.alerts(watch_id=watch["watch_id"]).list() == [alert]
    other = client.replace_watch(watch["watch_id"], "orders 2", rule, channel, by="Bob", with_values=True)
    assert (other["watch_id"], other["name"], other["with_values"]) == (watch["watch_id"], "orders 2", True)

    until = datetime(2999, 1, 1, tzinfo=UTC)
    silence = client.add_silence(until, "moving", by="Ada", watch_id=watch["watch_id"])
    assert datetime.fromisoformat(silence["until"]) == until
    assert client.silences() == [silence]
    assert silence["is_active"]
    client.end_silence(silence["silence_id"])
    assert [one["is_active"] for one in client.silences()] == [False]
    load = client.announce_load("demo", "orders", by="Ada", until=datetime.now(UTC) + timedelta(hours=1))
    assert (client.loads(), load["schema"], load["table"]) == ([load], "demo", "orders")
    client.end_load(load["load_id"])
    assert [one["is_active"] for one in client.loads()] == [False]
    client.remove_watch(watch["watch_id"])
    with pytest.raises(Problem, match="404"):
        client.show_watch(watch["watch_id"])


def test_a_key_is_dropped_by_its_id() -> None:
    transport = Replies(httpx.Response(204))
    Client(transport=transport).drop_key(17)
    assert (transport.asked[0].method, transport.asked[0].url.path) == ("DELETE", "/api/v1/keys/17")


def test_the_client_that_does_not_block_gives_the_same(address: str) -> None:
    async def ask() -> tuple[Any, ...]:
        async with AsyncClient(address) as client:
            rows = await client.uinds().list()
            table = await client.uinds().arrow()
            changes = [one async for one in client.changes(since=0)]
            return await client.state(), rows, table, changes, await client.pair(ORDERS, CUSTOMERS)

    with Client(address) as client:
        rows = client.uinds()
        waited = client.state(), rows.list(), rows.arrow(), client.changes(since=0).list()
        assert asyncio.run(ask()) == (*waited, client.pair(ORDERS, CUSTOMERS))


def test_the_client_that_waits_is_made_of_the_other() -> None:
    made = make_client.laid_out(make_client.waiting_client())
    assert Path(_sync_client.__file__).read_text() == made, "call `make client`"
    assert inspect.getmembers(Client).__len__() == inspect.getmembers(AsyncClient).__len__()


def test_shapes_promise_nothing_that_is_not_answered(client: Client) -> None:
    """A service may answer more than a client knows; what the client knows has to be there."""
    known = client.get("/api/v1/openapi.json")["components"]["schemas"]
    for name, shape in inspect.getmembers(shapes, is_typeddict):
        assert shape.__annotations__.keys() <= known[name]["properties"].keys(), f"{name}: call `make client`"


def test_importing_the_client_loads_nothing_of_the_service() -> None:
    script = "import sys, subsetd.client; print([one for one in sys.modules if one.partition('.')[0] == 'service'])"
    done = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True)
    assert done.stdout == "[]\n"


def test_without_httpx_it_says_what_to_install() -> None:
    script = "import sys; sys.modules['httpx'] = None; import subsetd; subsetd.Client"
    done = subprocess.run([sys.executable, "-c", script], check=False, capture_output=True, text=True)
    assert "subsetd.client needs httpx: pip install 'subsetd[client]'" in done.stderr


def test_relationships_are_found_among_frames() -> None:
    customers = pa.table({"id": list(range(20)), "name": [f"customer {one}" for one in range(20)]})
    orders = pa.table({"id": list(range(100, 160)), "customer_id": [one * 7 % 20 for one in range(60)]})
    found = subsetd.find_relationships({"customers": Frame(customers), "orders": orders})
    assert [one[1:5] for one in found] == [("orders", "customer_id", "customers", "id")]
    assert found == subsetd.find_relationships({"customers": customers.to_pylist(), "orders": orders.to_pylist()})
