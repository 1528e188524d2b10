"""Own the data sets of the evaluation: what is in a folder of them, and what is known of their INDs."""

from __future__ import annotations

import json
import shutil
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import zstandard

from benchmarks import tpch
from benchmarks.reference import find_inds, ind_hash, read_columns

TPCH_INDS = {0.01: 76, 0.1: 85}
TPCDS_INDS = {0.01: 5_892}


class Unavailable(Exception):
    """A data set cannot be made here; the message says what is missing."""


@dataclass(frozen=True, slots=True)
class Part:
    """Hold one database: a folder of CSV tables, and what its INDs are known to be.

    `prefix` stands before the files' names in the lines that `sha256` is of.
    """

    name: str
    tables: Path
    prefix: str
    inds: int
    sha256: str | None


@dataclass(frozen=True, slots=True)
class DataSet:
    """Hold a row of the evaluation: one database, or a collection of them whose counts are summed."""

    name: str
    parts: tuple[Part, ...]
    relational: bool


def published(folder: Path, work: Path) -> Iterator[DataSet]:
    """Yield the data sets of `stats.json`, from folders or `.tar.zst` files; those are unpacked below `work`.

    Raise Unavailable for a folder without `stats.json`, or without a data set that it names.
    """
    stats_file = folder / "stats.json"
    if not stats_file.exists():
        raise Unavailable(f"{folder} has no stats.json: give a folder of data sets in the documented format")
    for name, stats in json.loads(stats_file.read_text("utf-8")).items():
        root = folder / name
        if not root.is_dir():
            root = _unpack(folder / f"{name}.tar.zst", work) / name
        if "per_db" in stats:
            parts = [_part(database, root / database, of) for database, of in sorted(stats["per_db"].items())]
        else:
            parts = [_part(name, root, stats)]
        yield DataSet(name, tuple(parts), relational=stats["kind"] == "relational")


def generated(work: Path) -> Iterator[tuple[str, DataSet | Unavailable]]:
    """Yield TPC-H and TPC-DS at small scale factors by name, or what it takes to make them."""
    for scale_factor, inds in TPCH_INDS.items():
        name = f"tpch_sf{scale_factor:g}"
        # The published counts are those of the specification's DECIMAL(15,2): a quantity of `17.00`, not `17`.
        folder = tpch.write_two_decimals(tpch.tables(work, scale_factor), work / name)
        yield name, DataSet(name, (_counted(name, folder, inds),), relational=True)
    for scale_factor, inds in TPCDS_INDS.items():
        name = f"tpcds_sf{scale_factor:g}"
        if find_spec("duckdb") is None:
            yield name, Unavailable("its generator is not installed: pip install duckdb==1.1.3")
        else:
            folder = _tpcds(scale_factor, work / name)
            yield name, DataSet(name, (_counted(name, folder, inds),), relational=True)


def _part(name: str, root: Path, stats: dict[str, object]) -> Part:
    prefix = "tables/" if (root / "manifest.jsonl").exists() else ""
    return Part(name, root / prefix, prefix, int(str(stats["unary_inds"])), str(stats["ind_sha256"]))


def _counted(name: str, folder: Path, inds: int) -> Part:
    """Describe a generated database: its count is published, its list is the reference's."""
    count, sha256 = ind_hash(find_inds(read_columns(folder)))
    if count != inds:
        raise ValueError(f"{name}: the reference finds {count} INDs, not the published {inds}: another generator?")
    return Part(name, folder, "", inds, sha256)


def _unpack(archive: Path, work: Path) -> Path:
    if not archive.exists():
        raise Unavailable(f"{archive} is not there, and no folder of that name")
    with (
        archive.open("rb") as packed,
        zstandard.ZstdDecompressor().stream_reader(packed) as stream,
        tarfile.open(fileobj=stream, mode="r|") as members,
    ):
        # Early 3.11 has no filters yet.
        members.extractall(work, **({"filter": "data"} if hasattr(tarfile, "data_filter") else {}))
    return work


def _tpcds(scale_factor: float, folder: Path) -> Path:
    import duckdb

    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    connection = duckdb.connect()
    connection.execute(f"CALL dsdgen(sf={scale_factor})")
    for (table,) in connection.execute("SELECT table_name FROM information_schema.tables").fetchall():
        connection.execute(f"COPY {table} TO '{folder}/{table}.csv' (HEADER, DELIMITER ',')")
    return folder
