"""What the dashboard's shell says of a service that is away, busy or another's, and what it keeps of whom."""

from __future__ import annotations

from contextlib import ExitStack

import httpx
import pytest
from playwright.sync_api import APIResponse, Browser, Page, Route, expect
from sqlalchemy import Engine

from service.api import access as access_module
from service.core.model import AttributeName
from service.store.database import make_engine
from service.store.embedded import EmbeddedPostgres
from service.store.foreign_key_refreshes import PostgresForeignKeys
from service.usecases.foreign_key_answers import ForeignKeyFinder
from service.usecases.foreign_keys import Keys, Question
from tests.asking import http_client
from tests.browser.conftest import looking
from tests.corpora import GivenCorpus, GivenTable
from tests.hand_made_state import HandMadeState
from tests.integration.serving import a_place, app_over, serving
from tests.postgres import TEMPLATE, fresh_database
from tests.waiting import wait_for

ORDERS, CUSTOMERS = AttributeName("shop", "orders", "customer_id"), AttributeName("shop", "customers", "id")
COLUMNS = {ORDERS: ["1", "2"], CUSTOMERS: ["1", "2", "3"]}
WAITS = (
    "const later = setTimeout; window.waits = []; window.setTimeout = (f, ms) => later(f, waits[waits.push(ms) - 1])"
)


def test_where_a_key_is_wanted_foreign_keys_can_be_found_for_the_first_time(browser: Browser, engine: Engine) -> None:
    with serving(app_over(engine, api_key="a key")) as address, looking(browser, address) as look:
        page = look.page
        page.goto(f"{address}/#/foreign-keys")
        page.get_by_label("Key", exact=True).fill("a key")
        page.keyboard.press("Enter")
        expect(page.locator("main")).to_contain_text("None was looked for yet")
        expect(page.locator("#link")).to_have_text("live")
        page.get_by_role("button", name="Find foreign keys").press("Enter")
        expect(page.get_by_role("button", name="Accept shop.orders.customer_id")).to_be_visible()
        assert all("401" in one for one in look.told)
        look.told.clear()


def test_a_defect_of_the_page_is_not_told_as_a_service_that_is_away(browser: Browser, engine: Engine) -> None:
    with serving(app_over(engine)) as address, looking(browser, address) as look:
        look.page.route("**/api/v1/changes?*", lambda route: route.fulfill(json={"items": None, "next_cursor": None}))
        page = look.page
        page.goto(f"{address}/#/timeline")
        expect(page.get_by_role("alert")).to_contain_text("this page cannot show it")
        expect(page.locator("#link")).to_have_text("defect")
        assert look.told
        assert all("TypeError" in one for one in look.told), "who looks for the defect finds where it is"
        page.goto("about:blank")  # it would ask again, and tell again
        look.told.clear()


def test_a_service_that_is_busy_is_let_rest_and_its_view_stays(
    browser: Browser, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(access_module, "BURST_SECONDS", 10_000.0)
    with (
        serving(app_over(engine, requests_per_second=0.01)) as address,  # a hundred at once
        looking(browser, address) as look,
        http_client(base_url=address, timeout=60) as client,
    ):
        look.page.add_init_script(WAITS)
        page = look.open("timeline")
        expect(page.locator(".transition")).to_have_count(1)
        while client.get("/api/v1/state").status_code != 429:
            pass
        with page.expect_response(lambda answer: answer.status == 429) as refused:
            page.evaluate("document.dispatchEvent(new Event('visibilitychange'))")
        expect(page.get_by_role("alert")).to_contain_text("goes on by itself")
        expect(page.locator("#link")).to_have_text("busy")
        expect(page.locator(".transition")).to_have_count(1)
        seconds = int(refused.value.headers["retry-after"])
        assert seconds > 15, "longer than the page waits by itself"
        assert max(page.evaluate("waits")) > (seconds - 1) * 1000
        assert all("429" in one for one in look.told)
        look.told.clear()


def test_a_version_that_comes_is_shown_and_not_read_aloud(
    browser: Browser, engine: Engine, state: HandMadeState
) -> None:
    with serving(app_over(engine)) as address, looking(browser, address) as look:
        page = look.open("timeline")
        standing = page.get_by_role("status")
        expect(standing).to_have_text("live")
        page.evaluate(
            "window.heard = 0; new MutationObserver(() => { heard += 1 }).observe("
            "document.getElementById('standing'), { childList: true, characterData: true, subtree: true })"
        )
        state.commit(COLUMNS | {ORDERS: ["1", "ZZTOP"]})
        expect(page.locator("#link")).to_have_text("live, version 2")
        assert page.evaluate("heard") == 0
        expect(page.locator("[role=status], [aria-live]")).to_have_count(1)


def test_the_generation_of_a_corpus_is_not_told_as_the_version_of_the_state(
    browser: Browser, engine: Engine, database_url: str
) -> None:
    corpus = GivenCorpus(database_url)
    corpus.refresh({(1, 2, 3)}, [GivenTable(0, "orders.csv", 0, ["id", "who"]), GivenTable(1, "people.csv", 2, ["id"])])
    corpus.refresh({(0, 2, 3), (1, 2, 3)}, [])
    with serving(app_over(engine)) as address, looking(browser, address) as look:
        page = look.open("graph?corpus=lake")
        expect(page.locator("svg.graph")).to_be_visible()
        expect(page.locator("#link")).to_have_text("live")
        look.open("graph")
        expect(page.locator("#link")).to_have_text("live, version 1")


def test_a_page_that_is_paused_changes_when_that_is_wanted(
    browser: Browser, engine: Engine, state: HandMadeState
) -> None:
    with serving(app_over(engine)) as address, looking(browser, address) as look:
        look.page.clock.install()
        page = look.open("timeline")
        expect(page.locator("#link")).to_have_text("live, version 1")
        page.get_by_role("button", name="Pause updates").press("Enter")
        expect(page.locator("#link")).to_have_text("paused, version 1")
        asked = len(look.requested)
        state.commit(COLUMNS | {ORDERS: ["1", "ZZTOP"]})
        page.clock.run_for(60_000)
        page.evaluate("document.dispatchEvent(new Event('visibilitychange'))")
        page.evaluate("new Promise((resolve) => requestAnimationFrame(resolve))")
        assert len(look.requested) == asked, "it asks nothing, nor does it listen"
        expect(page.locator(".transition")).to_have_count(1)
        page.get_by_role("link", name="broke", exact=True).press("Enter")  # what is opened is of now
        expect(page.locator("main")).to_contain_text("ZZTOP")
        expect(page.locator("#link")).to_have_text("paused, version 2")
        assert look.faults() == []
        state.commit(COLUMNS)
        page.get_by_role("button", name="Resume updates").press("Enter")
        expect(page.locator("#link")).to_have_text("live, version 3")


def test_another_state_of_the_same_version_at_the_same_address_is_shown(
    browser: Browser, engine: Engine, state: HandMadeState, postgres_server: EmbeddedPostgres
) -> None:
    state.commit(COLUMNS | {ORDERS: ["1", "OF BEFORE"]})
    with ExitStack() as kept:
        restored_url = kept.enter_context(fresh_database(postgres_server, TEMPLATE))
        restored = HandMadeState(restored_url, COLUMNS)
        restored.commit(COLUMNS | {ORDERS: ["1", "RESTORED"]})
        restored.close()
        other = make_engine(restored_url, "test-dashboard")
        kept.callback(other.dispose)
        place = kept.enter_context(a_place())
        first = kept.enter_context(ExitStack())
        address = first.enter_context(serving(app_over(engine), place))
        look = kept.enter_context(looking(browser, address))
        page = look.open("timeline?kind=broke")
        expect(page.locator(".transition")).to_contain_text("OF BEFORE")
        wait_for(look.hears)  # or nothing would tell it that the service has gone, and come back
        first.close()
        with serving(app_over(other), place):
            expect(page.locator(".transition")).to_contain_text("RESTORED")
            look.page.goto("about:blank")
        look.told.clear()


def test_who_logs_in_next_sees_no_file_of_who_has_left(browser: Browser, engine: Engine) -> None:
    with serving(app_over(engine, api_key="a key")) as address, looking(browser, address) as look:
        page = look.page
        page.goto(f"{address}/#/joinable")
        key = page.get_by_label("Key", exact=True)
        key.fill("a key")
        key.press("Enter")
        page.get_by_label("A CSV with a header").set_input_files(
            {"name": "salaries.csv", "mimeType": "text/csv", "buffer": b"name,salary\nAda,7\n"}
        )
        expect(page.locator("main")).to_contain_text("Key columns of salaries.csv")
        page.get_by_role("button", name="Log out").press("Enter")
        key.fill("a key")
        key.press("Enter")
        expect(page.locator("h1")).to_have_text("Joinable tables")
        expect(page.locator("main")).not_to_contain_text("salar")
        assert all("401" in one for one in look.told)
        look.told.clear()


def test_who_logs_out_leaves_no_name_in_the_memory_of_the_page(browser: Browser, engine: Engine) -> None:
    ForeignKeyFinder(PostgresForeignKeys(engine)).refresh(Question(keys=Keys.INFERRED))
    held: list[tuple[Route, APIResponse]] = []
    with serving(app_over(engine, api_key="a key")) as address, looking(browser, address) as look:
        page = look.page
        page.goto(f"{address}/#/graph")
        page.get_by_label("Key", exact=True).fill("a key")
        page.keyboard.press("Enter")
        expect(page.locator("a.node")).to_have_count(2)
        assert [name in heap(page) for name in ("shop.orders", "customer_id")] == [True, True]
        page.route("**/api/v1/foreign-keys?*limit=50*", lambda route: held.append((route, route.fetch())))
        page.get_by_role("link", name="Foreign keys", exact=True).first.press("Enter")
        wait_for(lambda: page.evaluate("1") and held)
        page.get_by_role("button", name="Log out").press("Enter")
        expect(page.get_by_label("Key", exact=True)).to_be_focused()
        ((route, answer),) = held
        with page.expect_event("requestfinished", lambda request: request == route.request):
            route.fulfill(response=answer)  # was on its way when they left
        wait_for(lambda: [name in heap(page) for name in ("shop.orders", "customer_id")] == [False, False])
        assert all("401" in one for one in look.told)
        look.told.clear()


def heap(page: Page) -> str:
    """Give all that the scripts of a page can still come to."""
    parts: list[str] = []
    looker = page.context.new_cdp_session(page)
    looker.on("HeapProfiler.addHeapSnapshotChunk", lambda event: parts.append(event["chunk"]))
    looker.send("HeapProfiler.takeHeapSnapshot")
    looker.detach()
    return "".join(parts)


def test_what_was_said_of_a_deed_goes_after_a_while(browser: Browser, engine: Engine) -> None:
    with serving(app_over(engine)) as address, looking(browser, address) as look:
        look.page.clock.install()
        page = look.open("pair?dependent=shop.orders.customer_id&referenced=shop.customers.id")
        page.get_by_role("button", name="Watch it as a contract").press("Enter")
        said = page.get_by_role("status").filter(has_text="It is watched as a contract now")
        expect(said).to_be_visible()
        page.clock.run_for(20_000)
        expect(said).to_be_visible()
        page.clock.run_for(60_000)
        expect(said).to_have_count(0)


def test_who_could_not_be_logged_out_is_told_so(browser: Browser, engine: Engine) -> None:
    with serving(app_over(engine, api_key="a key")) as address, looking(browser, address) as look:
        page = look.page
        page.goto(address)
        page.get_by_label("Key", exact=True).fill("a key")
        page.keyboard.press("Enter")
        expect(page.locator("#who")).to_have_text("SUBSETD_API_KEY: admin")
        page.route("**/api/v1/session", lambda route: route.fulfill(status=503, json={"detail": "It is away."}))
        page.get_by_role("button", name="Log out").press("Enter")
        expect(page.get_by_role("alert").first).to_have_text("You are still logged in: It is away.")
        page.unroute_all()
        page.route("**/api/v1/session", lambda route: route.abort())
        page.get_by_role("button", name="Log out").press("Enter")
        expect(page.get_by_role("alert").first).to_contain_text("whether you are logged out is not known")
        page.unroute_all()
        expect(page.locator("#link")).to_have_text("live, version 1")
        expect(page.get_by_role("alert")).to_have_count(1)
        assert all(any(one in told for one in ("401", "503", "ERR_FAILED")) for told in look.told)
        look.told.clear()


def test_a_tab_shows_and_does_nothing_as_another_who_has_logged_in_meanwhile(browser: Browser, engine: Engine) -> None:
    with serving(app_over(engine, api_key="a key")) as address, looking(browser, address) as look:
        page, session = look.page, f"{address}/api/v1/session"
        made = {"headers": {"Authorization": "Bearer a key"}, "json": {"name": "bob", "scope": "admin"}}
        key = httpx.post(f"{address}/api/v1/api-keys", timeout=60, **made).json()["key"]
        page.goto(f"{address}/#/joinable")
        page.get_by_label("Key", exact=True).fill("a key")
        page.keyboard.press("Enter")
        page.get_by_label("A CSV with a header").set_input_files(
            {"name": "salaries.csv", "mimeType": "text/csv", "buffer": b"name,salary\nAda,7\n"}
        )
        expect(page.locator("main")).to_contain_text("Key columns of salaries.csv")
        turn = "document.dispatchEvent(new Event('visibilitychange'))"
        page.evaluate(f"Object.defineProperty(document, 'hidden', {{ configurable: true, value: true }}); {turn}")
        page.request.post(session, data={"key": key})
        page.evaluate(f"delete document.hidden; {turn}")
        expect(page.locator("#who")).to_have_text("bob: admin")
        expect(page.locator("main")).to_contain_text("Joinable tables")
        expect(page.locator("main")).not_to_contain_text("salar")
        page.get_by_role("link", name="Foreign keys", exact=True).press("Enter")
        expect(page.locator("main")).to_contain_text("the name of your key, bob")
        page.request.post(session, data={"key": "a key"})
        page.get_by_role("button", name="Find foreign keys").press("Enter")
        expect(page.get_by_role("alert")).to_contain_text("Nothing was done")
        expect(page.locator("main")).to_contain_text("the name of your key, SUBSETD_API_KEY")
        expect(page.locator("main")).to_contain_text("None was looked for yet")
        assert all("401" in one or "403" in one for one in look.told)
        look.told.clear()


def test_what_became_of_a_deed_is_not_said_to_who_logs_in_next(browser: Browser, engine: Engine) -> None:
    with serving(app_over(engine, api_key="a key")) as address, looking(browser, address) as look:
        page = look.page
        made = {"headers": {"Authorization": "Bearer a key"}, "json": {"name": "bob", "scope": "admin"}}
        key = httpx.post(f"{address}/api/v1/api-keys", timeout=60, **made).json()["key"]
        page.goto(f"{address}/#/pair?dependent=shop.orders.customer_id&referenced=shop.customers.id")
        page.get_by_label("Key", exact=True).fill("a key")
        page.keyboard.press("Enter")
        held: list[Route] = []
        page.route("**/api/v1/contracts", lambda route: held.append(route))  # noqa: PLW0108 - a builtin is no handler
        with page.expect_request("**/api/v1/contracts"):
            page.get_by_role("button", name="Watch it as a contract").press("Enter")
        page.get_by_role("button", name="Log out").press("Enter")
        expect(page.get_by_label("Key", exact=True)).to_be_focused()
        with page.expect_response("**/api/v1/contracts"):
            held[0].fulfill(status=409, json={"detail": "The salaries are watched already."})
        page.get_by_label("Key", exact=True).fill(key)
        page.keyboard.press("Enter")
        expect(page.locator("#who")).to_have_text("bob: admin")
        expect(page.locator("h1")).to_contain_text("shop.orders.customer_id")
        expect(page.get_by_text("The salaries are watched already.")).to_have_count(0)
        assert all(any(one in told for one in ("401", "409")) for told in look.told)
        look.told.clear()


def test_what_was_done_is_not_said_of_the_pair_that_was_opened_meanwhile(
    browser: Browser, engine: Engine, state: HandMadeState
) -> None:
    with serving(app_over(engine)) as address, looking(browser, address) as look:
        page = look.open("pair?dependent=shop.orders.customer_id&referenced=shop.customers.id")
        held: list[Route] = []
        page.route("**/api/v1/contracts", lambda route: held.append(route))  # noqa: PLW0108 - a builtin is no handler
        with page.expect_request("**/api/v1/contracts"):
            page.get_by_role("button", name="Watch it as a contract").press("Enter")
        page.evaluate("location.hash = '#/pair?dependent=shop.customers.id&referenced=shop.orders.customer_id'")
        expect(page.locator("h1")).to_contain_text("shop.customers.id ⊄")
        with page.expect_response("**/api/v1/contracts"):
            held[0].continue_()
        state.commit(COLUMNS | {ORDERS: ["1", "ZZTOP"]})
        expect(page.locator("#link")).to_have_text("live, version 2")
        expect(page.get_by_text("It is watched as a contract now")).to_have_count(0)
