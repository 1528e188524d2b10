"""What has the focus keeps it, and what it does, whatever comes to the page meanwhile; one press is one deed."""

from __future__ import annotations

import random

from playwright.sync_api import Browser, Page, Route, expect

from service.core.model import AttributeName
from service.store.foreign_key_refreshes import PostgresForeignKeys
from service.usecases.foreign_key_answers import ForeignKeyFinder
from service.usecases.foreign_keys import Keys, Question
from tests import states
from tests.browser.conftest import looking
from tests.hand_made_state import HandMadeState
from tests.watching import Watching, new_watch, pair_rule

ORDERS, CUSTOMERS = AttributeName("shop", "orders", "customer_id"), AttributeName("shop", "customers", "id")
INVOICES = AttributeName("shop", "invoices", "customer_id")
COLUMNS = {ORDERS: ["1", "2", "2"], CUSTOMERS: ["1", "2", "3"], INVOICES: ["3"]}
PATCH = """async ([before, after]) => {
  const { h, patch } = await import("/dashboard/dom.js");
  const one = ([tag, key, text]) => (tag === "" ? text : h(tag, { "data-key": key, tabindex: "0" }, text));
  const made = (all) => all.map(one);
  const place = h("div"), fresh = h("div", {}, made(after));
  document.body.append(place);
  patch(place, made(before));
  const keyed = (element) => [...element.children].filter((one) => one.dataset.key);
  const old = new Map(keyed(place).map((one) => [one.dataset.key, one]));
  const stays = keyed(place).find((one) => keyed(fresh).some((other) => other.dataset.key === one.dataset.key));
  stays?.focus();
  patch(place, made(after));
  const found = {
    isAsWanted: place.innerHTML === fresh.innerHTML,
    areTheSame: keyed(place).every((one) => (old.get(one.dataset.key) ?? one) === one),
    isFocused: stays === undefined || (document.activeElement === stays && stays.parentNode === place),
  };
  place.remove();
  return found;
}"""


def items(chance: random.Random) -> list[tuple[str, str | None, str]]:
    """Make children: some with a key, which is of one kind, some without, some mere texts."""
    keys = chance.sample("abcdef", chance.randint(0, 6))
    keyed = [("p" if key < "d" else "section", key, str(chance.randint(0, 2))) for key in keys]
    others = [
        (chance.choice(["p", "section", ""]), None, str(chance.randint(0, 2))) for _ in range(chance.randint(0, 3))
    ]
    found = [*keyed, *others]
    chance.shuffle(found)
    return found


def test_a_view_becomes_the_next_and_what_has_a_key_stays_itself(browser: Browser, address: str) -> None:
    with looking(browser, address) as look:
        page = look.open()
        for seed in range(200):
            chance = random.Random(seed)
            lists = [items(chance), items(chance)]
            found = page.evaluate(PATCH, lists)
            assert found == {"isAsWanted": True, "areTheSame": True, "isFocused": True}, lists


def test_a_list_that_grows_leaves_the_focus_and_what_it_has(
    browser: Browser, address: str, state: HandMadeState
) -> None:
    state.commit(COLUMNS | {ORDERS: ["1", "ZZTOP"]})
    with looking(browser, address) as look:
        page = look.open("timeline")
        link = page.locator(".transition", has_text="version 2").get_by_role("link")
        page.get_by_role("link", name="appeared", exact=True).focus()
        page.keyboard.press("Tab")
        expect(link).to_be_focused()
        old = page.locator(".transition").element_handles()
        state.commit(COLUMNS)
        expect(page.locator(".transition").first).to_contain_text("version 3")
        expect(link).to_be_focused()
        assert old
        assert all(one.evaluate("one => one.isConnected") for one in old), "they arrive once"


def test_a_finding_that_lands_does_not_change_what_a_button_accepts(
    browser: Browser, address: str, state: HandMadeState, watching: Watching
) -> None:
    finder = ForeignKeyFinder(PostgresForeignKeys(watching.engine))
    state.commit(COLUMNS | {ORDERS: ["ZZTOP"]})
    finder.refresh(Question(keys=Keys.INFERRED))
    with looking(browser, address) as look:
        page = look.open("foreign-keys?all=1")
        accept = page.get_by_role("button", name="Accept shop.invoices.customer_id to shop.customers.id")
        accept.focus()
        state.commit(COLUMNS)
        finder.refresh(Question(keys=Keys.INFERRED))
        expect(page.locator("tbody tr").first).to_contain_text("shop.orders.customer_id")
        expect(accept).to_be_focused()
        page.keyboard.press("Enter")
        expect(page.locator("tr", has=accept)).to_contain_text("accepted")
        expect(page.locator(".badge", has_text="accepted")).to_have_count(1)


def names(page: Page) -> list[str]:
    return page.locator("td[data-label=Watch]").all_text_contents()


def test_a_watch_is_removed_when_that_is_confirmed_and_no_other_is(
    browser: Browser, address: str, watching: Watching
) -> None:
    for name in ("first", "second"):
        watching.watches.add(new_watch(pair_rule(str(ORDERS), str(CUSTOMERS)), name))
    with looking(browser, address) as look:
        page = look.open("watches")
        remove = page.get_by_role("button", name="Remove first")
        dialog = page.get_by_role("dialog", name="Remove the watch first?")
        remove.focus()
        for _ in range(5):  # it is held
            page.keyboard.down("Enter")
        page.keyboard.up("Enter")
        expect(dialog).to_be_visible()
        assert look.faults() == []
        page.keyboard.press("Escape")
        expect(dialog).to_have_count(0)
        expect(remove).to_be_focused()
        expect(remove).to_be_enabled()  # that the question was closed is heard a moment later
        assert names(page) == ["first", "second"]
        page.keyboard.press("Enter")
        page.keyboard.press("Tab")
        expect(page.get_by_role("button", name="Remove it")).to_be_focused()
        page.keyboard.press("Enter")
        expect(page.locator("main")).to_contain_text("first is gone")
        assert names(page) == ["second"]
        page.get_by_role("button", name="Remove second").press("Enter")
        page.evaluate("location.hash = '#/timeline'")  # by the browser's Back, say
        expect(page.get_by_role("dialog")).to_have_count(0)
        look.open("watches")
        assert names(page) == ["second"]


def test_what_is_pressed_twice_is_done_once_and_shows_that_it_goes_on(
    browser: Browser, address: str, watching: Watching
) -> None:
    watching.watches.add(new_watch(pair_rule(str(ORDERS), str(CUSTOMERS)), "w"))
    with looking(browser, address) as look:
        page = look.open("watches")
        begun: list[Route] = []

        def hold(route: Route) -> None:
            begun.append(route)

        page.route("**/test", hold)
        test = page.get_by_role("button", name="Test w")
        test.dblclick()
        expect(test).to_have_attribute("aria-disabled", "true")
        expect(test).to_be_focused()
        watching.watches.add(new_watch(pair_rule(str(ORDERS), str(CUSTOMERS)), "another"))
        expect(page.locator("table")).to_contain_text("another")  # a new view leaves it so
        expect(test).to_have_attribute("aria-disabled", "true")
        assert look.faults() == []
        (only,) = begun
        only.continue_()
        expect(page.get_by_role("status").filter(has_text="A test is on its way")).to_be_visible()
        expect(test).not_to_have_attribute("aria-disabled", "true")
        assert [one.endswith("/test") for one in look.requested].count(True) == 1


def test_pages_are_turned_by_keyboard(browser: Browser, address: str, database_url: str) -> None:
    states.execute(
        database_url,
        "insert into state_version (version, generation, kind) select n, 1, 'batch' from generate_series(2, 140) as n;"
        "insert into ind_transition (version, dependent_id, referenced_id, kind)"
        " select n, 0, 1, 'broke' from generate_series(2, 140) as n",
    )
    with looking(browser, address) as look:
        page = look.open("timeline?kind=broke")
        shown, onward = page.locator(".transition").first, page.get_by_role("link", name="Next page")
        expect(shown).to_contain_text("version 140")
        onward.focus()
        for version in (90, 40):
            page.keyboard.press("Enter")
            expect(shown).to_contain_text(f"version {version}")
            if version == 90:
                expect(onward).to_be_focused()
        expect(onward).to_have_count(0)
        page.get_by_role("link", name="First page").press("Enter")
        expect(shown).to_contain_text("version 140")
