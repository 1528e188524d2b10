"""Own what is done beside whoever follows a feed, in the same process, so that the state stays short and is told on."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from service import feed_wiring
from service.config import Settings
from service.join_tracking import compacting_joins
from service.observe import ConsumerObserver
from service.process_memory import give_back
from service.retention import dropping_history
from service.sampling import sampling_coefficients
from service.scheduler import running_every

GIVE_BACK_SECONDS = 10.0


@contextmanager
def keeping_up(url: str, settings: Settings, observer: ConsumerObserver) -> Iterator[None]:
    """Send transitions, keep logs, history and memory short, and sample coefficients, each on a thread of its own.

    `observer` hears whether transitions go out.

    Raises FeedError for an address of the settings that names no topic.
    """
    with (
        feed_wiring.sending_transitions(url, settings, observer),
        feed_wiring.compacting_sketches(url),
        compacting_joins(url),
        dropping_history(url, settings),
        sampling_coefficients(url, settings),
        running_every({"free memory": (GIVE_BACK_SECONDS, give_back)}),
    ):
        yield
