"""Own the sending of transitions to the outside, of INDs and of contracts: each at least once, in order of versions.

The transitions are written in the state's transaction, so they are their own outbox. What was sent is remembered
after it was sent: a crash between the two sends it twice, and its version and its pair or contract tell that it is the
same. A contract that is violated when it is added has that transition in a version that was perhaps sent before: so
the newest contract that was there is remembered as well.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import asdict
from heapq import merge
from itertools import islice, takewhile
from typing import Any, NamedTuple

from service.core.errors import FeedAwayError, StateError
from service.usecases.answers import AttributeRef, Key, TransitionFilter, TransitionInfo
from service.usecases.foreign_key_decisions import ContractEvent
from service.usecases.ports import Outbox, StateReader, StateSnapshot, TransitionSink

PAGE = 1000
LOOK_SECONDS = 1.0
"""How long a commit is waited for before the state is looked at all the same."""


class Outgoing(NamedTuple):
    """Hold a message with its key, and the version that it tells of."""

    version: int
    key: str
    message: dict[str, Any]


class TransitionSender:
    """Send the transitions of the state to a sink, those of new versions as they come."""

    def __init__(
        self, reader: StateReader, outbox: Outbox, sink: TransitionSink, told: Callable[[str | None], None]
    ) -> None:
        """Send from `reader` to `sink`; `told` hears of what is tried again, and None when it has gone."""
        self._reader = reader
        self._outbox = outbox
        self._sink = sink
        self._told = told

    def run(self, stop: threading.Event) -> None:
        """Send until `stop` is set, and then what is left; what fails is tried again, after the end no more."""
        fault = ""
        while True:
            is_last = stop.is_set()
            try:
                self.send_new()
                if fault:
                    fault = ""
                    self._told(None)
                if not is_last:
                    self._outbox.wait(LOOK_SECONDS)
            except Exception as error:  # whatever it is, it must not end the sending
                said = str(error) if isinstance(error, (FeedAwayError, StateError)) else f"a defect: {error!r}"
                if said != fault:
                    fault = said
                    self._told(fault)
                stop.wait(LOOK_SECONDS)
            if is_last:
                return

    def send_new(self) -> int:
        """Send what was not sent yet and give its number; raise FeedAwayError or StateError, with the rest unsent."""
        name, of_contracts = self._sink.name, f"{self._sink.name} contracts"
        sent, known = self._outbox.sent(name), self._outbox.sent(of_contracts)
        if sent == 0:
            self._outbox.advance(name, 0)  # what it has not got is kept, also while it can be sent nothing
        with self._reader.snapshot() as snapshot:
            newest = snapshot.newest_contract()
            number = 0
            if newest > known:
                added = _contract_transitions(snapshot, 0, known)
                number += self._send(takewhile(lambda one: one.version <= sent, added))
                self._outbox.advance(of_contracts, newest)
            both = _transitions(snapshot, sent), _contract_transitions(snapshot, sent)
            number += self._send(merge(*both, key=lambda one: one.version), name)
            if snapshot.head.version > sent:
                self._outbox.advance(name, snapshot.head.version)
        return number

    def _send(self, messages: Iterator[Outgoing], remembered: str | None = None) -> int:
        """Send messages by pages; `remembered` after each is which versions are whole among what was sent."""
        number = 0
        while page := list(islice(messages, PAGE)):
            self._sink.send([(one.key, one.message) for one in page])
            number += len(page)
            if remembered is not None and len(page) == PAGE:
                self._outbox.advance(remembered, page[-1].version - 1)
        return number


def _transitions(snapshot: StateSnapshot, since: int) -> Iterator[Outgoing]:
    after: Key | None = None
    while found := snapshot.transitions(TransitionFilter(since=since), after, PAGE):
        for one in found:
            yield Outgoing(one.version, f"{one.dependent.name}|{one.referenced.name}", as_message(one))
        after = (found[-1].version, found[-1].dependent.attribute_id, found[-1].referenced.attribute_id)


def _contract_transitions(snapshot: StateSnapshot, since: int, newer_than: int = 0) -> Iterator[Outgoing]:
    after: Key = (since + 1, 0)
    while found := snapshot.contract_events(None, after, PAGE, newer_than):
        for one in found:
            yield Outgoing(one.version, f"contract|{one.contract_id}", contract_message(one))
        after = (found[-1].version, found[-1].contract_id)


def as_message(one: TransitionInfo) -> dict[str, Any]:
    """Give a transition in the shape that the API gives it."""
    return {**asdict(one), "dependent": _named(one.dependent), "referenced": _named(one.referenced)}


def contract_message(one: ContractEvent) -> dict[str, Any]:
    """Give a transition of a contract in the shape that the API gives it."""
    message = asdict(one)
    del message["foreign_key"]
    return message | {side: [list(name) for name in of.names] for side, of in one.foreign_key._asdict().items()}


def _named(one: AttributeRef) -> dict[str, Any]:
    return {"attribute_id": one.attribute_id, "name": str(one.name), "parts": list(one.name)}
