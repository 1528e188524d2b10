"""The routes of foreign keys: found when asked, kept until asked anew, decided, exported; contracts beside them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from typing import Any

import httpx
import pytest

from service.core.foreign_keys.ranking import Method
from service.store.database import make_engine
from service.store.foreign_key_refreshes import PostgresForeignKeys
from service.store.reader import PostgresSnapshot
from service.store.schema_changes import rename
from service.store.writer import PostgresWriter
from service.usecases import schema_changes
from service.usecases.foreign_key_answers import ForeignKeyFinder
from service.usecases.foreign_key_export import KeyFormat
from service.usecases.foreign_keys import Question
from tests import states
from tests.asking import http_client
from tests.integration.serving import app_over, serving
from tests.states import Tables
from tests.waiting import BOUND_SECONDS

KEYS = "/api/v1/foreign-keys"
CONTRACTS = "/api/v1/contracts"
SIDES = {"dependent": [["s", "orders", "customer_id"]], "referenced": [["s", "customers", "id"]]}
BY_NAME = {"dependent": "s.orders.customer_id", "referenced": "s.customers.id", "method": "names"}


@pytest.fixture
def client(database_url: str) -> Iterator[httpx.Client]:
    shop = Tables({"orders": ["customer_id", "note"], "customers": ["id", "name"]})
    shop.add("customers", *([str(number), f"customer {number}"] for number in range(30)))
    shop.add("orders", *([str(number % 20), "a note"] for number in range(60)))
    with asking(database_url, shop) as client:
        yield client


@contextmanager
def asking(database_url: str, tables: Tables) -> Iterator[httpx.Client]:
    """Serve the state of tables."""
    states.store(database_url, tables)
    engine = make_engine(database_url, "test-foreign-keys")
    with serving(app_over(engine)) as address, http_client(base_url=address, timeout=BOUND_SECONDS) as client:
        yield client
    engine.dispose()


def found(client: httpx.Client, path: str, **parameters: Any) -> Any:
    answer = client.get(path, params=parameters)
    assert answer.status_code == 200, answer.text
    return answer.json()


def test_candidates_are_found_kept_explained_decided_and_exported(client: httpx.Client) -> None:
    missing = client.get(KEYS, params={"method": "names"})
    assert (missing.status_code, missing.json()["type"]) == (404, "/docs#unknown-foreign-key")
    refresh = client.post(f"{KEYS}/refreshes", json={"method": "names"})
    assert refresh.status_code == 201
    assert {name: refresh.json()[name] for name in ("method", "version", "suggested")} == {
        "method": "names",
        "version": 1,
        "suggested": 1,
    }
    listed = found(client, KEYS, method="names", suggested=True)
    assert listed["version"] == 1
    (best,) = listed["items"]
    assert {name: best[name] for name in (*SIDES, "coefficient", "missing_count", "cardinality", "verdict")} == {
        **SIDES,
        "coefficient": 1.0,
        "missing_count": 0,
        "cardinality": "1:n",
        "verdict": None,
    }
    assert found(client, KEYS, method="names", table="customers")["items"] == []
    evidence = found(client, f"{KEYS}/evidence", **BY_NAME)
    assert evidence["evidence"]["names"]["full"] == 1.0
    assert sum(evidence["evidence"]["distribution"]["referenced"]) == pytest.approx(1)
    picture = client.get(f"{KEYS}/evidence.svg", params=BY_NAME)
    assert (picture.status_code, picture.headers["Content-Type"]) == (200, "image/svg+xml")
    assert "Distributions of s.orders.customer_id → s.customers.id" in picture.text
    assert "<style>" in picture.text
    assert "style-src 'unsafe-inline'" in picture.headers["Content-Security-Policy"]
    again = client.get(f"{KEYS}/evidence.svg", params=BY_NAME, headers={"If-None-Match": picture.headers["ETag"]})
    assert again.status_code == 304
    assert again.headers["Content-Security-Policy"] == picture.headers["Content-Security-Policy"]
    other = client.get(f"{KEYS}/evidence", params={**BY_NAME, "dependent": "s.orders.note"})
    assert (other.status_code, other.json()["type"]) == (404, "/docs#unknown-foreign-key")

    sql = 'ALTER TABLE "s"."orders" ADD FOREIGN KEY ("customer_id") REFERENCES "s"."customers" ("id") NOT VALID;\n'
    assert client.get(f"{KEYS}/export").text == ""
    assert client.get(f"{KEYS}/export", params={"method": "names"}).text == sql
    tag = client.get(KEYS, params={"method": "names"}).headers["ETag"]
    assert client.get(KEYS, params={"method": "names"}, headers={"If-None-Match": tag}).status_code == 304
    assert client.post(f"{KEYS}/decisions", json={**SIDES, "verdict": "reject"}).status_code == 201
    listed = client.get(KEYS, params={"method": "names", "suggested": True}, headers={"If-None-Match": tag})
    assert [one["verdict"] for one in listed.json()["items"]] == ["reject"]
    assert client.get(f"{KEYS}/export", params={"method": "names"}).text == ""
    assert client.post(f"{KEYS}/decisions", json={**SIDES, "verdict": "accept"}).status_code == 201
    assert client.get(f"{KEYS}/export").text == sql
    for format_ in KeyFormat:
        file = client.get(f"{KEYS}/export", params={"format": format_})
        assert (file.status_code, "customer_id" in file.text) == (200, True), format_
        assert file.headers["Content-Disposition"] == f'attachment; filename="foreign-keys.{format_}"'
    (accepted,) = found(client, f"{KEYS}/export", format="json")
    (suggested,) = found(client, f"{KEYS}/export", format="json", method="names")
    assert accepted.items() >= {**SIDES, "score": None, "suggested": False, "verdict": "accept"}.items()
    assert suggested.items() >= {**SIDES, "score": best["score"], "suggested": True, "verdict": "accept"}.items()
    assert suggested["evidence"] == evidence["evidence"]
    assert [one["is_current"] for one in found(client, f"{KEYS}/decisions")["items"]] == [True, False]
    assert [one["decision_id"] for one in found(client, CONTRACTS)["items"]] == [2]


def test_of_two_who_decide_on_what_both_saw_the_second_is_told(client: httpx.Client) -> None:
    first, second = (
        client.post(f"{KEYS}/decisions", json={**SIDES, "verdict": verdict, "decided_by": by, "seen": "undecided"})
        for verdict, by in (("accept", "Ada"), ("reject", "Bob"))
    )
    assert first.status_code == 201
    assert datetime.fromisoformat(first.json()["decided_at"]).tzinfo is not None
    assert (second.status_code, second.json()["type"]) == (409, "/docs#conflict")
    assert "Ada has decided `accept` meanwhile" in second.json()["detail"]
    assert found(client, f"{KEYS}/decisions")["items"] == [first.json()]
    assert client.post(f"{KEYS}/decisions", json={**SIDES, "verdict": "pin", "seen": "accept"}).status_code == 201
    gone = client.post(f"{KEYS}/decisions", json={**SIDES, "verdict": "accept", "seen": "accept"})
    assert gone.status_code == 409


def test_what_was_rejected_stays_so_under_a_new_name_and_when_its_columns_are_gone(
    client: httpx.Client, database_url: str
) -> None:
    assert client.post(f"{KEYS}/refreshes", json={"method": "names"}).status_code == 201
    assert client.post(f"{KEYS}/decisions", json={**SIDES, "verdict": "reject"}).status_code == 201

    rename(database_url, "s.customers", "s.clients", print)
    (best,) = found(client, KEYS, method="names", suggested=True)["items"]
    assert (best["referenced"], best["verdict"]) == ([["s", "clients", "id"]], "reject")
    renamed = {**BY_NAME, "referenced": "s.clients.id"}
    assert found(client, f"{KEYS}/evidence", **renamed)["verdict"] == "reject"
    assert client.get(f"{KEYS}/export", params={"method": "names"}).text == ""

    schema_changes.drop(PostgresWriter(database_url), "s.clients", force=True)
    assert client.get(f"{KEYS}/export", params={"method": "names"}).text == ""


def test_what_is_suggested_is_exported_by_its_columns_names_of_now_while_there_are_such(
    client: httpx.Client, database_url: str
) -> None:
    assert client.post(f"{KEYS}/refreshes", json={"method": "names"}).status_code == 201
    rename(database_url, "s.customers", "s.clients", print)
    assert client.get(f"{KEYS}/export", params={"method": "names"}).text == (
        'ALTER TABLE "s"."orders" ADD FOREIGN KEY ("customer_id") REFERENCES "s"."clients" ("id") NOT VALID;\n'
    )
    schema_changes.drop(PostgresWriter(database_url), "s.clients", force=True)
    assert client.get(f"{KEYS}/export", params={"method": "names"}).text == ""


def test_foreign_keys_of_several_columns_are_served_as_those_of_one(database_url: str) -> None:
    """Two tables with the same tuples, of which one side is a declared key."""
    shop = Tables(
        {"lines": ["order_id", "line"], "refunds": ["line", "order_id"]},
        tuples={"lines": [("order_id", "line")], "refunds": [("order_id", "line")]},
    )
    shop.add("lines", *([str(i), str(j)] for i in range(10, 30) for j in range(3)))
    shop.add("refunds", *([str(i % 3), str(i % 15 + 10)] for i in range(100)))
    with asking(database_url, shop) as client:
        states.execute(database_url, "insert into tracked_key values (default, 5, 'declared', true, 1)")
        refresh = client.post(f"{KEYS}/refreshes", json={"method": "combined"})
        assert (refresh.status_code, refresh.json()["suggested"]) == (201, 1), refresh.text
        sides = {
            "dependent": [["s", "refunds", "order_id"], ["s", "refunds", "line"]],
            "referenced": [["s", "lines", "order_id"], ["s", "lines", "line"]],
        }
        (best,) = found(client, KEYS, suggested=True)["items"]
        assert {name: best[name] for name in (*SIDES, "coefficient", "missing_count", "cardinality", "verdict")} == {
            **sides,
            "coefficient": 1.0,
            "missing_count": 0,
            "cardinality": "1:n",
            "verdict": None,
        }
        for named in ({"dependent": "s.refunds(order_id, line)", "referenced": "s.lines(order_id, line)"},
                      {"dependent": "id:6", "referenced": "s.lines.(order_id, line)"}):  # fmt: skip
            evidence = found(client, f"{KEYS}/evidence", **named)
            assert evidence["evidence"]["names"]["equal"] is True
            assert evidence["evidence"]["coverage"] == 0.25
        decided = client.post(f"{KEYS}/decisions", json={**sides, "verdict": "accept", "decided_by": "Ada"})
        assert decided.status_code == 201, decided.text
        (contract,) = found(client, CONTRACTS)["items"]
        assert (contract["state"], contract["missing_count"]) == ("held", 0)
        assert client.get(f"{KEYS}/export", params={"format": "sql"}).text == (
            'ALTER TABLE "s"."refunds" ADD FOREIGN KEY ("order_id", "line") '
            'REFERENCES "s"."lines" ("order_id", "line") NOT VALID;\n'
        )


def test_missing_values_are_named_also_of_what_is_not_suggested(database_url: str) -> None:
    shop = Tables({"a": ["x", "y"], "b": ["v", "w"], "c": ["n"]}, tuples={"a": [("x", "y")], "b": [("v", "w")]})
    shop.add("b", *([str(i), str(j)] for i in range(10, 30) for j in range(3)))
    shop.add("c", *([str(i)] for i in range(10, 30)))
    shop.add("a", *([str(i), "1"] for i in range(11, 31)))
    with asking(database_url, shop) as client:
        states.execute(database_url, "insert into tracked_key values (default, 7, 'declared', true, 1)")
        assert client.post(f"{KEYS}/refreshes", json={"method": "names"}).status_code == 201
        for dependent, referenced, value in ("s.a.x", "s.c.n", "30"), ("s.a(x, y)", "s.b(v, w)", '["30","1"]'):
            sides = {"dependent": dependent, "referenced": referenced}
            told = found(client, f"{KEYS}/evidence", method="names", **sides)
            assert (told["suggested"], told["missing_count"]) == (False, 1)
            assert told["evidence"]["inclusion"]["missing_values"] == [value]


def test_the_version_that_missing_values_are_read_in_is_told(database_url: str) -> None:
    """Those that the finding named are of its version, and have no other."""
    shop = Tables({"key": ["id"], "rest": ["id"], "near": ["key_id"]})
    shop.add("key", *([str(i)] for i in range(10, 30)))
    shop.add("rest", *([str(i)] for i in range(10, 30)), ["99"])
    shop.add("near", *([str(i)] for i in range(11, 31)))
    with asking(database_url, shop) as client:
        assert client.post(f"{KEYS}/refreshes", json={"method": "names"}).status_code == 201
        states.execute(
            database_url,
            "insert into state_version (version, generation, kind) select version + 1, generation, 'batch' "
            "from state_version order by version desc limit 1",
        )
        told = {}
        for key in "key", "rest":
            sides = {"dependent": "s.near.key_id", "referenced": f"s.{key}.id"}
            told[key] = found(client, f"{KEYS}/evidence", method="names", **sides)
            assert (told[key]["version"], told[key]["evidence"]["inclusion"]["missing_values"]) == (1, ["30"])
    assert {key: (one["suggested"], one["missing_values_version"]) for key, one in told.items()} == {
        "key": (True, None),
        "rest": (False, 2),
    }


def test_each_reason_that_speaks_against_a_candidate_is_told(database_url: str) -> None:
    ids = [[str(number)] for number in range(1, 31)]
    shop = Tables(
        {"customers": ["id"], "people": ["id"], "tenant": ["id"], "gone": ["id"], "orders": ["customer_id", "x"]}
    )
    for table in "customers", "people", "tenant", "gone":
        shop.add(table, *ids)
    shop.add("people", ["31"]).add("orders", *([str(number % 20 + 1), str(number % 2 + 1)] for number in range(60)))
    with asking(database_url, shop) as client:
        states.execute(
            database_url,
            "update attribute set schema_name = 't', table_name = 'customers' where table_name = 'tenant';"
            "update attribute set stale_version = 1 where table_name = 'gone';"
            "update attribute set data_type = 'bigint' where column_name = 'customer_id';"
            "update attribute set data_type = 'integer' where column_name <> 'customer_id'",
        )
        assert client.post(f"{KEYS}/refreshes", json={}).status_code == 201
        against = {
            " → ".join(".".join(one[side][0]) for side in SIDES): one["against"] for one in found(client, KEYS)["items"]
        }
    counts = "the key counts from 1 to 30: whole numbers that stay below are all in it"
    kind = "it is of type bigint, the key of integer"
    assert against["s.orders.customer_id → s.customers.id"] == [counts, kind]
    assert against["s.orders.customer_id → t.customers.id"] == [
        counts,
        kind,
        "s.orders.customer_id refers to s.customers.id, which is at odds with it",
    ]
    *_, rival = against["s.orders.customer_id → s.people.id"]
    assert rival.startswith("s.customers.id scores 0.")
    assert "it has 2 distinct values, as a flag has" in against["s.orders.x → s.customers.id"]
    assert against["s.people.id → s.gone.id"][0] == "1 of 31 values are missing"
    assert against["s.people.id → s.gone.id"][-1] == "s.gone.id is not kept current since version 1"
    assert against["t.customers.id → s.customers.id"][-1] == "the same column of the same table in another schema"


def test_declared_foreign_keys_say_whether_they_hold(client: httpx.Client, database_url: str) -> None:
    """Those of one column, forth and back, and of two whose tuples are not followed; later one is stale."""
    states.execute(
        database_url,
        "insert into declared_reference (source_id, dependent_ids, referenced_ids) "
        "values (1, '{1}', '{3}'), (1, '{3}', '{1}'), (1, '{1,2}', '{3,4}')",
    )

    def told() -> list[tuple[Any, ...]]:
        first = found(client, f"{KEYS}/declared", limit=2)
        rest = found(client, f"{KEYS}/declared", cursor=first["next_cursor"])
        assert rest["next_cursor"] is None
        listed = [*first["items"], *rest["items"]]
        return [(one["dependent"], one["referenced"], one["source"], one["holds"]) for one in listed]

    note, name = ["s", "orders", "note"], ["s", "customers", "name"]
    forth, back = SIDES.values()
    both = [*forth, note], [*back, name]
    assert told() == [(forth, back, "s", True), (back, forth, "s", False), (*both, "s", None)]
    states.execute(database_url, "update attribute set stale_version = 1 where attribute_id = 3")
    assert [one[3] for one in told()] == [None, None, None]


def test_a_finding_takes_its_grid_and_estimator_as_the_command_does(client: httpx.Client) -> None:
    for cells, estimator, how in ((256, None, "exact"), (4, "bottom-k", "bottom-k")):
        asked = {"method": "names", "cells": cells, "estimator": estimator}
        assert client.post(f"{KEYS}/refreshes", json=asked).status_code == 201
        evidence = found(client, f"{KEYS}/evidence", **BY_NAME)["evidence"]
        assert evidence["inclusion"]["method"] == how
        assert (evidence["distribution"]["error"] > 1 / 5) == (cells == 4)
    refused = client.post(f"{KEYS}/refreshes", json={"cells": 1})
    assert (refused.status_code, "cells" in refused.text) == (422, True)


def test_pages_go_on_where_they_ended_and_end_with_a_refresh(database_url: str) -> None:
    ids = [[str(number)] for number in range(9)]
    tables = Tables({"orders": ["id"], "customers": ["id"]}).add("orders", *ids).add("customers", *ids)
    with asking(database_url, tables) as client:
        first = client.post(f"{KEYS}/refreshes", json={"method": "names"}).json()
        everything = found(client, KEYS, method="names")["items"]
        assert len(everything) == first["candidates"] == 2
        page = found(client, KEYS, method="names", limit=1)
        assert page["items"] == everything[:1]
        behind = {"method": "names", "cursor": page["next_cursor"]}
        assert found(client, KEYS, **behind)["items"] == everything[1:]
        second = client.post(
            f"{KEYS}/refreshes", json={"method": "names", "min_coefficient": 0.5, "keys": "inferred"}
        ).json()
        assert second["refresh_id"] > first["refresh_id"]
        (served,) = found(client, f"{KEYS}/refreshes")["items"]
        assert served["question"] == {
            "min_coefficient": 0.5, "keys": "inferred", "cells": 256, "tuple_cells": 16, "estimator": None
        }  # fmt: skip
        gone = client.get(KEYS, params=behind)
        assert (gone.status_code, gone.json()["type"]) == (410, "/docs#finding-gone")
        assert "begin at the first page again" in gone.json()["detail"]
        assert found(client, KEYS, method="names")["refresh_id"] == second["refresh_id"]


def test_a_contract_is_added_shown_followed_and_removed(client: httpx.Client) -> None:
    made = client.post(CONTRACTS, json={**SIDES, "least_coefficient": 0.07, "created_by": "Ada"})
    assert (made.status_code, made.headers["Location"]) == (201, f"{CONTRACTS}/1")
    assert made.json() == found(client, f"{CONTRACTS}/1")
    assert {name: made.json()[name] for name in ("state", "least_coefficient", "overlap", "distinct_count")} == {
        "state": "held",
        "least_coefficient": 0.07,
        "overlap": 20,
        "distinct_count": 20,
    }
    backwards = {"dependent": [["s", "customers", "id"]], "referenced": [["s", "orders", "customer_id"]]}
    assert client.post(CONTRACTS, json=backwards).json()["state"] == "violated"
    for path in f"{CONTRACTS}/transitions", f"{CONTRACTS}/2/transitions":
        (event,) = found(client, path)["items"]
        assert (event["kind"], event["contract_id"], event["version"], event["position"]) == ("violated", 2, 1, None)
        assert int(event["witness_value"]) >= 20
        assert event["cause_count"] == 10
    assert found(client, f"{CONTRACTS}/1/transitions")["items"] == []
    for sides, ids in (
        ({"dependent": "s.customers.id"}, [2]),
        ({"referenced": "s.customers.id"}, [1]),
        ({"dependent": "s.orders.customer_id", "referenced": "s.customers.id"}, [1]),
        ({"dependent": "s.orders.note"}, []),
    ):
        assert [one["contract_id"] for one in found(client, CONTRACTS, **sides)["items"]] == ids, sides
    assert client.get(CONTRACTS, params={"dependent": "s.orders.nothing"}).status_code == 404
    metrics = client.get("/metrics").text
    assert 'subsetd_contracts{state="violated"} 1.0' in metrics
    assert 'subsetd_contracts{state="held"} 1.0' in metrics
    tag = client.get(CONTRACTS).headers["ETag"]
    assert client.delete(f"{CONTRACTS}/2").status_code == 204
    listed = client.get(CONTRACTS, headers={"If-None-Match": tag})
    assert [one["contract_id"] for one in listed.json()["items"]] == [1]
    gone = client.get(f"{CONTRACTS}/2")
    assert (gone.status_code, gone.json()["type"]) == (404, "/docs#unknown-contract")


def test_a_contract_whose_columns_are_gone_is_found_by_the_name_that_it_prints(
    client: httpx.Client, database_url: str
) -> None:
    assert client.post(CONTRACTS, json=SIDES).status_code == 201
    schema_changes.drop(PostgresWriter(database_url), "s.customers", force=True)
    (listed,) = found(client, CONTRACTS)["items"]
    assert listed["unknown"] == ["s.customers.id"]
    for sides in (
        {"referenced": "s.customers.id"},
        {"dependent": "s.orders.customer_id", "referenced": "s.customers.id"},
    ):
        assert found(client, CONTRACTS, **sides)["items"] == [listed]
    for sides in {"dependent": "s.customers.id"}, {"referenced": "s.customers.name"}:
        assert client.get(CONTRACTS, params=sides).status_code == 404


def test_findings_are_listed_newest_first(client: httpx.Client) -> None:
    for method in "names", "randomness", "chen":
        assert client.post(f"{KEYS}/refreshes", json={"method": method}).status_code == 201
    listed = found(client, f"{KEYS}/refreshes")["items"]
    assert [one["method"] for one in listed] == ["chen", "randomness", "names"]


def test_who_follows_contracts_learns_of_one_that_was_violated_when_it_was_added(client: httpx.Client) -> None:
    """Versions stand still meanwhile: the last answer's is that of the transition."""
    backwards = [{"dependent": SIDES["referenced"], "referenced": SIDES["dependent"]}]
    backwards.append({**backwards[0], "referenced": [["s", "orders", "note"]]})
    known = found(client, f"{CONTRACTS}/transitions")
    assert known["items"] == []
    ids = [client.post(CONTRACTS, json=sides).json()["contract_id"] for sides in backwards]
    news = found(client, f"{CONTRACTS}/transitions", since=known["version"], limit=1)
    more = found(client, f"{CONTRACTS}/transitions", since=known["version"], cursor=news["next_cursor"])
    assert [one["contract_id"] for one in news["items"] + more["items"]] == ids
    (alone,) = found(client, f"{CONTRACTS}/{ids[1]}/transitions", since=known["version"])["items"]
    assert (alone["kind"], alone["version"], alone["position"]) == ("violated", known["version"], None)


@pytest.mark.parametrize(
    ("changed", "status", "kind"),
    [
        ({"least_coefficient": 0}, 422, "invalid-request"),
        ({"least_coefficient": 1.5}, 422, "invalid-request"),
        ({"dependent": []}, 422, "invalid-request"),
        ({"dependent": [["s", "orders"]]}, 422, "invalid-request"),
        ({"dependent": [["s", "orders", "cust\0mer"]]}, 422, "invalid-request"),
        ({"dependent": SIDES["referenced"]}, 422, "refused-foreign-key"),
        ({"dependent": SIDES["dependent"] * 2}, 422, "refused-foreign-key"),
        ({"dependent": [["s", "orders", 'no "such" 列']]}, 404, "unknown-attribute"),
    ],
)
def test_what_cannot_be_a_contract_is_a_problem(
    client: httpx.Client, changed: dict[str, object], status: int, kind: str
) -> None:
    answer = client.post(CONTRACTS, json={**SIDES, **changed})
    assert (answer.status_code, answer.json()["type"]) == (status, f"/docs#{kind}")


def test_the_same_contract_twice_is_a_conflict(client: httpx.Client) -> None:
    assert client.post(CONTRACTS, json=SIDES).status_code == 201
    again = client.post(CONTRACTS, json={**SIDES, "least_coefficient": 0.5})
    assert (again.status_code, again.json()["type"]) == (409, "/docs#conflict")


def test_one_finding_is_at_work_at_a_time(client: httpx.Client, database_url: str) -> None:
    engine = make_engine(database_url, "test-finder")
    told: list[int] = []

    class Asking(PostgresForeignKeys):
        def keep(self, *arguments: Any) -> int:
            with pytest.raises(Exception, match="Foreign keys are being found already"):
                finder.refresh(Question(Method.NAMES))
            told.append(super().keep(*arguments))
            return told[-1]

    finder = ForeignKeyFinder(Asking(engine))
    assert [finder.refresh(Question(Method.NAMES)), finder.refresh(Question(Method.NAMES))] == told
    engine.dispose()


def test_a_finding_tells_how_far_it_is_and_ends_when_it_is_cancelled(client: httpx.Client, database_url: str) -> None:
    """Who asks does so while the finding holds its snapshot, over other connections to the same service."""
    at_work = f"{KEYS}/refreshes/at-work"
    assert found(client, at_work) == {"finding": None}
    nothing = client.post(f"{at_work}/cancel", json={})
    assert (nothing.status_code, nothing.json()) == (202, {"finding": None})
    assert client.post(f"{KEYS}/refreshes", json={"method": "names"}).status_code == 201
    engine = make_engine(database_url, "test-cancel")
    seen: list[Any] = []

    class Asking(PostgresForeignKeys):
        @contextmanager
        def snapshot(self) -> Iterator[PostgresSnapshot]:
            with http_client(base_url=address, timeout=BOUND_SECONDS) as other:
                seen.append(found(other, at_work)["finding"])
                if len(seen) == 1:
                    seen.append(other.post(f"{at_work}/cancel", json={}).json()["finding"])
            with super().snapshot() as snapshot:
                yield snapshot

    app = app_over(engine)
    app.state.foreign_keys = ForeignKeyFinder(Asking(engine))
    with serving(app) as address, http_client(base_url=address, timeout=BOUND_SECONDS) as asker:
        kept = found(asker, KEYS, method="names")
        cancelled = asker.post(f"{KEYS}/refreshes", json={"method": "names"})
        assert (cancelled.status_code, cancelled.json()["type"]) == (409, "/docs#conflict")
        assert "cancelled" in cancelled.json()["detail"]
        first, asked = seen
        assert {name: first[name] for name in ("method", "stage", "done", "total", "is_cancelled")} == {
            "method": "names",
            "stage": "clusters",
            "done": 0,
            "total": None,
            "is_cancelled": False,
        }
        assert (asked["is_cancelled"], found(asker, at_work)) == (True, {"finding": None})
        assert found(asker, KEYS, method="names") == kept
        assert asker.post(f"{KEYS}/refreshes", json={"method": "names"}).status_code == 201
    engine.dispose()
