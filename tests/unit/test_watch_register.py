"""What the register of watches refuses before anything is kept."""

from __future__ import annotations

from datetime import UTC, datetime
from types import SimpleNamespace
from typing import cast

import pytest

from service.core.watch_rules import Rule, RuleKind, WatchError
from service.usecases.watch_register import WatchRegister
from service.usecases.watches import Channel, ChannelKind, Channels, NewWatch, Watches


@pytest.mark.parametrize("secret", ["1234567\x00", "1234567\ud800", "\udfff1234567"], ids=["nul", "high", "low"])
def test_a_secret_that_no_database_keeps_is_refused(secret: str) -> None:
    """JSON can have half of a pair of UTF-16; neither Postgres nor a signature can."""
    nobody = SimpleNamespace(add=None, check=None)
    register = WatchRegister(cast(Watches, nobody), cast(Channels, nobody), lambda: datetime.now(UTC))
    channel = Channel(ChannelKind.WEBHOOK, "https://alerts.example/", secret=secret)
    watch = NewWatch("w", Rule(RuleKind.DEAD_LETTERS), channel, 0, True, False, "Ada")
    with pytest.raises(WatchError, match="no NUL in it, and no half of a character"):
        register.add(watch)
