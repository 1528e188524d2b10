"""Own the row `dashboard-weight`: what the dashboard's first view takes, and its graph of 15,000 tables.

A real Chromium opens the page over loopback, with nothing kept from before. The state has the names and INDs of made
tables and no values: a component of 8,000 tables that refer to each other as tables do, few of them to most, and
small ones. All references are declared foreign keys, and each tenth is accepted.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from random import Random
from statistics import median
from typing import Any

from psycopg2.extras import execute_values

from benchmarks.context import Context
from benchmarks.http_answers import serving
from benchmarks.results_file import Result
from benchmarks.state import Server, environment, server
from service.store.migrate import upgrade
from service.store.side_columns import NAMED

SEED = 13
TABLES, LARGEST = 15_000, 8_000
OPENED = 5
"""Times that the first view is opened; the median counts."""

PATIENCE_MS = 60_000
SETTLED_MS = 1_000
"""A view that is shown may still work."""

GRAPH = (
    "graph",
    "graph?layer=inds",
    "graph?layer=all",
    "graph?layer=all&component=0",
    "graph?layer=all&around=made.t0&contains=t1",
)
WATCH_SHOWN = """
window.shown = new Promise(resolve => new MutationObserver((_, observer) => {
  if (!document.getElementById("main")?.textContent.includes("%s")) return;
  observer.disconnect();
  requestAnimationFrame(() => setTimeout(() => resolve(performance.now())));
}).observe(document, { childList: true, subtree: true, characterData: true }));
"""
"""Hear of the figures from the page itself: the driver looks for them twice a second."""

WATCH_TASKS = """
window.tasks = [0];
new PerformanceObserver(list => list.getEntries().forEach(one => tasks.push(one.duration)))
  .observe({ type: "longtask", buffered: true });
"""


def run(context: Context) -> list[Result]:
    """Open the first view some times, then walk through the graph."""
    tables = context.scaled(TABLES)
    with server(context) as postgres:
        url = postgres.create("dashboard_weight")
        upgrade(url)
        _make_graph(postgres, tables, min(LARGEST, tables), context.random("graph"))
        log = context.logs / "dashboard-weight.log"
        with serving(["serve"], environment(url), log) as client, _browser() as browser:
            address = str(client.base_url)
            first = [_first_view(browser, address, tables) for _ in range(OPENED)]
            longest = _longest_task(browser, address)
        postgres.drop("dashboard_weight")
    return [
        Result("first view: shown after", median(seconds for seconds, _ in first), "s", goal="value <= 1"),
        Result("first view: over the wire", max(size for _, size in first) / 1000, "KB", goal="value <= 300"),
        Result(f"graph of {tables:,} tables: longest task", longest, "ms", goal="value <= 200"),
    ]


def _make_graph(postgres: Server, tables: int, largest: int, chance: Random) -> None:
    """Write the state: a table has a key and a column that refers to a key before it, of its component."""
    firsts, number = [0] * largest, largest
    while number < tables:
        size = min(chance.randint(1, 30), tables - number)
        firsts += [number] * size
        number += size
    targets = [first + int((one - first) * chance.random() ** 3) for one, first in enumerate(firsts)]
    inds = [(2 * one + 1, 2 * target) for one, target in enumerate(targets) if target != one]
    columns = [
        (2 * one + ordinal, "made", f"t{one}", name, ordinal)
        for one in range(tables)
        for ordinal, name in enumerate(("id", "parent_id"))
    ]
    with postgres.connection("dashboard_weight") as connection, connection, connection.cursor() as cursor:
        cursor.execute(
            "insert into state_version (version, generation, kind) values (1, 1, 'bootstrap');"
            "insert into source (name, kind, location, bootstrapped_version) values ('made', 'csv', '/made', 1)"
            " returning source_id"
        )
        (source_id,) = cursor.fetchone() or (None,)
        execute_values(
            cursor,
            "insert into attribute values %s",
            [(key, source_id, *name, ordinal, "integer", 0, 0, 0, 0) for key, *name, ordinal in columns],
        )
        execute_values(cursor, "insert into uind values %s", [(*pair, 1, None) for pair in inds])
        execute_values(
            cursor,
            "insert into declared_reference (source_id, dependent_ids, referenced_ids) values %s",
            [(source_id, *([end] for end in pair)) for pair in inds],
        )
        names = {key: (schema, table, [column]) for key, schema, table, column, _ in columns}
        execute_values(
            cursor,
            f"insert into foreign_key_decision ({NAMED}, verdict, decided_by) values %s",
            [(*names[dependent], *names[referenced], "accept", "made") for dependent, referenced in inds[::10]],
        )


@contextmanager
def _browser() -> Iterator[Any]:
    """Run the browser of the tests, which is installed as `make test` does where there is none."""
    from playwright.sync_api import sync_playwright

    from tests.browser.chromium import install_chromium, require_chromium

    install_chromium()
    options = ["--disable-dev-shm-usage", *(["--no-sandbox"] if os.geteuid() == 0 else [])]
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=require_chromium(), args=options)
        yield browser
        browser.close()


def _first_view(browser: Any, address: str, tables: int) -> tuple[float, int]:
    """Open the overview with empty caches; give the seconds until its figures are there, and the bytes received."""
    context = browser.new_context(viewport={"width": 1280, "height": 800})
    page = context.new_page()
    network = context.new_cdp_session(page)
    network.send("Network.enable")
    received: list[int] = []
    network.on("Network.loadingFinished", lambda told: received.append(int(told["encodedDataLength"])))
    page.add_init_script(WATCH_SHOWN % f"{tables:,} table")
    page.goto(f"{address}/", wait_until="commit")
    page.get_by_text(f"{tables:,} table").wait_for(timeout=PATIENCE_MS)
    seconds = page.evaluate("shown") / 1000
    context.close()
    return seconds, sum(received)


def _longest_task(browser: Any, address: str) -> float:
    """Go through the graph's views; give the milliseconds of the longest task of the page's thread (0: none of 50)."""
    context = browser.new_context(viewport={"width": 1280, "height": 800})
    context.add_init_script(WATCH_TASKS)
    page = context.new_page()
    longest = 0.0
    for view in GRAPH:
        page.goto("about:blank")
        page.goto(f"{address}/#/{view}")
        page.wait_for_selector("main svg", timeout=PATIENCE_MS)
        page.wait_for_timeout(SETTLED_MS)
        longest = max(longest, page.evaluate("Math.max(...tasks)"))
    context.close()
    return longest
