"""A key that is tracked while a database changes and is followed: from then on it is what a fresh reading finds."""

from __future__ import annotations

import json
import random
import threading
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from typer.testing import CliRunner

from service import feed_wiring
from service.cli import app
from service.core.errors import NotFoundError, SourceError, StateError
from service.store.checks import PostgresVerifier
from service.store.database import connect, make_engine
from service.store.generation import DRIVER_NAME
from service.store.writer_lock import is_led_by_consumer, release_locks, take_bootstrap_lock
from service.usecases.verify import verify
from spark_jobs import backfill as backfill_module
from spark_jobs.backfill import Tracked, backfill
from spark_jobs.bootstrap import run_bootstrap
from spark_jobs.command_line import parse_arguments
from spark_jobs.progress import Quiet
from spark_jobs.sources import Options
from tests import states
from tests.postgres_following import NAME, consumer, follow, run
from tests.waiting import wait_for

TABLES = (
    "create schema s",
    "create table s.lines (n integer primary key, part integer, lot text, kind text)",
    "alter table s.lines replica identity full",
    "create table s.lots (part integer, lot text, note text, primary key (part, lot))",
    "insert into s.lots select i % 9, 'l' || i, 'x' || i % 3 from generate_series(1, 60) i",
    "insert into s.lines select i, part, lot, 'k' || i % 4 from (select row_number() over () as i, * from s.lots) l",
)


def changes(rng: random.Random, number: int) -> list[str]:
    """Make statements that change both tables, some with NULLs, some in transactions of several rows."""
    made = []
    for _ in range(number):
        i, j = rng.randrange(90), rng.randrange(90)
        made.append(
            rng.choice(
                [
                    f"insert into s.lines values ({i}, {j % 9}, 'l{j}', null) "
                    f"on conflict (n) do update set lot = 'l{j}'",
                    f"update s.lines set part = nullif({j % 10}, 9), kind = 'k{j}' where n = {i}",
                    f"delete from s.lines where n between {i} and {i + 2}",
                    f"insert into s.lots values ({j % 9}, 'l{i}', null) on conflict do nothing",
                    f"update s.lots set note = 'x{j}' where lot = 'l{i}'",
                    f"begin; delete from s.lots where lot = 'l{j}'; "
                    f"update s.lines set lot = null where lot = 'l{j}'; commit",
                ]
            )
        )
    return made


def begun(spark: SparkSession, followed_url: str, database_url: str) -> None:
    run(followed_url, *TABLES)
    with feed_wiring.new_postgres_feed(database_url, followed_url, NAME, (), replace=False) as told:
        given = parse_arguments([followed_url, "--name", NAME, "--database-url", database_url, *told])
        options = Options(
            followed_url, NAME, database_url, snapshot=given.snapshot, feed_start=given.feed_start, published=True
        )
        run_bootstrap(spark, options)


def require_true(spark: SparkSession, followed_url: str, database_url: str) -> None:
    """Hold the state against its own records, and against the source."""
    engine = make_engine(database_url, "test")
    with PostgresVerifier(engine).checks() as checks:
        assert [found for found in verify(checks) if found.violations] == []
    engine.dispose()
    assert run_bootstrap(spark, Options(followed_url, NAME, database_url, check=True)).differences == []


def is_followed(database_url: str) -> bool:
    """Tell whether a consumer leads the state: one that starts while a key is tracked would be refused."""
    engine = make_engine(database_url, "test")
    with closing(engine.raw_connection()) as connection:
        is_led = is_led_by_consumer(connection)
    engine.dispose()
    return is_led


def track(spark: SparkSession, database_url: str, source_url: str | None, table: str, *columns: str) -> Tracked:
    (done,) = backfill(lambda: spark, database_url, [("s", table, columns)], source_url, Quiet())
    return done


def test_tuples_are_read_ahead_of_the_feed_and_changes_that_they_hold_are_left_out(
    spark: SparkSession, followed_url: str, database_url: str
) -> None:
    rng = random.Random(3)
    begun(spark, followed_url, database_url)
    run(followed_url, *changes(rng, 40))  # nobody has followed them when the key is read
    done = track(spark, database_url, followed_url, "lines", "part", "lot")
    assert (done.key, done.version) == ("s.lines(part, lot)", 2)
    before = states.query(database_url, "select column_name, kind from tracked_key join attribute using (attribute_id)")
    assert ("(part, lot)", "pinned") in before
    rows = states.query(followed_url, "select count(*), count(distinct (part, lot)) filter (where part is not null and "
                        "lot is not null) from s.lines")  # fmt: skip
    assert rows == [(done.rows, done.tuples)]
    run(followed_url, *changes(rng, 40))
    follow(database_url, followed_url, records=7)
    require_true(spark, followed_url, database_url)
    pair = "select count(*) from uind join attribute d on d.attribute_id = dependent_id where until_version is null "
    assert states.query(database_url, pair + "and d.parts is not null")[0][0] <= 2
    assert track(spark, database_url, followed_url, "lots", "lot", "note", "part").tuples > 0
    run(followed_url, *changes(rng, 20), "truncate s.lines", *changes(rng, 20))
    follow(database_url, followed_url)
    require_true(spark, followed_url, database_url)


TOLD = "select version, kind, witness_value from contract_transition order by version"


@pytest.mark.parametrize(
    ("unseen", "told"),
    [
        # The key that a new row refers to is behind the feed's position as well.
        (["insert into s.lots values (1, 'new', 'x')", "insert into s.lines values (99, 1, 'new', 'x')"], []),
        # Violated by one row or another at each moment: the first goes only when the other one's key is gone.
        (
            ["delete from s.lots where lot = 'l5'", "delete from s.lines where lot = 'dangling'"],
            [("violated", '["5","l5"]')],
        ),
    ],
)
def test_a_contract_on_tuples_that_are_tracked_is_held_against_rows_of_one_moment(
    spark: SparkSession, followed_url: str, database_url: str, monkeypatch: pytest.MonkeyPatch,
    unseen: list[str], told: list[tuple],
) -> None:  # fmt: skip
    monkeypatch.setenv("SUBSETD_DATABASE_URL", database_url)
    begun(spark, followed_url, database_url)
    if told:
        run(followed_url, "insert into s.lines values (98, 1, 'dangling', 'x')")
        follow(database_url, followed_url)
    added = CliRunner().invoke(app, ["contract", "add", "s.lines(part, lot)", "s.lots(part, lot)"])
    assert added.exit_code == 0, added.output
    before = states.query(database_url, "select max(version) from state_version")[0][0]
    run(followed_url, *unseen)
    assert track(spark, database_url, followed_url, "lines", "part", "lot").version == before + 1
    expected = [(before + 1, *of_one) for of_one in told]
    assert states.query(database_url, TOLD) == expected
    follow(database_url, followed_url)
    assert states.query(database_url, TOLD) == expected
    require_true(spark, followed_url, database_url)
    inds = "select kind from ind_transition join attribute d on d.attribute_id = dependent_id where parts is not null"
    assert states.query(database_url, inds + " and table_name = 'lines'") == ([] if told else [("appeared",)])
    run(followed_url, "drop table s.lots")
    with pytest.raises(SourceError, match=r"s\.lots is followed, but its source has it no longer"):
        track(spark, database_url, followed_url, "lines", "lot", "part")


def test_keys_are_tracked_and_dropped_beside_a_running_consumer(
    spark: SparkSession, followed_url: str, database_url: str
) -> None:
    rng = random.Random(4)
    begun(spark, followed_url, database_url)
    stop, done = threading.Event(), threading.Event()
    following = threading.Thread(target=lambda: consumer(database_url, followed_url, records=20).run(stop))
    changing = threading.Thread(target=lambda: [run(followed_url, *changes(rng, 5)) for _ in range(30)] and done.set())
    following.start()
    wait_for(lambda: is_followed(database_url))
    changing.start()
    track(spark, database_url, followed_url, "lines", "lot", "part")
    track(spark, database_url, followed_url, "lines", "kind")
    track(spark, database_url, followed_url, "lines", "n", "part", "lot", "kind")
    said = feed_wiring.drop_key(database_url, "s", "lines", ["lot", "part"], lambda _: None)
    changing.join()
    assert done.is_set()
    run(followed_url, "insert into s.lots values (1000, 'last', 'x')")
    wait_for(lambda: states.query(database_url, f"select 1 from state_version where version > {said}"))
    stop.set()
    following.join()
    follow(database_url, followed_url)
    require_true(spark, followed_url, database_url)
    query = "select column_name from attribute where parts is not null and dropped_version is null order by 1"
    assert states.query(database_url, query) == [("(n, part, lot, kind)",), ("(part, lot)",)]
    assert states.query(database_url, f"select kind from state_version where version = {said}") == [("schema",)]
    kinds = "select column_name, kind from tracked_key join attribute using (attribute_id) order by key_id"
    assert states.query(database_url, kinds)[-2:] == [("kind", "pinned"), ("(n, part, lot, kind)", "pinned")]


def test_a_followed_table_that_is_gone_is_told_with_the_way_out(
    spark: SparkSession, followed_url: str, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No change tells that it is; its tuples would be read beside those of a new key."""
    begun(spark, followed_url, database_url)
    run(followed_url, "drop table s.lots")
    with pytest.raises(SourceError, match=r"^s\.lots is followed, but .*run `subsetd attribute drop s\.lots --force`"):
        track(spark, database_url, followed_url, "lines", "part", "lot")
    monkeypatch.setenv("SUBSETD_DATABASE_URL", database_url)
    assert CliRunner().invoke(app, ["attribute", "drop", "s.lots", "--force"]).exit_code == 0
    assert track(spark, database_url, followed_url, "lines", "part", "lot").rows == 60


def test_keys_of_files(spark: SparkSession, database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "t.csv").write_text("a,b,c,d,e,f\n1,1,x,x,x,x\n1,2,y,y,y,y\n,2,x,x,x,x\n")
    run_bootstrap(spark, Options(str(tmp_path), "s", database_url))
    done = track(spark, database_url, None, "t", "f", "a", "b", "c", "d", "e")
    assert (done.rows, done.tuples, done.version) == (3, 2, 2)
    counted = (
        "select row_count, null_count, distinct_count, repeated_count from attribute where parts = '{5,0,1,2,3,4}'"
    )
    assert states.query(database_url, counted) == [(3, 1, 2, 0)]
    require_true(spark, str(tmp_path), database_url)
    for columns, error, said in (
        (["f", "a", "b", "c", "d", "e"], StateError, "tracked as a key already"),
        ([], StateError, "1 to 32 columns"),
        (["a", "g"], NotFoundError, "no column 'g' .* It has: a, b, c"),
        (["a", "b", "a"], StateError, "'a' comes twice"),
    ):
        with pytest.raises(error, match=said):
            track(spark, database_url, None, "t", *columns)
    with pytest.raises(NotFoundError, match=r"no table s\.u"):
        track(spark, database_url, None, "u", "a")
    with (tmp_path / "t.csv").open("a") as file:
        file.write("1,1,x,x,x,x\n")
    with pytest.raises(SourceError, match=r"s\.t: .* has 4 rows of it, and the state 3: .* --replace --track-key"):
        track(spark, database_url, None, "t", "b", "a")
    (tmp_path / "t.csv").rename(tmp_path / "u.csv")
    with pytest.raises(SourceError, match=r"no table s\.t in it"):
        track(spark, database_url, None, "t", "b", "a")
    monkeypatch.setenv("SUBSETD_DATABASE_URL", database_url)
    with connect(database_url, DRIVER_NAME) as bootstrap:
        take_bootstrap_lock(bootstrap)
        refused = CliRunner().invoke(app, ["keys", "drop", "s.t(f, a, b, c, d, e)"])
        assert "has another writer: subsetd bootstrap" in str(refused.exception)
        release_locks(bootstrap)
    dropped = CliRunner().invoke(app, ["keys", "drop", "s.t(f, a, b, c, d, e)"])
    assert "is not tracked since version 3" in dropped.stdout
    listed = CliRunner().invoke(app, ["keys", "list", "--tracked", "--format", "json"])
    assert json.loads(listed.stdout) == []
    assert CliRunner().invoke(app, ["keys", "drop", "s.t(a, b)"]).exit_code != 0
    states.execute(database_url, "insert into state_version (version, generation, kind) values (4, 1, 'batch')")
    with pytest.raises(StateError, match="changes were applied since"):
        track(spark, database_url, None, "t", "a", "b")


def test_keys_of_one_source_are_read_once_and_are_one_version(
    spark: SparkSession, followed_url: str, database_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Followed tuples that can be equal to theirs are read with them; another source's have a version of their own."""
    rng = random.Random(5)
    begun(spark, followed_url, database_url)
    (tmp_path / "t.csv").write_text("a,b\n1,x\n2,x\n,y\n")
    run_bootstrap(spark, Options(str(tmp_path), "files", database_url))
    run(followed_url, *changes(rng, 40))
    before = states.query(database_url, "select max(version) from state_version")[0][0]
    opened: list[list[str]] = []
    open_source = backfill_module.open_source

    def counting(options: Options) -> Any:
        opened.append(sorted(options.only_tables))
        return open_source(options)

    monkeypatch.setattr(backfill_module, "open_source", counting)
    keys = [
        ("s", "lines", ("part", "lot")),
        ("files", "t", ("a", "b")),
        ("s", "lines", ("kind",)),
        ("s", "lots", ("lot", "note")),
        ("s", "lines", ("lot", "kind", "part")),
        ("s", "lines", ("part", "lot")),
    ]
    done = list(backfill(lambda: spark, database_url, keys, None, Quiet()))
    assert [(one.key, one.version - before) for one in done] == [
        ("s.lines(part, lot)", 1),
        ("s.lots(lot, note)", 1),
        ("s.lines(lot, kind, part)", 1),
        ("files.t(a, b)", 2),
        ("s.lines.kind", 3),
    ]
    assert opened == [["s.lines", "s.lots"], []]
    counted = "select count(*), count(distinct ({0})) filter (where num_nulls({0}) = 0) from s.{1}"
    told = [(one.rows, one.tuples) for one in done]
    shown = [("part, lot", "lines"), ("lot, note", "lots"), ("lot, kind, part", "lines")]
    assert told[:3] == [states.query(followed_url, counted.format(*one))[0] for one in shown]
    assert told[3:] == [(3, 2), (0, 0)]
    run(followed_url, *changes(rng, 40))
    follow(database_url, followed_url, records=7)
    require_true(spark, followed_url, database_url)
    wrong = [("s", "lots", ("lot",)), ("s", "lots", ("colour",))]
    with pytest.raises(NotFoundError, match="no column 'colour'"):
        list(backfill(lambda: spark, database_url, wrong, None, Quiet()))
    tracked = states.query(database_url, "select column_name from tracked_key join attribute using (attribute_id)")
    assert ("lot",) not in tracked


def test_a_key_keeps_its_texts_beside_a_masked_column_and_none_with_it(
    spark: SparkSession, database_url: str, tmp_path: Path
) -> None:
    (tmp_path / "t.csv").write_text("a,b,c\n1,x,secret\n2,x,other\n2,y,other\n")
    run_bootstrap(spark, Options(str(tmp_path), "s", database_url, masks=(("s.t.c", "none"),)))
    for columns in (["a", "b"], ["c", "b"]):
        track(spark, database_url, None, "t", *columns)
    texts = (
        "select column_name, value from gen_rec join attribute on attribute_id = any (attribute_ids) "
        "where attribute.parts is not null order by 1, 2"
    )
    open_ = [("(a, b)", one) for one in ('["1","x"]', '["2","x"]', '["2","y"]')]
    assert states.query(database_url, texts) == [*open_, *[("(c, b)", "")] * 3]
    require_true(spark, str(tmp_path), database_url)


def test_a_masked_key_leaves_the_texts_of_an_open_one_that_has_its_values(
    spark: SparkSession, database_url: str, tmp_path: Path
) -> None:
    for table in ("customers", "orders"):
        (tmp_path / f"{table}.csv").write_text("email,region\na@x,north\nb@x,south\n")
    run_bootstrap(spark, Options(str(tmp_path), "s", database_url, masks=(("s.orders.email", "none"),)))
    for table in ("customers", "orders"):
        track(spark, database_url, None, table, "email", "region")
    texts = "select value from gen_rec join attribute on attribute_id = attribute_ids[1] where parts is not null"
    assert sorted(states.query(database_url, texts)) == [('["a@x","north"]',), ('["b@x","south"]',)]
    require_true(spark, str(tmp_path), database_url)
