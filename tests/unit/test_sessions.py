"""What sessions on the state's database begin with, whatever the environment, the role or the database say."""

from __future__ import annotations

import re
from typing import Any

import psycopg2
import pytest

from service.core.errors import StateError
from service.store.database import begin_connection, make_engine


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """Give what is asked of a server that is not there."""
    found: list[dict[str, Any]] = []

    def connect(*_: Any, **parameters: Any) -> Any:
        found.append(parameters)
        raise psycopg2.OperationalError("no server")

    monkeypatch.setattr(psycopg2, "connect", connect)
    return found


def test_texts_are_told_to_be_utf_8(asked: list[dict[str, Any]]) -> None:
    """Binary COPY has them as UTF-8: a server that takes them for LATIN1 stores others."""
    engine = make_engine("postgresql://me@h/state?client_encoding=LATIN1", "test")
    with pytest.raises(StateError):
        engine.connect()
    with pytest.raises(StateError):
        begin_connection(engine)
    assert [one["client_encoding"] for one in asked] == ["UTF8", "UTF8"]


def test_who_waited_for_a_lock_sees_what_was_committed(asked: list[dict[str, Any]]) -> None:
    """Where a role or database says `repeatable read`, a batch would not log changes for whom it has waited for."""
    with pytest.raises(StateError):
        make_engine("postgresql://me@h/state?options=-c default_transaction_isolation=serializable", "test").connect()
    *_, last = re.findall(r"-c default_transaction_isolation=(\w+(?:\\ \w+)?)", asked[0]["options"])
    assert last == r"read\ committed"
