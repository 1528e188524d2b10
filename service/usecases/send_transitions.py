"""Own the sending of transitions to the outside: every one at least once, in the order of versions.

The transitions are written in the state's transaction, so they are their own outbox. What was sent is remembered
after it was sent: a crash between the two sends it twice, and its version and pair tell that it is the same.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

from service.core.errors import FeedAwayError, StateError
from service.usecases.answers import AttributeRef, TransitionFilter, TransitionInfo
from service.usecases.ports import Outbox, StateReader, TransitionSink

PAGE = 1000
LOOK_SECONDS = 1.0
"""How long a commit is waited for before the state is looked at all the same."""


class TransitionSender:
    """Send the transitions of the state to a sink, those of new versions as they come."""

    def __init__(
        self, reader: StateReader, outbox: Outbox, sink: TransitionSink, failed: Callable[[str], None]
    ) -> None:
        """Send from `reader` to `sink`; `failed` hears of what is tried again."""
        self._reader = reader
        self._outbox = outbox
        self._sink = sink
        self._failed = failed

    def run(self, stop: threading.Event) -> None:
        """Send until `stop` is set, and then what is left; what fails is tried again, after the end no more."""
        fault = ""
        while True:
            is_last = stop.is_set()
            try:
                self.send_new()
                fault = ""
                if not is_last:
                    self._outbox.wait(LOOK_SECONDS)
            except (FeedAwayError, StateError) as error:
                if str(error) != fault:
                    fault = str(error)
                    self._failed(fault)
                stop.wait(LOOK_SECONDS)
            if is_last:
                return

    def send_new(self) -> int:
        """Send what was not sent yet and give its number; raise FeedAwayError or StateError, with the rest unsent."""
        sent = self._outbox.sent(self._sink.name)
        number = 0
        with self._reader.snapshot() as snapshot:
            after = None
            while found := snapshot.transitions(TransitionFilter(since=sent), after, PAGE):
                self._sink.send([(_key(one), as_message(one)) for one in found])
                number += len(found)
                last = found[-1]
                after = (last.version, last.dependent.attribute_id, last.referenced.attribute_id)
                if len(found) == PAGE:
                    self._outbox.advance(self._sink.name, last.version - 1)
            if snapshot.head.version > sent:
                self._outbox.advance(self._sink.name, snapshot.head.version)
        return number


def as_message(one: TransitionInfo) -> dict[str, Any]:
    """Give a transition in the shape that the API gives it."""
    return {**asdict(one), "dependent": _named(one.dependent), "referenced": _named(one.referenced)}


def _named(one: AttributeRef) -> dict[str, Any]:
    return {"attribute_id": one.attribute_id, "name": str(one.name), "parts": list(one.name)}


def _key(one: TransitionInfo) -> str:
    return f"{one.dependent.name}|{one.referenced.name}"
