"""Watches in the dashboard: added from a pair's page, told of, silenced and removed, by keyboard, dark and narrow."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import httpx
from playwright.sync_api import Browser, expect
from sqlalchemy import Engine

from service.core.model import AttributeName
from tests.browser.conftest import NARROW, WIDE, looking
from tests.integration.serving import app_over, serving
from tests.watching import Watching, new_watch, pair_rule

SCRIPT = "<script>document.title='pwned'</script>"
ODD = AttributeName(SCRIPT, "orders", "customer")
COLUMNS = {
    AttributeName("shop", "orders", "customer_id"): ["1", "9"],
    AttributeName("shop", "customers", "id"): ["1", "2"],
    ODD: ["7"],
}


def test_a_pair_is_watched_from_its_page_and_what_is_told_is_shown(
    browser: Browser, address: str, watching: Watching
) -> None:
    with looking(browser, address) as look:
        page = look.open("pair?dependent=shop.orders.customer_id&referenced=shop.customers.id")
        page.get_by_role("link", name="Tell me when it breaks").press("Enter")
        expect(page.locator("h1")).to_have_text("Watches")
        expect(page.get_by_label("Dependent column")).to_have_value("shop.orders.customer_id")
        page.get_by_label("Address, or topic").fill("https://alerts.example/secret-path")
        page.get_by_label("Once it has stood").fill("0")
        page.get_by_role("button", name="Watch", exact=True).press("Enter")
        expect(page.get_by_role("status").filter(has_text="It is watched from now on")).to_be_visible()
        expect(page.locator("table")).to_contain_text("https://alerts.example/…")
        assert watching.look() == [("fired", 1, 0)]
        expect(page.locator(".transition")).to_contain_text("is broken")
        expect(page.locator(".badge.bad", has_text="1 so")).to_be_visible()
        expect(page.locator("main")).not_to_contain_text("secret-path")
        page.get_by_role("button", name="Silence shop.orders.customer_id").press("Enter")
        expect(page.locator(".card", has_text="Silences")).to_contain_text("from the dashboard")
        page.get_by_role("button", name="End silence 1").press("Enter")
        expect(page.locator(".card", has_text="Silences")).to_contain_text("There are none")
        page.get_by_role("button", name="Remove shop.orders.customer_id").press("Enter")
        page.get_by_role("button", name="Remove it").press("Enter")
        expect(page.locator("main")).to_contain_text("is gone")
    assert httpx.get(f"{address}/api/v1/watches", timeout=60).json()["items"] == []
    ((alert,),) = ([one for one in watching.alerts() if one.kind == "fired"],)
    assert alert.fault == "the watch was removed"


def test_what_is_refused_is_told_in_the_page(browser: Browser, address: str) -> None:
    with looking(browser, address) as look:
        page = look.open("watches?dependent=shop.orders.customer_id&referenced=shop.customers.id")
        page.get_by_label("Address, or topic").fill("file:///etc/passwd")
        page.get_by_role("button", name="Watch", exact=True).click()
        expect(page.get_by_role("alert")).to_contain_text("http://host/path")
        assert all("422" in one for one in look.told)
        look.told.clear()


def test_a_message_that_comes_or_goes_leaves_a_form_as_it_is(
    browser: Browser, address: str, watching: Watching
) -> None:
    watching.watches.add(new_watch(pair_rule("shop.orders.customer_id", "shop.customers.id"), "w"))
    with looking(browser, address) as look:
        page = look.open("watches")
        place = page.get_by_label("Address, or topic")
        place.fill("https://alerts.example/half")
        page.get_by_label("Tell by").select_option("slack")

        def is_as_it_was() -> None:
            expect(place).to_have_value("https://alerts.example/half")
            expect(page.get_by_label("Tell by")).to_have_value("slack")

        page.get_by_role("button", name="Silence w for an hour").click()
        expect(page.get_by_role("status").filter(has_text="It is silent for an hour")).to_be_visible()
        is_as_it_was()
        place.focus()
        page.route("**/api/v1/watches?*", lambda route: route.abort())
        failure = page.get_by_role("alert").filter(has_text="The service does not answer")
        expect(failure).to_be_visible()
        is_as_it_was()
        page.unroute("**/api/v1/watches?*")
        expect(failure).to_have_count(0)
        expect(page.get_by_role("status").filter(has_text="It is silent for an hour")).to_be_visible()
        is_as_it_was()
        expect(place).to_be_focused()
        assert all("ERR_FAILED" in one for one in look.told)
        look.told.clear()


def test_pages_of_watches_and_alerts_are_turned_and_the_pair_stays(
    browser: Browser, address: str, watching: Watching
) -> None:
    for number in range(51):
        watching.watches.add(new_watch(pair_rule("shop.orders.customer_id", "shop.customers.id"), f"w{number}"))
    watching.look()  # which tells of each
    with looking(browser, address) as look:
        page = look.open("watches?dependent=shop.orders.customer_id&referenced=shop.customers.id")
        page.get_by_role("link", name="Next page").press("Enter")
        expect(page.get_by_role("link", name="First page")).to_be_visible()
        page.get_by_role("link", name="More watches").press("Enter")
        expect(page.locator("tbody tr")).to_have_count(1)
        expect(page.get_by_role("link", name="First page")).to_be_visible()
        expect(page.get_by_label("Dependent column")).to_have_value("shop.orders.customer_id")
        page.get_by_role("link", name="First watches").press("Enter")
        expect(page.locator("tbody tr")).to_have_count(50)
        expect(page.get_by_role("link", name="First page")).to_be_visible()
        assert look.faults() == []


def test_a_list_shows_the_choice_that_is_used(browser: Browser, address: str) -> None:
    with looking(browser, address) as look:
        page = look.open("coefficients?dependent=shop.orders&referenced=shop.customers")
        expect(page.locator("table.heatmap")).to_contain_text("shop.orders in shop.customers")
        page.get_by_label("Rows of").select_option("shop.customers")
        expect(page.locator("table.heatmap")).to_contain_text("shop.customers in shop.customers")
        page.go_back()
        expect(page.locator("table.heatmap")).to_contain_text("shop.orders in shop.customers")
        expect(page.get_by_label("Rows of")).to_have_value("shop.orders")


def test_the_view_holds_harmful_names_and_is_readable_by_all(
    browser: Browser, address: str, watching: Watching
) -> None:
    watches = watching.watches
    watches.add(new_watch(pair_rule(str(ODD), "shop.customers.id"), SCRIPT))
    watching.look()
    watches.test(1)
    watches.silence(None, SCRIPT, datetime.now(UTC) + timedelta(hours=1), SCRIPT, SCRIPT)
    watches.announce(SCRIPT, None, datetime.now(UTC) + timedelta(hours=1), True, SCRIPT)
    for size, scheme in ((WIDE, "light"), (NARROW, "dark")):
        with looking(browser, address, size, scheme) as look:
            page = look.open("watches")
            expect(page.locator("main")).to_contain_text(SCRIPT)
            expect(page.locator(".card", has_text="Loads that are waited for")).to_contain_text("until it is loaded")
            assert page.title() == "Watches – subsetd"
            assert look.overflow() <= 0
            assert look.faults() == []


def test_a_question_goes_with_who_was_asked(browser: Browser, engine: Engine, watching: Watching) -> None:
    watching.watches.add(new_watch(pair_rule("shop.orders.customer_id", "shop.customers.id"), "w"))
    with serving(app_over(engine, api_key="a key")) as address, looking(browser, address) as look:
        page = look.page
        page.goto(f"{address}/#/watches")
        page.get_by_label("Key", exact=True).fill("a key")
        page.keyboard.press("Enter")
        page.get_by_role("button", name="Remove w").press("Enter")
        expect(page.get_by_role("dialog", name="Remove the watch w?")).to_be_visible()
        page.context.clear_cookies()
        expect(page.get_by_label("Key", exact=True)).to_be_visible()
        expect(page.locator("dialog[open]")).to_have_count(1)
        page.close()  # what it asks again by itself is refused as well
        assert all("401" in one for one in look.told)
        look.told.clear()
