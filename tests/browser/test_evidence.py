"""The evidence of a pair and the heatmap of coefficients say what the columns themselves say."""

from __future__ import annotations

import re
from collections.abc import Iterator

import httpx
import numpy as np
import pytest
from playwright.sync_api import Browser, Route, expect
from sqlalchemy import Engine

from service.core.model import AttributeName
from service.core.sketches.column import ColumnSketch
from service.store.coefficient_samples import CoefficientLooks
from service.store.database import make_engine
from service.store.foreign_key_refreshes import PostgresForeignKeys
from service.usecases.foreign_key_answers import ForeignKeyFinder
from service.usecases.foreign_keys import Keys, Question
from tests import states
from tests.browser.conftest import NARROW, looking
from tests.hand_made_state import HandMadeState
from tests.integration.serving import app_over, serving
from tests.waiting import BOUND_SECONDS

ORDERS, CUSTOMERS = AttributeName("shop", "orders", "customer_id"), AttributeName("shop", "customers", "id")
COLUMNS = {
    ORDERS: ["1", "2", "2"],
    AttributeName("shop", "orders", "note"): ["3", "x", "y"],
    CUSTOMERS: ["1", "2", "3"],
    AttributeName("shop", "customers", "name"): ["x", "z", "1"],
}


@pytest.fixture
def address(engine: Engine) -> Iterator[str]:
    """Serve a shop whose foreign keys were looked for."""
    ForeignKeyFinder(PostgresForeignKeys(engine)).refresh(Question(keys=Keys.INFERRED))
    with serving(app_over(engine)) as found:
        yield found


def test_each_cell_of_the_heatmap_is_the_share_that_the_sets_have(browser: Browser, address: str) -> None:
    sets = {name: set(cells) for name, cells in COLUMNS.items()}
    with looking(browser, address, NARROW, "dark") as look:
        page = look.open("coefficients?dependent=shop.orders&referenced=shop.customers")
        expect(page.locator("td.heat")).to_have_count(4)
        shown = page.locator(".heatmap tbody tr").evaluate_all(
            "rows => rows.map(row => [...row.children].map(one => (one.querySelector('a') ?? one).textContent))"
        )
        assert look.faults() == []
        assert look.overflow() <= 0
        rows = [name for name in COLUMNS if name.table == "orders"]
        columns = [name for name in COLUMNS if name.table == "customers"]
        for row, (name, *cells) in zip(rows, shown, strict=True):
            assert name == row.column
            shares = [len(sets[row] & sets[one]) / len(sets[row]) for one in columns]
            assert cells == [f"{round(share * 100, 2):g} %" if share else "" for share in shares]
        page.get_by_label("columns of").select_option("shop.orders")
        expect(page.locator("td.self")).to_have_count(2)


@pytest.fixture
def estimated(database_url: str) -> Iterator[str]:
    """Serve users whose values are kept beside visits of which only sketches are; every third visit is a user's."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(states, "SKETCH_FORM", (10, 256, 64))
        states.store(database_url, states.Tables({"users": ["id"]}).add("users", *([str(one)] for one in range(3000))))
    sketch = ColumnSketch(10, 256, 64, counts_values=False)
    visited = [str(one) for one in range(2000, 5000)]
    sketch.update(np.array([int.from_bytes(states.key_of(one)[:8], "big") for one in visited], np.uint64))
    states.execute(
        database_url,
        "insert into source (name, kind, location, bootstrapped_version, sketch_only)"
        " values ('v', 'csv', '-', 1, true);"
        "insert into attribute (attribute_id, source_id, schema_name, table_name, column_name, ordinal, row_count, "
        "null_count) select 11, source_id, 's', 'visits', 'user', 0, 3000, 0 from source where name = 'v';"
        f"insert into sketch values (11, 1, '\\x{sketch.to_bytes().hex()}')",
    )
    engine = make_engine(database_url, "test-dashboard")
    with serving(app_over(engine)) as found:
        yield found
    engine.dispose()


def test_an_estimated_cell_says_by_which_method_and_within_which_bounds(browser: Browser, estimated: str) -> None:
    asked = {"dependent_table": "visits", "referenced_table": "users", "min_coefficient": 0}
    (one,) = httpx.get(f"{estimated}/api/v1/coefficients", params=asked, timeout=BOUND_SECONDS).json()["items"]
    assert one["low"] < one["coefficient"] < one["high"], "it is no share of sets"
    share, low, high = (f"{round(one[part] * 100, 2):g} %" for part in ("coefficient", "low", "high"))
    with looking(browser, estimated) as look:
        page = look.open("coefficients?dependent=s.visits&referenced=s.users")
        expect(page.locator("td.heat small")).to_have_text(f"{low} to {high}, {one['method']}")
        cell = page.get_by_role(
            "link", name=f"{share} of s.visits.user in s.users.id, {low} to {high}, {one['method']}", exact=True
        )
        assert look.faults() == []
        page.get_by_role("region", name="Coefficients").focus()
        page.keyboard.press("Tab")
        expect(cell).to_be_focused()
        page.keyboard.press("Enter")
        expect(page.locator("h1")).to_contain_text("s.visits.user")
        row = page.get_by_role("row", name=f"{one['method']} {share} {low} to {high}", exact=True)
        expect(row).to_be_visible()
        assert look.faults() == []
        assert look.overflow() <= 0


def test_a_pair_of_which_values_are_not_kept_is_shown_as_estimated_by_whatever_link_one_comes(
    browser: Browser, estimated: str
) -> None:
    with looking(browser, estimated) as look:
        page = look.open("pair?dependent=s.visits.user&referenced=s.users.id")
        expect(page.locator("main")).to_contain_text("Of one of these only a sketch is kept")
        expect(page.get_by_role("row", name="joint-mle")).to_be_visible()
        expect(page).to_have_url(re.compile("estimated=1"))
        look.told = [one for one in look.told if "409" not in one]  # that is how it learns of it


def test_who_goes_on_before_a_pair_is_known_to_be_estimated_is_not_brought_back(
    browser: Browser, estimated: str
) -> None:
    with looking(browser, estimated) as look:
        page, held = look.open("timeline"), []
        page.route("**/api/v1/uinds/**", lambda route: held.append(route))  # noqa: PLW0108 - a builtin is no handler
        with page.expect_request("**/missing*"):
            page.evaluate("location.hash = '#/pair?dependent=s.visits.user&referenced=s.users.id'")
        page.evaluate("location.hash = '#/audits'")
        with page.expect_response("**/api/v1/coefficients/**"):
            for route in held:
                route.continue_()
        expect(page.locator("h1")).to_have_text("Audits")
        expect(page).to_have_url(re.compile("#/audits$"))
        look.told = [one for one in look.told if "409" not in one]


def test_of_wide_tables_the_columns_are_drawn_that_have_most_in_common(browser: Browser, database_url: str) -> None:
    wide = {AttributeName("shop", "wide", f"c{number:03}"): [f"v{number}"] for number in range(150)}
    wide |= {AttributeName("shop", "wide", "c140"): ["v3", "x"]}
    HandMadeState(database_url, wide).close()
    engine = make_engine(database_url, "test-dashboard")
    with serving(app_over(engine)) as address, looking(browser, address) as look:
        page = look.open("coefficients?dependent=shop.wide&referenced=shop.wide")
        expect(page.locator("tbody tr")).to_have_count(100)
        expect(page.locator("thead th")).to_have_count(101)
        for name in ("c003", "c140"):
            expect(page.locator("tbody th", has_text=name)).to_have_count(1)
        expect(page.locator("td.heat a")).to_have_text(["100 %", "50 %"])
        expect(page.locator("main")).to_contain_text("Of the 150 columns of shop.wide those 100 are drawn")
        assert look.faults() == []
    engine.dispose()


def test_a_page_of_missing_values_that_is_empty_by_now_leads_back(
    browser: Browser, address: str, state: HandMadeState
) -> None:
    state.commit(COLUMNS | {ORDERS: [f"x{number}" for number in range(30)]})
    of = f"{address}/api/v1/uinds/shop.orders.customer_id/shop.customers.id/missing"
    page_of = httpx.get(of, params={"limit": 20}, timeout=BOUND_SECONDS).json()
    kept = [one["value"] for one in page_of["items"]]
    state.commit(COLUMNS | {ORDERS: kept})
    names = "dependent=shop.orders.customer_id&referenced=shop.customers.id"
    with looking(browser, address) as look:
        page = look.open(f"pair?{names}&cursor={page_of['next_cursor']}")
        expect(page.locator("main")).to_contain_text("There are none on this page.")
        page.get_by_role("link", name="First page").click()
        expect(page.locator("main")).not_to_contain_text("There are none on this page.")
        expect(page.locator("main").get_by_text(kept[0], exact=True)).to_be_visible()


def test_what_is_the_same_under_another_name_is_asked_for_by_that_name(browser: Browser, address: str) -> None:
    names: list[str | None] = []

    def answer(route: Route) -> None:
        names.append(route.request.headers.get("if-none-match"))
        route.fulfill(body="{}", headers={"ETag": '"1"' if len(names) == 1 else '"2"'})

    with looking(browser, address) as look:
        page = look.open()
        page.route("**/api/v1/same", answer)
        for _ in range(3):
            page.evaluate("import('/dashboard/api.js').then(api => api.get('/api/v1/same'))")
    assert names == [None, '"1"', '"2"']


def test_of_more_tables_than_are_listed_any_is_found_by_a_part_of_its_name(browser: Browser, database_url: str) -> None:
    wide = {AttributeName("shop", "wide", f"c{number:04}"): [f"v{number}"] for number in range(1000)}
    far = {AttributeName("shop.x", table, "id"): ["1"] for table in ("y.a", "y.b")}
    HandMadeState(database_url, {**wide, **far}).close()
    engine = make_engine(database_url, "test-dashboard")
    with serving(app_over(engine)) as address, looking(browser, address) as look:
        page = look.open("coefficients?contains=y.&referenced=shop.x.y.b")
        expect(page.locator("tbody th")).to_have_text(["id"])
        look.open("coefficients?dependent=shop.x.y.a&referenced=shop.x.y.a")
        expect(page.locator("td.self")).to_have_count(1)
        expect(page.locator("main")).to_contain_text("The tables of the first 1,000 columns are listed.")
        expect(page.get_by_label("Rows of").locator("option")).to_have_text(["shop.wide", "shop.x.y.a"])
        page.get_by_label("Choose among columns").fill("y.b")
        page.get_by_label("Choose among columns").press("Enter")
        page.get_by_label("columns of").select_option("shop.x.y.b")
        expect(page.locator("td.heat a")).to_have_count(1)
        assert look.faults() == []
    engine.dispose()


def test_a_pair_shows_when_it_held_and_why_it_may_be_a_foreign_key(
    browser: Browser, address: str, state: HandMadeState, database_url: str
) -> None:
    with looking(browser, address) as look:
        page = look.open("pair?dependent=shop.orders.customer_id&referenced=shop.customers.id")
        name = "Coefficient over time: 100 % from version 1 to 1; now 100 %"
        expect(page.get_by_role("img", name=name)).to_be_visible()
        expect(page.locator("main")).to_contain_text("Score ")
        expect(page.get_by_role("img", name="Distributions of both columns over")).to_be_visible()
        state.commit(COLUMNS | {ORDERS: ["1", "ZZTOP"]})
        # Nobody has looked since it broke; then somebody does, and again after a long time.
        name = "Coefficient over time: 100 % from version 1 to 1; now 50 %"
        expect(page.get_by_role("img", name=name)).to_be_visible()
        expect(page.locator("rect.unknown")).to_have_count(1)  # from when it broke on, however short that is
        engine = make_engine(database_url, "test-looks")
        looks = CoefficientLooks(engine, 10)
        looks.look()
        state.commit(COLUMNS | {ORDERS: ["1", "ZZTOP"]})
        states.execute(database_url, "update state_version set committed_at = committed_at - interval '1 hour'")
        state.commit(COLUMNS | {ORDERS: ["1", "2", "3", "ZZTOP"]})
        looks.look()
        engine.dispose()
        name = "100 % from version 1 to 1, 50 % from version 2 to 2, 75 % from version 4 to 4; now 75 %"
        expect(page.get_by_role("img", name=name)).to_be_visible()
        steps = page.locator("path.step").get_attribute("d") or ""
        assert steps.count("M") == 2, "the line ends where nobody looked, and begins anew"
        expect(page.locator("rect.unknown")).to_have_count(1)
        page.get_by_text("The same in numbers").press("Enter")
        expect(page.get_by_role("region", name="Coefficient over time")).to_contain_text("3 of 4")
        assert look.faults() == []
        # Of a pair that is no candidate nothing is said of foreign keys.
        look.open("pair?dependent=shop.customers.name&referenced=shop.orders.note")
        expect(page.get_by_role("heading", name="Coefficient over time")).to_be_visible()
        expect(page.locator("main")).to_contain_text("It never held, and nobody looked")
        expect(page.get_by_role("heading", name="As a foreign key")).to_have_count(0)


def test_what_is_near_nothing_or_all_is_not_shown_as_that(browser: Browser, address: str) -> None:
    told = """async () => {
      const { distributions, explanation } = await import('/dashboard/evidence.js');
      const evidence = { coverage: 1, terms: { name: -0.004 } };
      const made = [distributions({ dependent: [1], referenced: [1], distance: 0.004 })];
      return [...made, ...explanation({ evidence, against: [], score: 0.996 })].map(one => one.textContent).join();
    }"""
    with looking(browser, address) as look:
        text = look.open().evaluate(told)
        assert "distance 0.004: 0 is as if" in text
        assert "-0.004" in text
        assert "Score > 0.99 as" in text
        write = "async scores => scores.map((await import('/dashboard/format.js')).scored)"
        shown = look.page.evaluate(write, [0, 0.004, 0.5, 0.996, 1, 1.2])
        assert shown == ["0.00", "< 0.01", "0.50", "> 0.99", "1.00", "1.20"]
