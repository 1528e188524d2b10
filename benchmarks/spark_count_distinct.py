"""Own the baseline of `sketch-build`: Spark's own `approx_count_distinct` of all columns of a folder of CSV files.

`python -m benchmarks.spark_count_distinct FOLDER` prints a JSON object: the count of each column by `table.column`.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

from pyspark.sql import SparkSession, functions

from spark_jobs.java_runtime import find_java


def main(folder: Path) -> None:
    """Read each file once, every column as text; the error is Spark's default, 5 %."""
    # Not our session: its Java is set up for jobs whose work is done in Python.
    os.environ |= {"JAVA_HOME": str(find_java().home), "SPARK_LOCAL_IP": "127.0.0.1"}
    builder = SparkSession.builder.master("local[*]").config("spark.driver.memory", "2g")
    builder = builder.config("spark.ui.enabled", "false").config("spark.driver.host", "127.0.0.1")
    spark = builder.config("spark.ui.showConsoleProgress", "false").getOrCreate()
    counts = {}
    for file in sorted(folder.glob("*.csv")):
        frame = spark.read.csv(str(file), header=True)
        row = frame.agg(*(functions.approx_count_distinct(f"`{name}`").alias(name) for name in frame.columns)).first()
        assert row is not None
        counts |= {f"{file.stem}.{name}": count for name, count in row.asDict().items()}
    spark.stop()
    print(json.dumps(counts))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
