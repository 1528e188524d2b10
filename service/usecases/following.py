"""Own what a feed is followed with, which every session of a consumer begins from."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, dataclass, field

from service.core.model import Table
from service.core.records import Keys
from service.usecases.batches import BatchLimits, ErrorPolicy, Observer, Totals
from service.usecases.ports import DeadLetterSink, Decoder, Feed, StateWriter
from service.usecases.transactions import TransactionBuffer, WaitLimits
from service.usecases.warm_up import WarmUpPolicy


@dataclass(slots=True)
class Following:
    """Hold what a feed is followed with, and what came of it: a session's failure leaves this untouched.

    Batches are bounded by `limits`; nothing is tried again after `retry_seconds` without a commit.
    """

    writer: StateWriter
    open_feed: Callable[[], Feed]
    make_decoder: Callable[[Sequence[Table]], Decoder]
    value_keys: Callable[[Sequence[str]], Keys]
    observer: Observer
    _: KW_ONLY
    limits: BatchLimits = field(default_factory=BatchLimits)
    on_error: ErrorPolicy = ErrorPolicy.STOP
    cache_bytes: int = 512 * 1024 * 1024
    warm_up: WarmUpPolicy = WarmUpPolicy.BESIDE
    retry_seconds: float = 60.0
    wait_limits: WaitLimits = field(default_factory=WaitLimits)
    dead_letter_sink: DeadLetterSink | None = None
    totals: Totals = field(default_factory=Totals)
    started: float | None = None
    buffer: TransactionBuffer | None = None
    """What the session before knows of transactions that it applied in part, on purpose."""
