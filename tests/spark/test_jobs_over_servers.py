"""A bootstrap, its check and an audit of a state whose shards are on servers: what they find and store is as of one."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from service.core.column_filters import PAPER
from service.core.corpus_choices import Algorithm
from service.core.errors import StateError
from service.store.embedded import EmbeddedPostgres
from service.store.shard_dealing import read_shards
from spark_jobs import bootstrap
from spark_jobs.audit import audit
from spark_jobs.bootstrap import run_bootstrap
from spark_jobs.sources import Options
from tests import states
from tests.integration.test_verify import findings
from tests.shard_servers import killed, spread
from tests.spark.oracle import count_cells, read_state
from tests.spark.test_bootstrap import Table, columns_of, shop, write_tables

OF = 3


def numbers() -> dict[str, Table]:
    """Make a table that shares values with the shop."""
    return {"visits": {"person": [str(n) for n in range(200)], "note": ["only here"] * 100 + ["note 7"] * 100}}


@pytest.fixture
def spread_url(spark: SparkSession, database_url: str, east_url: str, west_url: str, tmp_path: Path) -> str:
    """Have a shop in the state, shard 0 in its own database, and two on servers."""
    write_tables(tmp_path / "shop", shop(orders=600))
    run_bootstrap(spark, Options(str(tmp_path / "shop"), "shop", database_url, partitions=4))
    spread(database_url, OF, east=(east_url, [1]), west=(west_url, [2]))
    return database_url


def places(url: str) -> list[str | None]:
    return [one.server for one in read_shards(url)]


def require_state(url: str, columns: dict[str, list[str | None]]) -> None:
    """Hold the whole state against counting cells, once as it is and once in one database."""
    assert all(finding.holds for finding in findings(url))
    spread(url, 1)
    expected, found = count_cells(columns), read_state(url)
    kept = {v: v.encode()[:256].decode(errors="ignore") for v in expected.records}
    assert found.records == {kept[v]: cells for v, cells in expected.records.items()}
    assert (found.clusters, found.counters, found.inds) == (expected.clusters, expected.counters, expected.inds)


def test_sources_are_read_beside_those_on_servers_which_have_their_shards_again(
    spark: SparkSession, spread_url: str, tmp_path: Path
) -> None:
    tables = shop(orders=600)
    write_tables(tmp_path / "more", numbers())
    more = Options(str(tmp_path / "more"), "more", spread_url, partitions=4)
    summary = run_bootstrap(spark, more)
    assert places(spread_url) == [None, "east", "west"]
    assert states.query(spread_url, "select max(version) from state_version") == [(summary.version,)]
    tables["person"]["name"] = ["another"] * 300
    write_tables(tmp_path / "shop", tables)
    replaced = Options(str(tmp_path / "shop"), "shop", spread_url, partitions=8, replace=True)
    run_bootstrap(spark, replaced)
    assert places(spread_url) == [None, "east", "west"]
    require_state(spread_url, columns_of(tables) | columns_of(numbers(), "more"))


def test_a_source_is_held_against_what_all_servers_have(
    spark: SparkSession, spread_url: str, east_url: str, tmp_path: Path
) -> None:
    check = Options(str(tmp_path / "shop"), "shop", spread_url, partitions=4, check=True)
    assert run_bootstrap(spark, check).differences == []
    states.execute(
        east_url,
        "update gen_rec set frequencies[1] = 77 "
        "where value_key = (select value_key from gen_rec order by value_key limit 1)",
    )
    (told,) = run_bootstrap(spark, check).differences
    assert told.startswith("1 values (frequencies by attribute id): ")
    assert ": 77}" in told or ": 77," in told
    assert places(spread_url) == [None, "east", "west"]


def test_what_cannot_go_back_is_in_the_states_own_database(
    spark: SparkSession, spread_url: str, east_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    publish = bootstrap.publish

    def publish_and_lose_a_server(*given: object) -> int:
        version = publish(*given)  # type: ignore[arg-type]
        states.execute(east_url, "update shard set state = gen_random_uuid()")
        return version

    monkeypatch.setattr(bootstrap, "publish", publish_and_lose_a_server)
    write_tables(tmp_path / "more", numbers())
    with pytest.raises(
        StateError, match=r"is read and served, as version 4, .*server 'east' \(shard 1\): .*shards set"
    ):
        run_bootstrap(spark, Options(str(tmp_path / "more"), "more", spread_url, partitions=2))
    assert places(spread_url) == [None] * OF
    require_state(spread_url, columns_of(shop(orders=600)) | columns_of(numbers(), "more"))


@pytest.mark.parametrize("algorithm", Algorithm)
def test_an_audit_reads_all_servers_and_says_which_is_away(
    spark: SparkSession, spread_url: str, east_url: str, east_server: EmbeddedPostgres, algorithm: Algorithm
) -> None:
    found = audit(spark, spread_url, PAPER, partitions=4, algorithm=algorithm)
    expected = count_cells(columns_of(shop(orders=600)))
    distinct = sum(map(len, expected.records.values()))
    assert (found.value_count, found.inds, found.differences) == (distinct, len(expected.inds), 0)
    # What breaks an IND is on another server than what else there is of its columns.
    ids = (
        "select attribute_id from attribute where (table_name, column_name) in (('orders', 'person'), ('person', 'id'))"
    )
    orders_person, person_id = (one for (one,) in states.query(spread_url, f"{ids} order by table_name"))
    states.execute(
        east_url,
        f"update gen_rec set attribute_ids = array_remove(attribute_ids, {person_id}), "
        "frequencies = trim_array(frequencies, 1) where value_key = "
        f"(select value_key from gen_rec where attribute_ids @> array[{orders_person}, {person_id}] limit 1)",
    )
    found = audit(spark, spread_url, PAPER, partitions=2, algorithm=algorithm)
    assert found.report["examples"]["not_holding"] == [["shop.orders.person", "shop.person.id"]]
    with killed(east_server), pytest.raises(StateError, match=r"server 'east' \(shard 1\): "):
        audit(spark, spread_url, PAPER, partitions=2, algorithm=algorithm)
