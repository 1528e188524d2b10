"""Webhooks reach public hosts and what the settings allow, however an address is written or changed meanwhile."""

from __future__ import annotations

import socket
from collections.abc import Sequence
from ipaddress import ip_address

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.channels.addresses import choose_address, is_allowed, parse_networks, resolve
from service.channels.webhook import WebhookSender, check_url
from service.core.watch_rules import WatchError
from service.usecases.watches import ChannelError
from tests.watching import receiving

PRIVATE = [
    "127.0.0.1",
    "127.255.0.9",
    "0.0.0.0",
    "10.0.0.1",
    "172.16.0.1",
    "192.168.1.1",
    "169.254.169.254",
    "100.64.0.1",
    "192.0.0.8",
    "198.18.0.1",
    "224.0.0.1",
    "240.0.0.1",
    "255.255.255.255",
    "::",
    "::1",
    "fe80::1",
    "fc00::1",
    "fd00:ec2::254",
    "ff02::1",
    "::ffff:127.0.0.1",
    "::ffff:10.0.0.1",
    "::127.0.0.1",
    "64:ff9b::7f00:1",
    "64:ff9b::a9fe:a9fe",
    "2002:7f00:1::",
    "2002:a00:1::1",
    "2001:0:4136:e378:8000:63bf:80ff:fffe",
]


@pytest.mark.parametrize("address", PRIVATE)
def test_addresses_of_this_machine_and_of_private_networks_are_refused(address: str) -> None:
    assert not is_allowed(ip_address(address), [])


@pytest.mark.parametrize(
    "address", ["1.1.1.1", "93.184.216.34", "2606:4700::1111", "64:ff9b::101:101", "::ffff:1.1.1.1"]
)
def test_public_addresses_are_not(address: str) -> None:
    assert is_allowed(ip_address(address), [])


@given(st.ip_addresses(v=4))
def test_wrapping_an_address_changes_nothing(address: object) -> None:
    number = int(address)  # type: ignore[call-overload]
    plain = is_allowed(ip_address(number), [])
    for wrapped in (f"::ffff:{address}", f"64:ff9b::{address}", f"2002:{number >> 16:x}:{number & 0xFFFF:x}::1"):
        assert is_allowed(ip_address(wrapped), []) == plain


def test_the_settings_allow_networks() -> None:
    allowed = parse_networks(" 10.0.0.0/8, fd00::/8 ,")
    assert is_allowed(ip_address("10.1.2.3"), allowed)
    assert is_allowed(ip_address("::ffff:10.1.2.3"), allowed)
    assert is_allowed(ip_address("fd00::5"), allowed)
    assert not is_allowed(ip_address("127.0.0.1"), allowed)
    for wrong in ("10.0.0.1/8", "localhost", "10.0.0.0/99"):
        with pytest.raises(ValueError, match=r"."):
            parse_networks(wrong)


@pytest.mark.parametrize("host", ["2130706433", "0x7f.1", "0177.0.0.1", "127.1", "0", "localhost", "127.0.0.1"])
def test_other_ways_to_write_this_machine_are_resolved_before_they_are_looked_at(host: str) -> None:
    with pytest.raises(ChannelError, match="is of this machine or a private network") as refused:
        choose_address(host, 80, [])
    assert not refused.value.is_final, "another process may be allowed to reach it, or the name be another's soon"


@pytest.mark.parametrize("found", [["10.0.0.1"], ["1.1.1.1", "127.0.0.1"], ["1.1.1.1", "::1"]])
def test_a_name_is_refused_for_any_of_its_addresses(found: list[str]) -> None:
    with pytest.raises(ChannelError, match=r"The host rebinding\.test is of this machine"):
        choose_address("rebinding.test", 80, [], lambda host, port: found)


@pytest.mark.parametrize("resolving", [lambda host, port: [], lambda host, port: ["not an address"]])
def test_a_name_without_addresses_is_told(resolving: object) -> None:
    with pytest.raises(ChannelError) as failed:
        choose_address("nowhere.test", 80, [], resolving)  # type: ignore[arg-type]
    assert not failed.value.is_final


def test_a_name_that_is_not_there_is_told() -> None:
    def none(host: str, port: int) -> Sequence[str]:
        raise socket.gaierror(socket.EAI_NONAME, "no such name")

    with pytest.raises(ChannelError, match="cannot be resolved"):
        choose_address("nowhere.test", 80, [], none)
    with pytest.raises(ChannelError):
        choose_address("a" * 70 + ".test", 80, [], resolve)


def test_the_connection_is_to_the_address_that_was_looked_at_and_nothing_is_resolved_again() -> None:
    """The name's answers change with each question, as those of who rebinds it."""
    asked: list[str] = []

    def rebinding(host: str, port: int) -> Sequence[str]:
        asked.append(host)
        return ["127.0.0.1"] if len(asked) == 1 else ["169.254.169.254"]

    with receiving() as receiver:
        port = receiver.url.split(":")[2].split("/")[0]
        sender = WebhookSender(parse_networks("127.0.0.0/8"), lambda: 0.0, resolving=rebinding)
        sender.send(f"http://rebinding.test:{port}/x", b"{}", "id", None)
        with pytest.raises(ChannelError, match="is of this machine or a private network"):
            sender.send(f"http://rebinding.test:{port}/x", b"{}", "id", None)
        assert [headers["Host"] for _, headers, _ in receiver.requests] == [f"rebinding.test:{port}"]
    assert asked == ["rebinding.test"] * 2


@pytest.mark.parametrize(
    "url",
    [
        "ftp://host/",
        "file:///etc/passwd",
        "//host/",
        "http://",
        "http://:80/",
        "http://user:password@host/",
        "http://host:99999/",
        "http://host:0/",
        "http://[::1/",
        "http://host/a b",
        "http://host/a\r\nX: y",
        "http://höst/",
        "http://host/#x",
        "gopher://host",
        "",
    ],
)
def test_what_is_no_address_of_a_webhook_is_refused_without_repeating_it(url: str) -> None:
    with pytest.raises(WatchError) as refused:
        check_url(url)
    assert "password" not in str(refused.value).replace("user and password", "")


@pytest.mark.parametrize("url", ["http://host", "https://host:8443/a?b=c", "https://[2606:4700::1111]/x"])
def test_what_is_one_is_not(url: str) -> None:
    check_url(url)
