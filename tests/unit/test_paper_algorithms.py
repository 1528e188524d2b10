"""The paper's own algorithms: its examples as golden tests, its lemmas as laws, its misprints as lessons."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.paper_algorithms import MemoryGenRecs, PaperClustering, tuple_clustering
from service.core.errors import RecordError

TABLE_1 = [dict(zip("ABCD", row, strict=True)) for row in ("aafa", "bbea", "bcfc", "ddfc")]
EXAMPLE_4_11_BEFORE, EXAMPLE_4_11_AFTER = {"B": "c", "D": "c"}, {"B": "g", "D": "g"}

Row = dict[str, str | None]
rows = st.dictionaries(st.sampled_from("ABCDE"), st.one_of(st.none(), st.sampled_from("uvwxyz")), min_size=1)
row_lists = st.lists(rows, max_size=12)


def clustering_of(table: list[Row], **options: bool) -> PaperClustering[str, str]:
    clustering = PaperClustering[str, str](MemoryGenRecs(), **options)
    for row in table:
        clustering.insert_tuple(row)
    return clustering


def recomputed(table: list[Row]) -> dict[frozenset[str], int]:
    """Take the clusters by Definition 4.1, from the data alone."""
    columns: dict[str, set[str]] = {}
    for row in table:
        for attribute, value in row.items():
            if value is not None:
                columns.setdefault(value, set()).add(attribute)
    return dict(Counter(frozenset(held_by) for held_by in columns.values()))


def recomputed_inds(table: list[Row]) -> set[tuple[str, str]]:
    """Take the INDs by their definition: V_A ⊆ V_B, for A with values."""
    columns = {a: {row[a] for row in table if row.get(a) is not None} for a in {a for row in table for a in row}}
    return {(a, b) for a in columns for b in columns if a != b and columns[a] and columns[a] <= columns[b]}


def named(clusters: dict[frozenset[str], int]) -> dict[str, int]:
    return {"".join(sorted(cluster)): count for cluster, count in clusters.items()}


def test_example_1_1_table_1_has_two_inds():
    assert clustering_of(TABLE_1).inds() == {("A", "B"), ("D", "B")}


def test_table_2_with_the_correction_that_the_cluster_of_a_is_abd():
    gen_recs = MemoryGenRecs[str, str]()
    clustering = PaperClustering(gen_recs)
    for row in TABLE_1:
        clustering.insert_tuple(row)
    assert named(clustering.clusters()) == {"ABD": 1, "AB": 2, "BD": 1, "C": 2}
    assert gen_recs.frequencies == {
        "a": {"A": 1, "B": 1, "D": 2},
        "b": {"A": 2, "B": 1},
        "c": {"B": 1, "D": 2},
        "d": {"A": 1, "B": 1},
        "e": {"C": 1},
        "f": {"C": 3},
    }
    shared_ids = [{value for value, cid in gen_recs.cids.items() if cid == gen_recs.cids[of]} for of in "abce"]
    assert shared_ids == [{"a"}, {"b", "d"}, {"c"}, {"e", "f"}]


def test_example_4_3_the_clustering_of_one_tuple():
    assert tuple_clustering(dict(zip("ABCD", "ccee", strict=True))) == {"c": {"A", "B"}, "e": {"C", "D"}}


def test_example_4_6_an_insert_breaks_one_ind_and_makes_another():
    clustering = clustering_of(TABLE_1)
    clustering.insert_tuple(dict(zip("ABCD", "ccee", strict=True)))
    assert named(clustering.clusters()).keys() == {"ABD", "AB", "CD", "C"}
    assert clustering.inds() == {("A", "B"), ("B", "A")}


def test_example_4_10_a_delete_breaks_an_ind():
    clustering = clustering_of(TABLE_1)
    clustering.delete_tuple(dict(zip("ABCD", "bbea", strict=True)))
    assert named(clustering.clusters()).keys() == {"ABD", "AB", "BD", "A", "C"}
    assert clustering.inds() == {("D", "B")}


def test_example_4_11_an_update_extracts_and_merges_only_the_cells_that_differ():
    clustering = clustering_of(TABLE_1)
    clustering.delete_tuple(EXAMPLE_4_11_BEFORE)
    clustering.insert_tuple(EXAMPLE_4_11_AFTER)
    changed = [*TABLE_1[:2], dict(zip("ABCD", "bgfg", strict=True)), TABLE_1[3]]
    assert clustering.clusters() == recomputed(changed)
    assert clustering.inds() == {("A", "B")}  # c is left in D alone


def test_null_is_no_value_and_an_empty_column_is_in_no_ind():
    clustering = clustering_of([{"A": "a", "B": None}])
    assert named(clustering.clusters()) == {"A": 1}
    assert clustering.inds() == set()


@given(row_lists, st.data(), st.booleans())
def test_any_sequence_of_tuples_equals_recomputing(table: list[Row], data: st.DataObject, use_caches: bool):
    clustering = clustering_of(table, use_caches=use_caches)
    left = list(table)
    for number in range(data.draw(st.integers(0, len(table)))):
        clustering.delete_tuple(left.pop(data.draw(st.integers(0, len(left) - 1))))
        if number % 3 == 0:
            left.append(data.draw(rows))
            clustering.insert_tuple(left[-1])
    assert clustering.clusters() == recomputed(left)
    assert clustering.inds() == recomputed_inds(left)


@given(row_lists)
def test_insert_only_gives_the_same_clusters_without_frequencies(table: list[Row]):
    gen_recs = MemoryGenRecs[str, str]()
    clustering = PaperClustering(gen_recs, insert_only=True)
    for row in table:
        clustering.insert_tuple(row)
    assert clustering.clusters() == recomputed(table)
    assert not any(gen_recs.frequencies.values())


@given(row_lists, rows)
def test_merge_then_extract_is_the_identity(table: list[Row], row: Row):
    clustering = clustering_of(table)
    clustering.insert_tuple(row)
    clustering.delete_tuple(row)
    assert clustering.clusters() == recomputed(table)


@given(row_lists, rows, st.booleans())
def test_lemma_5_1_and_5_2_bound_the_accesses_of_a_tuple(table: list[Row], row: Row, use_caches: bool):
    gen_recs = MemoryGenRecs[str, str]()
    before = PaperClustering(gen_recs)
    for earlier in table:
        before.insert_tuple(earlier)
    # A new process: the records are there, the caches are empty.
    present = {gen_recs.cids[v]: frozenset(a for a, f in gen_recs.frequencies[v].items() if f) for v in gen_recs.cids}
    clustering = PaperClustering(gen_recs, present, use_caches=use_caches)
    values = len(tuple_clustering(row))
    clustering.insert_tuple(row)
    inserting = clustering.accesses.total()
    assert values <= inserting <= 3 * values
    clustering.delete_tuple(row)
    deleting = clustering.accesses.total() - inserting
    assert 2 * values <= deleting <= 4 * values
    assert clustering.clusters() == recomputed(table)


def test_the_best_and_the_worst_cases_of_the_lemmas_are_reached():
    def accesses(operation: str, row: Row, clustering: PaperClustering[str, str]) -> Counter[str]:
        clustering.accesses.clear()
        getattr(clustering, f"{operation}_tuple")(row)
        return clustering.accesses.copy()

    known = clustering_of([{"A": "a"}, {"A": "a"}])
    assert accesses("insert", {"A": "a"}, known) == {"i_update": 1}
    assert accesses("delete", {"A": "a"}, known) == {"get_freqs": 1, "d_update": 1}
    uncached = clustering_of([{"A": "a"}], use_caches=False)
    assert accesses("insert", {"B": "a"}, uncached) == {"get_cid": 1, "i_update": 1, "get_count": 1}
    assert accesses("delete", {"B": "a"}, uncached) == {"get_cid": 1, "get_freqs": 1, "d_update": 1, "get_count": 1}


def test_the_caches_save_accesses():
    with_caches, without = clustering_of(TABLE_1), clustering_of(TABLE_1, use_caches=False)
    assert with_caches.accesses.total() < without.accesses.total()


def test_a_delete_of_what_was_never_inserted_is_refused_and_changes_nothing():
    clustering = clustering_of(TABLE_1)
    with pytest.raises(RecordError, match=r"'x' cannot be deleted from A, B: it was never inserted"):
        clustering.handle_delete("x", {"A", "B"})
    with pytest.raises(RecordError, match=r"'a' cannot be deleted from C: it does not occur there"):
        clustering.handle_delete("a", {"A", "C"})
    assert clustering.clusters() == recomputed(TABLE_1)


def test_an_insert_only_state_refuses_a_delete():
    with pytest.raises(RecordError, match="insert-only"):
        clustering_of(TABLE_1, insert_only=True).delete_tuple(TABLE_1[0])


@pytest.mark.parametrize("as_printed", [True, False])
def test_algorithm_2_as_printed_loses_count_and_keeps_an_empty_cluster(as_printed: bool):
    gen_recs = MemoryGenRecs[str, str]()
    first_process = PaperClustering(gen_recs)
    for value in "vw":
        first_process.handle_insert(value, {"A"})
    clustering = PaperClustering(gen_recs, {1: {"A"}}, as_printed=as_printed)
    for value in "vw":
        clustering.handle_insert(value, {"A"})  # Algorithm 2 finds each value and sets the cluster's count to 1.
    for value in "vw":
        clustering.handle_insert(value, {"B"})
    right = {("A", "B"), ("B", "A")}
    assert clustering.inds() == ({("B", "A")} if as_printed else right)
    assert named(clustering.clusters()) == ({"A": 0, "AB": 2} if as_printed else {"AB": 2})
