"""What is drawn is dragged, enlarged and walked while it changes; what a table refers to in itself is drawn, too."""

from __future__ import annotations

import re

from playwright.sync_api import Browser, Page, expect

from service.core.model import AttributeName
from tests import states
from tests.browser.conftest import looking
from tests.hand_made_state import HandMadeState
from tests.waiting import wait_for

ORDERS, CUSTOMERS = AttributeName("shop", "orders", "customer_id"), AttributeName("shop", "customers", "id")
EMPLOYEE, MANAGER = AttributeName("shop", "employee", "id"), AttributeName("shop", "employee", "reports_to")
ARCHIVE, BOXES = AttributeName("shop", "archive", "shelf"), AttributeName("shop", "boxes", "shelf")
ALIKE = AttributeName("shop", "orders", "paid_by")
COLUMNS = {
    ORDERS: ["1", "2"], CUSTOMERS: ["1", "2", "3"], EMPLOYEE: ["a", "b", "c"], MANAGER: ["a", None, "b"],
    ARCHIVE: ["x"], BOXES: ["x", "y"], ALIKE: ["7"],
}  # fmt: skip

WITHIN = """node => {
  const [one, all] = [node, node.ownerSVGElement].map(each => each.getBoundingClientRect());
  return one.left >= all.left && one.right <= all.right && one.top >= all.top && one.bottom <= all.bottom;
}"""
"""Tell whether a table is in sight."""


def sight(page: Page) -> str | None:
    return page.locator("svg.graph").get_attribute("viewBox")


def test_a_drag_goes_on_over_a_new_version_and_ends_in_no_click(
    browser: Browser, address: str, state: HandMadeState
) -> None:
    with looking(browser, address) as look:
        page = look.open("graph?layer=all")
        table = page.get_by_role("link", name="orders, shop.orders:")
        box = table.bounding_box()
        assert box is not None
        x, y = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
        page.mouse.move(x, y)
        page.mouse.down()
        page.mouse.move(x + 30, y + 20)
        begun = sight(page)
        # One more inclusion between the same tables: they come first now, and all stands where it stood.
        assert page.locator("a.node title").all_text_contents()[0] == "shop.archive"
        state.commit({**COLUMNS, ALIKE: ["3"]})
        expect(page.get_by_role("link", name="orders, shop.orders: 1 neighbour, 2 INDs")).to_be_visible()
        assert page.locator("a.node title").all_text_contents()[0] == "shop.customers"
        assert sight(page) == begun
        page.mouse.move(x + 60, y + 40)
        assert sight(page) != begun
        page.mouse.up()
        assert page.url.endswith("#/graph?layer=all")
        # Who presses without moving has clicked, and so does the keyboard.
        table.click()
        expect(page.locator("h2").first).to_have_text("shop.orders and its neighbours")
        page.get_by_role("link", name="customers, shop.customers:").press("Enter")
        expect(page.locator("h2").first).to_have_text("shop.customers and its neighbours")


def test_what_a_table_refers_to_in_itself_is_drawn_and_shown(browser: Browser, address: str, database_url: str) -> None:
    states.execute(
        database_url,
        "insert into declared_reference (source_id, dependent_ids, referenced_ids) "
        "select source_id, array[3], array[2] from source",
    )
    with looking(browser, address) as look:
        page = look.open("graph?layer=declared")
        main = page.locator("main")
        expect(main).to_contain_text("1 foreign key declared by the sources")
        loop = page.locator("g .edge")
        expect(loop.locator("title")).to_have_text("shop.employee in shop.employee: 1 foreign key")
        assert loop.evaluate("one => one.getBBox().width > 20 && one.getBBox().height > 20")
        expect(page.get_by_role("link", name="employee, shop.employee: 0 neighbours, 1 foreign key")).to_be_visible()
        loop.dispatch_event("click")
        expect(page.locator("g .edge.picked")).to_have_count(1)
        expect(main).to_contain_text("shop.employee.reports_to → shop.employee.id")
        page.get_by_role("link", name="All INDs").press("Enter")
        expect(page.locator("g .edge")).to_have_count(3)
        page.locator("g .edge", has_text="shop.employee in shop.employee").dispatch_event("click")
        inside = page.get_by_role("region", name="Columns inside the table")
        expect(inside.get_by_role("row")).to_have_count(2)
        expect(inside).to_contain_text("reports_to")
        assert look.faults() == []


def test_a_table_that_the_keyboard_comes_to_is_in_sight(browser: Browser, address: str) -> None:
    with looking(browser, address) as look:
        page = look.open("graph?layer=all")
        for _ in range(4):
            page.get_by_role("button", name="Enlarge").press("Enter")
        near = sight(page)
        tables = page.locator("a.node")
        assert not all(tables.nth(place).evaluate(WITHIN) for place in range(5))
        page.locator("main").get_by_role("link", name="All INDs").focus()
        for place in range(5):
            page.keyboard.press("Tab")
            expect(tables.nth(place)).to_be_focused()
            wait_for(lambda place=place: tables.nth(place).evaluate(WITHIN))
        assert sight(page) != near
        size = re.compile(r"\S+ \S+$")
        assert size.findall(sight(page) or "") == size.findall(near or "")
