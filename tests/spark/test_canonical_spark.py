"""Tell that Spark's executors and Spark SQL give the texts and keys that Python gives."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from service.core.canonical import SPARK_KEY_EXPRESSION, value_key
from service.core.canonical_arrow import canonical_array, key_array
from spark_jobs.session import map_in_arrow
from tests.canonical_cases import CASES

# Spark does not read Parquet's UUID, time and duration (Arrow's own, stored as an integer).
UNKNOWN = ("uuid", "time without time zone", "interval")
PARQUET = [case for case in CASES if case.arrow is not None and case.postgres not in UNKNOWN]
NAMES = [f"column_{place}" for place in range(len(PARQUET))]
SCHEMA = ", ".join(f"{name} string, {name}_key string" for name in NAMES)

_numbers = itertools.count()


def canonicalise(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Make texts and keys of whole batches, as a job's executors do."""
    for batch in batches:
        arrays = []
        for column in batch.columns:
            text = canonical_array(column)
            hashes = key_array(text.drop_null())
            keys = iter([f"{int(high):016x}{int(low):016x}" for high, low in hashes])
            arrays += [text, pa.array([next(keys) if held else None for held in text.is_valid().to_pylist()])]
        names = [name for column in batch.schema.names for name in (column, f"{column}_key")]
        yield pa.RecordBatch.from_arrays([array.cast(pa.string()) for array in arrays], names)


# No shrinking: each try is a Spark job.
@settings(
    deadline=None,
    max_examples=4,
    phases=[Phase.generate],
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow, HealthCheck.data_too_large],
)
@given(columns=st.tuples(*(st.lists(case.values, min_size=8, max_size=8) for case in PARQUET)))
def test_executors_and_spark_sql_give_python_s_texts_and_keys(
    spark: SparkSession, tmp_path: Path, columns: tuple[list[object], ...]
) -> None:
    arrays = [pa.array([*values, None], case.arrow) for case, values in zip(PARQUET, columns, strict=True)]
    path = tmp_path / f"{next(_numbers)}.parquet"
    pq.write_table(pa.table(dict(zip(NAMES, arrays, strict=True))), path)

    frame = map_in_arrow(spark.read.parquet(str(path)), canonicalise, SCHEMA)
    sql_keys = [f"{SPARK_KEY_EXPRESSION(name)} as {name}_sql_key" for name in NAMES]
    rows = frame.selectExpr("*", *sql_keys).coalesce(1).collect()

    for case, name, values in zip(PARQUET, NAMES, columns, strict=True):
        texts = [case.text(value) for value in values]
        keys = [value_key(text).hex() for text in texts if text is not None]
        assert [row[name] for row in rows] == [*texts, None], case.postgres
        assert [row[f"{name}_key"] for row in rows] == [*keys, None], case.postgres
        assert [row[f"{name}_sql_key"] for row in rows] == [*keys, None], case.postgres
