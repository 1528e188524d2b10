"""Signatures that are kept beside a corpus: the same INDs whatever changed, also the parameters, and whatever broke."""

from __future__ import annotations

import zlib
from pathlib import Path
from typing import Any, NoReturn

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from service.core import signatures
from tests.refreshing import LAKES, Lake, Tables, expected_inds, values_of, write_tables

PARAMETERS = st.fixed_dictionaries(
    {
        "bits": st.sampled_from([3, 64, 70]),
        "hashes": st.sampled_from([1, 4]),
        "passes": st.sampled_from([1, 3]),
        "strategy": st.sampled_from(["dep2refs", "ref2deps"]),
    }
)


@pytest.fixture(autouse=True)
def _signatures_decide(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let no candidate come to the validator that signatures rule out, however few there are."""
    monkeypatch.setattr(signatures, "SHORT_LIST", 0)


def no_spark() -> NoReturn:
    raise AssertionError("so little needs no Spark")


def kept_files(lake: Lake) -> list[Path]:
    """Give the files with signatures."""
    parts = lake.data_dir.glob("corpora/*/parts/*.parquet")
    return sorted(path for path in parts if pq.read_schema(path).names == ["signature"])


def damage(path: Path, how: str) -> None:
    if how == "gone":
        path.unlink()
    elif how == "short":
        path.write_bytes(path.read_bytes()[:-1])
    elif how == "flipped":  # in the signatures: they begin behind four bytes and a page's header
        data = bytearray(path.read_bytes())
        data[data.index(b"\x15") + 60] ^= 1
        path.write_bytes(data)


@settings(max_examples=15, suppress_health_check=[HealthCheck.function_scoped_fixture])  # each has its own corpus
@given(
    steps=st.lists(
        st.tuples(
            LAKES,
            st.none() | PARAMETERS,
            st.sampled_from(["rarest-first", *["signatures"] * 4]),
            st.sampled_from(["none", "none", "gone", "short", "flipped"]),
            st.booleans(),
        ),
        min_size=2,
        max_size=4,
    )
)
def test_whatever_changes_or_breaks_the_inds_are_those_of_brute_force(
    database_url: str, tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[Tables, Any, str, str, bool]]
) -> None:
    folder = tmp_path_factory.mktemp("lakes") / "lake"
    lake = Lake(database_url, folder)
    for tables, parameters, algorithm, how, full in steps:
        write_tables(folder, tables)
        lake.change({**(parameters or {}), "algorithm": algorithm})
        for path in kept_files(lake):
            damage(path, how)
        lake.refresh(no_spark, full=full)
        assert lake.inds() == expected_inds(values_of(tables))
        counts = lake.report["signatures"]
        if algorithm == "rarest-first":
            assert counts is None
            assert kept_files(lake) == [], "nobody asks for them any more"
        else:
            assert 0 <= counts["kept"] + counts["made"] <= lake.report["columns"]
            if full:
                assert counts == {"kept": 0, "made": lake.report["columns"]}


TABLES: Tables = {f"{n}.csv": [[f"v{k}" for k in range(n, n + 5)], ["x"] * 5] for n in range(10)}


def test_what_is_unchanged_is_not_signed_again(database_url: str, tmp_path: Path) -> None:
    tables = dict(TABLES)
    write_tables(tmp_path / "lake", tables)
    lake = Lake(database_url, tmp_path / "lake", algorithm="signatures")

    def refresh() -> dict[str, int]:
        lake.refresh(no_spark)
        assert lake.inds() == expected_inds(values_of(tables))
        return lake.report["signatures"]

    assert refresh() == {"kept": 0, "made": 20}
    tables["4.csv"] = [["v1", "v2", "v3"]]
    write_tables(tmp_path / "lake", tables)
    assert refresh() == {"kept": 18, "made": 1}
    assert refresh() == {"kept": 19, "made": 0}
    lake.change({"bits": 300})
    tables["5.csv"] = [["v1", "v2"]]
    write_tables(tmp_path / "lake", tables)
    assert refresh() == {"kept": 0, "made": 18}, "of other parameters: made anew from the keys"
    before = kept_files(lake)
    tables["6.csv"] = [["v1", "v7"]]
    write_tables(tmp_path / "lake", tables)
    assert refresh() == {"kept": 16, "made": 1}
    assert set(before) < set(kept_files(lake)), "those that were made anew are kept"


@pytest.mark.parametrize(("bits", "algorithm"), [((1 << 31) - 1, "rarest-first"), (50_000, "signatures")])
def test_signatures_longer_than_are_kept(database_url: str, tmp_path: Path, bits: int, algorithm: str) -> None:
    lake = Lake(database_url, tmp_path / "lake", algorithm="signatures", bits=bits)
    tables = dict(TABLES)
    for tables["4.csv"] in ([["v1"]], [["v2", "v3"]]):
        write_tables(tmp_path / "lake", tables)
        lake.refresh(no_spark)
        assert lake.inds() == expected_inds(values_of(tables))
        assert (lake.report["algorithm"], lake.report["signatures"]) == (algorithm, None)
        assert kept_files(lake) == []


def test_kept_signatures_are_what_candidates_come_from(database_url: str, tmp_path: Path) -> None:
    """Signatures without a bit, if their checksum is right, lose INDs: so they were looked at."""
    write_tables(tmp_path / "lake", TABLES)
    lake = Lake(database_url, tmp_path / "lake", algorithm="signatures", bits=64, passes=9)
    lake.refresh(no_spark)
    tables = TABLES | {f"new-{n}.csv": [["v7"], ["x"]] for n in range(1)}
    write_tables(tmp_path / "lake", tables)
    (path,) = kept_files(lake)
    rows = pq.read_table(path)
    nothing = pa.table([pa.array([bytes(72)] * len(rows), pa.binary(72))], schema=rows.schema)
    size = path.stat().st_size
    pq.write_table(nothing, path, compression="none", use_dictionary=False, write_statistics=False)
    assert path.stat().st_size == size
    checksums = [zlib.crc32(b"".join(each["signature"].to_pylist())) for each in (rows, nothing)]
    manifest = next(lake.data_dir.glob("corpora/*/generation-1/manifest.json"))
    manifest.write_text(manifest.read_text().replace(*map(str, checksums)))
    lake.refresh(no_spark)
    assert lake.report["signatures"] == {"kept": 20, "made": 2}
    assert lake.inds().keys() < expected_inds(values_of(tables)).keys()
