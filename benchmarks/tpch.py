"""Own TPC-H for the benchmarks: its tables as CSV, cached, and random changes of lineitem."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv

from benchmarks.context import Context
from benchmarks.feeds import Change, Row

NAME = "tpch"
EXPECTED = {"attributes": 61, "inds": 96, "clusters": 116}
"""At scale factor 1 as tpchgen-cli writes it (a quantity is `17`, not `17.00`)."""

NEW_COMMENTS = 0.6
"""Share of the new comments that no row had before; about what a held-out row of scale factor 1 has."""


def tables(work: Path, scale_factor: float) -> Path:
    """Return the folder of the CSV tables, generating it on first use; a killed run leaves no half folder."""
    folder = work / f"tpch-{scale_factor:g}"
    if not folder.exists():
        unfinished = folder.with_suffix(".unfinished")
        shutil.rmtree(unfinished, ignore_errors=True)
        generator = str(Path(sys.executable).with_name("tpchgen-cli"))
        subprocess.run(
            [generator, "csv", "-s", f"{scale_factor:g}", f"--output-dir={unfinished}"],
            check=True,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        unfinished.rename(folder)
    return folder


def write_two_decimals(folder: Path, target: Path) -> Path:
    """Copy TPC-H with `l_quantity` as the specification's DECIMAL(15,2): `17.00`, the form of the published counts."""
    shutil.copytree(folder, target)
    with (folder / "lineitem.csv").open() as lines, (target / "lineitem.csv").open("w") as written:
        written.write(next(lines))
        for line in lines:
            cells = line.split(",", 5)
            cells[4] += ".00"
            written.write(",".join(cells))
    return target


def lineitem_columns(folder: Path) -> tuple[str, ...]:
    """Return the names of lineitem's columns."""
    with (folder / "lineitem.csv").open() as lines:
        return tuple(next(lines).strip().split(","))


def sample_lineitems(folder: Path, count: int, context: Context) -> list[Row]:
    """Return `count` different rows of lineitem, each with the same chance, in random order, as text."""
    random = context.random("lineitem sample")
    columns = lineitem_columns(folder)
    total = sum(batch.num_rows for batch in _batches(folder, columns[:1]))
    wanted = pa.array(sorted(random.sample(range(total), count)))
    taken, start = [], 0
    for batch in _batches(folder, columns):
        here = pc.filter(wanted, pc.and_(pc.greater_equal(wanted, start), pc.less(wanted, start + batch.num_rows)))
        taken.append(batch.take(pc.subtract(here, start)))
        start += batch.num_rows
    rows = list(zip(*(column.to_pylist() for column in pa.Table.from_batches(taken).columns), strict=True))
    random.shuffle(rows)
    return rows


def lineitem_changes(folder: Path, count: int, context: Context) -> dict[str, list[Change]]:
    """Return `count` inserts, deletes and updates of lineitem that can be applied in this order.

    An inserted row has the key cells of one existing row and the others of random rows; an update sets quantity,
    extended price, discount and comment. No row is deleted or updated twice.
    """
    random = context.random("lineitem changes")
    rows = sample_lineitems(folder, 3 * count, context)
    place = {name: index for index, name in enumerate(lineitem_columns(folder))}
    keys = [place[name] for name in ("l_orderkey", "l_partkey", "l_suppkey")]
    set_by_update = [place[name] for name in ("l_quantity", "l_extendedprice", "l_discount", "l_comment")]

    def mixed(row: Row, kept: Sequence[int]) -> Row:
        cells = [row[index] if index in kept else random.choice(rows)[index] for index in range(len(row))]
        if random.random() < NEW_COMMENTS:
            words = f"{cells[-1]} {random.choice(rows)[-1]}".split()
            random.shuffle(words)
            cells[-1] = " ".join(words)[:44]
        return tuple(cells)

    kept_by_update = [index for index in range(len(place)) if index not in set_by_update]
    deleted, updated = rows[:count], rows[count : 2 * count]
    return {
        "insert": [Change("c", "lineitem", None, mixed(row, keys)) for row in rows[2 * count :]],
        "delete": [Change("d", "lineitem", row, None) for row in deleted],
        "update": [Change("u", "lineitem", row, mixed(row, kept_by_update)) for row in updated],
    }


def _batches(folder: Path, columns: Sequence[str]) -> pyarrow.csv.CSVStreamingReader:
    return pyarrow.csv.open_csv(
        folder / "lineitem.csv",
        read_options=pyarrow.csv.ReadOptions(block_size=16 << 20),
        convert_options=pyarrow.csv.ConvertOptions(
            column_types=dict.fromkeys(columns, pa.string()), include_columns=columns
        ),
    )
