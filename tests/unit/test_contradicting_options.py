"""Options that contradict each other, or say nothing beside others, are refused by name before anything is opened."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from typer.testing import CliRunner

from service.cli import app
from service.core.errors import SourceError
from spark_jobs.command_line import parse_arguments


@pytest.mark.parametrize(
    ("command", "told"),
    [
        (["corpus", "refresh", "lake", "--master", "spark://head:7077"], "--master is for --wait"),
        (["unfollow", "shop", "--gone", "--source", "postgresql://db/shop"], "leave --source out"),
        (["foreign-keys", "--table", "orders", "decisions"], "--table is of the list of candidates"),
        (["foreign-keys", "--format", "sql", "explain", "a", "b"], "--format is of the list"),
        (["audit", "--history", "--filters", "none"], "leave --filters, --algorithm and --master out"),
        (["audit", "--history", "--algorithm", "signatures"], "leave --filters, --algorithm and --master out"),
        (["audit", "--history", "--master", "local[2]"], "leave --filters, --algorithm and --master out"),
        (["audit", "--format", "json"], "--history --format json lists it behind its end"),
    ],
)
def test_what_would_not_be_heard_is_refused(command: Sequence[str], told: str) -> None:
    ended = CliRunner().invoke(app, command)
    assert ended.exit_code == 2
    assert told in " ".join(ended.stderr.replace("│", " ").split())


@pytest.mark.parametrize(
    ("command", "told"),
    [
        (["corpus", "set", "lake", "--schedule", "0 4 * * *", "--unset", "schedule"], "given as well"),
        (["corpus", "set", "lake", "--delimiter", ";", "--unset", "--delimiter"], "given as well"),
        (
            ["bootstrap", "postgresql://db/shop", "--name", "s", "--delimiter", ";"],
            "--delimiter=;: postgresql is no CSV",
        ),
        (["bootstrap", "kafka://b/t", "--name", "s", "--no-header"], "--no-header: kafka is no CSV"),
    ],
)
def test_what_no_source_or_corpus_can_be_told_is_refused(command: Sequence[str], told: str) -> None:
    ended = CliRunner().invoke(app, command)
    assert isinstance(ended.exception, SourceError)
    assert told in str(ended.exception)


def test_a_partition_that_goes_on_at_two_places_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    given = ["/data", "--name", "s", "--clusters-only"]
    for offset in ("5", "9"):
        given += ["--feed-position", "kafka:c", "orders", "0", offset]
    with pytest.raises(SystemExit):
        parse_arguments(given)
    assert "kafka:c,orders,0 is given 2 times" in capsys.readouterr().err
