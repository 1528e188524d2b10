"""Own the order of change events in their source: the mark by which an event that comes again is recognised; pure."""

from __future__ import annotations

import re
from collections.abc import Mapping

Mark = tuple[int, ...]

_LAST_NUMBER = re.compile(r"\.([0-9]{1,18})$")
_SEQUENCE = re.compile(r"\[(?:null|\"([0-9]{1,19})\"),")
_LSN_PART = re.compile(r"[0-9a-fA-F]{1,8}")
_STREAMED = (None, False, "false")


def mark(source: Mapping[str, object], transaction: object, letter: str) -> Mark | None:
    """Give the place of an event in the order in which its connector reads the source; None where none can be told.

    All numbers but the last name a group of events, the last one rises inside of it. Of what one connector sends into
    one topic partition between two starts, each event has a greater mark than those before it. A connector that
    starts again begins at a group that it had begun already, or behind it: it sends groups again, in the same order,
    with the same events in the same order from the first one on. But the last number may then differ: so what tells a
    repeated event is its group and how manieth of the group it is (usecases/screening.py counts). An event whose
    place is not above the greatest seen in its topic partition was seen. (Restored from a backup, failed over to
    another server, or read by a connector without its offsets, a source gives low marks to new events: their time
    tells them.) Marks of two connectors, or of two topic partitions, do not compare.

    What rises and what does not, by connector:

    * postgresql: `lsn` does not, transactions interleave in the log; they are sent in the order of their commits.
      `sequence` holds the LSN of the last commit that was seen before (null before the first), which rises from each
      transaction to the next, and stands still inside of one, where `lsn` does not fall. Both halves of a key change,
      the tables of one TRUNCATE and the rows of one COPY share an LSN: `transaction.total_order` tells them apart. So
      (last commit, lsn; total_order), and no mark without `provide.transaction.metadata=true`. A connector that is
      killed goes on behind the LSN whose event was stored last, with the count of that event: where the LSN had more
      events, total_order is lower from there to the transaction's end (seen: by 2 and by 10).
    * mysql, mariadb: the number of the binlog's file, the position in it, the row in the event; the two halves of a key
      change share them, the delete first. Not with `binlog_transaction_compression`, whose events have no positions
      of their own.
    * sqlserver: the commit's LSN, then `total_order`, each a group of its own (the connector goes on at the event):
      inside a transaction `change_lsn` falls, where it reads by command. No mark without
      `provide.transaction.metadata=true`.
    * oracle and all others: none. Transactions may share a `commit_scn`, and then nothing in their events tells which
      came first.

    Rows of a snapshot have none.
    """
    if source.get("snapshot") not in _STREAMED:
        return None
    connector = source.get("connector")
    found: tuple[int | None, ...]
    if connector == "postgresql":
        found = (_last_commit(source.get("sequence")), _number(source.get("lsn")), _total_order(transaction))
    elif connector in ("mysql", "mariadb"):
        found = (_file_number(source.get("file")), _number(source.get("pos")), _number(source.get("row")))
        found = (*found, 0 if letter == "d" else 1)
    elif connector == "sqlserver":
        found = (*_lsn_parts(source.get("commit_lsn")), _total_order(transaction), 0)
    else:
        return None
    numbers = tuple([number for number in found if number is not None])
    return numbers if len(numbers) == len(found) else None


def reader(source: Mapping[str, object]) -> str:
    """Name what the marks of an event compare in: its connector, and of SQL Server the database, too; "" for nothing.

    Several connectors may be routed into one topic, each with a part of the table's rows.
    """
    name = source.get("name")
    if type(name) is not str or "\0" in name:  # which the state cannot hold
        return ""
    return f"{name}/{source.get('db')}" if source.get("connector") == "sqlserver" else name


def _number(value: object) -> int | None:
    return value if type(value) is int and 0 <= value < 2**63 else None


def _total_order(transaction: object) -> int | None:
    return _number(transaction.get("total_order")) if type(transaction) is dict else None


def _last_commit(sequence: object) -> int | None:
    """Read `["last commit","lsn"]`; the first transactions after a connector's start have null, which is before all."""
    if type(sequence) is not str:
        return None
    match = _SEQUENCE.match(sequence)
    if match is None:
        return None
    return 0 if match[1] is None else _number(int(match[1]))


def _file_number(name: object) -> int | None:
    match = _LAST_NUMBER.search(name) if type(name) is str else None
    return int(match[1]) if match else None


def _lsn_parts(lsn: object) -> tuple[int | None, ...]:
    """Read SQL Server's `00000027:00000758:0005`: file, block and slot in hexadecimal."""
    parts = lsn.split(":") if type(lsn) is str else []
    if len(parts) != 3 or not all(map(_LSN_PART.fullmatch, parts)):
        return (None,)
    return tuple(int(part, 16) for part in parts)
