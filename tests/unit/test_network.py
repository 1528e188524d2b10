"""A unit test that reaches beyond this machine fails, and one that stays on it does not."""

from __future__ import annotations

import socket
from contextlib import suppress
from pathlib import Path

import pytest

ELSEWHERE = ("203.0.113.1", 9)  # of a network that is for documentation alone


@pytest.mark.parametrize("method", ["connect", "connect_ex"])
def test_another_machine_is_not_reached_though_the_error_is_taken(method: str) -> None:
    with socket.socket() as mine:
        mine.settimeout(0.1)
        with pytest.raises(pytest.fail.Exception, match=r"beyond this machine: .*203\.0\.113\.1"), suppress(Exception):
            getattr(mine, method)(ELSEWHERE)


def test_this_machine_is(tmp_path: Path) -> None:
    for family, address in (
        (socket.AF_INET, ("127.0.0.1", 0)),
        (socket.AF_UNIX, str(tmp_path / "socket")),
    ):
        with socket.socket(family) as theirs, socket.socket(family) as mine:
            theirs.bind(address)
            theirs.listen()
            mine.connect(theirs.getsockname())
