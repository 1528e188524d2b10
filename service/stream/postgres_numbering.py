"""Own the numbers of a Postgres feed's changes: which of those that the server sends were handed over before; pure.

The server sends transactions in the order of their commits. After a break it begins at or before what the state holds,
always with whole transactions. A commit's place in the log tells them apart, the count of changes inside the rest.
"""

from __future__ import annotations

from collections import deque

import orjson

from service.core.model import StoredPosition
from service.stream.pgoutput import Begin, Commit
from service.usecases.screening import CLOCKS_DIFFER_MS


class Transaction:
    """Count a transaction's changes: numbers [first, end), its commit in the log from `lsn` to `end_lsn` (0: open)."""

    __slots__ = ("_header", "committed_ms", "end", "end_lsn", "first", "lsn", "transaction_id")

    def __init__(
        self, lsn: int, first: int, end: int, committed_ms: int, transaction_id: int, end_lsn: int = 0
    ) -> None:
        self.lsn = lsn
        self.first = first
        self.end = end
        self.committed_ms = committed_ms
        self.transaction_id = transaction_id
        self.end_lsn = end_lsn
        self._header: bytes | None = None

    @property
    def header(self) -> bytes:
        """Give what each change keeps of its transaction."""
        if self._header is None:
            told = {"txn_lsn": self.lsn, "first": self.first, "ts_ms": self.committed_ms, "txId": self.transaction_id}
            self._header = orjson.dumps(told)
        return self._header


class SetBackError(Exception):
    """A transaction is new, by its time, and stands where others were: the log was set back, and has grown anew."""


class Numbering:
    """Number the changes of one slot behind a stored position, through any number of breaks.

    `next` is the number of the next change, `stored_end` the place in the log up to which the server may forget once
    what `kept` told last is stored.
    """

    def __init__(self, stored: StoredPosition) -> None:
        kept = {key: value for key, value in stored.source_position.items() if isinstance(value, int)}
        self.next = stored.next_offset
        self.stored_end = kept.get("end_lsn", 0)
        self.is_inside = False
        self._done = Transaction(
            kept.get("txn_lsn", 0),
            kept.get("first", stored.next_offset),
            stored.next_offset,
            kept.get("ts_ms", 0),
            0,
            self.stored_end,
        )
        self._newest_ms = kept.get("newest_ms", self._done.committed_ms)
        """The newest time of a commit so far: times need not rise, as those of an origin's transactions do not."""
        self._waiting: deque[Transaction] = deque()
        self._number = stored.next_offset
        self._counts = False

    @property
    def last(self) -> Transaction:
        """Give the transaction that came last."""
        return self._waiting[-1] if self._waiting else self._done

    @property
    def reached(self) -> int:
        """Give the place up to which the source's log was surely written."""
        return max(self.stored_end, self.last.lsn + 1, self.last.end_lsn)

    def begin_again(self) -> None:
        """Hear that the connection broke: transactions come again from some earlier one on."""
        self.is_inside = self._counts = False

    def begin(self, begin: Begin) -> None:
        """Begin a transaction, which may have come before, in part or whole; raise SetBackError if it cannot have."""
        last = self.last
        if begin.lsn <= last.lsn and 0 < self._newest_ms < begin.committed_ms - CLOCKS_DIFFER_MS:
            raise SetBackError
        self.is_inside = True
        self._counts = begin.lsn >= last.lsn
        if begin.lsn == last.lsn:
            self._number = last.first
            if not self._waiting:
                again = Transaction(begin.lsn, last.first, last.end, begin.committed_ms, begin.transaction_id)
                self._waiting.append(again)
        elif self._counts:
            self._number = self.next
            self._newest_ms = max(self._newest_ms, begin.committed_ms)
            new = Transaction(begin.lsn, self.next, self.next, begin.committed_ms, begin.transaction_id)
            self._waiting.append(new)

    def count(self) -> int | None:
        """Give the number of the next change of the transaction; None for one that was handed over before."""
        if not self._counts:
            return None
        number, self._number = self._number, self._number + 1
        if number < self.next:
            return None
        self.next = self._waiting[-1].end = self._number
        return number

    def end(self, commit: Commit) -> None:
        """End the transaction."""
        self.is_inside = False
        if self._counts:
            waiting = self._waiting
            waiting[-1].end_lsn = commit.end_lsn
            # Transactions without changes only tell how far the log was read: one of them is enough.
            while len(waiting) > 1 and waiting[-2].end == waiting[-2].first:
                del waiting[-2]

    def beat(self) -> int:
        """Give a number to what is no change, behind all transactions that have come: a place to store."""
        number, last = self.next, self.last
        # No commit begins at an odd place: whatever comes next lies behind this one. Times are those of the source.
        place = Transaction(last.end_lsn - 1, number, number + 1, last.committed_ms, 0, last.end_lsn)
        self._waiting.append(place)
        self.next = number + 1
        return number

    def is_whole(self, at: int) -> bool:
        """Tell whether no transaction that has come is before a position in part, and behind it in part."""
        for transaction in reversed(self._waiting):
            if transaction.first < at:
                return at >= transaction.end and transaction.end_lsn != 0
        return True

    def kept(self, at: int) -> dict[str, object]:
        """Say what the state must keep of a position: the transaction that it is in, and what the server may forget.

        Positions are asked for in their order.
        """
        waiting = self._waiting
        while waiting and waiting[0].end_lsn and waiting[0].end <= at:
            self._done = waiting.popleft()
        inside = waiting[0] if waiting and waiting[0].first < at else self._done
        self.stored_end = max(self.stored_end, self._done.end_lsn)
        return {
            "txn_lsn": inside.lsn,
            "first": inside.first,
            "end_lsn": self.stored_end,
            "ts_ms": inside.committed_ms,
            "newest_ms": self._newest_ms,
        }
