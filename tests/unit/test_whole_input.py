"""A task whose input breaks off fails: what it would store of a part is not what it was to store."""

from __future__ import annotations

import socket
import struct
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any, BinaryIO

import pyarrow as pa
import pytest
from pyspark import TaskContext
from pyspark.serializers import BatchedSerializer, CPickleSerializer, SpecialLengths
from pyspark.sql.pandas.serializers import ArrowStreamSerializer

from spark_jobs.whole_input import BrokenInputError, require_whole_input

ITEMS = [(1, "a"), (2, "b" * 5000), (3, None)]
BATCH = pa.RecordBatch.from_pydict({"n": list(range(100))})


@pytest.fixture
def in_worker() -> Iterator[None]:
    require_whole_input()
    TaskContext._setTaskContext(TaskContext())
    try:
        yield
    finally:
        TaskContext._setTaskContext(None)


def items(stream: BinaryIO) -> list[Any]:
    return list(BatchedSerializer(CPickleSerializer(), 1).load_stream(stream))


def batches(stream: BinaryIO) -> list[Any]:
    return [batch.to_pydict()["n"] for batch in ArrowStreamSerializer().load_stream(stream)]


def told_items() -> bytes:
    told = (CPickleSerializer().dumps([item]) for item in ITEMS)
    return b"".join(struct.pack("!i", len(data)) + data for data in told)


def told_batches(ends: bool) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, BATCH.schema) as writer:
        writer.write_batch(BATCH)
        writer.write_batch(BATCH)
        size = sink.tell()
    whole = sink.getvalue().to_pybytes()
    return whole if ends else whole[:size]


END = struct.pack("!i", SpecialLengths.END_OF_STREAM)
END_OF_ITEMS = struct.pack("!i", SpecialLengths.END_OF_DATA_SECTION) + END


def read(data: bytes, by: Callable[[BinaryIO], list[Any]]) -> list[Any]:
    """Read what comes over a socket that is closed behind it."""
    ours, theirs = socket.socketpair()
    with ours, theirs, ours.makefile("rb") as stream:
        theirs.sendall(data)
        theirs.shutdown(socket.SHUT_WR)
        return by(stream)


def test_an_input_that_is_whole_is_read(in_worker: None) -> None:
    assert read(told_items() + END_OF_ITEMS, items) == ITEMS
    assert read(told_batches(ends=True) + END, batches) == [list(range(100))] * 2


@pytest.mark.parametrize("cut", [0, 5, 3000, -100])
def test_items_that_break_off_are_no_input(in_worker: None, cut: int) -> None:
    data = told_items()
    with pytest.raises(BrokenInputError):
        read(data[: cut or len(data)], items)


def test_batches_that_break_off_are_no_input(in_worker: None) -> None:
    with pytest.raises(BrokenInputError):
        read(told_batches(ends=False), batches)


ALONE = """
import sys
from importlib import import_module
import_module(sys.argv[1])
from pyspark import TaskContext
from tests.unit.test_whole_input import batches, items, read, told_batches, told_items
TaskContext._setTaskContext(TaskContext())
for data, by in ((told_items(), items), (told_batches(ends=False), batches)):
    try:
        read(data, by)
    except RuntimeError as error:
        print(type(error).__name__)
"""


@pytest.mark.parametrize("name", ["follow_tasks", "many_partitions", "tasks", "telling"])
def test_a_worker_that_has_nothing_but_a_tasks_module_reads_no_part(name: str) -> None:
    """So it is where Spark's own daemon forks workers: what they have is what unpickling a task imports."""
    command = [sys.executable, "-c", ALONE, f"spark_jobs.{name}"]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    assert (done.stdout.split(), done.stderr) == ([BrokenInputError.__name__] * 2, "")


def test_a_driver_reads_to_the_end_of_what_it_is_sent(tmp_path: Any) -> None:
    require_whole_input()
    assert read(told_items(), items) == ITEMS


def test_what_a_worker_has_put_aside_ends_with_its_file(in_worker: None, tmp_path: Any) -> None:
    (tmp_path / "spilled").write_bytes(told_items())
    with (tmp_path / "spilled").open("rb") as stream:
        assert items(stream) == ITEMS
