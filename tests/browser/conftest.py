"""Own the browser of the tests: one for a module, a fresh page for each look, and what every page is held to."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect, sync_playwright
from sqlalchemy import Engine

from service.store.database import make_engine
from tests.browser.chromium import require_chromium
from tests.hand_made_state import HandMadeState
from tests.integration.serving import app_over, serving
from tests.waiting import BOUND_SECONDS
from tests.watching import Watching

AXE = (Path(__file__).parent / "axe" / "axe.min.js").read_text()
RULES = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]
WAIT_MS = int(BOUND_SECONDS * 1000)

expect.set_options(timeout=WAIT_MS)

WIDE, NARROW = (1280, 800), (400, 800)


@dataclass
class Look:
    """A page in a fresh context, and what was seen from outside while it was open."""

    page: Page
    address: str
    requested: list[str] = field(default_factory=list)
    told: list[str] = field(default_factory=list)

    def open(self, view: str = "") -> Page:
        """Go to a view, and wait until it shows something; what was shown before is not taken for it."""
        self.page.goto("about:blank")
        self.page.goto(f"{self.address}/#/{view}")
        self.page.wait_for_selector("h1")
        return self.page

    def faults(self) -> list[str]:
        """Let axe-core look at the page; give what it finds, with the place."""
        self.page.evaluate(AXE)
        found = self.page.evaluate(
            "rules => axe.run(document, { runOnly: rules, resultTypes: ['violations'] }).then(one => one.violations)",
            RULES,
        )
        return [f"{one['id']}: {node['html'][:200]} {node['failureSummary']}" for one in found for node in one["nodes"]]

    def hears(self) -> bool:
        """Tell whether the page's stream is open: that it was asked for does not say that anybody has taken it."""
        is_live: bool = self.page.evaluate("import('/dashboard/stream.js').then(one => one.isLive())")
        return is_live

    def overflow(self) -> int:
        """Tell by how many pixels the page is wider than its window."""
        width: int = self.page.evaluate("document.documentElement.scrollWidth - innerWidth")
        return width


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Run one browser for the tests of a module; it may ask this machine alone."""
    # Chromium's sandbox does not run as root, and containers have little of /dev/shm.
    options = ["--disable-dev-shm-usage", "--host-resolver-rules=MAP * ~NOTFOUND , EXCLUDE 127.0.0.1"]
    if os.geteuid() == 0:
        options.append("--no-sandbox")
    with sync_playwright() as driver:
        found = driver.chromium.launch(executable_path=require_chromium(), args=options, timeout=WAIT_MS)
        yield found
        found.close()


@pytest.fixture
def state(request: pytest.FixtureRequest, database_url: str) -> Iterator[HandMadeState]:
    """Hold the COLUMNS of the test's module."""
    made = HandMadeState(database_url, request.module.COLUMNS)
    yield made
    made.close()


@pytest.fixture
def engine(state: HandMadeState, database_url: str) -> Iterator[Engine]:
    made = make_engine(database_url, "test-dashboard")
    yield made
    made.dispose()


@pytest.fixture
def watching(engine: Engine) -> Iterator[Watching]:
    made = Watching(engine)
    yield made
    made.looks.close()


@pytest.fixture
def address(engine: Engine) -> Iterator[str]:
    """Serve the state."""
    with serving(app_over(engine)) as found:
        yield found


@contextmanager
def looking(browser: Browser, address: str, size: tuple[int, int] = WIDE, scheme: Any = "light") -> Iterator[Look]:
    """Open a fresh page; at the end, nothing was asked of another host, and nothing was complained of."""
    # No animation: axe would find colours half-way.
    context = browser.new_context(
        viewport={"width": size[0], "height": size[1]}, color_scheme=scheme, reduced_motion="reduce"
    )
    context.set_default_timeout(WAIT_MS)
    page = context.new_page()
    look = Look(page, address)

    page.on("request", lambda request: look.requested.append(request.url))
    page.on("pageerror", lambda error: look.told.append(f"{error.name}: {error.message}"))
    page.on("console", lambda message: look.told.append(message.text) if message.type == "error" else None)
    page.on("dialog", lambda dialog: look.told.append(f"a dialog: {dialog.message}"))
    try:
        yield look
    finally:
        context.close()
    assert [one for one in look.requested if not one.startswith(f"{look.address}/")] == []
    assert look.told == []
