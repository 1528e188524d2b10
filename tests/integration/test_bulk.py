"""The bulk way of gen_recs: what is written by binary COPY is what SQL reads, and what is read back."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from service.store.bulk import KeyRange, RecordArrays, partition_name, read_range, write_partition
from service.store.database import connect
from service.store.generation import create_registry, read_registry, register_clusters

CELL = st.dictionaries(st.integers(0, 40), st.integers(0, 2**62), min_size=1, max_size=5)
RECORDS = st.dictionaries(st.integers(0, 2**128 - 1), st.tuples(st.text("aä€🙂", max_size=9), CELL), max_size=20)
Made = dict[int, tuple[str, dict[int, int]]]


def arrays(made: Made) -> RecordArrays:
    """Lay records out as the bootstrap does, sorted by key; cluster ids are 7, 8, 9, ..."""
    items = sorted(made.items())
    texts = [text.encode() for _, (text, _) in items]
    cells = [sorted(cell.items()) for _, (_, cell) in items]
    return RecordArrays(
        high=np.array([key >> 64 for key, _ in items], np.uint64),
        low=np.array([key & (2**64 - 1) for key, _ in items], np.uint64),
        value_starts=np.cumsum([0, *map(len, texts)], dtype=np.int64),
        value_data=np.frombuffer(b"".join(texts), np.uint8),
        cluster_id=np.arange(7, 7 + len(items)),
        starts=np.cumsum([0, *map(len, cells)], dtype=np.int64),
        attribute_ids=np.array([a for cell in cells for a, _ in cell], np.int32),
        frequencies=np.array([f for cell in cells for _, f in cell], np.int64),
    )


def made(records: RecordArrays) -> Made:
    result = {}
    for i in range(len(records)):
        text = bytes(records.value_data[records.value_starts[i] : records.value_starts[i + 1]]).decode()
        cells = slice(records.starts[i], records.starts[i + 1])
        ids, frequencies = records.attribute_ids[cells].tolist(), records.frequencies[cells].tolist()
        key = int(records.high[i]) << 64 | int(records.low[i])
        result[key] = (text, dict(zip(ids, frequencies, strict=True)))
    return result


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(written=RECORDS, dropped=st.sets(st.integers(0, 40)))
def test_what_is_written_is_what_sql_and_the_bulk_way_read(database_url: str, written: Made, dropped: set[int]) -> None:
    whole = KeyRange(0, 0)
    with connect(database_url, "test") as connection:
        write_partition(connection, 1, whole, arrays(written))
        with connection.cursor() as cursor:
            cursor.execute(
                f"ALTER TABLE gen_rec ATTACH PARTITION {partition_name(1, 0)} FOR VALUES {whole.partition_bound()}"
            )
            cursor.execute(
                "SELECT value_key::text, value, cluster_id, attribute_ids, frequencies FROM gen_rec ORDER BY 1"
            )
            rows = cursor.fetchall()
        assert read_range(connection, whole) is not None
        back = made(read_range(connection, whole, sorted(dropped)))
        connection.rollback()
    by_sql = {
        int(key.replace("-", ""), 16): (value, dict(zip(ids, frequencies or [0] * len(ids), strict=True)))
        for key, value, _, ids, frequencies in rows
    }
    assert by_sql == written
    assert [row[2] for row in rows] == list(range(7, 7 + len(rows)))
    assert all((row[4] is None) == (set(written[int(row[0].replace("-", ""), 16)][1].values()) == {0}) for row in rows)
    kept = {k: (text, {a: f for a, f in cells.items() if a not in dropped}) for k, (text, cells) in written.items()}
    assert back == kept


def test_a_range_reads_its_own_keys_only(database_url: str) -> None:
    keys = [0, 2**126 - 1, 2**126, 2**127 - 1, 2**127, 2**128 - 1]
    with connect(database_url, "test") as connection:
        write_partition(connection, 1, KeyRange(0, 0), arrays({key: ("x", {0: 1}) for key in keys}))
        with connection.cursor() as cursor:
            cursor.execute(
                "ALTER TABLE gen_rec ATTACH PARTITION gen_rec_g1_p000 FOR VALUES FROM (MINVALUE) TO (MAXVALUE)"
            )
        found = [sorted(made(read_range(connection, KeyRange(number, 2)))) for number in range(4)]
        connection.rollback()
    assert found == [keys[:2], keys[2:4], keys[4:5], keys[5:]]


def test_a_key_outside_its_range_is_refused(database_url: str) -> None:
    """So a partition is what its bound says, without a look at its rows."""
    with connect(database_url, "test") as connection:
        with pytest.raises(Exception, match="violates check constraint"):
            write_partition(connection, 1, KeyRange(1, 1), arrays({5: ("x", {0: 1})}))
        connection.rollback()


def test_a_set_has_one_cluster_id_in_all_tasks(database_url: str) -> None:
    """Ids are dense, and sets that two tasks find alike are one cluster, however large."""
    large = np.arange(20_000, dtype=np.int32)
    first = [np.array([1, 2], np.int32), large]
    second = [np.array([3], np.int32), large, np.array([1, 2], np.int32), np.array([12], np.int32)]
    with connect(database_url, "test") as one, connect(database_url, "test") as other:
        create_registry(one, 1)
        assert register_clusters(one, 1, first).tolist() == [1, 2]
        assert register_clusters(other, 1, second).tolist() == [3, 2, 1, 4]
        assert register_clusters(one, 1, []).tolist() == []
        assert read_registry(one, 1) == {1: [1, 2], 2: large.tolist(), 3: [3], 4: [12]}
