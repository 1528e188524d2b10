"""`make test` has a browser, or says how to get one."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.browser import chromium


def program(folder: Path, name: str) -> Path:
    """Put a program of this name into a folder."""
    folder.mkdir(exist_ok=True)
    made = folder / name
    made.write_text("#!/bin/sh\n")
    made.chmod(0o755)
    return made


def test_the_one_that_is_named_comes_before_the_one_that_is_found(tmp_path: Path) -> None:
    found, named = program(tmp_path / "bin", "google-chrome"), program(tmp_path, "own")
    path = {"PATH": str(tmp_path / "bin")}
    assert chromium.find_chromium(path) == str(found)
    assert chromium.find_chromium(path | {chromium.VARIABLE: str(named)}) == str(named)
    assert chromium.find_chromium({"PATH": str(tmp_path / "none")}) is None


@pytest.mark.parametrize("name", ["missing", "."])
def test_what_is_named_and_no_program_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(chromium.NoBrowserError, match=chromium.VARIABLE):
        chromium.find_chromium({chromium.VARIABLE: str(tmp_path / name)})


def test_root_has_it_installed_once(tmp_path: Path) -> None:
    program(tmp_path, "apt-get")
    commands: list[str] = []

    def run(command: list[str]) -> None:
        commands.append(" ".join(command[len(chromium.APT) :]))
        if "install" in command:
            program(tmp_path, "chromium")

    for _ in range(2):
        chromium.install_chromium({"PATH": str(tmp_path)}, is_root=True, run=run)
    assert commands == ["update", "install -y --no-install-recommends chromium"]


def test_what_was_installed_outside_of_the_path_is_told_at_once(tmp_path: Path) -> None:
    program(tmp_path, "apt-get")
    with pytest.raises(chromium.NoBrowserError, match=chromium.VARIABLE):
        chromium.install_chromium({"PATH": str(tmp_path)}, is_root=True, run=lambda _: None)


@pytest.mark.parametrize(("is_root", "has_apt"), [(False, True), (True, False)])
def test_who_cannot_install_it_is_told_how(tmp_path: Path, is_root: bool, has_apt: bool) -> None:
    if has_apt:
        program(tmp_path, "apt-get")
    with pytest.raises(chromium.NoBrowserError, match="apt-get install chromium"):
        chromium.install_chromium({"PATH": str(tmp_path)}, is_root=is_root, run=lambda _: pytest.fail("it was run"))
