"""The memory of a consumer: cycles are found, though in use when they were looked for; free pages are handed back."""

from __future__ import annotations

import gc
import subprocess
import sys
from collections import deque
from collections.abc import Iterator
from pathlib import Path

import pytest

from service import feed_wiring
from service.process_memory import MAPPED_BYTES

WAITS = 20_000
OBJECTS = 50


class Payload(list[object]):
    """Be what a wait holds: a list that is counted for as long as it is there."""

    alive = 0
    most = 0

    def __init__(self) -> None:
        super().__init__([] for _ in range(OBJECTS))
        Payload.alive += 1
        Payload.most = max(Payload.most, Payload.alive)

    def __del__(self) -> None:
        Payload.alive -= 1


@pytest.fixture
def tuned() -> Iterator[None]:
    thresholds, interval = gc.get_threshold(), sys.getswitchinterval()
    feed_wiring.tune_process()
    try:
        yield
    finally:
        gc.set_threshold(*thresholds)
        sys.setswitchinterval(interval)


@pytest.mark.usefixtures("tuned")
def test_cycles_that_were_in_use_when_they_were_looked_for_do_not_pile_up() -> None:
    in_use: deque[Payload] = deque(maxlen=100)  # as the Kafka client's timers keep a wait for a while
    for _ in range(WAITS):
        wait = Payload()
        wait.append(wait)
        in_use.append(wait)
    assert Payload.most < WAITS / 7


OWN_MEMORY = """
def own_memory():
    (told,) = (line for line in open("/proc/self/status") if line.startswith("RssAnon:"))
    return int(told.split()[1]) * 1024
"""
"""Without the pages of libraries, which come and go as the machine has need of memory."""

HOLES = f"""{OWN_MEMORY}
from service.process_memory import give_back

held = [bytes(5000) for _ in range(40_000)]
taken = own_memory()
del held[::2], held[: len(held) - 1 : 2]
kept = own_memory()
give_back()
print(taken, kept, own_memory())
"""


def test_what_the_c_library_has_free_is_handed_back() -> None:
    """Free pages between what is held stay in the process until they are handed back."""
    said = subprocess.run([sys.executable, "-c", HOLES], check=True, capture_output=True, text=True).stdout
    taken, kept, left = map(int, said.split())
    assert taken - kept < 50_000_000
    assert kept - left > 50_000_000


THREADS = """
import ctypes, os, sys, threading
from service.library_settings import prepare
from service.process_memory import share_one_heap

prepare()
import pyarrow as pa

if sys.argv[2] == "one":
    share_one_heap()
together = threading.Barrier(8)

def work():
    kept = pa.array([str(number) for number in range(3000)])
    together.wait()

threads = [threading.Thread(target=work) for _ in range(8)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
libc = ctypes.CDLL(None)
libc.fopen.restype = ctypes.c_void_p
file = ctypes.c_void_p(libc.fopen(sys.argv[1].encode(), b"w"))
libc.malloc_info(0, file)
libc.fclose(file)
"""


def test_threads_of_a_consumer_have_one_heap(tmp_path: Path) -> None:
    heaps = {}
    for option in ("one", "each"):
        subprocess.run([sys.executable, "-c", THREADS, str(tmp_path / option), option], check=True)
        heaps[option] = (tmp_path / option).read_text().count("<heap nr=")
    assert heaps["one"] == 1
    assert heaps["each"] > 1


ENDED = f"""{OWN_MEMORY}
import os, sys, threading
from service.library_settings import prepare
from service.process_memory import give_back, share_one_heap

prepare()
import pyarrow as pa

if sys.argv[1] == "one":
    share_one_heap()
before = own_memory()
together = threading.Barrier(8)

def work():
    kept = [pa.array(range(10_000)) for _ in range(50)]
    together.wait()

threads = [threading.Thread(target=work) for _ in range(8)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
give_back()
print(own_memory() - before)
"""


def test_what_arrow_needed_in_threads_that_ended_is_handed_back() -> None:
    kept = {}
    for option in ("one", "each"):
        said = subprocess.run([sys.executable, "-c", ENDED, option], check=True, capture_output=True, text=True).stdout
        kept[option] = int(said)
    assert kept["one"] < 8_000_000 < kept["each"], kept


BUFFERS = f"""{OWN_MEMORY}
import sys
from service.process_memory import share_one_heap

if sys.argv[1] == "one":
    share_one_heap()
bytes(30_000_000)  # freed at once: unless told, glibc has buffers up to this size in its heap from now on
before = own_memory()
held = []
buffers = []
for _ in range(10):
    buffers.append(b"x" * 5_000_000)
    held.append(b"y" * 2_000)  # stays, behind a buffer of a moment
del buffers
print(own_memory() - before)
"""


def test_large_buffers_of_a_moment_leave_no_holes_between_what_stays() -> None:
    kept = {}
    for option in ("one", "each"):
        command = [sys.executable, "-c", BUFFERS, option]
        kept[option] = int(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    assert kept["one"] < 8_000_000, kept
    assert kept["each"] > 40_000_000, kept


COLUMNS = """
import resource, sys
from service import process_memory

process_memory.MAPPED_BYTES = int(sys.argv[1])
process_memory.share_one_heap()
columns = [bytes(2_000_000) for _ in range(5)]
stays = b"y" * 100_000
del columns
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(40):
    columns = [b"x" * 2_000_000 for _ in range(5)]
    del columns
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def test_columns_of_a_batch_take_the_pages_that_those_of_the_one_before_it_had() -> None:
    """The kernel would have to clear all of them for each batch."""
    faults = {}
    for size in (MAPPED_BYTES, 128 << 10):
        command = [sys.executable, "-c", COLUMNS, str(size)]
        faults[size] = int(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    assert faults[MAPPED_BYTES] * 10 < faults[128 << 10], faults  # 2,300 of 97,800 where a page is 4 KiB
