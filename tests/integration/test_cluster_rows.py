"""Clusters that are read by binary COPY, block by block, are those that SQL gives."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from service.core.clustering import Clusters
from service.store import cluster_rows, copy_stream
from service.store.database import connect

SETS = st.sets(st.integers(0, 2**31 - 1), min_size=1, max_size=6).map(sorted)
CLUSTERS = st.dictionaries(st.integers(1, 2000), st.tuples(SETS, st.integers(1, 2**62)), max_size=12)


@pytest.fixture(params=[0, 100, 1 << 20], ids=["each row", "some rows", "all"])
def block_bytes(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    monkeypatch.setattr(copy_stream, "BLOCK_BYTES", request.param)
    return int(request.param)


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(stored=CLUSTERS)
def test_what_sql_wrote_is_read(database_url: str, block_bytes: int, stored: dict[int, tuple[list[int], int]]) -> None:
    with connect(database_url, "test") as connection, connection.cursor() as cursor:
        cursor.execute("create temporary table given (cluster_id bigint, attribute_ids int[], value_count bigint)")
        for cluster_id, (attribute_ids, count) in stored.items():
            cursor.execute("insert into given values (%s, %s, %s)", (cluster_id, attribute_ids, count))
        found = cluster_rows.read(cursor, "given")
        of_some = cluster_rows.read(cursor, "given", "cluster_id > 1000")
        connection.rollback()
    wanted = {(cluster_id, tuple(ids), count) for cluster_id, (ids, count) in stored.items()}
    assert set(Clusters(found)) == wanted
    assert (len(found), len(of_some)) == (len(wanted), sum(cluster_id > 1000 for cluster_id in stored))
    assert set(Clusters(of_some)) == {one for one in wanted if one[0] > 1000}
