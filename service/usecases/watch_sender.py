"""Own the sending of watches' alerts: let watches look, deliver what they wrote, try again what failed, and give up.

An alert is in the outbox with its cause, so that none is lost; that it was delivered is remembered afterwards, so that
a crash between the two sends it twice, under one id. While the outbox takes nothing, what became of an attempt is kept
here, and no other is made. When it is tried again is counted by a clock that never jumps, and kept here alone: after a
restart what is on its way is tried at once.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import NamedTuple

from service.core.errors import StateError
from service.usecases.watch_evaluation import Evaluator
from service.usecases.watches import MOST_ATTEMPTS, Alert, AlertKind, Channel, ChannelError, Channels, Outbox

LOOK_SECONDS = 1.0
FIRST_PAUSE = 1.0
LONGEST_PAUSE = 600.0
"""Between attempts, in seconds; each pause is twice the one before, and half of it is left to chance."""

AT_ONCE = 32
"""Deliveries at once, one of each watch: those that hang hold up no others while they are fewer."""


def pause(attempts: int, chance: float) -> float:
    """Give the seconds before the next attempt; `chance` is from 0 to 1."""
    return min(FIRST_PAUSE * 2.0 ** (attempts - 1), LONGEST_PAUSE) * (0.5 + chance / 2)


class _Attempt(NamedTuple):
    """Hold what became of an attempt: why the channel did not take it, and why the outbox does not know that yet."""

    fault: ChannelError | None
    not_before: float
    unknown: str | None = None


class WatchSender:
    """Look and deliver, again and again. `clock` gives seconds and never jumps, `chance` numbers from 0 to 1.

    `told` hears of each attempt: channel, outcome, and why it failed; `failed` what keeps watches from looking.
    """

    def __init__(
        self,
        evaluator: Evaluator,
        outbox: Outbox,
        channels: Channels,
        clock: Callable[[], float],
        chance: Callable[[], float],
        *,
        told: Callable[[str, str, str | None], None],
        failed: Callable[[str], None],
    ) -> None:
        self._evaluator = evaluator
        self._outbox = outbox
        self._channels = channels
        self._clock = clock
        self._chance = chance
        self._told = told
        self._failed = failed
        self._pool = ThreadPoolExecutor(AT_ONCE, thread_name_prefix="subsetd-alert")
        # Changed by the thread that looks alone.
        self._on_its_way: dict[int, Future[_Attempt]] = {}
        self._tried: dict[int, _Attempt] = {}
        self.fault: str | None = None
        """What keeps watches from looking, or the outbox from being read and written; None while nothing does."""

    def run(self, stop: threading.Event, before: Callable[[], None] = lambda: None) -> None:
        """Send until `stop` is set, and once more what is there then; `before` is called before each look."""
        while True:
            is_last = stop.wait(LOOK_SECONDS)
            self.look(before)
            if is_last:
                break
        self.close()

    def look(self, before: Callable[[], None] = lambda: None) -> bool:
        """Let watches look, and begin to deliver what is due; tell whether this process is the one that does.

        What goes wrong is told and tried again: a look that fails has written nothing.
        """
        is_ours = False
        try:
            before()
            is_ours = self._evaluator.evaluate()
            if is_ours:
                self._deliver()
            else:
                self._tried.clear()  # whoever looks now knows what became of them, or tries again
            fault = next((one.unknown for one in self._tried.values() if one.unknown is not None), None)
        except Exception as error:  # whatever it is, it must not end all watches
            fault = _said(error)
        if fault is not None and fault != self.fault:
            self._failed(fault)
        self.fault = fault
        return is_ours

    def close(self) -> None:
        """Wait for what is on its way."""
        self._pool.shutdown(wait=True)
        self._channels.close()

    def _deliver(self) -> None:
        for one in [one for one, future in self._on_its_way.items() if future.done()]:
            self._tried[one] = self._on_its_way.pop(one).result()
        unknown = {one for one, attempt in self._tried.items() if attempt.unknown is not None}
        # All of it: what is forgotten here has no pause.
        pending = self._outbox.pending(unknown | self._on_its_way.keys())
        known = {alert.alert_id for alert, _ in pending}
        self._tried = {one: attempt for one, attempt in self._tried.items() if one in known}
        now = self._clock()
        for alert, channel in pending:
            last = self._tried.get(alert.alert_id)
            is_due = last is None or last.unknown is not None or last.not_before <= now
            if is_due and alert.alert_id not in self._on_its_way and len(self._on_its_way) < AT_ONCE:
                self._on_its_way[alert.alert_id] = self._pool.submit(self._send, alert, channel, last)

    def _send(self, alert: Alert, channel: Channel, last: _Attempt | None) -> _Attempt:
        """Try to deliver an alert, or let the outbox know at last what became of the attempt before."""
        if last is None or last.unknown is None:
            fault = self._try(alert, channel)
            last = _Attempt(fault, self._clock() + pause(alert.attempts + 1, self._chance()))
        try:
            outcome = self._remember(alert, last.fault)
        except Exception as error:  # whatever it is: what is not remembered must not be sent again and again
            return last._replace(unknown=f"what became of alert {alert.alert_id} is not in the history: {_said(error)}")
        self._told(channel.kind, outcome, None if last.fault is None else str(last.fault))
        return last._replace(unknown=None)

    def _remember(self, alert: Alert, fault: ChannelError | None) -> str:
        if fault is None:
            self._outbox.delivered(alert.alert_id)
            return "delivered"
        is_given_up = fault.is_final or alert.kind is AlertKind.TEST or alert.attempts + 1 >= MOST_ATTEMPTS
        self._outbox.failed(alert.alert_id, str(fault), is_given_up=is_given_up)
        return "given up" if is_given_up else "failed"

    def _try(self, alert: Alert, channel: Channel) -> ChannelError | None:
        try:
            self._channels.send(channel, alert)
        except ChannelError as error:
            return error
        except Exception as error:  # a defect of ours is a failed attempt as well, and in the history
            return ChannelError(f"a defect: {type(error).__name__}")
        return None


def _said(error: Exception) -> str:
    return str(error) if isinstance(error, StateError) else f"a defect: {error!r}"
