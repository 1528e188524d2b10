"""A kernel's turn is a byte of a file that other processes find locked, and where that cannot be nobody waits."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
import tempfile
import zlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from service.core import kernel_turns
from service.core.kernel_turns import turn

TRY = """
import fcntl, sys
with open(sys.argv[1], "r+b") as file:
    for place in map(int, sys.argv[2:]):
        try:
            fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, place)
            print("free")
        except BlockingIOError:
            print("held")
"""
HOLD = """
import fcntl, sys
file = open(sys.argv[1], "r+b")
fcntl.lockf(file, fcntl.LOCK_EX, 1, int(sys.argv[2]))
print("held", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Give the file of locks, in a folder of its own."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    kernel_turns._lock_file.cache_clear()
    yield tmp_path / f"subsetd-kernels-{os.getuid()}.lock"
    opened = kernel_turns._lock_file(os.getpid())
    if opened is not None:
        os.close(opened)
    kernel_turns._lock_file.cache_clear()


def place(name: str) -> int:
    return zlib.crc32(name.encode())


def seen_by_another(file: Path, *places: int) -> list[str]:
    """Try to lock bytes of a file in another process; tell for each whether it is held."""
    command = [sys.executable, "-c", TRY, str(file), *map(str, places)]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()


def test_others_find_the_byte_of_a_kernel_held_until_its_turn_ends(file: Path) -> None:
    first, other = place("first"), place("other")
    with turn("first"):
        assert seen_by_another(file, first - 1, first, first + 1, other) == ["free", "held", "free", "free"]
        with turn("other"):
            assert seen_by_another(file, first, other) == ["held", "held"]
        assert seen_by_another(file, first, other, other + 1) == ["held", "free", "free"]
    assert seen_by_another(file, first, other) == ["free", "free"]
    assert file.stat().st_mode & 0o777 == 0o600


def test_a_turn_ends_where_what_it_is_for_fails(file: Path) -> None:
    with pytest.raises(ValueError, match="no such type"), turn("first"):
        raise ValueError("no such type")
    assert seen_by_another(file, place("first")) == ["free"]


def test_who_has_waited_long_enough_goes_on_without_a_lock(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The turn of another process stays as it is, also when the one that did not get it ends."""
    monkeypatch.setattr(kernel_turns, "MOST_SECONDS", 0.1)
    with turn("first"):
        pass
    command = [sys.executable, "-c", HOLD, str(file), str(place("first"))]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        with turn("first"):
            assert seen_by_another(file, place("first")) == ["held"]
        assert seen_by_another(file, place("first")) == ["held"]
        holder.communicate()
    with turn("first"):
        assert seen_by_another(file, place("first")) == ["held"]


def test_where_files_cannot_be_locked_nobody_waits(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def refusing(*given: int) -> None:
        asked.append(given)
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(kernel_turns.fcntl, "lockf", refusing)
    with turn("first"):
        assert len(asked) == 1
    assert len(asked) == 1, "what was not locked is not freed either"


def test_a_link_in_the_place_of_the_file_is_not_followed(file: Path, tmp_path: Path) -> None:
    file.symlink_to(tmp_path / "of-another-user")
    with turn("first"):
        assert not (tmp_path / "of-another-user").exists()
