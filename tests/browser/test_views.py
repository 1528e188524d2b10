"""The dashboard in a real browser, over the real service: its views by sight, by keyboard, in the dark and narrow."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack

import pytest
from playwright.sync_api import Browser, expect

from service.core.model import AttributeName
from service.store.database import make_engine
from tests.browser.conftest import NARROW, WIDE, looking
from tests.hand_made_state import HandMadeState
from tests.integration.serving import app_over, serving

SCRIPT = "<script>document.title='pwned'</script><img src=x onerror=alert(1)>"
ORDERS = AttributeName("shop", "orders", "customer_id")
CUSTOMERS = AttributeName("shop", "customers", "id")
ODD = AttributeName(SCRIPT, f"{SCRIPT}'\"", "a b\n&amp;")
COLUMNS = {ORDERS: ["1", "2"], CUSTOMERS: ["1", "2", "3"], ODD: ["1"]}


@pytest.fixture
def state(database_url: str) -> Iterator[HandMadeState]:
    """Hold a shop, and a table whose names are made to harm."""
    made = HandMadeState(database_url, COLUMNS)
    yield made
    made.close()


@pytest.fixture
def address(state: HandMadeState, database_url: str) -> Iterator[str]:
    """Serve it."""
    engine = make_engine(database_url, "test-dashboard")
    with serving(app_over(engine)) as found:
        yield found
    engine.dispose()


VIEWS = ["", "timeline"]


@pytest.mark.parametrize(("size", "scheme"), [(WIDE, "light"), (NARROW, "dark")])
def test_axe_finds_nothing_and_nothing_is_cut_off(
    browser: Browser, address: str, state: HandMadeState, size: tuple[int, int], scheme: str
) -> None:
    state.commit(COLUMNS | {ODD: ["1", SCRIPT]})
    with looking(browser, address, size, scheme) as look:
        for view in VIEWS:
            page = look.open(view)
            assert look.faults() == [], view
            assert look.overflow() <= 0, view
            assert page.locator("main script, main img").count() == 0


def test_an_ind_that_breaks_is_on_the_page_that_is_open(browser: Browser, address: str, state: HandMadeState) -> None:
    with looking(browser, address) as look:
        page = look.open("timeline?kind=broke")
        expect(page.locator(".empty")).to_be_visible()
        state.commit(COLUMNS | {ORDERS: ["1", "2", "ZZTOP"]})
        card = page.locator(".transition")
        expect(card).to_have_count(1)
        for text in ("broke", "shop.orders.customer_id", "shop.customers.id", "ZZTOP", "t / 0 @ 2", "version 2"):
            expect(card).to_contain_text(text)
        look.open("")
        expect(page.locator(".transition")).to_contain_text("ZZTOP")
        expect(page.locator(".tile").first).to_contain_text("2")


def test_names_and_values_that_are_made_to_harm_are_texts(browser: Browser, address: str, state: HandMadeState) -> None:
    state.commit(COLUMNS | {ODD: ["1", SCRIPT]})
    with looking(browser, address) as look:
        for view in VIEWS:
            page = look.open(view)
            expect(page.locator("main")).to_contain_text(SCRIPT)
            assert page.locator("main script, main img").count() == 0
            assert "pwned" not in page.title()


def test_the_page_goes_on_when_the_service_is_back(browser: Browser, state: HandMadeState, database_url: str) -> None:
    engine = make_engine(database_url, "test-dashboard")
    with ExitStack() as first:
        address = first.enter_context(serving(app_over(engine)))
        look = first.enter_context(looking(browser, address))
        page = look.open()
        expect(page.locator("#link")).to_have_text("live, version 1")
        with serving(app_over(engine)) as second:
            # What is asked of the first is answered by nobody, and then by the second, as by one that was restarted.
            page.route("**/api/**", lambda route: route.abort())
            expect(page.locator("#link")).to_have_text("not connected")
            expect(page.locator("main")).to_contain_text("does not answer")
            expect(page.locator(".tile").first).to_be_visible()
            state.commit(COLUMNS | {ORDERS: ["1", "2", "ZZTOP"]})
            page.unroute("**/api/**")
            page.route("**/api/**", lambda route: route.continue_(url=route.request.url.replace(address, second)))
            expect(page.locator("#link")).to_have_text("live, version 2")
            expect(page.locator(".notice")).to_have_count(0)
            expect(page.locator(".transition")).to_contain_text("ZZTOP")
            page.unroute_all(behavior="wait")
        assert all("ERR_FAILED" in one for one in look.told)
        look.told.clear()
    engine.dispose()


def test_with_a_key_set_the_page_asks_for_it(browser: Browser, state: HandMadeState, database_url: str) -> None:
    engine = make_engine(database_url, "test-dashboard")
    with serving(app_over(engine, api_key="a key")) as address, looking(browser, address) as look:
        page = look.page
        page.goto(address)
        field = page.get_by_label("Key", exact=True)
        expect(field).to_be_focused()
        assert look.faults() == []
        for given in ("no key", "a key"):
            field.fill(given)
            field.press("Enter")
            if given == "no key":
                expect(page.get_by_role("alert")).to_contain_text("does not know this key")
        expect(page.locator("#link")).to_have_text("live, version 1")
        page.reload()
        expect(page.locator("#link")).to_have_text("live, version 1")
        page.get_by_role("button", name="Forget the key").click()
        expect(field).to_be_focused()
        expect(page.locator("main")).to_contain_text("Nothing is shown")
        assert all("a key" not in one and "a%20key" not in one for one in look.requested)
        assert all("401" in one for one in look.told)
        look.told.clear()
    engine.dispose()


def test_all_is_reached_by_keyboard(browser: Browser, address: str) -> None:
    with looking(browser, address) as look:
        page = look.open()
        page.keyboard.press("Tab")
        expect(page.get_by_text("Skip to the content")).to_be_focused()
        page.keyboard.press("Enter")
        expect(page.locator("main")).to_be_focused()
        page.get_by_role("link", name="Timeline", exact=True).focus()
        page.keyboard.press("Enter")
        expect(page.locator("h1")).to_have_text("Timeline")
        expect(page.get_by_role("link", name="Timeline", exact=True)).to_have_attribute("aria-current", "page")
        page.get_by_role("link", name="broke", exact=True).press("Enter")
        expect(page.get_by_role("link", name="broke", exact=True)).to_be_focused()
        assert page.url.endswith("#/timeline?kind=broke")


def test_the_colours_are_those_that_were_chosen(browser: Browser, address: str) -> None:
    with looking(browser, address) as look:
        page = look.open()
        before = page.evaluate("getComputedStyle(document.body).backgroundColor")
        page.get_by_label("Colours").select_option("dark")
        after = page.evaluate("getComputedStyle(document.body).backgroundColor")
        assert after != before
        page.reload()
        assert page.evaluate("getComputedStyle(document.body).backgroundColor") == after
