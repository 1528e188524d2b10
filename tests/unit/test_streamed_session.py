"""Where streams of a session that follows on Spark begin."""

from __future__ import annotations

from types import SimpleNamespace

from spark_jobs.streamed_session import StreamedSession


def test_a_stream_goes_on_in_a_topic_that_the_feed_here_has_not_seen_yet() -> None:
    session = StreamedSession.__new__(StreamedSession)
    session._feed = SimpleNamespace(positions=lambda: {("p.a", 0): 10, ("p.a", 1): 0})  # type: ignore[assignment]
    session._concluded = {("p.a", 0): 70, ("of another feed's address", 0): 5, ("p.new", 0): 40}
    session._pending = []
    session._streamed = {"p.a", "p.new"}
    assert session._begins() == {("p.a", 0): 70, ("p.a", 1): 0, ("p.new", 0): 40}
