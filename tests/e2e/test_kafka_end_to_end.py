"""The command against the real broker: what it says of others and of bad records, and how soon it answers."""

from __future__ import annotations

import pytest

from tests import states
from tests.asking import http_client
from tests.commands import Commands
from tests.events import envelope
from tests.shop import Shop
from tests.waiting import wait_for


@pytest.mark.parametrize("command", ["consume", "run"])
def test_a_broker_that_is_not_there_at_the_start_is_named(shop: Shop, subsetd: Commands, command: str) -> None:
    before = states.read(shop.url)
    shop.broker.kill()
    code, said = subsetd.run(command, "--feed", shop.feed, feed_start_seconds=0.5)
    assert code == 1
    address = shop.broker.bootstrap_servers
    assert f"no Kafka broker within 0.5 s ({address}: Connection refused); start the broker" in said
    assert states.read(shop.url) == before


def test_a_second_consumer_is_refused_and_the_first_goes_on(shop: Shop, subsetd: Commands) -> None:
    first = subsetd.start("consume", "--feed", shop.feed)
    wait_for(lambda: '"following"' in subsetd.said(first))
    code, said = subsetd.run("consume", "--feed", "file:/dev/null")
    assert code == 1
    assert "The state has another writer: subsetd consumer (database session" in said
    assert "stop it, or wait until it has ended" in said
    shop.change("customers", None, ["3", "Cleo"])
    shop.flush()
    wait_for(shop.is_applied)
    subsetd.end(first)
    shop.check()


BAD = [b"{", b'{"after": {"id": "3"}}', envelope("c", "s", "refunds", None, {"id": "1"}), envelope("x", "s", "orders")]


def test_bad_records_stop_the_feed_in_front_of_them_or_are_set_aside(shop: Shop, subsetd: Commands) -> None:
    bad = []
    for number, line in enumerate(BAD):
        shop.change("customers", None, [f"{number + 3}", "before"])
        bad.append(shop.write("orders", str(number), line))
    shop.change("customers", ["3", "before"], None)
    bad.append(shop.write("customers", "7", envelope("d", "s", "customers", {"id": "never", "name": "Ada"})))
    shop.flush()
    code, said = subsetd.run("consume", "--feed", shop.feed, "--until-end", unknown_tables="refuse")
    assert code == 1
    places = [f"topic {topic}, partition {partition}, offset {offset}: " for topic, partition, offset in bad]
    assert sum(place in said for place in places) == 1
    assert "All before this record is applied, and nothing behind it. --on-error all sets" in said
    code, said = subsetd.run(
        "consume", "--feed", shop.feed, "--until-end", "--on-error", "all", unknown_tables="refuse"
    )
    assert code == 0, said
    shop.check()
    letters = states.query(shop.url, "select topic, partition, record_offset, record from dead_letter")
    assert sorted(letter[:3] for letter in letters) == sorted(bad)
    assert {letter[3].encode() for letter in letters} > set(BAD)


def test_a_change_sent_to_kafka_is_soon_in_the_answers(shop: Shop, subsetd: Commands) -> None:
    process = subsetd.start("run", "--feed", shop.feed)
    base = wait_for(lambda: next((w for w in subsetd.said(process).split() if w.startswith("http://")), None))
    with http_client(base_url=f"{base}/api/v1/uinds/s.orders.customer", timeout=60) as client:
        assert client.get("s.customers.id").json()["holds"]
        for row in (["12", "9", None], ["13", "8", None]):
            shop.change("orders", None, row)
            shop.flush()
            wait_for(lambda: not client.get("s.customers.id").json()["holds"])
            shop.change("orders", row, None)
            shop.flush()
            wait_for(lambda: client.get("s.customers.id").json()["holds"])
    wait_for(shop.is_applied)
    subsetd.end(process)
    shop.check()
