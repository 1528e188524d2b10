"""Own the look at a lock in the moment in which the session that had it ends: the server notices that end later."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any

import pytest

from tests import states


def held_at_ends(monkeypatch: pytest.MonkeyPatch, module: ModuleType, url: str, condition: str) -> list[bool]:
    """Give a list to which each session that a module opens adds, at its end, whether a lock is held (`is_held`)."""
    open_session, held = module.connect, []

    @contextmanager
    def looking(*given: str) -> Iterator[Any]:
        with open_session(*given) as connection:
            yield connection
            ((is_held,),) = states.query(url, f"select {condition}")
            held.append(is_held)

    monkeypatch.setattr(module, "connect", looking)
    return held
