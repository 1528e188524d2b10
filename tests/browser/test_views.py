"""The dashboard in a real browser, over the real service: its views by sight, by keyboard, in the dark and narrow."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from urllib.parse import quote, urlsplit

import pytest
from playwright.sync_api import Browser, expect
from prometheus_client import CollectorRegistry

from service.core.errors import SourceError
from service.core.model import AttributeName
from service.observe import ConsumerObserver
from service.store.bootstrap_runs import told_bootstrap
from service.store.database import make_engine
from service.store.embedded import EmbeddedPostgres
from service.store.foreign_key_refreshes import PostgresForeignKeys
from service.usecases.corpora import CorpusFault
from service.usecases.foreign_key_answers import ForeignKeyFinder
from service.usecases.foreign_keys import Keys, Question
from tests import states
from tests.browser.conftest import NARROW, WIDE, looking
from tests.corpora import GivenCorpus, GivenTable
from tests.hand_made_state import HandMadeState
from tests.integration.serving import app_over, serving
from tests.postgres import TEMPLATE, fresh_database

SCRIPT = "<script>document.title='pwned'</script><img src=x onerror=alert(1)>"
ORDERS = AttributeName("shop", "orders", "customer_id")
CUSTOMERS = AttributeName("shop", "customers", "id")
ODD = AttributeName(SCRIPT, f"{SCRIPT}'\"", "a b\n&amp;")
OTHER = AttributeName(SCRIPT, "other", "x")
COLUMNS = {ORDERS: ["1", "2"], CUSTOMERS: ["1", "2", "3"], ODD: ["1"], OTHER: ["1", SCRIPT]}

VIEWS = {
    "": SCRIPT,
    "timeline": SCRIPT,
    "graph": "Graph of inclusion dependencies",
    "graph?layer=all": SCRIPT,
    "graph?layer=inds": "that others do not imply",
    f"graph?layer=all&around={quote('shop.customers')}&from={quote('shop.orders')}&to={quote('shop.customers')}": "id",
    "graph?contains=script": SCRIPT,
    "graph?corpus=lake&component=0": SCRIPT,
    "coefficients": SCRIPT,
    "foreign-keys?all=1": SCRIPT,
    "corpora": SCRIPT,
    "corpora?corpus=lake&refresh=2": SCRIPT,
    "audits": SCRIPT,
    "dead-letters": SCRIPT,
    "pair?dependent=id:2&referenced=id:1": SCRIPT,
}
"""Each view, and what it has to show."""


BEYOND = """
async told => {
  const { health } = await import('/dashboard/overview.js');
  const overview = await (await fetch('/api/v1/overview')).json();
  const [, name, ...text] = health({ ...overview, ...told }).at(-1);
  return `${name}: ${text.map(one => one.textContent ?? one).join('')}`;
}
"""
"""Tell of an overview the last line of its health."""


@pytest.fixture(scope="module")
def full(postgres_server: EmbeddedPostgres) -> Iterator[str]:
    """Serve a state with something to show in every view, whose names and texts are made to harm."""
    with fresh_database(postgres_server, TEMPLATE) as url:
        state = HandMadeState(url, COLUMNS)
        state.commit(COLUMNS | {ODD: ["1", SCRIPT]})
        state.close()
        tables = [GivenTable(0, f"{SCRIPT}.csv", 0, [SCRIPT, "b"]), GivenTable(1, "customers.csv", 2, ["id"])]
        for name in ("lake", SCRIPT):
            corpus = GivenCorpus(url, name)
            corpus.refresh({(0, 2, 5)}, tables)
            faults = [CorpusFault(f"{SCRIPT}.csv", SCRIPT)]
            corpus.refresh({(0, 2, 5), (1, 2, 3)}, [], faults=faults, files={"faults": 1})
        corpus.queue()
        report = {
            "examples": {"not_served": [], "not_holding": [[str(ODD), str(CUSTOMERS)]]},
            "filters": {
                "null_column": {"dependent_columns": 1, "referenced_columns": 1, "inds": 1, "inds_alone": 1}
            },
            "inds_left": 1, "sketch_only": 1, "algorithm": "rarest-first", "seconds": {"find": 1.5},
        }  # fmt: skip
        states.execute(
            url,
            "insert into audit (version, started_at, attributes, value_count, inds, not_served, not_holding, report)"
            f" values (1, now(), 3, 9, 2, 0, 1, '{json.dumps(report).replace(chr(39), chr(39) * 2)}')",
        )
        states.execute(
            url,
            "insert into dead_letter (feed, topic, partition, record_offset, error_class, message, record, version)"
            f" select $s${SCRIPT}$s$, $s${SCRIPT}$s$, 0, 7, 'RecordError', $s${SCRIPT}$s$, $s${SCRIPT}$s$, 2",
        )
        engine = make_engine(url, "test-dashboard")
        ForeignKeyFinder(PostgresForeignKeys(engine)).refresh(Question(theta=0.1, keys=Keys.INFERRED))
        with serving(app_over(engine)) as found:
            yield found
        engine.dispose()


@pytest.mark.parametrize(
    ("size", "scheme", "views"),
    [
        # Each view in both widths and both colours, which have little to do with each other.
        (WIDE, "light", slice(0, None, 2)),
        (NARROW, "dark", slice(0, None, 2)),
        (WIDE, "dark", slice(1, None, 2)),
        (NARROW, "light", slice(1, None, 2)),
    ],
)
def test_axe_finds_nothing_and_nothing_is_cut_off_or_run(
    browser: Browser, full: str, size: tuple[int, int], scheme: str, views: slice
) -> None:
    with looking(browser, full, size, scheme) as look:
        for view, shown in list(VIEWS.items())[views]:
            page = look.open(view)
            expect(page.locator("main")).to_contain_text(shown)
            assert look.faults() == [], view
            assert look.overflow() <= 0, view
            assert page.locator("main script, main img").count() == 0
            assert "pwned" not in page.title()


def test_an_ind_that_breaks_is_on_the_page_that_is_open(browser: Browser, address: str, state: HandMadeState) -> None:
    with looking(browser, address) as look:
        page = look.open("timeline?kind=broke")
        expect(page.locator(".empty")).to_be_visible()
        state.commit(COLUMNS | {ORDERS: ["1", "2", "ZZTOP"]})
        card = page.locator(".transition")
        expect(card).to_have_count(1)
        for text in (
            "broke",
            "shop.orders.customer_id",
            "shop.customers.id",
            "ZZTOP",
            "row of shop.orders",
            "17",
            "t / 0 @ 2",
            "version 2",
        ):
            expect(card).to_contain_text(text)
        look.open("")
        expect(page.locator(".transition")).to_contain_text("ZZTOP")
        expect(page.locator(".tile").first).to_contain_text("2")


def test_what_ails_a_feed_is_told_with_when_its_consumer_said_so(
    browser: Browser, state: HandMadeState, address: str, database_url: str
) -> None:
    states.execute(
        database_url,
        "insert into feed (feed, address, fault, fault_at)"
        " values ('file:/shop', 'file:/shop', 'The disk is full.', now());"
        "insert into feed_position (feed, topic, partition, next_offset, version)"
        " values ('file:/shop', 'shop', 0, 7, 1)",
    )
    with looking(browser, address) as look:
        told = look.open("").locator(".health li", has_text="file:/shop")
        expect(told).to_contain_text("Its consumer said just now: The disk is full.")
        expect(told.locator(".badge.bad")).to_contain_text("feed")
        assert look.faults() == []


def test_a_row_without_a_key_is_told_by_what_it_has(
    browser: Browser, address: str, state: HandMadeState, database_url: str
) -> None:
    state.commit(COLUMNS | {ORDERS: ["1", "2", "ZZTOP"]})
    row = {"table": "shop.orders", "key": {}, "cells": {"customer_id": "ZZTOP", "note": None, "city": ""}}
    states.execute(database_url, f"update ind_transition set changed_row = '{json.dumps(row)}'")
    with looking(browser, address) as look:
        why = look.open("timeline").locator(".transition .why").first
        expect(why).to_contain_text("row of shop.orders · city empty text · note NULL · customer_id ZZTOP")
        assert look.faults() == []


def test_lag_has_its_unit_a_feed_without_a_consumer_is_told_and_what_is_to_come_is_not_just_now(
    browser: Browser, state: HandMadeState, database_url: str
) -> None:
    state.commit(COLUMNS | {ORDERS: ["1", "2", "4"]})
    states.execute(
        database_url,
        "update state_version set committed_at = now() + interval '150 minutes';"
        "insert into feed_position (feed, topic, partition, next_offset, source_position, version)"
        " values ('file:/shop', 'shop', 0, 7, '{}', 2)",
    )
    engine, registry = make_engine(database_url, "test-dashboard"), CollectorRegistry()
    observer = ConsumerObserver(registry, lag_unit="bytes")
    observer.waiting({("feed", 0): 512})
    app = app_over(engine, registry=registry)
    app.state.lag_unit = observer.lag_unit
    with serving(app) as address, looking(browser, address) as look:
        page = look.open()
        tiles = page.locator(".tile")
        expect(tiles.filter(has_text="Lag")).to_contain_text("512bytes behind for")
        expect(tiles.filter(has_text="State version")).to_contain_text("committed 2 h in the future")
        expect(page.locator(".health")).to_contain_text("nobody follows it")
        observer.waiting(None)  # what it is read from is away
        expect(tiles.filter(has_text="Lag")).to_contain_text("its feed does not tell")
        expect(tiles.filter(has_text="Lag")).not_to_contain_text("no consumer")
    engine.dispose()


def test_an_id_is_shown_as_it_is_typed(browser: Browser, address: str, database_url: str) -> None:
    states.execute(
        database_url,
        "insert into dead_letter (dead_letter_id, feed, topic, partition, record_offset, error_class, message, record,"
        " version) overriding system value values (1234, 'f', 't', 0, 7, 'RecordError', 'm', 'r', 1)",
    )
    with looking(browser, address) as look:
        expect(look.open("dead-letters").locator("main h2")).to_contain_text("1234 · RecordError")


def test_fewer_minutes_than_are_drawn_stand_at_their_place_in_all(browser: Browser, address: str) -> None:
    draw = """async () => {
      const { bars } = await import('/dashboard/bars.js');
      const begin = new Date().toISOString();
      const made = bars('Changes', [{ begin }, { begin }], [['changes', 'accent', () => 1]]);
      const [first] = made.querySelectorAll('rect');
      return [first.getAttribute('x'), made.querySelector('figcaption span').textContent];
    }"""
    with looking(browser, address) as look:
        x, told = look.open().evaluate(draw)
        width = 600 / int(told.removesuffix(" min ago"))  # of a minute
        assert float(x) == 600 - 2 * width + 2


def test_of_corpora_that_are_not_listed_it_is_told_how_many_are_at_fault(browser: Browser, full: str) -> None:
    with looking(browser, full) as look:
        page = look.open()
        for at_fault, told in (
            (2, "corpora: and 5 others without a fault"),
            (6, "corpora: and 5 others, 4 of them at fault"),
        ):
            assert page.evaluate(BEYOND, {"corpora_beyond": 5, "corpora_at_fault": at_fault}) == told


def test_a_bootstrap_that_runs_and_one_that_failed_are_on_the_overview(
    browser: Browser, address: str, database_url: str
) -> None:
    with looking(browser, address, NARROW, "dark") as look:
        page = look.open()
        main = page.locator("main")
        expect(main).not_to_contain_text("Bootstraps")
        with suppress(SourceError), told_bootstrap(database_url, SCRIPT) as row:
            row.tell("counting values", 10, 40)
            look.open()
            told = re.compile(r"counting values: 10 of 40 \(25 %\), should end at \d+ \w+ \d{4}, \d\d:\d\d:\d\d")
            expect(main).to_contain_text(told)
            expect(page.get_by_role("progressbar", name=f"{SCRIPT}: counting values")).to_have_attribute("value", "10")
            assert look.faults() == []
            assert look.overflow() <= 0
            row.tell("storing records", 1, 8)
            expect(main).to_contain_text("storing records: 1 of 8")  # of itself, on the page that is open
            raise SourceError("orders.csv: line 7 has 3 cells")
        expect(main.locator(".fault")).to_have_text("orders.csv: line 7 has 3 cells")
        assert look.faults() == []


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
        expect(page.locator("#who")).to_have_text("SUBSETD_API_KEY: admin")
        assert look.faults() == []
        # What is sent has the session's token, also when another tab logs in meanwhile.
        send = "name => import('/dashboard/api.js').then(api => api.post('/api/v1/api-keys', { name }))"
        assert page.evaluate(send, "one")["prefix"]
        page.evaluate(
            "fetch('/api/v1/session', { method: 'POST', headers: { 'Content-Type': 'application/json' }, "
            "body: JSON.stringify({ key: 'a key' }) })"
        )
        assert page.evaluate(send, "two")["prefix"]
        look.told = [one for one in look.told if "403" not in one]
        kept = page.evaluate("JSON.stringify([localStorage, sessionStorage, document.cookie])")
        assert "a key" not in kept
        assert "subsetd_session" not in kept, "no script can read the cookie"
        (cookie,) = page.context.cookies()
        assert (cookie["name"], cookie["httpOnly"], cookie["sameSite"]) == (
            f"subsetd_session_{urlsplit(address).port}",
            True,
            "Strict",
        )
        page.get_by_role("button", name="Log out").click()
        expect(field).to_be_focused()
        expect(page.locator("main")).to_contain_text("Nothing is shown")
        assert all("a key" not in one and "a%20key" not in one for one in look.requested)
        page.reload()
        expect(field).to_be_focused()
        assert page.context.cookies() == []
        page.goto("about:blank")  # the first refusal asks for the key; another one may be under way
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
