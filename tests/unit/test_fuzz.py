"""Fuzz the decoder, the short form: whatever becomes of a real event, it is applied, skipped or set aside."""

from __future__ import annotations

from tests.endurance.fuzz import fuzz, mutations


def test_each_damaged_event_is_applied_skipped_or_set_aside() -> None:
    outcomes = fuzz(4_000, seed=1)
    assert outcomes.total() == 4_000
    assert min(outcomes[outcome] for outcome in ("applied", "skipped", "set aside")) > 100, outcomes


def test_a_seed_gives_the_same_records() -> None:
    assert list(mutations(50, 7)) == list(mutations(50, 7)) != list(mutations(50, 8))
