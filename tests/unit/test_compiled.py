"""Kernels that several processes need at the same moment are compiled by one of them, and by others where it hangs."""

from __future__ import annotations

import errno
import fcntl
import os
import subprocess
import sys
import time
import zlib
from pathlib import Path

import pytest

from service.core import kernel_turns

ROOT = Path(__file__).resolve().parents[2]

MODULE = """
from service.core.compiled import kernel

@kernel
def inner(n):
    return n * 2

@kernel
def outer(n):
    total = 0
    for i in range(n):
        total += inner(i)
    return total
"""

CALLING = """
import sys, time
from pathlib import Path
from service.core import kernel_turns
import kernels_of_a_test as own
kernel_turns.MOST_SECONDS = float(sys.argv[1])
Path(f"ready-{sys.argv[2]}").touch()
while not Path("go").exists():
    time.sleep(0.001)
assert own.outer(4) == 12
print(sum(own.outer.stats.cache_misses.values()), sum(own.inner.stats.cache_misses.values()))
"""


def calling(folder: Path, number: int, most_seconds: float) -> subprocess.Popen[str]:
    environment = {**os.environ, "PYTHONPATH": f"{folder}{os.pathsep}{ROOT}"}
    environment |= {"NUMBA_CACHE_DIR": str(folder / "cache"), "TMPDIR": str(folder)}
    return subprocess.Popen(
        [sys.executable, "-c", CALLING, str(most_seconds), str(number)],
        env=environment, cwd=folder, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "kernels_of_a_test.py").write_text(MODULE)
    return tmp_path


def told(process: subprocess.Popen[str]) -> list[int]:
    said, _ = process.communicate(timeout=300)
    assert process.returncode == 0
    return [int(number) for number in said.split()]


def test_of_processes_that_need_a_kernel_at_once_one_compiles_it(folder: Path) -> None:
    processes = [calling(folder, number, 300) for number in range(4)]
    while len(list(folder.glob("ready-*"))) < len(processes):
        assert all(process.poll() is None for process in processes)
        time.sleep(0.01)
    (folder / "go").touch()
    compiled = [told(process) for process in processes]
    assert sorted(compiled) == [[0, 0]] * 3 + [[1, 1]]
    assert told(calling(folder, 4, 300)) == [0, 0]


def test_a_process_that_hangs_is_not_waited_for_for_ever(folder: Path) -> None:
    with (folder / f"subsetd-kernels-{os.getuid()}.lock").open("w") as held:
        fcntl.lockf(held, fcntl.LOCK_EX, 1, zlib.crc32(b"kernels_of_a_test.outer"))
        (folder / "go").touch()
        assert told(calling(folder, 0, 0.1)) == [1, 1]


def test_where_there_can_be_no_lock_all_compile(folder: Path) -> None:
    (folder / f"subsetd-kernels-{os.getuid()}.lock").symlink_to(folder / "of somebody else")
    (folder / "go").touch()
    assert told(calling(folder, 0, 300)) == [1, 1]
    assert not (folder / "of somebody else").exists()


def test_where_the_system_gives_no_locks_there_are_no_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "lockf", refuse)
    with kernel_turns.turn("a kernel"):
        pass


def test_where_nothing_is_to_be_compiled_kernels_are_what_is_written(folder: Path) -> None:
    """So mutants of kernels are tried, and so a debugger stops in them."""
    environment = {**os.environ, "PYTHONPATH": f"{folder}{os.pathsep}{ROOT}", "NUMBA_DISABLE_JIT": "1"}
    called = "import kernels_of_a_test as own; print(own.outer(4), type(own.outer).__name__)"
    said = subprocess.run([sys.executable, "-c", called], env=environment, check=True, capture_output=True, text=True)
    assert said.stdout == "12 function\n"
