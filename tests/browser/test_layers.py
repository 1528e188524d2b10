"""The graph's layers: foreign keys first, and INDs without those that others imply; the rest is drawn all the same."""

from __future__ import annotations

import random
import re
from itertools import product

import httpx
from playwright.sync_api import Browser, expect

from service.core.model import AttributeName
from service.store.database import make_engine
from service.store.foreign_key_refreshes import PostgresForeignKeys
from service.usecases.foreign_key_answers import ForeignKeyFinder
from service.usecases.foreign_keys import Keys, Question
from tests import states
from tests.browser.conftest import NARROW, looking
from tests.hand_made_state import HandMadeState
from tests.integration.serving import app_over, serving

COLUMNS = {
    AttributeName("shop", "orders", "customer_id"): ["1", "2", "2"],
    AttributeName("shop", "customers", "id"): ["1", "2", "3"],
    AttributeName("shop", "archive", "id"): ["1", "2", "3", "4"],
}
DRAWN = """
async ([pairs, around]) => {
  const { ofKeys } = await import('/dashboard/layers.js');
  const side = table => [['s', `t${table}`, 'c']];
  const keys = pairs.map(([a, b]) => ({ dependent: side(a), referenced: side(b) }));
  const { tables, edges } = ofKeys(keys, around === null ? undefined : `s.t${around}`, 40);
  return { edges: edges.length, tables: tables.map(({ near, ...told }) => told) };
}
"""
"""Draw foreign keys between tables, which are given by numbers."""

REDUCE = "async (inds) => (await import('/dashboard/layers.js')).reduce(inds)"


def closed(pairs: set[tuple[int, int]], count: int) -> set[tuple[int, int]]:
    """Add what follows, until nothing does."""
    for middle, a, b in product(range(count), repeat=3):  # Warshall's order: the middle outermost
        if a != b and (a, middle) in pairs and (middle, b) in pairs:
            pairs = pairs | {(a, b)}
    return pairs


def test_what_is_left_out_follows_from_what_is_drawn_and_nothing_drawn_does(browser: Browser, address: str) -> None:
    with looking(browser, address) as look:
        page = look.open("graph")
        for seed in range(40):
            chance = random.Random(seed)
            count = chance.randint(2, 9)
            whole = closed(
                {(a, b) for a, b in product(range(count), repeat=2) if a != b and chance.random() < 0.25}, count
            )
            given = [{"dependent": {"attribute_id": a}, "referenced": {"attribute_id": b}} for a, b in sorted(whole)]
            kept = [
                (one["dependent"]["attribute_id"], one["referenced"]["attribute_id"])
                for one in page.evaluate(REDUCE, given)
            ]
            assert set(kept) <= whole, seed
            assert closed(set(kept), count) == whole, seed
            # Of columns with the same values each is tied to the first, both ways; all other arrows are needed.
            for one in kept:
                if one[::-1] not in whole:
                    assert closed(set(kept) - {one}, count) != whole, (seed, one)


def test_tables_are_counted_by_the_foreign_keys_that_are_drawn_however_many_these_are(
    browser: Browser, address: str
) -> None:
    with looking(browser, address) as look:
        page = look.open("graph")
        for seed in range(20):
            chance = random.Random(seed)
            count = chance.randint(2, 9)
            pairs = [(chance.randrange(count), chance.randrange(count)) for _ in range(chance.randint(1, 20))]
            around = None if seed % 2 else pairs[0][0]
            found = page.evaluate(DRAWN, [pairs, around])
            ways = {(a, b) for a, b in pairs if a != b}
            near = {
                end for pair in pairs for end in pair if around is None or {end, around} in ({around}, *map(set, ways))
            }
            assert found["edges"] == len({frozenset(pair) for pair in pairs if set(pair) <= near})
            assert {one["name"]: one for one in found["tables"]} == {
                f"s.t{table}": {
                    "name": f"s.t{table}",
                    "inds": sum(table in pair for pair in pairs),
                    "neighbours": len({frozenset(pair) for pair in ways if table in pair}),
                    "references": sum(a == table for a, _ in ways),
                    "referenced_by": sum(b == table for _, b in ways),
                }
                for table in near
            }


def test_what_was_accepted_of_columns_that_are_followed_no_more_is_not_drawn(browser: Browser, address: str) -> None:
    """It is kept, and is in no export either; nor is what the last finding said of it."""
    sides = {"dependent": [["shop", "orders", "customer_id"]], "referenced": [["shop", "gone", "id"]]}
    found = {"items": [{**sides, "suggested": True}]}
    with looking(browser, address) as look:
        page = look.open("graph")
        for is_stale, count in ((False, 1), (True, 0)):
            decisions = {"items": [{**sides, "verdict": "accept", "is_stale": is_stale}]}
            keys = page.evaluate(
                "async (told) => (await import('/dashboard/layers.js')).known(...told)", [found, decisions, []]
            )
            assert len(keys) == count


def test_foreign_keys_are_drawn_where_any_are_known_and_show_their_evidence(
    browser: Browser, address: str, database_url: str
) -> None:
    with looking(browser, address) as look:
        page = look.open("graph")
        expect(page.get_by_role("link", name="INDs that others do not imply")).to_have_attribute("aria-current", "true")
        expect(page.get_by_role("link", name="Foreign keys", exact=True)).to_have_count(1)  # of the navigation alone
        expect(page.locator("main")).to_contain_text("Of 3 INDs the 2 are drawn")
        expect(page.locator(".edge")).to_have_count(2)
        page.get_by_role("link", name="All INDs").press("Enter")
        expect(page.locator(".edge")).to_have_count(3)

        engine = make_engine(database_url, "test-keys")
        ForeignKeyFinder(PostgresForeignKeys(engine)).refresh(Question(keys=Keys.INFERRED))
        engine.dispose()
        key = {"dependent": [["shop", "orders", "customer_id"]], "referenced": [["shop", "customers", "id"]]}
        decision = {**key, "verdict": "accept", "decided_by": "Ada"}
        httpx.post(f"{address}/api/v1/foreign-keys/decisions", json=decision, timeout=60).raise_for_status()
        look.open("graph")
        expect(page.locator("main").get_by_role("link", name="Foreign keys", exact=True)).to_have_attribute(
            "aria-current", "true"
        )
        expect(page.locator(".edge.sure")).to_have_count(1)
        expect(page.locator("main")).to_contain_text("1 foreign key accepted")
        assert look.faults() == []
        page.get_by_role("link", name="orders, shop.orders:").press("Enter")
        page.get_by_role("link", name="show columns of shop.orders in shop.customers").press("Enter")
        expect(page.locator("main")).to_contain_text("Foreign keys between the two")
        expect(page.locator(".badge.good", has_text="accepted")).to_have_count(1)
        page.get_by_role("link", name="show evidence of shop.orders.customer_id in shop.customers.id").press("Enter")
        expect(page.locator("h1")).to_have_text("shop.orders.customer_id ⊆ shop.customers.id")


def test_declared_foreign_keys_are_a_layer_and_told_apart_by_the_form_of_their_lines(
    browser: Browser, address: str, database_url: str
) -> None:
    states.execute(
        database_url,
        "insert into declared_reference (source_id, dependent_ids, referenced_ids) "
        "select source_id, array[1], array[2] from source",
    )
    key = {"dependent": [["shop", "orders", "customer_id"]], "referenced": [["shop", "customers", "id"]]}
    decision = {**key, "verdict": "accept", "decided_by": "Ada"}
    httpx.post(f"{address}/api/v1/foreign-keys/decisions", json=decision, timeout=60).raise_for_status()
    with looking(browser, address, NARROW, "dark") as look:
        page = look.open("graph")
        main = page.locator("main")
        expect(main).to_contain_text("1 foreign key accepted (strong lines), 1 declared and not decided, 0 suggested")
        expect(page.locator("g .edge")).to_have_count(2)
        expect(page.locator("g .edge.found.sure")).to_have_count(1)  # of orders in customers, which nobody declares
        expect(page.locator(".legend")).to_have_text(re.compile(r"declared by a source\s+found in the data\s+accepted"))
        dashes = "one => getComputedStyle(one).strokeDasharray"
        assert page.locator("g .edge.found").evaluate(dashes) != page.locator("g .edge:not(.found)").evaluate(dashes)
        assert look.faults() == []
        assert look.overflow() <= 0
        page.get_by_role("link", name="Declared foreign keys").press("Enter")
        expect(main).to_contain_text("1 foreign key declared by the sources")
        expect(page.locator("g .edge")).to_have_count(1)
        page.get_by_role("link", name="customers, shop.customers:").press("Enter")
        page.get_by_role("link", name="show columns of shop.customers in shop.archive").press("Enter")
        expect(main).to_contain_text("by hand")
        expect(main).to_contain_text("100 %")
        assert look.faults() == []
        page.get_by_role("link", name="All INDs").press("Enter")
        expect(page.locator("g .edge")).to_have_count(3)
        expect(page.locator("g .edge.found")).to_have_count(2)
        (told,) = httpx.get(f"{address}/api/v1/foreign-keys/declared", timeout=60).json()["items"]
        assert (told["dependent"], told["source"], told["holds"]) == ([["shop", "customers", "id"]], "hand", True)


def test_components_and_tables_are_shown_that_have_no_foreign_key_or_no_inclusion(
    browser: Browser, database_url: str
) -> None:
    """Of 21 pairs of tables each is a component; who is invited is declared to be of t1, and is not all there."""
    columns = {
        AttributeName("shop", f"t{number}", "id"): [f"v{number // 2}", *([f"more of t{number}"] if number % 2 else [])]
        for number in range(42)
    }
    state = HandMadeState(database_url, {**columns, AttributeName("shop", "invited", "id"): ["more of t1", "nobody"]})
    states.execute(
        database_url,
        "insert into declared_reference (source_id, dependent_ids, referenced_ids) "
        "select source_id, array[42], array[1] from source",
    )
    engine = make_engine(database_url, "test-dashboard")
    with serving(app_over(engine)) as address, looking(browser, address) as look:
        page = look.open("graph")
        page.get_by_role("link", name="Component 7", exact=True).press("Enter")
        expect(page.locator("h2").first).to_have_text("Component of shop.t20")
        expect(page.locator("g .edge")).to_have_count(1)
        expect(page.get_by_role("link", name="t20, shop.t20: 1 neighbour, 1 IND")).to_be_visible()
        expect(page.get_by_role("link", name="Declared foreign keys")).to_have_count(0)
        # A third table makes it the largest, which is Component 0: what is linked stays what it was.
        state.commit({**columns, AttributeName("shop", "invited", "id"): ["v10"]})
        page.reload()
        expect(page.locator("a.node")).to_have_count(3)
        expect(page.get_by_role("link", name="invited, shop.invited:")).to_be_visible()
        state.commit({**columns, AttributeName("shop", "invited", "id"): ["more of t1", "nobody"]})
        page.get_by_role("link", name="t20, shop.t20:").press("Enter")
        expect(page.locator("h2").first).to_have_text("shop.t20 and its neighbours")
        expect(page.locator("g .edge")).to_have_count(1)
        look.open("graph?component=7")
        expect(page.get_by_role("link", name="t20, shop.t20: 1 neighbour, 1 IND")).to_be_visible()
        look.open("graph?around=shop.invited")
        expect(page.locator("h2").first).to_have_text("shop.invited and its neighbours")
        expect(page.locator("g .edge")).to_have_count(1)
    engine.dispose()


def test_what_is_left_out_is_counted_of_what_is_drawn_and_a_component_that_is_cut_says_so(
    browser: Browser, database_url: str
) -> None:
    """43 tables are in a hub, one more in the first of these; two others are a component of their own."""
    inside = {f"t{number}": [f"v{number}", f"w{number}"] for number in range(43)}
    tables = {**inside, "deep": ["v0"], "hub": sum(inside.values(), ["more"]), "x": ["a"], "y": ["a", "b"]}
    HandMadeState(database_url, {AttributeName("shop", name, "id"): cells for name, cells in tables.items()}).close()
    engine = make_engine(database_url, "test-dashboard")
    with serving(app_over(engine)) as address, looking(browser, address) as look:
        main = look.open("graph?layer=inds&component_of=shop.hub").locator("main")
        expect(main).to_contain_text("Of 45 tables those 40 are drawn")
        expect(look.page.locator("a.node")).to_have_count(40)
        look.open("graph?layer=inds&component_of=shop.x")
        expect(main).to_contain_text("Of 1 IND the 1 are drawn")
        look.open("graph?layer=inds&around=shop.t0")
        expect(main).to_contain_text("Of 3 INDs the 2 are drawn")
        look.page.get_by_role("link", name="All components").press("Enter")
        expect(main).to_contain_text("Components")
        assert look.page.url.endswith("graph?layer=inds")
    engine.dispose()


def test_lists_of_more_than_a_page_are_shown_whole(browser: Browser, database_url: str) -> None:
    wide = {AttributeName("shop", table, f"c{number}"): ["1"] for table in ("a", "b") for number in range(34)}
    HandMadeState(database_url, wide).close()
    pairs = "from generate_series(0, 33) a, generate_series(34, 67) b"  # 1,156 of them
    states.execute(
        database_url,
        "insert into declared_reference (source_id, dependent_ids, referenced_ids) "
        f"select (select source_id from source), array[a], array[b] {pairs} order by a, b;"
        "insert into contract (dependent_schema, dependent_table, dependent_columns, referenced_schema, "
        "referenced_table, referenced_columns, least_coefficient, created_by) "
        f"select 'shop', 'a', array['c' || a], 'shop', 'b', array['c' || b - 34], 1, 'Ada' {pairs} order by a, b",
    )
    engine = make_engine(database_url, "test-dashboard")
    with serving(app_over(engine)) as address, looking(browser, address) as look:
        page = look.open("graph?layer=declared")
        expect(page.locator("main")).to_contain_text("1,156 foreign keys declared by the sources")
        look.open("coefficients?dependent=shop.a&referenced=shop.b")
        expect(page.locator("td.heat a")).to_have_count(1156)
        look.open("coefficients?dependent=shop.a&referenced=shop.nowhere")
        expect(page.locator("main")).to_contain_text("There is no table shop.nowhere.")
        look.open("pair?dependent=shop.a.c33&referenced=shop.b.c33")
        expect(page.locator("main")).to_contain_text("contract held of at least 100 %, by Ada")
    engine.dispose()


def test_an_address_that_names_no_view_shows_the_overview(browser: Browser, address: str) -> None:
    with looking(browser, address) as look:
        page = look.open("constructor")
        expect(page.locator("h1")).to_have_text("Overview")
