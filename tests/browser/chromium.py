"""Own which browser the tests drive; `python -m tests.browser.chromium` installs Debian's where there is none."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

VARIABLE = "SUBSETD_CHROMIUM"
NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
APT = ["apt-get", "-qq", "-o", "DPkg::Lock::Timeout=300"]
INSTALL = [[*APT, "update"], [*APT, "install", "-y", "--no-install-recommends", "chromium"]]
WAY_OUT = (
    "The tests of the dashboard drive a Chromium, and there is none: `apt-get install chromium` as root, "
    f"or set {VARIABLE} to the path of another Chromium or Chrome."
)


class NoBrowserError(Exception):
    """There is no browser, or the one that is named is not there."""


def find_chromium(environment: Mapping[str, str] = os.environ) -> str | None:
    """Give the path of the browser that is named, or else of the first that is found.

    Raises NoBrowserError when none is where the variable says.
    """
    given = environment.get(VARIABLE)
    if given is not None:
        if not os.access(given, os.X_OK) or Path(given).is_dir():
            raise NoBrowserError(f"{VARIABLE} names {given!r}, which is no program.")
        return given
    search = environment.get("PATH", os.defpath)
    return next(filter(None, (shutil.which(name, path=search) for name in NAMES)), None)


def require_chromium(environment: Mapping[str, str] = os.environ) -> str:
    """Give the path of the browser; raise NoBrowserError that says the way out."""
    found = find_chromium(environment)
    if found is None:
        raise NoBrowserError(WAY_OUT)
    return found


def install_chromium(
    environment: Mapping[str, str] = os.environ,
    is_root: bool = os.geteuid() == 0,
    run: Callable[[list[str]], object] = lambda command: subprocess.run(
        command, check=True, env={**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    ),
) -> None:
    """Install Debian's Chromium where there is no browser; raise NoBrowserError where that cannot be done."""
    if find_chromium(environment) is not None:
        return
    if not is_root or shutil.which("apt-get", path=environment.get("PATH", os.defpath)) is None:
        raise NoBrowserError(WAY_OUT)
    print("Installing Debian's Chromium, which the tests of the dashboard drive", flush=True)
    try:
        for command in INSTALL:
            run(command)
    except subprocess.CalledProcessError as error:
        raise NoBrowserError(f"{' '.join(error.cmd)} failed. {WAY_OUT}") from error
    require_chromium(environment)  # now, and not in ninety tests: it may be outside of this PATH


if __name__ == "__main__":
    try:
        install_chromium()
    except NoBrowserError as error:
        sys.exit(str(error))
