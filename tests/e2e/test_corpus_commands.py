"""`subsetd corpus` as a user types it, on generations that landed: lists, pairs, exports, and errors as one message."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from service.core.column_filters import NULL_TOKENS, Reason
from service.core.corpus import CorpusKind
from service.usecases.corpora import CorpusFault, NewCorpus, index_folder
from tests.corpora import GivenCorpus, GivenTable
from tests.e2e.test_cli import Command, subsetd

__all__ = ["subsetd"]

NOT_UNIQUE, LOW_COVERAGE = int(Reason.NOT_UNIQUE), int(Reason.LOW_COVERAGE)
TABLES = [
    GivenTable(0, "orders.csv", 0, ["id", "customer"], [8, 5]),
    GivenTable(1, "2019/[customers]:7", 2, ["id", "name"], [5, 3], (0, 0), (0, NOT_UNIQUE)),
]


@pytest.fixture(autouse=True)
def state(database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Name the state, and stand in an empty folder."""
    monkeypatch.setenv("SUBSETD_DATABASE_URL", database_url)
    monkeypatch.setenv("SUBSETD_DATA_DIR", str(tmp_path / "data"))
    monkeypatch.setenv("SUBSETD_LOG_LEVEL", "error")
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def lake(database_url: str) -> GivenCorpus:
    corpus = GivenCorpus(database_url)
    corpus.refresh({(1, 2, 5), (2, 1, 5)}, TABLES)
    files = {"read": 1, "unchanged": 1, "gone": 0, "faults": 1}
    corpus.refresh({(1, 2, 5)}, [], changed=[1], faults=[CorpusFault("broken.csv", "It is empty.")], files=files)
    return corpus


def rows(text: str) -> list[list[str]]:
    return list(csv.reader(io.StringIO(text)))


def test_the_faults_of_another_corpus_are_not_listed(lake: GivenCorpus, subsetd: Command) -> None:
    lake.corpora.add(NewCorpus("sea", "/sea", CorpusKind.CSV))
    code, out, said = subsetd.ended("corpus", "faults", "sea", "--refresh", 2)
    assert (code, out) == (1, "")
    assert "The refresh 2 is none of 'sea'." in said


def test_inds_in_every_format(lake: GivenCorpus, subsetd: Command) -> None:
    table = subsetd("corpus", "inds", "lake").splitlines()
    assert table[0].split() == ["dependent", "referenced", "overlap", "coverage"]
    assert table[1].split() == ["orders.csv:1", "(customer)", "⊆", "2019/[customers]:7:0", "(id)", "5", "1"]
    header, row = rows(subsetd("corpus", "inds", "lake", "--format", "csv"))
    assert row == ["orders.csv", "1", "customer", "2019/[customers]:7", "0", "id", "5", "1.0", "1.0"]
    assert json.loads(subsetd("corpus", "inds", "lake", "--format", "json")) == [
        dict(zip(header, ["orders.csv", 1, "customer", "2019/[customers]:7", 0, "id", 5, 1.0, 1.0], strict=True))
    ]
    before = rows(subsetd("corpus", "inds", "lake", "--generation", 1, "--format", "csv"))
    assert [row[0] for row in before[1:]] == ["orders.csv", "2019/[customers]:7"]


@pytest.mark.parametrize(
    ("option", "value", "found"),
    [
        ("--dependent", "orders.csv", 1),
        ("--dependent", "orders.csv:1", 1),
        ("--dependent", "orders.csv:0", 0),
        ("--referenced", "orders.csv", 0),
        ("--referenced", "2019/[customers]:7:0", 1),
    ],
)
def test_inds_of_one_side(lake: GivenCorpus, subsetd: Command, option: str, value: str, found: int) -> None:
    assert len(rows(subsetd("corpus", "inds", "lake", option, value, "--format", "csv"))) == 1 + found


def test_a_pair_holds_or_not_or_is_not_known(lake: GivenCorpus, subsetd: Command) -> None:
    customer, other = "orders.csv:1", "2019/[customers]:7"
    assert subsetd("corpus", "pair", "lake", customer, f"{other}:0").splitlines() == [
        f"{customer} ⊆ {other}:0",
        "overlap 5, coverage 1",
    ]
    assert subsetd("corpus", "pair", "lake", f"{other}:0", customer).splitlines() == [
        f"{other}:0 ⊄ {customer}",
        "examined: it does not hold",
    ]
    assert subsetd("corpus", "pair", "lake", customer, f"{other}:1").splitlines() == [
        f"{customer} ? {other}:1",
        "not examined, left out by: not unique",
    ]
    assert subsetd("corpus", "pair", "lake", customer, "broken.csv:0").splitlines()[1] == "not examined: It is empty."


def test_lists_of_tables_columns_changes_faults_and_refreshes(lake: GivenCorpus, subsetd: Command) -> None:
    assert rows(subsetd("corpus", "tables", "lake", "--format", "csv"))[1:] == [
        ["orders.csv", "10", "2"],
        ["2019/[customers]:7", "10", "2"],
    ]
    columns = rows(subsetd("corpus", "tables", "lake", "2019/[customers]:7", "--format", "csv"))
    assert columns[1:] == [["0", "id", "5", "", ""], ["1", "name", "3", "", "not unique"]]
    (change,) = rows(subsetd("corpus", "changes", "lake", "--format", "csv"))[1:]
    assert change == ["went", "2019/[customers]:7", "0", "id", "orders.csv", "1", "customer", "5"]
    code, _, said = subsetd.ended("corpus", "changes", "lake", "--generation", 1)
    assert code == 2, "the generation that it changed from is not kept"
    assert "No such option" in said
    assert rows(subsetd("corpus", "faults", "lake", "--format", "csv"))[1:] == [["broken.csv", "It is empty."]]
    assert rows(subsetd("corpus", "faults", "lake", "--refresh", 1, "--format", "csv"))[1:] == []
    history = rows(subsetd("corpus", "history", "lake", "--format", "csv"))
    assert [(row[1], row[2], row[3], row[8], row[9]) for row in history[1:]] == [
        ("landed", "2", "test", "1", "1"),
        ("landed", "1", "test", "2", ""),
    ]
    assert "landed" in subsetd("corpus", "history", "lake").splitlines()[1]
    assert "landed" in subsetd("corpus", "list").splitlines()[1]


def test_an_export_is_a_file_or_there_is_none(lake: GivenCorpus, subsetd: Command, tmp_path: Path) -> None:
    subsetd("corpus", "export", "lake", "inds.csv")
    header, row = rows((tmp_path / "inds.csv").read_text())
    assert header == ["dependent_table", "dependent_position", "referenced_table", "referenced_position"]
    assert row == ["orders.csv", "1", "2019/[customers]:7", "0"]
    subsetd("corpus", "export", "lake", "before.parquet", "--generation", 1)
    assert pq.read_table(tmp_path / "before.parquet").num_rows == 2
    for arguments, message in {
        ("lake", "inds.xlsx"): "neither in .csv",
        ("lake", "nowhere/inds.csv"): "cannot be written",
        ("lake", "other.csv", "--generation", "9"): "not kept",
    }.items():
        code, _, err = subsetd.ended("corpus", "export", *arguments)
        assert code
        assert message in " ".join(err.split())
    assert sorted(path.name for path in tmp_path.iterdir()) == ["before.parquet", "inds.csv"]
    (tmp_path / "inds.csv.part").write_text("of somebody else")
    for corpus in ("lake", "typo"):
        assert subsetd.ended("corpus", "export", corpus, "inds.csv")[0] == 1
    assert (tmp_path / "inds.csv.part").read_text() == "of somebody else"


def test_a_corpus_is_added_with_all_its_options(subsetd: Command, tmp_path: Path) -> None:
    (tmp_path / "lake" / "below").mkdir(parents=True)
    (tmp_path / "lake" / "README").touch()
    (tmp_path / "lake" / "below" / "tables.jsonl.gz").touch()
    options = {
        "--null-token": "paper",
        "--filters": "paper,coverage=1/3,min-values=4",
        "--threshold": "0.9",
        "--algorithm": "rarest-first",
        "--bits": 100,
        "--hashes": 2,
        "--passes": 3,
        "--strategy": "ref2deps",
        "--top": 5,
        "--partitions": 7,
        "--max-failed": "0.5",
        "--max-table-bytes": 1 << 40,
        "--index": "index",
        "--encoding": "latin-1",
        "--delimiter": ";",
        "--quote": "'",
        "--db-schema": "other",
        "--schedule": "30 2 * * *",
        "--time-limit": 60,
        "--retries": 2,
    }
    given = [part for pair in options.items() for part in pair]
    subsetd(
        "corpus", "add", "lake", "lake", "--null-token", "NULL", "--no-header", "--joinable", "--near", "case", *given
    )
    shown = json.loads(subsetd("corpus", "show", "lake"))
    assert (shown["kind"], shown["location"]) == (CorpusKind.JSONL, str(tmp_path / "lake"))
    assert (shown["schedule"], shown["time_limit_seconds"], shown["retries"]) == ("30 2 * * *", 60, 2)
    settings = shown["settings"]
    assert set(settings.pop("null_tokens")) == {*NULL_TOKENS, "NULL"}
    assert settings == {
        "delimiter": ";", "quote": "'", "header": False, "encoding": "latin-1", "db_schema": "other",
        "null_columns": True, "integer_columns": True, "non_unique_referenced": True, "coverage": "1/3",
        "min_values": 4, "threshold": "9/10", "algorithm": "rarest-first", "bits": 100, "hashes": 2, "passes": 3,
        "strategy": "ref2deps", "top": 5, "partitions": 7, "max_failed": "1/2", "max_table_bytes": 1 << 40,
        "joinable": True, "near": ["case"], "index": str(tmp_path / "index"),
    }  # fmt: skip


def test_a_corpus_is_changed_and_what_is_not_named_stays(lake: GivenCorpus, subsetd: Command) -> None:
    before = json.loads(subsetd("corpus", "show", "lake"))
    options = ["--null-token", "-", "--filters", "coverage=0.5", "--no-header", "--schedule", "0 4 * * *"]
    said = subsetd("corpus", "set", "lake", *options, "--time-limit", 60, "--retries", 3, "--top", 7)
    assert said.strip() == "lake is changed: subsetd corpus show lake"
    now = json.loads(subsetd("corpus", "show", "lake"))
    assert (now["schedule"], now["time_limit_seconds"], now["retries"]) == ("0 4 * * *", 60, 3)
    others = {"null_tokens": ["-"], "coverage": "1/2", "header": False, "top": 7}
    assert now["settings"] == before["settings"] | others
    subsetd("corpus", "set", "lake", "--filters", "integer-columns", "--unset", "schedule", "--unset", "--time-limit")
    subsetd("corpus", "set", "lake", "--unset", "null-token", "--unset", "top", "--header", "--unset", "retries")
    now = json.loads(subsetd("corpus", "show", "lake"))
    assert now["settings"] == before["settings"] | {"integer_columns": True}
    subsetd("corpus", "set", "lake", "--unset", "filters")
    assert json.loads(subsetd("corpus", "show", "lake")) == before


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["lake"], "Nothing is to be changed of lake"),
        (["lake", "--unset", "name"], "--unset name: `subsetd corpus set` has no such option"),
        (["lake", "--unset", "index"], "The index stays where it is"),
        (["lake", "--schedule", "0 0 31 2 *"], "never comes"),
        (["lake", "--threshold", "0.5", "--algorithm", "signatures"], "signatures"),
        (["sea", "--top", "1"], "There is no corpus 'sea'"),
    ],
)
def test_what_cannot_be_changed_is_one_message(
    lake: GivenCorpus, subsetd: Command, arguments: list[str], message: str
) -> None:
    before = subsetd("corpus", "show", "lake")
    code, _, err = subsetd.ended("corpus", "set", *arguments)
    assert code == 1
    assert message in err
    assert subsetd("corpus", "show", "lake") == before


@pytest.mark.parametrize("arguments", [["add", "new", "lake", "--kind", "csv"], ["set", "lake"]])
def test_a_time_limit_that_cannot_be_kept_is_told(lake: GivenCorpus, subsetd: Command, arguments: list[str]) -> None:
    code, _, said = subsetd.ended("corpus", *arguments, "--time-limit", 1 << 31)
    assert code == 2
    assert "Invalid value for '--time-limit'" in said


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["new", "empty"], "--kind"),
        (["new", "empty", "--kind", "csv", "--filters", "all"], "filters 'all'"),
        (["new", "empty", "--kind", "csv", "--schedule", "* * * *"], "five fields"),
        (["new", "empty", "--kind", "csv", "--max-failed", "2"], "max_failed"),
        (["new", "empty", "--kind", "csv", "--threshold", "0.5", "--algorithm", "signatures"], "signatures"),
        (["a/b", "empty", "--kind", "csv"], "slash"),
        (["lake", "empty", "--kind", "csv"], "already"),
        (["new", "nosuch://bucket/lake", "--kind", "csv"], "begin with nosuch://"),
        (["new", "empty", "--kind", "csv", "--index", "s3a://bucket/index"], "hadoop-aws"),
        (["new", "postgresql://me:s3cr3t@host/db"], "passwords"),
        (["new", "s3a://me:s3cr3t@bucket/lake", "--kind", "csv"], "AWS_SECRET_ACCESS_KEY"),
        (["new", "empty", "--kind", "csv", "--index", "s3://me:s3cr3t/of@bucket/lake"], "passwords"),
    ],
)
def test_what_cannot_be_is_one_message(
    lake: GivenCorpus, subsetd: Command, tmp_path: Path, arguments: list[str], message: str
) -> None:
    (tmp_path / "empty").mkdir()
    code, _, err = subsetd.ended("corpus", "add", *arguments)
    assert code == 1
    assert message in err
    assert "s3cr3t" not in err
    assert len(rows(subsetd("corpus", "list", "--format", "csv"))) == 2


def test_what_waits_is_cancelled_and_what_is_removed_is_gone(
    lake: GivenCorpus, subsetd: Command, tmp_path: Path
) -> None:
    assert "waits" in subsetd("corpus", "refresh", "lake")
    assert "is cancelled" in subsetd("corpus", "cancel", "lake")
    assert subsetd.ended("corpus", "cancel", "lake")[0] == 1
    found = lake.corpora.named("lake")
    index = Path(index_folder(found, str(tmp_path / "data"), lake.corpora.database()))
    index.mkdir(parents=True)
    (index / "manifest").touch()
    (index.parent / "other").mkdir()
    subsetd("corpus", "remove", "lake")
    assert not index.exists()
    assert (index.parent / "other").exists()
    for command in ("inds", "show", "history", "changes", "tables", "faults", "refresh", "cancel", "remove"):
        code, _, err = subsetd.ended("corpus", command, "lake")
        assert code == 1
        assert "There is no corpus 'lake'" in err
