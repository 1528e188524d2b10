"""The benchmarks' baselines on a real Postgres: they do the same work as we do, or their speed says nothing."""

from __future__ import annotations

import io
import json
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from copy import deepcopy
from hashlib import sha256
from pathlib import Path
from random import Random

import psycopg2
import pytest
from psycopg2.extensions import connection as Connection
from rich.console import Console

from benchmarks import state_comparison
from benchmarks.bare_merge import apply_bare, read_records, record_batches, value_key
from benchmarks.context import Context
from benchmarks.evaluate import Evaluation
from benchmarks.feeds import Change, batches, cell_deltas, net
from benchmarks.paper_algorithms import PaperClustering
from benchmarks.paper_postgres import SqlGenRecs, apply_change, count_accesses, tuple_by_tuple_rates
from benchmarks.state import Server
from benchmarks.table_changes import Tables, change_randomly, read_tables
from service.core.errors import SourceError
from service.core.model import AttributeName
from service.store import migrate
from service.store.embedded import EmbeddedPostgres
from tests.hand_made_state import HandMadeState

NAMES = [AttributeName("paper", "r", column) for column in "ABCD"]
IDS = [0, 1, 2, 3]


class Changed:
    """Table 1 of the paper in a database, and random changes of it."""

    def __init__(self, url: str) -> None:
        rows = [tuple(row) for row in ("aafa", "bbea", "bcfc", "ddfc")]
        tables = Tables({"r": list("ABCD")}, {"r": list(rows)})
        HandMadeState(url, dict(zip(NAMES, map(list, zip(*rows, strict=True)), strict=True))).close()
        self.changes: list[Change] = change_randomly(tables, 60, Random(3))
        self.touched = {value for change in self.changes for value, _, _ in cell_deltas(change, IDS)}
        self.after: dict[str, Counter[int]] = {}
        for row in tables.rows["r"]:
            for attribute_id, cell in zip(IDS, row, strict=True):
                if cell is not None:
                    self.after.setdefault(cell, Counter())[attribute_id] += 1

    def clusters_after(self) -> dict[frozenset[int], int]:
        return dict(Counter(frozenset(counts) for counts in self.after.values()))


@pytest.fixture
def changed(database_url: str) -> Changed:
    return Changed(database_url)


@pytest.fixture
def connection(database_url: str, changed: Changed) -> Iterator[Connection]:
    connection = psycopg2.connect(database_url)
    yield connection
    connection.close()


def test_the_bare_merge_writes_exactly_the_records_of_the_changed_table(changed: Changed, connection: Connection):
    records = read_records(connection, changed.touched)
    netted = [net(batch, {"r": IDS}) for batch in batches(changed.changes, 7)]
    apply_bare(connection, record_batches(records, netted))
    with connection.cursor() as cursor:
        cursor.execute("SELECT value_key::text, value, cluster_id, attribute_ids, frequencies FROM gen_rec")
        rows = cursor.fetchall()
    assert {value: dict(zip(ids, counts, strict=True)) for _, value, _, ids, counts in rows} == changed.after
    assert all(key == str(value_key(value)) for key, value, *_ in rows)
    sets = {(cluster_id, frozenset(ids)) for _, _, cluster_id, ids, _ in rows}
    assert len(sets) == len({cid for cid, _ in sets}) == len({ids for _, ids in sets})


def test_a_feed_that_does_not_fit_the_state_is_no_baseline(changed: Changed, connection: Connection):
    with pytest.raises(ValueError, match="do not fit this state"):
        record_batches(read_records(connection, ["nowhere"]), [{"nowhere": {0: -1}}])


def test_the_papers_algorithms_come_to_the_same_clusters_on_postgres(changed: Changed, connection: Connection):
    gen_recs = SqlGenRecs(connection, IDS)
    with connection.cursor() as cursor:
        cursor.execute("SELECT cluster_id, attribute_ids FROM cluster")
        clusters = dict(cursor.fetchall())
    gen_recs.fill(clusters)
    clustering = PaperClustering(gen_recs, clusters)
    for change in changed.changes:
        apply_change(clustering, change, IDS)
    assert clustering.clusters() == changed.clusters_after()
    with connection.cursor() as cursor:
        cursor.execute("SELECT v, f0, f1, f2, f3 FROM paper_gen_rec")
        found = {value: {n: count for n, count in enumerate(counts) if count} for value, *counts in cursor}
    assert found == changed.after


def test_accesses_counted_in_memory_are_those_made_on_postgres(changed: Changed, connection: Connection):
    records = read_records(connection, changed.touched)
    untouched = deepcopy(records)
    counted = count_accesses(connection, records, {"all": changed.changes}, IDS)["all"]
    assert records == untouched
    with connection.cursor() as cursor:
        cursor.execute("SELECT cluster_id, attribute_ids FROM cluster")
        clusters = dict(cursor.fetchall())
    gen_recs = SqlGenRecs(connection, IDS)
    gen_recs.fill(clusters)
    made = []
    for use_caches in (True, False):
        clustering = PaperClustering(gen_recs, clusters, use_caches=use_caches)
        for change in changed.changes:
            apply_change(clustering, change, IDS)
        connection.rollback()
        made.append(clustering.accesses.total())
    assert counted == tuple(made)
    assert counted[0] < counted[1]


def test_the_papers_rate_is_of_as_many_tuples_as_asked_after_as_many_that_warm_up(
    changed: Changed, connection: Connection
):
    rates = tuple_by_tuple_rates(connection, {"all": changed.changes}, IDS, 10)
    assert rates["all"] > 0
    frequencies: Counter[tuple[str, int]] = Counter()
    for change in changed.changes[20:]:  # What it has not applied is what is missing to the end.
        for value, attribute_id, sign in cell_deltas(change, IDS):
            frequencies[(value, attribute_id)] += sign
    with connection.cursor() as cursor:
        cursor.execute("SELECT v, f0, f1, f2, f3 FROM paper_gen_rec")
        found = {value: counts for value, *counts in cursor}
    for value in changed.touched:
        counts = found.get(value, [None] * 4)
        for attribute_id in IDS:
            missing = changed.after.get(value, Counter())[attribute_id] - (counts[attribute_id] or 0)
            assert missing == frequencies[(value, attribute_id)]


RENUMBER = """
UPDATE attribute SET attribute_id = attribute_id + 10;
UPDATE uind SET dependent_id = dependent_id + 10, referenced_id = referenced_id + 10;
UPDATE cluster SET cluster_id = cluster_id + 5, attribute_ids = (SELECT array_agg(a + 10) FROM unnest(attribute_ids) a);
UPDATE gen_rec SET cluster_id = cluster_id + 5, attribute_ids = (SELECT array_agg(a + 10) FROM unnest(attribute_ids) a);
"""


def test_states_are_compared_by_names_not_ids_and_one_value_more_is_told(database_url: str, empty_database_url: str):
    migrate.upgrade(empty_database_url)
    columns = {NAMES[0]: ["a", "b"], NAMES[1]: ["a", "a"], NAMES[2]: [None, None]}
    HandMadeState(database_url, columns).close()
    state = state_comparison.read_state(database_url)
    assert state["INDs"] == {(NAMES[1], NAMES[0]): 1}
    other = HandMadeState(empty_database_url, {**columns, NAMES[2]: ["c", None]})
    lines = state_comparison.differences(state, state_comparison.read_state(empty_database_url))
    assert [line.split(":")[0] for line in lines] == ["attributes", "clusters", "gen_recs"]
    other.commit(columns)
    other.close()
    with closing(psycopg2.connect(empty_database_url)) as connection, connection, connection.cursor() as cursor:
        cursor.execute(RENUMBER)
    assert state_comparison.differences(state, state_comparison.read_state(empty_database_url)) == []


def test_the_evaluation_tells_right_lists_of_inds_from_wrong_ones(postgres_server: EmbeddedPostgres, tmp_path: Path):
    lines, stats = b"t.csv\t1\tt.csv\t0\n", {}
    for name, count, digest in (("good", 1, sha256(lines)), ("bad", 1, sha256(b"other")), ("worse", 2, sha256(lines))):
        (tmp_path / name).mkdir()
        (tmp_path / name / "t.csv").write_text("x,y\na,a\nb,\n")
        stats[name] = {"kind": "relational", "unary_inds": count, "ind_sha256": digest.hexdigest()}
    (tmp_path / "stats.json").write_text(json.dumps(stats))

    def bootstrap_by_hand(folder: Path, name: str, url: str) -> None:
        tables = read_tables(folder)
        columns = zip(tables.columns["t"], zip(*tables.rows["t"], strict=True), strict=True)
        HandMadeState(url, {AttributeName(name, "t", column): list(cells) for column, cells in columns}).close()

    printed = io.StringIO()
    context = Context(Console(file=printed, soft_wrap=True), 1, tmp_path / "work")
    evaluation = Evaluation(
        context, Server(postgres_server), bootstrap_by_hand, lambda *_: [(("t.csv", 1), ("t.csv", 0))]
    )
    outcomes = list(evaluation.run(tmp_path, set(stats)))
    faults = [[], ["bad: the number is right, the hash is not"], ["worse: 1 INDs, not 2"]]
    assert [outcome.faults for outcome in outcomes[::2]] == faults
    assert [outcome.faults for outcome in outcomes[1::2]] == [
        [f"{algorithm}: {fault}" for algorithm in ("rarest-first", "signatures", "refresh") for fault in one]
        for one in faults
    ], "each set as a corpus as well"
    assert [line.split("  ")[-1] for line in printed.getvalue().splitlines()[::2]] == [
        "ok",
        "DIFFERS: bad: the number is right, the hash is not",
        "DIFFERS: worse: 1 INDs, not 2",
    ]


def test_a_set_that_cannot_be_bootstrapped_costs_its_own_row_only(postgres_server: EmbeddedPostgres, tmp_path: Path):
    nothing = {"kind": "relational", "unary_inds": 0, "ind_sha256": sha256(b"").hexdigest()}
    stats = dict.fromkeys(("one", "two"), nothing)
    for name in stats:
        (tmp_path / name).mkdir()
    (tmp_path / "stats.json").write_text(json.dumps(stats))

    def refuse(folder: Path, name: str, url: str) -> None:
        raise SourceError(f"{folder.name} is broken: mend it")

    context = Context(Console(file=io.StringIO()), 1, tmp_path / "work")
    outcomes = list(Evaluation(context, Server(postgres_server), refuse, lambda *_: []).run(tmp_path, set(stats)))
    assert [outcome.faults for outcome in outcomes] == [["one is broken: mend it"], [], ["two is broken: mend it"], []]
