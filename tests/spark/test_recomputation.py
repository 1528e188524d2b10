"""The state against a fresh recomputation: a true one is equal, and each difference is named."""

from __future__ import annotations

from pathlib import Path

from pyspark.sql import SparkSession

from service.store.database import connect
from spark_jobs.bootstrap import run_bootstrap
from spark_jobs.sources import Options
from tests import states


def write(folder: Path, orders: str, persons: str = "id\n1\n2\n") -> Path:
    folder.mkdir(exist_ok=True)
    (folder / "orders.csv").write_text("id;person\n" + orders)
    (folder / "persons.csv").write_text(persons)
    return folder


def check(spark: SparkSession, folder: Path, url: str) -> list[str]:
    return run_bootstrap(spark, Options(source=str(folder), name="shop", database_url=url, check=True)).differences


def test_recomputing_a_source(spark: SparkSession, database_url: str, tmp_path: Path) -> None:
    folder = write(tmp_path / "shop", "10;1\n11;2\n11;-\n")
    options = Options(str(folder), "shop", database_url, delimiter=";", null_tokens=("-",), partitions=2)
    run_bootstrap(spark, options)
    before = states.read(database_url)

    assert check(spark, folder, database_url) == [], "read in the way that the state remembers: delimiter, NULLs"

    write(folder, "10;1\n11;3\n12;-\n")
    differences = check(spark, folder, database_url)
    assert differences[:1] == [
        "shop.orders.id: rows, nulls, distinct, repeated are [3, 0, 2, 1] in the state, [3, 0, 3, 0] in the source"
    ]
    (values,) = (line for line in differences if "values" in line)
    assert values.startswith("4 values")
    for words in ("'12' is in the source alone", "'3' is in the source alone", "'11' has"):
        assert words in values
    (inds,) = (line for line in differences if "INDs" in line)
    assert inds.startswith("2 INDs: shop.orders.person ⊆ shop.persons.id in the state alone")

    assert states.read(database_url) == before, "nothing of what is served has changed"
    with connect(database_url, "test") as connection, connection.cursor() as cursor:
        cursor.execute("select count(*) from pg_class where relname ~ '^gen_rec_g2|^gen_cluster'")
        assert cursor.fetchone() == (0,), "and nothing is left behind"
