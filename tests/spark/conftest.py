"""Own the Spark session of the tests: one for all of them, since starting it takes seconds."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from spark_jobs.session import local_session
from tests.connect import running_source, source_url

__all__ = ["running_source", "source_url"]


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """Start Spark on two cores of this machine, with this interpreter's workers, without a UI, in UTC."""
    session = local_session(2, spark_sql_shuffle_partitions="2")
    yield session
    session.stop()
