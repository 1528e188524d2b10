"""The command on the real broker: a clean stop under load, pauses, transitions that go out, topics as a source."""

from __future__ import annotations

import random
import signal

import orjson

from service.stream.kafka_topics import plan_topics, read_range
from tests import states
from tests.commands import Commands
from tests.following import random_changes
from tests.shop import Shop
from tests.waiting import BOUND_SECONDS, wait_for


def test_sigterm_under_load_ends_the_batch_in_hand_and_loses_nothing(shop: Shop, subsetd: Commands) -> None:
    random_changes(shop, random.Random(5), 1500)  # type: ignore[arg-type]
    shop.flush()
    with shop.held_near_the_end():
        process = subsetd.start("consume", "--feed", shop.feed, batch_records=20, log_level="error")
        wait_for(lambda: shop.count("records") > 100)
        process.send_signal(signal.SIGTERM)
    assert process.wait(BOUND_SECONDS) == 0, subsetd.said(process)
    assert 100 < shop.count("records") < sum(shop.sent.values()), "it was stopped under load"
    assert shop.count("records") == int(states.query(shop.url, "select sum(next_offset) from feed_position")[0][0])
    code, said = subsetd.run("consume", "--feed", shop.feed, "--until-end", log_level="error")
    assert code == 0, said
    shop.check()


def test_a_paused_feed_is_followed_again_when_it_is_resumed_also_by_another_process(
    shop: Shop, subsetd: Commands
) -> None:
    code, said = subsetd.run("pause")
    assert (code, "No feed was followed yet" in said) == (1, True)
    first = subsetd.start("consume", "--feed", shop.feed)
    shop.change("customers", None, ["3", "Cleo"])
    shop.flush()
    wait_for(shop.is_applied)
    code, said = subsetd.run("pause", "--feed", shop.feed)
    assert code == 0, said
    assert ": paused" in said
    assert "paused" in subsetd.run("status")[1]
    subsetd.end(first)
    second = subsetd.start("consume", "--feed", shop.feed)
    shop.change("customers", None, ["4", "Dora"])
    shop.flush()
    wait_for(lambda: '"following"' in subsetd.said(second))
    assert not shop.is_applied()
    ((name,),) = states.query(shop.url, "select feed from feed")
    code, said = subsetd.run("resume", "--feed", name)
    assert f"{name}: resumed" in said
    wait_for(shop.is_applied)
    subsetd.end(second)
    shop.check()


def test_transitions_go_to_a_topic_beside_the_consumer(shop: Shop, subsetd: Commands) -> None:
    topic = shop.cluster.topic()
    shop.change("orders", None, ["12", "9", None])
    shop.flush()
    address = f"kafka://{shop.broker.bootstrap_servers}/{topic}"
    code, said = subsetd.run("consume", "--feed", shop.feed, "--until-end", transitions_topic=address)
    assert code == 0, said
    plan = plan_topics(address)
    records = [record for part in plan.ranges for record in read_range(plan.servers, part)]
    messages = [orjson.loads(record.value or b"") for record in records]
    broken = [m["dependent"]["name"] for m in messages if m["kind"] == "broke"]
    assert "s.orders.customer" in broken
    assert len(messages) == states.query(shop.url, "select count(*) from ind_transition")[0][0]


def test_topics_are_bootstrapped_and_followed_by_the_command(shop: Shop, subsetd: Commands) -> None:
    topic = shop.cluster.topic()
    feed = f"kafka://{shop.broker.bootstrap_servers}/{topic}"

    def send(key: int, row: dict[str, int] | None) -> None:
        source = {"db": "mine", "schema": "shop", "table": "items"}
        event = {"op": "u" if row else "d", "before": None, "after": row, "source": source}
        shop.cluster.producer.send(topic, orjson.dumps(event), key=orjson.dumps({"id": key}), partition=0)

    for number in range(5):
        send(number, {"id": number, "size": 7})
    send(4, None)
    shop.flush()
    code, said = subsetd.run("bootstrap", feed, "--name", "items", log_level="error")
    assert code == 0, said
    assert "row images kept: shop.items (by id)" in said
    send(1, {"id": 1, "size": 8})
    send(2, None)
    shop.flush()
    code, said = subsetd.run("consume", "--feed", feed, "--until-end", log_level="error")
    assert code == 0, said
    counted = states.query(
        shop.url, "select column_name, row_count, distinct_count from attribute where schema_name = 'shop' order by 1"
    )
    assert counted == [("id", 3, 3), ("size", 3, 2)]
