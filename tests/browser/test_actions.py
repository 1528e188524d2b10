"""What is done from the dashboard is done in the service, by mouse and by keyboard; who comes second is told."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from playwright.sync_api import Browser, Route, expect
from sqlalchemy import Engine, text

from service.api.routes_foreign_keys import CANDIDATES
from service.core.model import AttributeName
from service.store.database import make_engine
from service.store.foreign_key_refreshes import PostgresForeignKeys
from service.usecases.batches import ErrorPolicy
from service.usecases.foreign_key_answers import ForeignKeyFinder
from service.usecases.foreign_keys import Keys, Question
from tests import states
from tests.browser.conftest import looking
from tests.corpora import GivenCorpus, GivenTable
from tests.following import MakeStream, consume, shop_tables
from tests.integration.serving import app_over, serving

COLUMNS = {
    AttributeName("shop", "orders", "customer_id"): ["1", "2", "2"],
    AttributeName("shop", "customers", "id"): ["1", "2", "3"],
    AttributeName("shop", "invoices", "customer_id"): ["3", "3"],
}
# A page that is begun late is told only then that it can be seen, and would ask once more.
NO_POLLING = """
window.setTimeout = () => 0
document.addEventListener("visibilitychange", event => event.stopImmediatePropagation())
"""
FORBIDDEN = "Object.defineProperty(window, 'localStorage', { get() { throw new DOMException('It is denied.') } })"


@pytest.fixture
def engine(engine: Engine) -> Engine:
    """Make a shop whose foreign keys were looked for."""
    ForeignKeyFinder(PostgresForeignKeys(engine)).refresh(Question(keys=Keys.INFERRED))
    return engine


@pytest.fixture
def address(engine: Engine, database_url: str) -> Iterator[str]:
    """Serve it with a corpus."""
    lake = GivenCorpus(database_url)
    lake.refresh({(1, 2, 3)}, [GivenTable(0, "orders.csv", 0, ["id", "who"]), GivenTable(1, "people.csv", 2, ["id"])])
    with serving(app_over(engine)) as found:
        yield found


def test_a_foreign_key_is_accepted_with_the_name_of_who_did(browser: Browser, address: str) -> None:
    with looking(browser, address) as look:
        page = look.open("foreign-keys?all=1")
        page.get_by_label("Your name").fill("Ada")
        accept = page.get_by_role("button", name="Accept shop.orders.customer_id to shop.customers.id")
        accept.press("Enter")
        expect(accept).to_be_disabled()
        expect(page.locator(".badge.good", has_text="accepted")).to_have_count(1)
        expect(page.locator("main")).to_contain_text("Found in version 1.")
        expect(page.locator("#link")).to_have_text("live")  # the state may have gone on since
    (decision,) = httpx.get(f"{address}/api/v1/foreign-keys/decisions", timeout=60).json()["items"]
    assert (decision["verdict"], decision["decided_by"]) == ("accept", "Ada")
    (contract,) = httpx.get(f"{address}/api/v1/contracts", timeout=60).json()["items"]
    assert contract["dependent"] == [["shop", "orders", "customer_id"]]


def test_where_the_browser_keeps_nothing_the_page_keeps_a_name(browser: Browser, address: str) -> None:
    with looking(browser, address) as look:
        look.page.add_init_script(FORBIDDEN)
        page = look.open("foreign-keys?all=1")
        page.get_by_label("Your name").fill("Ada")
        page.get_by_label("Colours").select_option("dark")
        accept = page.get_by_role("button", name="Accept shop.orders.customer_id to shop.customers.id")
        accept.press("Enter")
        expect(page.locator(".badge.good", has_text="accepted")).to_have_count(1)
    (decision,) = httpx.get(f"{address}/api/v1/foreign-keys/decisions", timeout=60).json()["items"]
    assert decision["decided_by"] == "Ada"


def test_where_keys_are_wanted_a_decision_has_the_name_of_the_key(browser: Browser, engine: Engine) -> None:
    with serving(app_over(engine, api_key="a key")) as address, looking(browser, address) as look:
        page = look.page
        page.goto(f"{address}/#/foreign-keys?all=1")
        page.get_by_label("Key", exact=True).fill("a key")
        page.get_by_role("button", name="Log in").click()
        expect(page.locator("main")).to_contain_text("the name of your key, SUBSETD_API_KEY")
        expect(page.get_by_label("Your name")).to_have_count(0)
        accept = page.get_by_role("button", name="Accept shop.orders.customer_id to shop.customers.id")
        accept.press("Enter")
        expect(page.locator(".badge.good", has_text="accepted")).to_have_count(1)
        assert look.faults() == []
        look.told = [one for one in look.told if "401" not in one]
    with engine.connect() as connection:
        decided = connection.execute(text("select decided_by from foreign_key_decision")).scalars().all()
        created = connection.execute(text("select created_by from contract")).scalars().all()
    assert (decided, created) == (["SUBSETD_API_KEY"], ["SUBSETD_API_KEY"])


def test_what_was_accepted_is_exported(browser: Browser, address: str, tmp_path: Path) -> None:
    with looking(browser, address) as look:
        page = look.open("foreign-keys?more=1")
        expected = httpx.get(f"{address}/api/v1/foreign-keys/export?format=sql&method=combined", timeout=60).text
        assert "ALTER TABLE" in expected
        for name in ("SQL", "dbt", "Mermaid", "GraphML", "CSV", "JSON"):
            with page.expect_download() as download:
                page.get_by_role("link", name=name, exact=True).press("Enter")
            assert download.value.suggested_filename == f"foreign-keys.{name.lower()}"
            download.value.save_as(tmp_path / name)
        assert (tmp_path / "SQL").read_text() == expected
        assert look.faults() == []


def test_a_page_of_candidates_that_were_found_anew_meanwhile_is_the_first(browser: Browser, address: str) -> None:
    with looking(browser, address) as look:
        page = look.open(f"foreign-keys?all=1&cursor={CANDIDATES.encode((0, 40))}")
        expect(page.get_by_role("button", name="Accept shop.orders.customer_id to shop.customers.id")).to_be_visible()
        assert page.url == f"{address}/#/foreign-keys?all=1"
        look.told = [one for one in look.told if "410" not in one]


def test_a_list_of_candidates_that_are_found_anew_between_two_pages_is_read_once_more(
    browser: Browser, address: str, engine: Engine
) -> None:
    def find_anew(route: Route) -> None:
        ForeignKeyFinder(PostgresForeignKeys(engine)).refresh(Question(keys=Keys.INFERRED))
        route.continue_()

    with looking(browser, address) as look:
        page = look.open("timeline")
        page.route("**/api/v1/foreign-keys?*cursor*", find_anew, times=1)
        found = page.evaluate("import('/dashboard/api.js').then(api => api.getPages('/api/v1/foreign-keys?limit=1'))")
        assert len(found["items"]) > 1
        assert found["next_cursor"] is None
        assert all("410" in one for one in look.told)
        look.told.clear()


def test_of_two_who_decide_on_one_candidate_the_second_is_told(browser: Browser, address: str) -> None:
    name = "shop.orders.customer_id to shop.customers.id"
    with looking(browser, address) as look, looking(browser, address) as other:
        other.page.add_init_script(NO_POLLING)  # it shows what was, however long this takes
        other.open("foreign-keys?all=1")
        page = look.open("foreign-keys?all=1")
        page.get_by_role("button", name=f"Reject {name}").click()
        expect(page.locator(".badge.bad", has_text="rejected")).to_have_count(1)
        other.page.get_by_role("button", name=f"Accept {name}").click()
        expect(other.page.get_by_role("alert")).to_contain_text("has decided `reject` meanwhile")
        expect(other.page.get_by_role("button", name=f"Reject {name}")).to_be_disabled()
        other.told = [one for one in other.told if "409" not in one]
    decisions = httpx.get(f"{address}/api/v1/foreign-keys/decisions", timeout=60).json()["items"]
    assert [one["verdict"] for one in decisions] == ["reject"]


def test_a_pair_is_watched_once(browser: Browser, address: str) -> None:
    view = "pair?dependent=shop.orders.customer_id&referenced=shop.customers.id"
    with looking(browser, address) as look, looking(browser, address) as other:
        other.page.add_init_script(NO_POLLING)
        other.open(view)
        page = look.open(view)
        page.get_by_role("button", name="Watch it as a contract").press("Enter")
        expect(page.locator(".notice")).to_contain_text("is watched as a contract now")
        expect(page.locator(".badge", has_text="contract held")).to_have_count(1)
        other.page.get_by_role("button", name="Watch it as a contract").click()
        expect(other.page.get_by_role("alert")).to_contain_text("already")
        assert all("409" in one for one in other.told)
        other.told.clear()


def test_a_refresh_is_asked_for_and_cancelled(browser: Browser, address: str) -> None:
    with looking(browser, address) as look:
        page = look.open("corpora?corpus=lake")
        page.get_by_role("button", name="Refresh", exact=True).click()
        cancel = page.get_by_role("button", name="Cancel refresh 2")
        expect(page.get_by_role("button", name="Refresh", exact=True)).to_be_disabled()
        cancel.click()
        expect(page.locator(".refreshes li").first).to_contain_text("cancelled")
        expect(cancel).to_have_count(0)


def test_what_an_older_refresh_could_not_read_is_shown_beside_it(
    browser: Browser, address: str, database_url: str
) -> None:
    states.execute(
        database_url,
        """update corpus_refresh set report = report || '{"files": {"faults": 1}}';"""
        "insert into corpus_fault values (1, 0, 'odd.csv', 'It is odd.');"
        "insert into corpus_refresh (corpus_id, state, requested_by) "
        "select corpus_id, 'cancelled', 'test' from corpus, generate_series(1, 20)",
    )
    with looking(browser, address) as look:
        page = look.open("corpora?corpus=lake")
        page.get_by_role("link", name="Next page").press("Enter")
        page.get_by_role("link", name="1 fault").press("Enter")
        expect(page.locator("main")).to_contain_text("It is odd.")
        expect(page.locator(".refreshes li")).to_have_count(1)


def test_the_graph_is_walked_by_keyboard(browser: Browser, address: str) -> None:
    with looking(browser, address) as look:
        page = look.open("graph?layer=all")
        page.get_by_role("link", name="orders, shop.orders: 1 neighbour, 1 IND").press("Enter")
        expect(page.locator("h2").first).to_have_text("shop.orders and its neighbours")
        page.get_by_role("link", name="show columns of shop.orders in shop.customers").press("Enter")
        expect(page.locator(".edge.picked")).to_have_count(1)
        page.get_by_role("link", name="show evidence of").press("Enter")
        expect(page.locator("h1")).to_have_text("shop.orders.customer_id ⊆ shop.customers.id")
        page.go_back()
        page.get_by_label("Find a table").fill("INV")
        page.get_by_label("Find a table").press("Enter")
        expect(page.locator("main")).to_contain_text("shop.invoices")
        expect(page.get_by_role("link", name="All INDs")).to_have_attribute("aria-current", "true")
        page.get_by_role("link", name="INDs that others do not imply").press("Enter")
        expect(page.get_by_role("link", name="All INDs")).not_to_have_attribute("aria-current", "true")
        expect(page.get_by_role("heading", name="Tables with “INV” in their names")).to_be_visible()


def test_coefficients_are_chosen_and_opened_by_keyboard(browser: Browser, address: str) -> None:
    with looking(browser, address) as look:
        page = look.open("coefficients?dependent=shop.orders&referenced=shop.customers")
        rows = page.get_by_label("Rows of")
        rows.press("ArrowUp")
        expect(page.locator("table.heatmap")).to_contain_text("shop.invoices in shop.customers")
        expect(rows).to_be_focused()
        look.open("coefficients?dependent=shop.orders&referenced=shop.customers")
        page.get_by_role("link", name="exact", exact=True).press("Enter")
        expect(page.get_by_role("link", name="exact", exact=True)).to_have_attribute("aria-current", "true")
        page.get_by_role("link", name="100 %").press("Enter")
        expect(page.locator("h1")).to_have_text("shop.orders.customer_id ⊆ shop.customers.id")


def test_the_drawing_is_enlarged_and_made_to_fit_again(browser: Browser, address: str) -> None:
    with looking(browser, address) as look:
        page = look.open("graph?corpus=lake")
        drawn = page.locator("svg.graph")
        whole = drawn.get_attribute("viewBox")
        page.get_by_role("button", name="Enlarge").click()
        expect(drawn).not_to_have_attribute("viewBox", whole or "")
        page.get_by_role("button", name="Fit").click()
        expect(drawn).to_have_attribute("viewBox", whole or "")
        expect(page.get_by_role("link", name="orders.csv, orders.csv")).to_be_visible()


def test_a_dead_letter_that_fails_once_more_says_so(browser: Browser, address: str, database_url: str) -> None:
    states.execute(
        database_url,
        "insert into dead_letter (feed, topic, partition, record_offset, error_class, message, record, version) "
        "values ('file:made', 'made', 0, 7, 'RecordError', 'of before', 'no JSON', 1)",
    )
    with looking(browser, address) as look:
        page = look.open("dead-letters")
        expect(page.locator("main")).to_contain_text("of before")
        page.get_by_role("button", name="Try again record 1").press("Enter")
        expect(page.get_by_role("alert")).to_contain_text("Record 1 failed once more")
        expect(page.locator("main")).not_to_contain_text("of before")
        assert look.faults() == []


def test_a_dead_letter_that_has_become_right_is_applied_and_gone(
    browser: Browser, database_url: str, make_stream: MakeStream
) -> None:
    """Its delete comes before its insert, as from a source with two partitions."""
    tables = shop_tables()
    states.store(database_url, tables)
    stream = make_stream(tables)
    stream.append("orders", ["20", "2", None], None)
    stream.append("orders", None, ["20", "2", None])
    consume(database_url, stream, records=1, on_error=ErrorPolicy.SET_ASIDE)
    assert states.read(database_url) != states.expected(tables)
    engine = make_engine(database_url, "test-dashboard")
    with serving(app_over(engine)) as address, looking(browser, address) as look:
        page = look.open("dead-letters")
        page.get_by_role("button", name="Try again record 1").press("Enter")
        expect(page.get_by_role("status").filter(has_text="Record 1 is applied, or was already.")).to_be_visible()
        expect(page.locator("main")).to_contain_text("There are none.")
        assert look.faults() == []
        look.open("")
        expect(page.locator(".health")).to_contain_text("0 records set aside")
    engine.dispose()
    assert states.read(database_url) == states.expected(tables)
