"""The open page hears of a new version at once where it may, and asks where it may not."""

from __future__ import annotations

from contextlib import ExitStack

import pytest
from playwright.sync_api import Browser, expect
from sqlalchemy import Engine

from service.core.model import AttributeName
from tests.browser.conftest import looking
from tests.hand_made_state import HandMadeState
from tests.integration.serving import a_place, app_over, serving
from tests.waiting import wait_for

ORDERS, CUSTOMERS = AttributeName("shop", "orders", "customer_id"), AttributeName("shop", "customers", "id")
COLUMNS = {ORDERS: ["1", "2"], CUSTOMERS: ["1", "2", "3"]}
# Who asks again only after an hour shows nothing new, unless it hears of it.
RARELY = "const later = window.setTimeout; window.setTimeout = (f, ms) => later(f, ms >= 2000 ? 3_600_000 : ms)"
WAITS = f"window.waits = []; {RARELY.replace('=> later', '=> waits.push(ms) && later')}"
"""Note how long is waited as well."""

OFTEN = (
    "const later = window.setTimeout; window.setTimeout = (f, ms) => window.isStill ? 0 : later(f, Math.min(ms, 10))"
)


def streams(requested: list[str]) -> int:
    return sum(one.endswith("/api/v1/stream") for one in requested)


def test_what_breaks_is_shown_without_being_asked_for(browser: Browser, state: HandMadeState, engine: Engine) -> None:
    with serving(app_over(engine)) as address, looking(browser, address) as look:
        look.page.add_init_script(RARELY)
        page = look.open("timeline?kind=broke")
        wait_for(lambda: page.evaluate("1") and streams(look.requested) == 1)
        for value in ("ZZTOP", "ZZTOP 2"):
            state.commit(COLUMNS | {ORDERS: ["1", value]})
            expect(page.locator(".transition").first).to_contain_text(value)
            state.commit(COLUMNS)
        expect(page.locator("#link")).to_have_text(f"live, version {state.version}")
        assert streams(look.requested) == 1


@pytest.mark.parametrize("view", ["graph", "coefficients"])
def test_views_that_ask_for_much_ask_less_often_when_versions_come_fast(
    browser: Browser, state: HandMadeState, engine: Engine, view: str
) -> None:
    with serving(app_over(engine)) as address, looking(browser, address) as look:
        look.page.add_init_script(WAITS)
        page = look.open(view)
        wait_for(lambda: page.evaluate("1") and streams(look.requested) == 1)

        def is_patient() -> bool:
            """Commit a version; tell whether it is waited with for seconds since the page has asked."""
            state.commit(COLUMNS)
            return bool(page.evaluate("waits.some(one => one > 2000 && one < 5000)"))

        wait_for(is_patient)


def test_who_is_logged_in_hears_of_it_too(browser: Browser, state: HandMadeState, engine: Engine) -> None:
    with serving(app_over(engine, api_key="a key")) as address, looking(browser, address) as look:
        look.page.goto(address)
        look.page.get_by_label("Key", exact=True).fill("a key")
        look.page.keyboard.press("Enter")
        expect(look.page.locator("#link")).to_have_text("live, version 1")
        state.commit(COLUMNS | {ORDERS: ["1", "ZZTOP"]})
        expect(look.page.locator("#link")).to_have_text("live, version 2")
        wait_for(lambda: look.page.evaluate("1") and streams(look.requested) == 1)
        look.told.clear()


def test_the_stream_is_taken_up_again_where_a_restart_broke_it(
    browser: Browser, state: HandMadeState, engine: Engine
) -> None:
    with a_place() as place, ExitStack() as first:
        address = first.enter_context(serving(app_over(engine), place))
        with looking(browser, address) as look:
            look.page.add_init_script(RARELY)
            page = look.open("timeline?kind=broke")
            wait_for(look.hears)
            first.close()
            state.commit(COLUMNS | {ORDERS: ["1", "ZZTOP"]})
            with serving(app_over(engine), place):
                expect(page.locator(".transition")).to_contain_text("ZZTOP")
                wait_for(lambda: page.evaluate("1") and streams(look.requested) > 1)  # a question may come first
                look.page.goto("about:blank")
            look.told.clear()


def test_a_page_that_is_left_open_stays_small(browser: Browser, state: HandMadeState, engine: Engine) -> None:
    with serving(app_over(engine)) as address, looking(browser, address) as look:
        look.page.add_init_script(OFTEN)
        page = look.open("timeline")
        looker = page.context.new_cdp_session(page)

        looker.send("Performance.enable")

        def let_happen(versions: int, questions: int) -> None:
            """Commit so many versions, let the page ask so often after them, and then no more."""
            page.evaluate("isStill = false; document.dispatchEvent(new Event('visibilitychange'))")
            for _ in range(versions // 2):
                state.commit(COLUMNS | {ORDERS: ["1", "ZZTOP"]})
                state.commit(COLUMNS)
            expect(page.locator("#link")).to_have_text(f"live, version {state.version}")
            asked = len(look.requested)
            wait_for(lambda: page.evaluate("1") and len(look.requested) >= asked + questions)
            page.evaluate("isStill = true")

        def left() -> dict[str, float]:
            looker.send("HeapProfiler.collectGarbage")
            return {one["name"]: one["value"] for one in looker.send("Performance.getMetrics")["metrics"]}

        def is_small() -> bool:
            """Tell whether nothing has grown; what the last question has left may have to go first."""
            now = left()
            return (
                now["Nodes"] < before["Nodes"] * 1.2
                and now["JSEventListeners"] < before["JSEventListeners"] * 1.2
                and now["JSHeapUsedSize"] < before["JSHeapUsedSize"] + 2_000_000
            )

        let_happen(versions=60, questions=50)
        before, shown = left(), page.locator("*").count()
        let_happen(versions=60, questions=300)
        expect(page.locator("*")).to_have_count(shown)
        wait_for(is_small)
        expect(page.locator(".transition")).to_have_count(50)
