"""The report against the MATE paper: hashes as published, exact searches, right counts, whole files."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from random import Random
from xml.etree import ElementTree

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.joinable_filters import filters as filters_of_128
from benchmarks.joinable_lakes import Lake, LakeQuery, read_lake
from benchmarks.mate_peers import XashParts, cityhash, cityhash_of_bytes, cityhash_with_seed, murmur, murmur_of_bytes
from benchmarks.mate_report import main
from benchmarks.mate_report_data import (
    BASELINES,
    Queries,
    components,
    draw,
    filters,
    measure,
    pairs_fetched,
    postings_fetched,
    searching,
    together,
)
from benchmarks.mate_report_searches import Others, by_one_column, joining, without_filter
from benchmarks.rows.mate_exact import by_brute_force, pairs_of_columns
from service.core.xash import ALPHABET, Xash

Hash = Callable[[np.ndarray, int], tuple[np.uint64, np.uint64]]


def verification(hashed: Hash) -> int:
    """Give SMHasher's number for a hash of 128 bits: of the hashes of 256 keys, each with a seed of its own."""
    hashes = [hashed(np.arange(size, dtype=np.uint8), 256 - size) for size in range(256)]
    low, _ = hashed(np.array(hashes, "<u8").view(np.uint8).ravel(), 0)
    return int(low) & 0xFFFFFFFF


@pytest.mark.parametrize(
    ("hashed", "published"),
    [
        (murmur_of_bytes, 0x6384BA69),
        (lambda data, seed: cityhash_with_seed(data, np.uint64(seed), np.uint64(0)), 0x305C0D9A),
    ],
    ids=["MurmurHash3_x64_128", "CityHash128WithSeed of version 1.1"],
)
def test_hashes_have_smhashers_verification_numbers(hashed: Hash, published: int) -> None:
    assert verification(hashed) == published


def test_texts_are_hashed_as_utf_8() -> None:
    texts = ["", "a", "sixteen bytes..!", "ä" * 100]
    for hashes, of_bytes in ((murmur, murmur_of_bytes), (cityhash, cityhash_of_bytes)):
        assert [tuple(one) for one in hashes(pa.array(texts)).tolist()] == [
            of_bytes(np.frombuffer(text.encode(), np.uint8)) for text in texts
        ]
    # What Google's library of version 1.1 gives.
    assert [f"{half:016x}" for half in cityhash(pa.array([""]))[0].tolist()] == ["3df09dfc64c09a2b", "3cb540c392e51e29"]


texts = st.lists(st.text(st.one_of(st.sampled_from(ALPHABET + "ABZ-"), st.characters(codec="utf-8")), max_size=40))


@given(texts, st.sampled_from([128, 256, 512]), st.integers(1, 7))
def test_xash_of_all_parts_is_xash(values: list[str], bits: int, ones: int) -> None:
    xash = Xash(bits, ones)
    array = pa.array(values, pa.large_string())
    assert XashParts(xash).hashes(array).tolist() == xash.hashes(array).tolist()


def test_parts_of_xash_are_what_they_say() -> None:
    xash = Xash(128, 3)
    (berlin,) = XashParts(xash, characters=False).hashes(pa.array(["berlin"]))
    assert np.bitwise_count(berlin).sum() == 1
    kinds = {"location": False}, {"rotation": False}, {"rare": False}, {"length": False}
    hashes = [XashParts(xash, **kind).hashes(pa.array(["zebra crossing", "zb"])).tolist() for kind in kinds]
    assert len({str(one) for one in hashes}) == len(kinds)
    a, b = XashParts(xash, length=False, rotation=False, location=False).hashes(pa.array(["zq a", "a aa zaqa"]))
    assert (a == b).all(), "the same two rarest characters, wherever they stand"


@pytest.fixture
def lakes(tmp_path: Path) -> Path:
    """Give two lakes whose tables have rows of each other, one row with its values in other columns, and repeats."""
    random = Random(4)
    words = ["berlin", "rome", "paris", "1", "2", "2007", "", "a b", "ü", "oslo"]
    for lake, names in {
        "webtables_2k": ["w1", "w2", "w3", "w4"],
        "lake_mate": ["webtable_10_1", "webtable_100_1", "movie"],
        "lake_fivethirtyeight": ["n1", "n2"],
    }.items():
        (tmp_path / lake / "tables").mkdir(parents=True)
        for name in names:
            width = 11 if name.startswith("n") else random.randint(2, 4)
            rows = [",".join(random.choice(words) for _ in range(width)) for _ in range(random.randint(5, 25))]
            head = ",".join(f"c{column}" for column in range(width))
            (tmp_path / lake / "tables" / f"{name}.csv").write_text("\n".join([head, *rows, ""]), "utf-8")
    return tmp_path


@pytest.fixture
def corpus(lakes: Path) -> Lake:
    return together([read_lake(lakes / name) for name in ("webtables_2k", "lake_mate")])


def test_lakes_together_have_the_cells_of_each(lakes: Path, corpus: Lake) -> None:
    texts = [*corpus.values.to_pylist(), ""]
    assert len(set(texts)) == len(texts)
    assert corpus.tables[4:] == ["lake_mate/movie", "lake_mate/webtable_100_1", "lake_mate/webtable_10_1"]
    for table, name in enumerate(corpus.tables):
        lake, stem = name.split("/")
        lines = (lakes / lake / "tables" / f"{stem}.csv").read_text("utf-8").splitlines()[1:]
        assert [[texts[cell] for cell in row] for row in corpus.rows(table).tolist()] == [
            line.split(",") for line in lines
        ]


def test_every_search_finds_what_brute_force_does(corpus: Lake) -> None:
    every = pairs_of_columns(corpus)
    made = {**filters(corpus), **components(corpus)}
    searches = {**BASELINES, "none": without_filter, **{name: searching(make()) for name, make in made.items()}}
    for table, width in enumerate(corpus.widths().tolist()):
        keys = corpus.rows(table)[:, [width - 1, 0]]
        others = [one for one in by_brute_force(every, keys) if one.table != table]
        assert others, "each table joins with another"
        for name, search in searches.items():
            for k in (1, 3, 20):
                assert search(Others(corpus.index, table), keys, k).best == others[:k], (name, table, k)


def test_pairs_that_do_not_join_are_counted(corpus: Lake) -> None:
    """With k above the number of tables and no table left out, all pairs with an initial value are looked at."""
    keys = corpus.rows(0)[:, :2]
    looked = without_filter(Others(corpus.index, 0), keys, 20)
    initial = int(np.argmin([corpus.index.counts(np.unique(column[column >= 0])).sum() for column in looked.keys.T]))
    join = false = 0
    for table in range(1, len(corpus.tables)):
        for row in corpus.rows(table).tolist():
            for key in looked.keys.tolist():
                has = all(row.count(value) >= key.count(value) for value in key)
                pairs = row.count(key[initial])
                join, false = join + has * pairs, false + (not has) * pairs
    assert joining(corpus.index, looked) == (join, false)
    assert false > join > 0
    assert joining(corpus.index, by_one_column(Others(corpus.index, 0), keys, 20)) == (join, 0)


def test_precision_is_of_queries_that_join(corpus: Lake) -> None:
    asked = [LakeQuery(0, (0, 1)), LakeQuery(1, (0, 1))]
    nothing = np.full((1, 2), -1, np.int64)
    found = measure(corpus, Queries("some", asked, [corpus.key_values(asked[0]), nothing]), without_filter, 1)
    assert found.precisions.tolist() == [found.joining[0] / (found.joining[0] + found.false[0])]
    assert (found.joining[1], found.answers[1]) == (0, [])


def test_postings_are_counted_by_the_rule_that_chooses_the_column(corpus: Lake) -> None:
    (queries,) = draw(corpus, "web tables", 2, Random(1))
    fetched = postings_fetched(corpus, queries)
    assert fetched["best"] <= min(fetched.values()) <= max(fetched.values()) <= fetched["worst"]
    asked, keys = queries.asked[0], queries.keys[0]
    keys = keys[(keys >= 0).all(1)]
    costs = [
        sum(np.isin(corpus.rows(t), column).sum() for t in range(len(corpus.tables)) if t != asked.table)
        for column in keys.T
    ]
    one = postings_fetched(corpus, Queries("one", [asked], [keys]))
    assert (one["best"], one["worst"]) == (min(costs), max(costs))
    assert one["column order"] == costs[int(np.argmin(asked.columns))]


def test_queries_of_a_set_are_of_its_tables_and_smaller_ones_have_fewer_columns(corpus: Lake) -> None:
    two, three = draw(corpus, "web tables", 9, Random(1), (1, 2))
    assert {corpus.tables[query.table].split("/")[0] for query in two.asked} == {"webtables_2k"}
    assert [query.columns[:1] for query in three.asked] == [query.columns for query in two.asked]
    assert [query.table for query in draw(corpus, "WT (10)", 9, Random(1))[0].asked] == [6]
    assert [query.table for query in draw(corpus, "Kaggle", 9, Random(1))[0].asked] == [4]
    keys = corpus.key_values(three.asked[0])
    assert pairs_fetched(corpus, three.asked[0]) == sum(
        len(rows)
        for rows, _ in without_filter(Others(corpus.index, len(corpus.tables)), keys, 20).pairs
    )  # fmt: skip


def test_filters_of_the_row_and_of_the_report_are_the_same_where_both_have_them(corpus: Lake) -> None:
    made, of_row = filters(corpus), dict(filters_of_128(corpus))
    for name, other in (("MD5 128", "MD5"), ("SimHash 128", "SimHash"), ("XASH 128", "XASH")):
        assert (made[name]().rows == of_row[other].rows).all()
    assert (made["counted bits 128"]().rows == of_row["counted bits"].rows).all()
    assert {re.sub(r" \d+.*", "", name) for name in made} == {
        "MD5", "Murmur", "CityHash", "SimHash", "HT", "BF", "LHBF", "XASH", "counted bits",
    }  # fmt: skip


def test_the_report_is_written_with_all_its_plots(lakes: Path, tmp_path: Path) -> None:
    docs = tmp_path / "docs"
    assert main([str(lakes), "--quick", "--docs", str(docs)]) == 0
    report = (docs / "joinable-report.md").read_text("utf-8")
    images = re.findall(r"\]\((images/[^)]+)\)", report)
    assert sorted(images) == sorted(f"images/{path.name}" for path in (docs / "images").iterdir())
    for image in images:
        drawn = ElementTree.parse(docs / image).getroot()
        assert len(drawn.findall(".//{*}g")) >= 1
        assert "nan" not in (docs / image).read_text("utf-8")
    assert not re.search(r"[{}]|\bnan\b", report)
    for section in ("Figure 4", "Table 2", "Table 3", "7.5.1", "Figure 5", "Figure 6", "7.5.4"):
        assert f"{section})" in report, section


def test_a_folder_without_lakes_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(tmp_path), "--docs", str(tmp_path)]) == 2
    assert "has none of webtables_2k" in capsys.readouterr().err
