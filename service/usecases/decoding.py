"""Own the decoding of a batch: each of its records once, into a list that goes with it wherever it is cut."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from service.core.errors import RecordError
from service.core.model import BadRecord, RawRecord, RowChange, Skipped
from service.usecases.ports import Decoder

Decoded = RowChange | Skipped | RecordError
"""What one record says: a change, nothing that concerns a row, or why it cannot be applied."""


def decode_each(decoder: Decoder, records: Iterable[RawRecord]) -> list[Decoded]:
    """Decode records in their order, aligned with them; raises only what `decoder` raises beside RecordError."""
    decode = decoder.decode
    decoded: list[Decoded] = []
    for record in records:
        try:
            decoded.append(decode(record))
        except RecordError as error:
            decoded.append(error.with_traceback(None))  # which would hold this frame, and all that was decoded
    return decoded


def separate(
    records: Sequence[RawRecord], decoded: Sequence[Decoded]
) -> tuple[list[RowChange], list[Skipped], list[BadRecord]]:
    """Separate what records were decoded to: changes, skipped and bad ones, each in the order of the records."""
    changes: list[RowChange] = []
    skipped: list[Skipped] = []
    bad: list[BadRecord] = []
    for record, one in zip(records, decoded, strict=True):
        if isinstance(one, RowChange):
            changes.append(one)
        elif isinstance(one, Skipped):
            skipped.append(one)
        else:
            bad.append(BadRecord(record, one))
    return changes, skipped, bad
