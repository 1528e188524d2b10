"""Own what every task of ours has, whose module imports this: the way of errors that a user can mend through Spark.

Spark carries nothing but text. A task's own failure is told as well where Spark would not see it: see `whole_input`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Generic, TypeVar

from service.core.errors import (
    ConflictError,
    DamagedIndexError,
    DamagedStateError,
    FeedAwayError,
    FeedError,
    FullDiskError,
    SourceError,
    StateError,
    SubsetdError,
)
from spark_jobs.whole_input import require_whole_input

require_whole_input()  # a process that runs a task has its module, and so this, before it reads the task's items

MARK = "subsetd-error "
"""Stands in the text of an exception before the JSON of an error that a user can mend, on one line."""

TOLD = {
    kind.__name__: kind
    for kind in (
        *(SourceError, DamagedIndexError, FeedError, FeedAwayError),
        *(StateError, FullDiskError, ConflictError, DamagedStateError),
    )
}
"""Errors that keep their kind on the way through Spark; others come as a StateError."""

TRACED = re.compile(r"^Traceback .*:\n(?:\s.*\n)+(\S.*)", re.MULTILINE)
"""The line that a traceback ends with, whose exception may be called anything."""

Result = TypeVar("Result")


@contextmanager
def telling_errors() -> Iterator[None]:
    """Give an error that a user can mend a form that survives the way through Spark: see `told_error`."""
    try:
        yield
    except SubsetdError as error:
        kind = next((kind.__name__ for kind in type(error).__mro__ if kind.__name__ in TOLD), "StateError")
        raise RuntimeError(MARK + json.dumps([kind, str(error)])) from None


def told_error(error: BaseException) -> SubsetdError:
    """Return the error of a task that Spark's exception tells of; one without a mark is told in its last line."""
    text = str(error)
    for line in text.splitlines():
        _, mark, told = line.partition(MARK)
        if mark:
            kind, message = json.JSONDecoder().raw_decode(told)[0]
            return TOLD[kind](message)
    lines = [line.strip() for line in text.splitlines() if line.strip() and not line.strip().startswith("at ")]
    causes = [line for line in lines if line.startswith("Caused by") or "Error" in line or "Exception" in line]
    raised = [*lines[:1], *TRACED.findall(text)[-1:], *causes] or [type(error).__name__]
    return StateError(
        f"The Spark job failed and nothing was changed: {raised[-1][:500]} "
        "Run it again with --spark-log warn to see what Spark says."
    )


class Telling(Generic[Result]):
    """Wrap a picklable function that executors run, so that its errors are told."""

    def __init__(self, function: Callable[[Any], Result]) -> None:
        self.function = function

    def __call__(self, item: object) -> Result:
        with telling_errors():
            return self.function(item)
