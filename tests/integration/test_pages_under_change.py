"""Pages that are walked while others commit: nothing comes twice, nothing that stood is left out, and all in order."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import permutations
from random import Random
from typing import Any, NamedTuple

import httpx
import pytest

from service.core.model import AttributeName
from service.store.coefficient_samples import CoefficientLooks
from service.store.database import make_engine
from service.store.foreign_key_refreshes import PostgresForeignKeys
from service.usecases.corpora import CorpusFault
from service.usecases.foreign_key_answers import ForeignKeyFinder
from service.usecases.foreign_keys import Keys, Question
from tests import states
from tests.asking import http_client
from tests.corpora import GivenCorpus, GivenTable
from tests.hand_made_state import HandMadeState
from tests.integration.serving import app_over, serving

Identity = Callable[[dict[str, Any]], Any]

NAMES = [AttributeName("s", f"t{number}", "c") for number in range(6)]
LETTERS = ["abcdef", "ghijkl", "mnopqr"]
"""What every third column is made of, so that the graph has components."""

WALKS = 3
"""Of each list, with pages of 1 to 3 items."""

CHANGES = 5
"""Most in a walk: what grows faster than it is walked through has no end."""


class Listed(NamedTuple):
    """Describe a list: its path, what is asked, which fields make an item the same, and what changes it."""

    path: str
    identity: Identity
    change: str = "commit"
    asked: dict[str, Any] = {}  # noqa: RUF012  nobody changes it


def by(*fields: str) -> Identity:
    """Take these fields, `outer.inner` for inner ones."""

    def identity(item: dict[str, Any]) -> Any:
        found = []
        for field in fields:
            value: Any = item
            for part in field.split("."):
                value = value[part]
            found.append(str(value) if isinstance(value, list) else value)
        return tuple(found)

    return identity


PAIR = "dependent.attribute_id", "referenced.attribute_id"
LISTS = {
    "attributes": Listed("attributes", by("attribute_id")),
    "clusters": Listed("clusters", by("cluster_id")),
    "uinds": Listed("uinds", by(*PAIR)),
    "uinds as of a version": Listed("uinds", by(*PAIR), asked={"as_of": 1}),
    # What is listed by a number that changes is another item when it has another number.
    "missing": Listed("uinds/id:0/id:3/missing", by("value", "cluster")),
    "changes": Listed("changes", by("version", *PAIR)),
    "newest changes": Listed("changes", by("version", *PAIR), asked={"newest_first": True}),
    "coefficients": Listed("coefficients", by(*PAIR, "coefficient"), asked={"min_coefficient": 0}),
    "keys": Listed("keys", by("attribute.attribute_id"), asked={"nearly": 1}),
    "components of the graph": Listed("graph/components", by("component")),
    "tables of the graph": Listed("graph/tables", by("name", "neighbours", "inds")),
    "dead letters": Listed("dead_letters", by("dead_letter_id"), "letters"),
    "audits": Listed("audits", by("audit_id"), "audits"),
    "candidates": Listed("foreign-keys", by("dependent", "referenced"), "decided"),
    "declared": Listed("foreign-keys/declared", by("dependent", "referenced"), "declared"),
    "history": Listed("uinds/id:0/id:3/history", by("since_version", "holds"), "history"),
    "watches": Listed("watches", by("watch_id"), "watches"),
    "alerts": Listed("watches/alerts", by("alert_id"), "alerts"),
    "alerts that wait": Listed("watches/alerts", by("alert_id"), "alerts", {"state": "pending"}),
    "keys of the service": Listed("api-keys", by("key_id"), "api_keys"),
    "writes": Listed("write-log", by("write_id"), "api_keys"),
    "faults of a refresh": Listed("corpora/lake/refreshes/1/faults", by("path"), "refreshes"),
    "decisions": Listed("foreign-keys/decisions", by("decision_id"), "decisions"),
    "contracts": Listed("contracts", by("contract_id"), "contracts"),
    "transitions of contracts": Listed("contracts/transitions", by("version", "contract_id"), "turns"),
    "corpora": Listed("corpora", by("name"), "corpora"),
    "refreshes": Listed("corpora/lake/refreshes", by("refresh_id"), "refreshes"),
    "sketches": Listed("sketches", by("column.name"), "sketches"),
}


class World:
    """Be a served state that changes by chance."""

    def __init__(self, url: str, client: httpx.Client, chance: Random) -> None:
        self._url, self.client, self._chance = url, client, chance
        self._state = HandMadeState(url, self._columns())
        engine = make_engine(url, "test-pages")
        self._looks = CoefficientLooks(engine, 200)
        self._undeclared = list(permutations(range(len(NAMES)), 2))
        chance.shuffle(self._undeclared)
        self._send("POST", "contracts", {"dependent": [list(NAMES[0])], "referenced": [list(NAMES[3])]})
        ForeignKeyFinder(PostgresForeignKeys(engine)).refresh(Question(theta=0.01, keys=Keys.INFERRED))
        self.lake = GivenCorpus(url)
        faults = [CorpusFault(f"{number}.csv", "torn") for number in range(7)]
        self.lake.refresh({(0, 1, 3)}, [GivenTable(0, "a.csv", 0, ["x", "y"])], faults=faults)

    def close(self) -> None:
        self._state.close()

    def ask(self, listed: Listed, limit: int, cursor: str | None = None) -> tuple[list[Any], str | None]:
        """Ask for a page; give the identities of its items, and the next cursor."""
        asked = {**listed.asked, "limit": limit, **({} if cursor is None else {"cursor": cursor})}
        answer = self.client.get(f"/api/v1/{listed.path}", params=asked)
        assert answer.status_code == 200, answer.text
        page = answer.json()
        clusters = dict(states.query(self._url, "select value, cluster_id from gen_rec"))
        told = [{"cluster": clusters.get(item.get("value")), **item} for item in page["items"]]
        return [listed.identity(item) for item in told], page["next_cursor"]

    def change(self, kind: str) -> None:
        """Let something come, go or be otherwise."""
        getattr(self, f"_{kind}")()

    def _columns(self) -> dict[AttributeName, list[str | None]]:
        return {
            name: list(self._chance.sample(LETTERS[number % 3], self._chance.randint(1, 6)))
            for number, name in enumerate(NAMES)
        }

    def _commit(self) -> None:
        self._state.commit(self._columns())

    def _letters(self) -> None:
        self._come_and_go(
            "dead_letter",
            "insert into dead_letter (feed, topic, partition, record_offset, error_class, message, record, version)"
            " values ('f', 't', 0, {}, 'RecordError', 'bad', 'x', 1)",
        )

    def _audits(self) -> None:
        # Of a report, what a page shows.
        states.execute(
            self._url,
            "insert into audit (version, started_at, attributes, value_count, inds, not_served, not_holding, report)"
            """ values (1, now(), 2, 5, 1, 0, 0, '{"examples": {"not_served": [], "not_holding": []}, "filters": {},"""
            """ "inds_left": 1, "sketch_only": 0, "algorithm": "signatures", "seconds": {}}')""",
        )

    def _decisions(self) -> None:
        self._send("POST", "foreign-keys/decisions", self._pair() | {"verdict": "pin"})

    def _decided(self) -> None:
        self._commit()
        self._decisions()

    def _declared(self) -> None:
        if self._undeclared:
            dependent, referenced = self._undeclared.pop()
            self._come_and_go(
                "declared_reference",
                "insert into declared_reference (source_id, dependent_ids, referenced_ids) select source_id,"
                f" array[{dependent}], array[{referenced}] from source where name = 'hand'",
            )

    def _history(self) -> None:
        self._commit()
        self._looks.look()

    def _watches(self) -> None:
        known = self.client.get("/api/v1/watches", params={"limit": 1000}).json()["items"]
        if known and self._chance.random() < 0.3:
            self._send("DELETE", f"watches/{self._chance.choice(known)['watch_id']}")
        else:
            channel = {"kind": "webhook", "url": "https://alerts.example/x"}
            watch = {"name": f"w{self._chance.random()}", "rule": {"kind": "dead-letters"}, "channel": channel}
            self._send("POST", "watches", watch)

    def _alerts(self) -> None:
        known = self.client.get("/api/v1/watches").json()["items"]
        if not known:
            self._watches()
        else:
            self._send("POST", f"watches/{known[0]['watch_id']}/test")
        if self._chance.random() < 0.5:
            of_one = "alert_id = (select alert_id from watch_alert order by random() limit 1)"
            taken = f"update watch_alert set state = 'delivered', ended_at = now() where {of_one}"
            states.execute(self._url, self._chance.choice([taken, f"delete from watch_alert where {of_one}"]))

    def _api_keys(self) -> None:
        name = f"k{self._chance.randint(0, 3)}"
        if self.client.delete(f"/api/v1/api-keys/{name}").status_code == 404:
            self._send("POST", "api-keys", {"name": name, "scope": "read"})

    def _contracts(self) -> None:
        known = self.client.get("/api/v1/contracts", params={"limit": 1000}).json()["items"]
        if known and self._chance.random() < 0.5:
            self._send("DELETE", f"contracts/{self._chance.choice(known)['contract_id']}")
        else:
            self._send("POST", "contracts", self._pair())

    def _turns(self) -> None:
        if self._chance.random() < 0.3:
            self._contracts()
        self._commit()
        states.execute(
            self._url,
            "insert into contract_transition (version, contract_id, kind, cause_count)"
            f" select {self._state.version}, contract_id, 'violated', 1 from contract",
        )

    def _corpora(self) -> None:
        name = f"c{self._chance.randint(0, 9)}"
        if self.client.delete(f"/api/v1/corpora/{name}").status_code == 404:
            self._send("POST", "corpora", {"name": name, "location": "/data", "kind": "csv"})

    def _refreshes(self) -> None:
        waiting = self.lake.queue()
        self._send("POST", f"corpora/lake/refreshes/{waiting}/cancel", {})

    def _sketches(self) -> None:
        sketch = self._sketch()
        name = f"sketches/sketch:{self._chance.randint(0, 9)}"
        if self.client.delete(f"/api/v1/{name}").status_code == 404:
            headers = {"Content-Type": "application/octet-stream"}
            self.client.put(f"/api/v1/{name}", content=sketch, headers=headers).raise_for_status()

    def _come_and_go(self, table: str, insert: str) -> None:
        number = self._chance.randint(0, 10**6)
        states.execute(self._url, insert.format(number))
        if self._chance.random() < 0.5:
            states.execute(self._url, f"delete from {table} where ctid in (select ctid from {table} limit 1)")

    def _pair(self) -> dict[str, Any]:
        dependent, referenced = self._chance.sample(NAMES, 2)
        return {"dependent": [list(dependent)], "referenced": [list(referenced)]}

    def _send(self, method: str, path: str, body: dict[str, Any] | None = None) -> None:
        answer = self.client.request(method, f"/api/v1/{path}", json=body)
        assert answer.is_success or answer.status_code == 409, answer.text

    @staticmethod
    def _sketch() -> bytes:
        from service.core.sketches.column import ColumnSketch

        return ColumnSketch(13, 1536, 512).to_bytes()


@pytest.fixture
def world(database_url: str, request: pytest.FixtureRequest) -> Iterator[World]:
    engine = make_engine(database_url, "test-pages")
    client = http_client(timeout=60, headers={"Authorization": "Bearer key"})
    with serving(app_over(engine, api_key="key")) as address, client:
        client.base_url = httpx.URL(address)
        world = World(database_url, client, Random(request.node.name))
        yield world
        world.close()
    engine.dispose()


@pytest.mark.parametrize("name", LISTS)
def test_nothing_comes_twice_and_nothing_that_stood_is_left_out(world: World, name: str) -> None:
    listed, chance = LISTS[name], Random(name)
    walks = 0
    for limit in range(1, WALKS + 1):
        for _ in range(30):
            world.change(listed.change)
            whole = world.ask(listed, 1000)[0]
            stood = [set(whole)]
            if len(whole) > limit:
                walks += 1
                break
        seen, cursor = [], None
        while True:
            items, cursor = world.ask(listed, limit, cursor)
            assert len(items) <= limit
            seen += items
            if cursor is None:
                break
            for _ in range(min(chance.randint(0, 2), 1 + CHANGES - len(stood))):
                world.change(listed.change)
                whole = world.ask(listed, 1000)[0]
                stood.append(set(whole))
        assert len(seen) == len(set(seen)), "an item came twice"
        always = set.intersection(*stood)
        assert always <= set(seen), "an item was left out"
        assert [one for one in seen if one in always] == [one for one in whole if one in always], "they come in order"
        assert set(seen) <= set.union(*stood), "an item came that never was there"
    assert walks, "a single page proves nothing"


CORPUS_ROWS = {(a, b, 2) for a in range(2, 6) for b in range(6, 9)}
CORPUS_TABLES = [GivenTable(number, f"t{number}.csv", 2 * number, ["a", "b"]) for number in range(1, 6)]
CORPUS_PATHS = ["inds", "tables", "tables/t1.csv/columns", "graph/components", "graph/tables"]


@pytest.mark.parametrize("path", CORPUS_PATHS)
def test_pages_of_a_corpus_stay_in_their_generation(world: World, path: str) -> None:
    world.lake.refresh({(0, 1, 3)} | CORPUS_ROWS, CORPUS_TABLES)
    listed = Listed(f"corpora/lake/{path}", str)
    whole, _ = world.ask(listed, 1000)
    assert len(whole) > 1
    seen, cursor = world.ask(listed, 1)
    world.lake.refresh({(2, 3, 1)}, [GivenTable(9, "later.csv", 40, ["a"])], gone=[1, 2])
    while cursor is not None:
        items, cursor = world.ask(listed, 1, cursor)
        seen += items
    assert seen == whole


def test_pages_of_what_changed_end_where_the_generation_before_is_gone(world: World) -> None:
    world.lake.refresh({(0, 1, 3)} | CORPUS_ROWS, CORPUS_TABLES)
    listed = Listed("corpora/lake/changes", by("kind", "dependent.table", "dependent.position", "referenced.position"))
    seen, cursor = world.ask(listed, 5)
    waiting = world.lake.queue()
    while cursor is not None:
        before = cursor
        items, cursor = world.ask(listed, 5, cursor)
        seen += items
    assert seen == world.ask(listed, 1000)[0]
    assert len(seen) == len(CORPUS_ROWS), "while the next refresh is at work its changes are read to their end"
    states.execute(world.lake.url, f"delete from corpus_refresh where refresh_id = {waiting}")
    world.lake.refresh({(2, 3, 1)})
    gone = world.client.get("/api/v1/corpora/lake/changes", params={"limit": 5, "cursor": before})
    assert (gone.status_code, "The generation before 2" in gone.json()["detail"]) == (404, True)


@pytest.mark.parametrize("path", [*CORPUS_PATHS, "changes"])
def test_pages_of_a_corpus_do_not_go_on_in_another_that_has_its_name_by_now(world: World, path: str) -> None:
    refreshes = (
        ({(0, 1, 3)}, [GivenTable(0, "a.csv", 0, ["x", "y"])]),
        ({(0, 1, 3)} | CORPUS_ROWS, CORPUS_TABLES),
    )
    world.lake.refresh(*refreshes[1])
    _, cursor = world.ask(Listed(f"corpora/lake/{path}", str), 1)
    world.lake.corpora.remove("lake")
    another = GivenCorpus(world.lake.url)
    for refresh in refreshes:
        another.refresh(*refresh)
        gone = world.client.get(f"/api/v1/corpora/lake/{path}", params={"limit": 1, "cursor": cursor})
        assert (gone.status_code, "another has its name" in gone.text) == (404, True)
