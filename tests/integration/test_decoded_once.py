"""A record is decoded once, however its batch is held back, cut, or left."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import orjson
import pytest

from service.core.errors import RecordError
from service.core.model import RawRecord, RowChange, Skipped
from service.stream.envelope import Decoder
from tests import states
from tests.events import envelope
from tests.following import COLUMNS, Stream, consume
from tests.states import Tables


@pytest.mark.parametrize("records", [3, 5000])
@pytest.mark.parametrize("name", ["feed.jsonl", "feed.transaction"])
def test_each_record_is_decoded_once_however_its_batch_is_held_back_or_cut(
    database_url: str, tmp_path: Path, name: str, records: int
) -> None:
    """A file that is named like a transaction topic is taken for one, so that its records go through the buffer."""
    stream = Stream(tmp_path / name, Tables(COLUMNS))
    stream.tables.add("customers", ["1", "Ada"])
    stream.tables.add("orders", ["10", "1", None])
    states.store(database_url, stream.tables)
    for number, half in enumerate(["5", "6", "5", "6"]):
        after = {"id": f"{half}{number}", "name": half}
        change = orjson.loads(envelope("c", "s", "customers", None, after))
        change["transaction"] = {"id": half, "total_order": number}
        stream.write(orjson.dumps(change))
        stream.tables.add("customers", [after["id"], half])
    for half in ("5", "6"):
        counts = [{"data_collection": "s.customers", "event_count": 2}]
        stream.write(orjson.dumps({"status": "END", "id": half, "data_collections": counts}))
    stream.write(envelope("t", "s", "orders"))
    stream.tables.rows["orders"] = Counter()
    stream.change("customers", None, ["7", "Gus"])
    stream.append("customers", ["8", "never inserted"], None)
    decoded: Counter[int] = Counter()

    class Counting(Decoder):
        def decode(self, record: RawRecord) -> RowChange | Skipped:
            decoded[record.offset] += 1
            return super().decode(record)

    with pytest.raises(RecordError, match="never inserted"):
        consume(database_url, stream, records=records, make_decoder=Counting)
    assert list(decoded.values()) == [1] * 9
    assert states.read(database_url) == states.expected(stream.tables)
