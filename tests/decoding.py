"""Own the decoding of records in tests, as a consumer decodes a batch."""

from __future__ import annotations

from collections.abc import Sequence

from service.core.model import BadRecord, RawRecord, RowChange, Skipped
from service.usecases.batches import decode_each, separate
from service.usecases.ports import Decoder


def decode_all(
    decoder: Decoder, records: Sequence[RawRecord]
) -> tuple[list[RowChange], list[Skipped], list[BadRecord]]:
    """Decode records, and give changes, skipped and bad ones, each in the order of the records."""
    return separate(records, decode_each(decoder, records))
