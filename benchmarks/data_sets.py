"""Own the data sets of the evaluation: what is in a folder of them, and what is known of their INDs."""

from __future__ import annotations

import json
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import zstandard

from benchmarks import tpch
from benchmarks.reference import find_inds, ind_hash, read_columns

TPCH_INDS = {0.01: 76, 0.1: 85}
TPCDS_INDS = {0.01: 5_892}


DATA_SETS = "data sets as docs/benchmarks.md describes it (make evaluate)"


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


def described(folder: Path) -> dict[str, Any]:
    """Read what `stats.json` says of each data set; raise Unavailable where there is none."""
    stats_file = folder / "stats.json"
    if not stats_file.exists():
        raise Unavailable(f"{folder} has no stats.json: give a folder of {DATA_SETS}")
    stats: dict[str, Any] = json.loads(stats_file.read_text("utf-8"))
    if not stats:
        raise Unavailable(f"{stats_file} names no data set: give a folder of {DATA_SETS}")
    return stats


def published(folder: Path, work: Path) -> Iterator[DataSet]:
    """Yield the data sets of `stats.json`, from folders or `.tar.zst` files; those are unpacked below `work`.

    Raise Unavailable for a folder without `stats.json`, or without a data set that it names.
    """
    for name, stats in described(folder).items():
        root = folder / name
        if not root.is_dir():
            root = unpack(folder / f"{name}.tar.zst", work) / name
        if "per_db" in stats:
            parts = [_part(database, root / database, of) for database, of in sorted(stats["per_db"].items())]
        else:
            parts = [_part(name, root, stats)]
        yield DataSet(name, tuple(parts), relational=stats["kind"] == "relational")


GENERATED = {
    **{f"tpch_sf{scale_factor:g}": (scale_factor, inds) for scale_factor, inds in TPCH_INDS.items()},
    **{f"tpcds_sf{scale_factor:g}": (scale_factor, inds) for scale_factor, inds in TPCDS_INDS.items()},
}
"""The data sets that are made here: scale factor and the published number of INDs, by name."""


def generate(name: str, work: Path) -> DataSet:
    """Make one of GENERATED; raise Unavailable when its generator is not installed.

    Its number of INDs is published, and its list is the reference's.
    """
    scale_factor, inds = GENERATED[name]
    folder = work / name
    if name.startswith("tpch"):
        # The published counts are those of the specification's DECIMAL(15,2): a quantity of `17.00`, not `17`.
        tpch.write_two_decimals(tpch.tables(work, scale_factor), folder)
    else:
        write_tpcds(scale_factor, folder)
    count, sha256 = ind_hash(find_inds(read_columns(folder)))
    if count != inds:
        raise ValueError(f"{name}: the reference finds {count} INDs, not the published {inds}: another generator?")
    return DataSet(name, (Part(name, folder, "", inds, sha256),), relational=True)


def _part(name: str, root: Path, stats: dict[str, object]) -> Part:
    prefix = "tables/" if (root / "manifest.jsonl").exists() else ""
    return Part(name, root / prefix, prefix, int(str(stats["unary_inds"])), str(stats["ind_sha256"]))


def unpack(archive: Path, work: Path) -> Path:
    """Unpack a `.tar.zst` file into a folder, and give that; raise Unavailable when it is not there."""
    if not archive.exists():
        raise Unavailable(f"{archive} is not there, and no folder of that name")
    with (
        archive.open("rb") as packed,
        zstandard.ZstdDecompressor().stream_reader(packed) as stream,
        tarfile.open(fileobj=stream, mode="r|") as members,
    ):
        members.extraction_filter = getattr(tarfile, "data_filter", None)  # early 3.11 has none
        members.extractall(work)
    return work


def write_tpcds(scale_factor: float, folder: Path) -> None:
    """Write TPC-DS as CSV; raise Unavailable when its generator is not installed."""
    if find_spec("duckdb") is None:
        raise Unavailable("its generator is not installed: pip install duckdb==1.1.3")
    import duckdb

    folder.mkdir(parents=True)
    connection = duckdb.connect()
    connection.execute(f"CALL dsdgen(sf={scale_factor})")
    for (table,) in connection.execute("SELECT table_name FROM information_schema.tables").fetchall():
        connection.execute(f"COPY {table} TO '{folder}/{table}.csv' (HEADER, DELIMITER ',')")
