"""Say which feed an address names, and what is said of an address that names none."""

from __future__ import annotations

import os
import shlex

import pytest
from sqlalchemy import make_url

from service.config import ConfigError, Settings
from service.core.errors import FeedError
from service.feed_wiring import require_other_topics
from service.store.source_reader import without_password
from service.stream.addresses import open_feed
from service.stream.file_feed import FileFeed
from service.stream.kafka_address import open_topics
from service.stream.kafka_feed import KafkaFeed
from service.stream.postgres_address import parse_address


def kafka(address: str) -> KafkaFeed:
    feed = open_feed(address)
    assert isinstance(feed, KafkaFeed)
    return feed


def test_a_kafka_address_names_servers_and_topics() -> None:
    feed = kafka("kafka://b:9093,A:9092/shop.public.orders,shop.public.items")
    assert feed.servers == ["a:9092", "b:9093"]
    assert feed.topics == ["shop.public.orders", "shop.public.items"]
    assert feed.prefix is None


def test_the_feed_is_known_by_its_servers_in_any_order_whatever_the_topics() -> None:
    assert kafka("kafka://b:1,a:2/x").address == kafka("kafka://a:2,b:1/y,x").address == "kafka://a:2,b:1"


def test_the_usual_port_need_not_be_said() -> None:
    assert kafka("kafka://broker/x").address == "kafka://broker:9092"
    assert kafka("kafka://[::1]:9093/x").servers == ["[::1]:9093"]


def test_topics_may_be_named_by_their_beginning() -> None:
    feed = kafka("kafka://a:1/?prefix=shop.public.")
    assert (feed.topics, feed.prefix) == ([], "shop.public.")


def test_a_file_address_names_an_absolute_path() -> None:
    relative = open_feed("file:changes.jsonl")
    assert isinstance(relative, FileFeed)
    assert relative.name == f"file:{os.getcwd()}/changes.jsonl"
    assert open_feed("file:///tmp/a%20b.jsonl").name == "file:/tmp/a b.jsonl"


@pytest.mark.parametrize(
    ("address", "fault"),
    [
        ("", "neither kafka:// nor postgresql:// nor file:"),
        ("mysql://u:secret@h/db", "neither kafka:// nor postgresql:// nor file:"),
        ("postgres://u:secret@h/db", "does not name its source"),
        ("postgresql://u:secret@[h/db?name=shop", "cannot be read as one of Postgres"),
        ("kafka://", "'' is not host:port"),
        ("kafka://a:1", "names no topic"),
        ("kafka://a:1/", "names no topic"),
        ("kafka://a:0/x", "'a:0' is not host:port"),
        ("kafka://a:99999/x", "'a:99999' is not host:port"),
        ("kafka://a:b/x", "'a:b' is not host:port"),
        ("kafka://a:1/x,,y", "'' is no name of a topic"),
        ("kafka://a:1/x y", "'x y' is no name of a topic"),
        ("kafka://a:1/x?group=1", "unknown option 'group'"),
        ("kafka://u:secret@a:1/x", "holds a user"),
        ("file:", "names no file"),
        ("file:-", "names no file"),
        ("file://host/x", "names another machine"),
    ],
)
def test_an_address_that_names_no_feed_is_explained_without_its_password(address: str, fault: str) -> None:
    with pytest.raises(FeedError) as caught:
        open_feed(address)
    assert fault in str(caught.value)
    assert "secret" not in str(caught.value)


def test_an_address_without_topics_is_none_of_topics_and_shows_no_password() -> None:
    with pytest.raises(FeedError, match=r"^postgresql://\*\*\*@h/shop names no topics"):
        open_topics("postgresql://me:secret@h/shop")


def test_the_address_of_a_database_is_kept_without_passwords_and_the_files_that_hold_some() -> None:
    address = "postgresql://me:secret@h:1/shop?sslpassword=secret&passfile=%2Fsecret&sslkey=%2Fsecret&sslmode=require"
    assert without_password(address) == "postgresql://me@h:1/shop?sslmode=require"
    assert parse_address(address, "s").shown == "postgresql://me@h:1/shop?sslmode=require&name=s"


@pytest.mark.parametrize("query", ["host=/run/pg&sslmode=require", "sslmode=require&host=%2Frun%2Fpg&port=5433"])
def test_the_command_of_a_message_names_the_same_database_to_a_shell(query: str) -> None:
    feed = open_feed(f"postgresql://me:secret@/shop?{query}&name=my shop")
    with pytest.raises(FeedError, match=r"run `.*`") as caught:
        feed.start({})
    told = str(caught.value).split("`")[1]
    program, command, address, *name = shlex.split(told)
    assert (program, command, name) == ("subsetd", "follow", ["--name", "my shop"])
    assert parse_address(address, "s") == parse_address(f"postgresql://me@/shop?{query}", "s")
    assert "secret" not in told


@pytest.mark.parametrize(
    ("told", "parameters"),
    [
        ("postgresql://me:secret@[::1]:5432/shop", {"host": "::1", "port": "5432"}),
        ("postgresql://me:secret@[fd00::7]/shop", {"host": "fd00::7"}),
        ("postgresql://me:secret@h/shop?options=-c%20a%3D1%20-c%20b%3D2", {"options": "-c a=1 -c b=2"}),
        ("postgresql://me:secret@h/shop?sslrootcert=/my%20certs/a%2Bb.pem", {"sslrootcert": "/my certs/a+b.pem"}),
    ],
)
def test_an_address_of_a_database_names_the_same_however_often_it_is_written(
    told: str, parameters: dict[str, str]
) -> None:
    address = parse_address(told, "s")
    for read in (address, parse_address(address.url, "s")):
        assert parameters.items() <= read.parameters.items()
        assert read == address
    assert make_url(address.url) == make_url(told).set(drivername="postgresql")
    shown = parse_address(address.shown)
    assert parameters.items() <= shown.parameters.items()
    assert parse_address(shlex.split(shown.follow_command)[2], "s") == shown


@pytest.mark.parametrize("setting", ["dead_letter_topic", "transitions_topic"])
def test_what_is_written_for_others_is_no_topic_of_the_feed(setting: str) -> None:
    settings = Settings(**{setting: "kafka://b:9092/shop.told"})  # type: ignore[arg-type]
    for feed in ("kafka://a:9092,b/?prefix=shop.", "kafka://b/shop.orders,shop.told"):
        with pytest.raises(ConfigError, match=f"^SUBSETD_{setting.upper()}: 'shop.told' is a topic of the feed kafka:"):
            require_other_topics(feed, settings)
    for feed in (
        "kafka://b/?prefix=shops.",
        "kafka://b/shop.orders",
        "file:/shop.told",
        "postgresql://b/shop.told?name=s",
    ):
        require_other_topics(feed, settings)
