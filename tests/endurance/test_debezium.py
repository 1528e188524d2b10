"""The whole way with a real Debezium: what the state holds is what a recomputation of the source holds."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.broker import KafkaBroker
from tests.commands import Commands
from tests.connect import Connect, connecting
from tests.endurance.following import check, has_seen, mark
from tests.endurance.workload import TABLES, Workload
from tests.waiting import wait_for


@pytest.fixture
def workload(source_url: str) -> Iterator[Workload]:
    made = Workload(source_url, "e2e")
    made.make()
    yield made
    made.close()


@pytest.fixture
def connect(broker: KafkaBroker, source_url: str) -> Iterator[Connect]:
    with connecting(broker, source_url, with_schema=True) as made:
        yield made


def test_a_bootstrap_and_debezium_together_give_the_sources_state(
    broker: KafkaBroker, source_url: str, database_url: str, workload: Workload, connect: Connect, subsetd: Commands
) -> None:
    connect.make_slot()
    code, said = subsetd.run("bootstrap", source_url, "--name", "shop")
    assert code == 0, said
    check(database_url, source_url)
    connect.start()
    workload.run(500)
    mark(source_url, 1)
    wait_for(lambda: len(connect.topics()) == len(TABLES) + 1)
    process = subsetd.start("consume", "--feed", connect.feed)
    wait_for(lambda: has_seen(database_url, 1) or process.poll() is not None)
    assert process.poll() is None, subsetd.said(process)
    check(database_url, source_url)
    for number in (2, 3):
        workload.run(700)
        connect.kill()
        connect.start()
        mark(source_url, number)
        wait_for(lambda number=number: has_seen(database_url, number) or process.poll() is not None)
        assert process.poll() is None, subsetd.said(process)
        check(database_url, source_url)
    subsetd.end(process)
