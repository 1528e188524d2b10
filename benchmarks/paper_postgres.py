"""Own the paper's baseline of the live rows: its algorithms tuple by tuple, on Postgres or counted in memory."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from time import perf_counter

import psycopg2.extensions

from benchmarks.bare_merge import Records
from benchmarks.feeds import Change
from benchmarks.paper_algorithms import MemoryGenRecs, PaperClustering


class SqlGenRecs:
    """Keep the generator as the paper does: a table with one frequency column for each attribute, one query a call.

    A frequency of 0 is NULL, which takes no space. The values are those of the state's gen_recs, which are cut to
    256 bytes: it is no baseline for longer ones.
    """

    def __init__(self, connection: psycopg2.extensions.connection, attribute_ids: Sequence[int]) -> None:
        self._cursor = connection.cursor()
        self._attribute_ids = attribute_ids

    def fill(self, clusters: Mapping[int, Sequence[int]]) -> None:
        """Make the table of the state's gen_recs, cluster by cluster, and its two indexes (section 5.1)."""
        columns = ", ".join(f"f{attribute_id} integer" for attribute_id in self._attribute_ids)
        self._cursor.execute(f"CREATE TABLE paper_gen_rec (v text, cid bigint, {columns})")
        for cid, cluster in clusters.items():
            names = ", ".join(f"f{attribute_id}" for attribute_id in cluster)
            places = ", ".join(f"frequencies[{place}]" for place in range(1, len(cluster) + 1))
            self._cursor.execute(
                f"INSERT INTO paper_gen_rec (v, cid, {names})"
                f" SELECT value, cluster_id, {places} FROM gen_rec WHERE cluster_id = {cid}"
            )
        self._cursor.execute("ALTER TABLE paper_gen_rec ADD PRIMARY KEY (v)")
        self._cursor.execute("CREATE INDEX ON paper_gen_rec (cid)")
        self._cursor.connection.commit()
        self._cursor.connection.autocommit = True
        self._cursor.execute("VACUUM ANALYZE paper_gen_rec")
        # As after a copy of a state: the first change of a page writes it whole into the log, for everyone alike.
        self._cursor.execute("CHECKPOINT")
        self._cursor.connection.autocommit = False

    def get_cid(self, value: str) -> int | None:
        row = self._query("SELECT cid FROM paper_gen_rec WHERE v = %s", value)
        return None if row is None else row[0]

    def add(self, value: str, cid: int, attributes: frozenset[int]) -> None:
        names = ", ".join(f"f{attribute_id}" for attribute_id in attributes)
        ones = ", ".join("1" for _ in attributes)
        self._cursor.execute(f"INSERT INTO paper_gen_rec (v, cid, {names}) VALUES (%s, %s, {ones})", (value, cid))

    def i_update(self, value: str, attributes: frozenset[int], cid: int | None = None) -> None:
        self._add_to(value, attributes, "+ 1", cid)

    def d_update(self, value: str, attributes: frozenset[int], cid: int | None = None) -> None:
        self._add_to(value, attributes, "- 1", cid)

    def get_freqs(self, value: str, attributes: frozenset[int]) -> dict[int, int]:
        ids = sorted(attributes)
        names = ", ".join(f"coalesce(f{attribute_id}, 0)" for attribute_id in ids)
        row = self._query(f"SELECT {names} FROM paper_gen_rec WHERE v = %s", value)
        return dict(zip(ids, row or (0,) * len(ids), strict=True))

    def get_count(self, cid: int) -> int:
        self._cursor.execute("SELECT count(*) FROM paper_gen_rec WHERE cid = %s", (cid,))
        row = self._cursor.fetchone()
        assert row is not None
        return int(row[0])

    def remove(self, value: str) -> None:
        self._cursor.execute("DELETE FROM paper_gen_rec WHERE v = %s", (value,))

    def _add_to(self, value: str, attributes: frozenset[int], sign: str, cid: int | None) -> None:
        sets = [f"f{a} = nullif(coalesce(f{a}, 0) {sign}, 0)" for a in attributes] + ["cid = coalesce(%s, cid)"]
        self._cursor.execute(f"UPDATE paper_gen_rec SET {', '.join(sets)} WHERE v = %s", (cid, value))

    def _query(self, query: str, value: str) -> tuple[int, ...] | None:
        self._cursor.execute(query, (value,))
        row: tuple[int, ...] | None = self._cursor.fetchone()
        return row


class TouchedGenRecs(MemoryGenRecs[int, str]):
    """Keep the records of the touched values alone, with the counts of whole clusters: enough to count accesses."""

    def __init__(self, records: Records, counts: Mapping[int, int]) -> None:
        super().__init__()
        self.counts = Counter(counts)
        for value, frequencies in records.frequencies.items():
            self.cids[value] = records.cluster_ids[frozenset(frequencies)]
            self.frequencies[value] = Counter(frequencies)

    def add(self, value: str, cid: int, attributes: frozenset[int]) -> None:
        self.counts[cid] += 1
        super().add(value, cid, attributes)

    def i_update(self, value: str, attributes: frozenset[int], cid: int | None = None) -> None:
        self._move(value, cid)
        super().i_update(value, attributes, cid)

    def d_update(self, value: str, attributes: frozenset[int], cid: int | None = None) -> None:
        self._move(value, cid)
        super().d_update(value, attributes, cid)

    def get_count(self, cid: int) -> int:
        return self.counts[cid]

    def remove(self, value: str) -> None:
        self.counts[self.cids[value]] -= 1
        super().remove(value)

    def _move(self, value: str, cid: int | None) -> None:
        if cid is not None:
            self.counts[self.cids[value]] -= 1
            self.counts[cid] += 1


def apply_change(clustering: PaperClustering[int, str], change: Change, attribute_ids: Sequence[int]) -> None:
    """Apply one change tuple by tuple; an update extracts and merges only the cells that differ (Example 4.11)."""
    before = dict(zip(attribute_ids, change.before, strict=True)) if change.before else {}
    after = dict(zip(attribute_ids, change.after, strict=True)) if change.after else {}
    clustering.delete_tuple({a: value for a, value in before.items() if value != after.get(a)})
    clustering.insert_tuple({a: value for a, value in after.items() if value != before.get(a)})


def tuple_by_tuple_rates(
    connection: psycopg2.extensions.connection,
    changes: Mapping[str, Sequence[Change]],
    attribute_ids: Sequence[int],
    count: int,
) -> dict[str, float]:
    """Return the tuples/s of each kind of change over `count` tuples, one durable transaction each.

    As many tuples before them fill ValCache and CountCache and are not timed.
    """
    clusters, _ = _clusters(connection)
    gen_recs = SqlGenRecs(connection, sorted({a for cluster in clusters.values() for a in cluster}))
    gen_recs.fill(clusters)
    clustering = PaperClustering(gen_recs, clusters)
    rates = {}
    for kind, of_kind in changes.items():
        half = min(count, len(of_kind) // 2)
        for change in of_kind[:half]:
            apply_change(clustering, change, attribute_ids)
        connection.commit()
        started = perf_counter()
        for change in of_kind[half : 2 * half]:
            apply_change(clustering, change, attribute_ids)
            connection.commit()
        rates[kind] = half / (perf_counter() - started)
    return rates


def count_accesses(
    connection: psycopg2.extensions.connection,
    records: Records,
    changes: Mapping[str, Sequence[Change]],
    attribute_ids: Sequence[int],
) -> dict[str, tuple[int, int]]:
    """Return, for each kind, the accesses of the paper's algorithms to its generator with and without its caches.

    All changes are applied, in memory; the caches are empty before the first kind.
    """
    clusters, counts = _clusters(connection)
    both = [
        PaperClustering(TouchedGenRecs(records, counts), clusters, use_caches=use_caches)
        for use_caches in (True, False)
    ]
    accesses = {}
    for kind, of_kind in changes.items():
        for clustering in both:
            clustering.accesses.clear()
            for change in of_kind:
                apply_change(clustering, change, attribute_ids)
        accesses[kind] = (both[0].accesses.total(), both[1].accesses.total())
    return accesses


def _clusters(connection: psycopg2.extensions.connection) -> tuple[dict[int, list[int]], dict[int, int]]:
    """Return the attributes and the number of values of each cluster."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT cluster_id, attribute_ids, value_count FROM cluster")
        rows = cursor.fetchall()
    return {cid: attributes for cid, attributes, _ in rows}, {cid: count for cid, _, count in rows}
