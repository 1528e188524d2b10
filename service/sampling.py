"""Own the thread that looks at the coefficients of pairs that count, beside a consumer."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from service import wiring
from service.config import Settings
from service.scheduler import running_every
from service.store.coefficient_samples import CoefficientLooks
from service.usecases.coefficient_history import LOOK_SECONDS


@contextmanager
def sampling_coefficients(url: str, settings: Settings) -> Iterator[None]:
    """Keep what coefficients come to be of pairs that somebody watches, or that nearly hold, if the settings say so."""
    if not settings.history_pairs:
        yield
        return
    with wiring.reading_engine(url, settings) as engine:
        looks = CoefficientLooks(engine, settings.history_pairs)

        def look() -> None:
            looks.look()

        with running_every({"coefficients over time": (LOOK_SECONDS, look)}):
            yield
