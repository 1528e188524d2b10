"""Pages that are walked while others commit: nothing comes twice, and nothing is left out that stood all the while."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from random import Random
from typing import Any, NamedTuple

import httpx
import pytest

from service.core.model import AttributeName
from service.store.database import make_engine
from tests import states
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
            found.append(value)
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
        self._url, self._client, self._chance = url, client, chance
        self._state = HandMadeState(url, self._columns())
        self.lake = GivenCorpus(url)
        self.lake.refresh({(0, 1, 3)}, [GivenTable(0, "a.csv", 0, ["x", "y"])])

    def close(self) -> None:
        self._state.close()

    def ask(self, listed: Listed, limit: int, cursor: str | None = None) -> tuple[list[Any], str | None]:
        """Ask for a page; give the identities of its items, and the next cursor."""
        asked = {**listed.asked, "limit": limit, **({} if cursor is None else {"cursor": cursor})}
        answer = self._client.get(f"/api/v1/{listed.path}", params=asked)
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

    def _contracts(self) -> None:
        known = self._client.get("/api/v1/contracts", params={"limit": 1000}).json()["items"]
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
        if self._client.delete(f"/api/v1/corpora/{name}").status_code == 404:
            self._send("POST", "corpora", {"name": name, "location": "/data", "kind": "csv"})

    def _refreshes(self) -> None:
        waiting = self.lake.queue()
        self._send("POST", f"corpora/lake/refreshes/{waiting}/cancel", {})

    def _sketches(self) -> None:
        sketch = self._sketch()
        name = f"sketches/sketch:{self._chance.randint(0, 9)}"
        if self._client.delete(f"/api/v1/{name}").status_code == 404:
            headers = {"Content-Type": "application/octet-stream"}
            self._client.put(f"/api/v1/{name}", content=sketch, headers=headers).raise_for_status()

    def _come_and_go(self, table: str, insert: str) -> None:
        number = self._chance.randint(0, 10**6)
        states.execute(self._url, insert.format(number))
        if self._chance.random() < 0.5:
            states.execute(self._url, f"delete from {table} where ctid in (select ctid from {table} limit 1)")

    def _pair(self) -> dict[str, Any]:
        dependent, referenced = self._chance.sample(NAMES, 2)
        return {"dependent": [list(dependent)], "referenced": [list(referenced)]}

    def _send(self, method: str, path: str, body: dict[str, Any] | None = None) -> None:
        answer = self._client.request(method, f"/api/v1/{path}", json=body)
        assert answer.is_success or answer.status_code == 409, answer.text

    @staticmethod
    def _sketch() -> bytes:
        from service.core.sketches.column import ColumnSketch

        return ColumnSketch(13, 1536, 512).to_bytes()


@pytest.fixture
def world(database_url: str, request: pytest.FixtureRequest) -> Iterator[World]:
    engine = make_engine(database_url, "test-pages")
    with serving(app_over(engine)) as address, httpx.Client(base_url=address, timeout=60) as client:
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
            stood = [set(world.ask(listed, 1000)[0])]
            if len(stood[0]) > limit:
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
                stood.append(set(world.ask(listed, 1000)[0]))
        assert len(seen) == len(set(seen)), "an item came twice"
        assert set.intersection(*stood) <= set(seen), "an item was left out"
        assert set(seen) <= set.union(*stood), "an item came that never was there"
    assert walks, "a single page proves nothing"


@pytest.mark.parametrize("path", ["inds", "tables", "tables/t1.csv/columns"])
def test_pages_of_a_corpus_stay_in_their_generation(world: World, path: str) -> None:
    tables = [GivenTable(number, f"t{number}.csv", 2 * number, ["a", "b"]) for number in range(1, 6)]
    world.lake.refresh({(a, b, 2) for a in range(2, 6) for b in range(6, 9)}, tables)
    listed = Listed(f"corpora/lake/{path}", str)
    whole, _ = world.ask(listed, 1000)
    assert len(whole) > 1
    seen, cursor = world.ask(listed, 1)
    world.lake.refresh({(2, 3, 1)}, [GivenTable(9, "later.csv", 40, ["a"])], gone=[1, 2])
    while cursor is not None:
        items, cursor = world.ask(listed, 1, cursor)
        seen += items
    assert seen == whole
