"""A CSV is dropped, its key columns are picked, and what a join would add is shown: a header of odd names as well."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from playwright.sync_api import Browser, expect

from service.config import Settings
from service.join_tracking import index_tables
from service.joinable_runner import searching_joinable
from service.store.database import make_engine
from service.usecases.joinable import JoinQuery, JoinQuestion
from tests import kept_rows, states
from tests.browser.conftest import NARROW, looking
from tests.integration.serving import app_over, searches_over, serving
from tests.joinable import build
from tests.refreshing import Lake, write_tables
from tests.states import Tables

SCRIPT = "<script>document.title='pwned'</script>"
MINE = f'city,"no, ""odd""\nand long",{SCRIPT}\nberlin,1,x\nrome,2,y\noslo,7,z\n'


@pytest.fixture
def address(database_url: str, tmp_path: Path) -> Iterator[str]:
    """Serve an indexed corpus."""
    write_tables(tmp_path / "tables", {
        "a.csv": [["berlin", "rome", "oslo"], ["1", "2", ""], [SCRIPT, "y", "z"]],
        "b.csv": [["1", "5"], ["bonn", "rome"]],
    })  # fmt: skip
    lake = Lake(database_url, tmp_path / "tables")
    build(lake)
    engine = make_engine(database_url, "test-dashboard")
    with (
        searching_joinable(database_url, engine, Settings()) as searches,
        serving(app_over(engine, joinable=searches)) as found,
    ):
        yield found
    engine.dispose()


def test_a_table_that_joins_with_a_csv_is_shown_with_what_it_would_add(browser: Browser, address: str) -> None:
    with looking(browser, address, NARROW) as look:
        page = look.open("joinable")
        search = page.get_by_role("button", name="Search")
        expect(search).to_be_disabled()
        page.get_by_label("A CSV with a header").set_input_files(
            {"name": "mine.csv", "mimeType": "text/csv", "buffer": MINE.encode()}
        )
        expect(page.get_by_role("checkbox")).to_have_count(3)
        expect(page.get_by_label(SCRIPT)).to_be_visible()
        page.get_by_label("city").press("Space")
        page.get_by_label('no, "odd" and long').press("Space")
        expect(search).to_be_enabled()
        search.press("Enter")
        found = page.locator("section.card").first
        expect(found.locator("h2")).to_contain_text("a.csv · 66.67 % of the keys")
        expect(found).to_contain_text("berlin, 1")
        expect(found).to_contain_text(SCRIPT)
        expect(page.get_by_label("city")).to_be_checked()
        assert look.faults() == []
        assert look.overflow() <= 0
        assert page.locator("main script").count() == 0


def test_tracked_tables_are_searched(browser: Browser, address: str, database_url: str) -> None:
    shop = Tables({"trips": ["id", "city"]}).add("trips", ["7", "berlin"], ["8", "rome"])
    states.store(database_url, shop)
    kept_rows.keep(database_url, shop, {"trips": ["id"]})
    assert [one.rows for one in index_tables(database_url, ["s.trips"])] == [2]
    with looking(browser, address) as look:
        page = look.open("joinable")
        page.get_by_label("Look in").select_option(label="tracked tables")
        page.get_by_label("A CSV with a header").set_input_files(
            {"name": "mine.csv", "mimeType": "text/csv", "buffer": b"city\nberlin\n"}
        )
        page.get_by_label("city").check()
        page.get_by_role("button", name="Search").click()
        found = page.locator("section.card").first
        expect(found.locator("h2")).to_contain_text("s.trips · 100 % of the keys")
        expect(found).to_contain_text("7")
        expect(page.get_by_text("as of version 1")).to_be_visible()
        assert look.faults() == []


def test_a_quote_inside_of_a_name_is_a_character_of_it(browser: Browser, address: str) -> None:
    """As the service reads it: what is picked is what it is asked for."""
    with looking(browser, address) as look:
        page = look.open("joinable")
        page.get_by_label("A CSV with a header").set_input_files(
            {"name": "mine.csv", "mimeType": "text/csv", "buffer": b'5" disk,city of 6" disk\n1,berlin\n'}
        )
        expect(page.get_by_role("checkbox")).to_have_count(2)
        page.get_by_label('city of 6" disk').check()
        page.get_by_role("button", name="Search").click()
        expect(page.locator("section.card").first.locator("h2")).to_contain_text("a.csv")


def test_what_the_service_refuses_is_said(browser: Browser, address: str) -> None:
    with looking(browser, address) as look:
        page = look.open("joinable")
        page.get_by_label("A CSV with a header").set_input_files(
            {"name": "bad.csv", "mimeType": "text/csv", "buffer": b"city,no\nberlin\n"}
        )
        page.get_by_label("city").check()
        page.get_by_role("button", name="Search").click()
        expect(page.get_by_role("alert")).to_contain_text("the row has 1 cells, the header 2")
        assert all("422" in one for one in look.told)
        look.told.clear()


def test_a_search_that_a_restarted_service_forgot_is_said_to_be_over(
    browser: Browser, database_url: str, address: str
) -> None:
    engine = make_engine(database_url, "test-dashboard")
    app = app_over(engine, joinable=searches_over(engine, at_once=0))
    with serving(app) as restarted, looking(browser, restarted) as look:
        page = look.open("joinable")
        page.get_by_label("A CSV with a header").set_input_files(
            {"name": "mine.csv", "mimeType": "text/csv", "buffer": b"city\nberlin\n"}
        )
        page.get_by_label("city").check()
        page.get_by_role("button", name="Search").click()
        expect(page.get_by_role("button", name="Cancel")).to_be_visible()
        (lake,) = httpx.get(f"{restarted}/api/v1/corpora", timeout=60).json()["items"]
        app.state.joinable = searches_over(engine, at_once=0)
        app.state.joinable.ask(JoinQuery([["rome"]]), JoinQuestion(lake["name"]))  # of somebody else
        expect(page.get_by_role("alert")).to_have_text("The service has forgotten it: ask again.")
        expect(page.get_by_role("button", name="Search")).to_be_enabled()
        assert all("404" in one for one in look.told)
        look.told.clear()
    engine.dispose()
