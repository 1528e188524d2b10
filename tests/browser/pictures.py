"""Take the pictures of the dashboard in docs/images, of the demonstration as it runs: `make pictures`."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
from playwright.sync_api import Browser, Page, sync_playwright

from tests.asking import http_client
from tests.browser.chromium import require_chromium

ROOT = Path(__file__).resolve().parents[2]
IMAGES = ROOT / "docs" / "images"
CORPUS = ROOT / "service" / "demo" / "chinook"
WIDE, NARROW = (1280, 800), (400, 800)
PAIR = {"dependent": [["chinook", "InvoiceLine", "InvoiceId"]], "referenced": [["chinook", "Invoice", "InvoiceId"]]}
NAMES = "dependent=chinook.Track.AlbumId&referenced=chinook.Album.AlbumId"
BOUND_SECONDS = 600.0

PICTURES: dict[str, tuple[str, tuple[int, int], Any]] = {
    "overview": ("", WIDE, "light"),
    "timeline": ("timeline", NARROW, "light"),
    "graph": ("graph", WIDE, "dark"),
    "pair": (f"pair?{NAMES}", WIDE, "light"),
    "coefficients": ("coefficients?dependent=chinook.InvoiceLine&referenced=chinook.Track", WIDE, "light"),
    "foreign-keys": ("foreign-keys", WIDE, "light"),
    "joinable": ("joinable", WIDE, "light"),
    "corpora": ("corpora?corpus=music", WIDE, "light"),
    "watches": ("watches", WIDE, "dark"),
    "audits": ("audits", WIDE, "light"),
}
"""View, size and colours of each picture, by its name."""

WHOLE = ("pair", "coefficients", "foreign-keys", "joinable")
"""Pictures that show more than the window does."""

MINE = b"Album,Track\nFor Those About To Rock We Salute You,1\nLet There Be Rock,15\nBig Ones,23\nFacelift,51\n"


def main() -> int:
    """Run the demonstration, put something into each view, and take all pictures anew, or those named."""
    wanted = sys.argv[1:] or list(PICTURES)
    with tempfile.TemporaryDirectory(prefix="subsetd-pictures-") as folder, demonstration(Path(folder)) as address:
        fill(address, Path(folder))
        with sync_playwright() as driver:
            arguments = ["--no-sandbox"] if os.geteuid() == 0 else []
            browser = driver.chromium.launch(executable_path=require_chromium(), args=arguments)
            for name in wanted:
                take(browser, address, name)
            browser.close()
    return 0


@contextmanager
def demonstration(folder: Path) -> Iterator[str]:
    """Run `subsetd demo` in a folder of its own until the end of the block; gives its address."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "service.cli", "demo"]
    process = subprocess.Popen(command, cwd=ROOT, env=environment(folder, port), stdout=subprocess.DEVNULL)
    address = f"http://127.0.0.1:{port}"
    try:
        wait(lambda: httpx.get(f"{address}/readyz").status_code == 200, process)
        yield address
    finally:
        process.terminate()
        process.wait(60)


def environment(folder: Path, port: int) -> dict[str, str]:
    """Give what the demonstration runs with: no setting of whoever takes the pictures."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("SUBSETD_")}
    return kept | {"SUBSETD_DATA_DIR": str(folder), "SUBSETD_PORT": str(port)}


def wait(done: Any, process: subprocess.Popen[bytes] | None = None) -> None:
    """Ask until something is so; raise TimeoutError where it never is, or what ran has ended."""
    until = time.monotonic() + BOUND_SECONDS
    while True:
        try:
            if done():
                return
        except httpx.TransportError:
            pass
        if time.monotonic() > until or (process is not None and process.poll() is not None):
            raise TimeoutError("the demonstration does not come to what the pictures show")
        time.sleep(0.2)


def fill(address: str, folder: Path) -> None:
    """Let something be in each view: foreign keys found and one accepted, a corpus, a watch, an audit."""
    api = http_client(base_url=f"{address}/api/v1", timeout=60)
    post(api, "foreign-keys/refreshes", {})
    wait(lambda: api.get("foreign-keys/refreshes/at-work").json()["finding"] is None)
    post(api, "foreign-keys/decisions", {**PAIR, "verdict": "accept", "decided_by": "Ada"})
    rule = {"kind": "ind", "dependent": "chinook.InvoiceLine.InvoiceId", "referenced": "chinook.Invoice.InvoiceId"}
    channel = {"kind": "webhook", "url": "https://alerts.example/subsetd", "secret": "a secret of both sides"}
    post(api, "watches", {"name": "invoices have lines", "rule": rule, "channel": channel, "created_by": "Ada"})
    state = environment(folder / "demo", 0)
    for command in (
        ["corpus", "add", "music", str(CORPUS)],
        ["corpus", "refresh", "music", "--wait"],
        ["corpus", "index", "music", "--wait"],
        ["audit"],
    ):
        subprocess.run([sys.executable, "-m", "service.cli", *command], cwd=ROOT, env=state, check=True)


def post(api: httpx.Client, path: str, body: dict[str, Any]) -> None:
    """Ask the service for something; raises for what it refuses."""
    answer = api.post(path, json=body)
    if answer.is_error:
        raise RuntimeError(f"{path}: {answer.text}")


def take(browser: Browser, address: str, name: str) -> None:
    """Take a picture of a view when it has shown all, and look that nothing was complained of."""
    view, (width, height), colours = PICTURES[name]
    page = browser.new_page(viewport={"width": width, "height": height}, color_scheme=colours, reduced_motion="reduce")
    complaints: list[str] = []
    page.on("console", lambda message: complaints.append(message.text) if message.type == "error" else None)
    page.goto(f"{address}/#/{view}")
    page.wait_for_selector("h1")
    if name == "joinable":
        search(page)
    page.wait_for_timeout(1500)  # what is drawn comes to rest
    page.screenshot(path=IMAGES / f"dashboard-{name}.png", full_page=name in WHOLE)
    page.close()
    if complaints:
        raise RuntimeError(f"{name}: {complaints}")


def search(page: Page) -> None:
    """Ask for the tables that join with a CSV."""
    page.get_by_label("A CSV with a header").set_input_files(
        {"name": "mine.csv", "mimeType": "text/csv", "buffer": MINE}
    )
    page.get_by_label("Album").check()
    page.get_by_role("button", name="Search").click()
    page.wait_for_selector("section.card h2", timeout=BOUND_SECONDS * 1000)


if __name__ == "__main__":
    sys.exit(main())
