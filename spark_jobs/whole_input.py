"""Own the guard of tasks against input that breaks off.

Where Spark cannot read what a task is to be given (an executor is gone, and what it had shuffled), it ends the stream
to the Python worker wherever that stands, and lets the task fail once the worker has ended. PySpark takes such an end
for that of the items: a task that stores what it makes of them would store what it makes of some, and be done when it
is run again.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterator
from typing import Any

from pyspark import TaskContext
from pyspark.serializers import FramedSerializer
from pyspark.sql.pandas.serializers import ArrowStreamSerializer

_read_item: Callable[[Any, Any], Any] = FramedSerializer._read_with_length
_load_batches: Callable[[Any, Any], Iterator[Any]] = ArrowStreamSerializer.load_stream


class BrokenInputError(RuntimeError):
    """A task's input ended before Spark said so; Spark knows why, and runs the task again."""


def require_whole_input() -> None:
    """Let a task in this process fail where its input breaks off."""
    FramedSerializer._read_with_length = _whole_item  # type: ignore[method-assign]
    ArrowStreamSerializer.load_stream = _whole_batches  # type: ignore[method-assign,assignment]


def _whole_item(serializer: Any, stream: Any) -> Any:
    try:
        return _read_item(serializer, stream)
    except EOFError:
        _require_more(stream)
        raise


def _whole_batches(serializer: Any, stream: Any) -> Iterator[Any]:
    yield from _load_batches(serializer, stream)
    _require_more(stream)


def _require_more(stream: Any) -> None:
    """Raise where a worker's input is at its very end: behind the items Spark says that they were all.

    What a worker has put aside in files ends so, and what a driver reads.
    """
    if TaskContext.get() is not None and stat.S_ISSOCK(os.fstat(stream.fileno()).st_mode) and not stream.peek(1):
        raise BrokenInputError("the input of this task broke off")
