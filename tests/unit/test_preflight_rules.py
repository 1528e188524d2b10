"""What preflight says of facts about a source, connectors, topics and a state: no finding without the way out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest

from service.usecases.preflight import check
from service.usecases.preflight_facts import (
    ConnectorFacts,
    Facts,
    Level,
    PublicationFacts,
    SlotFacts,
    StateFacts,
)
from tests.preflight import CONFIG, FOLLOWED, SOURCE, STATE, TABLE, TOPIC, connector, wrong

AVRO = {"value__converter": "io.confluent.connect.avro.AvroConverter"}


def test_nothing_is_said_against_what_is_well() -> None:
    facts = replace(connector(), feed="kafka:c", topics=[TOPIC])
    assert wrong(facts) == []
    assert {finding.level for finding in check(facts)} == {Level.OK}


@pytest.mark.parametrize(
    ("changed", "level", "way_out"),
    [
        ({"version": 120000}, "fail", "upgrade it to 13"),
        ({"is_standby": True}, "fail", "primary"),
        ({"wal_level": "replica"}, "fail", "ALTER SYSTEM SET wal_level = logical; then restart the server"),
        ({"may_replicate": False}, "fail", "ALTER ROLE app REPLICATION (on Amazon RDS: GRANT rds_replication TO app)"),
        ({"senders": (10, 10)}, "fail", "ALTER SYSTEM SET max_wal_senders = 15"),
        ({"slots_used": (4, 4)}, "fail", "ALTER SYSTEM SET max_replication_slots = 9"),
        ({"keeps_any_wal": True}, "warn", "ALTER SYSTEM SET max_slot_wal_keep_size"),
        ({"waits_for_any_reader": True}, "warn", "ALTER SYSTEM SET synchronous_standby_names"),
    ],
)
def test_settings_of_a_source(changed: Mapping[str, object], level: str, way_out: str) -> None:
    (finding,) = wrong(Facts(source=replace(SOURCE, **changed)))  # type: ignore[arg-type]
    assert (finding.level, way_out in finding.way_out) == (level, True)


@pytest.mark.parametrize(
    ("changed", "level", "way_out"),
    [
        ({"identity": "default"}, "warn", 'ALTER TABLE public."Items" REPLICA IDENTITY FULL'),
        ({"identity": "default", "has_key": False}, "fail", 'ALTER TABLE public."Items" REPLICA IDENTITY FULL'),
        ({"identity": "nothing"}, "fail", 'ALTER TABLE public."Items" REPLICA IDENTITY FULL'),
        ({"virtual": ("x",)}, "fail", 'ALTER TABLE public."Items" REPLICA IDENTITY DEFAULT'),
        (
            {"virtual": ("x",), "identity": "nothing"},
            "fail",
            'ALTER TABLE public."Items" REPLICA IDENTITY USING INDEX UNIQUE_INDEX',
        ),
        (
            {"identity": "nothing", "is_partitioned": True},
            "fail",
            'ALTER TABLE public."Items" REPLICA IDENTITY FULL, and so for each of its partitions, to which it does not '
            "pass on",
        ),
        ({"is_unlogged": True}, "fail", 'ALTER TABLE public."Items" SET LOGGED'),
        ({"hides_rows": True}, "fail", "ALTER ROLE app BYPASSRLS"),
        ({"may_read": False}, "fail", 'GRANT USAGE ON SCHEMA public TO app; GRANT SELECT ON public."Items" TO app'),
    ],
)
def test_tables_of_a_source(changed: Mapping[str, object], level: str, way_out: str) -> None:
    table = replace(TABLE, name="Items", **changed)  # type: ignore[arg-type]
    (finding,) = wrong(Facts(source=replace(SOURCE, tables=[table])))
    statement = finding.way_out.split(", if")[0].split(" (")[0]
    assert (finding.level, finding.about, statement) == (level, 'public."Items"', way_out)


def test_a_followed_table_is_held_against_what_the_state_knows_of_it() -> None:
    weak = replace(SOURCE, tables=[replace(TABLE, identity="default")])
    (lost,) = wrong(Facts(state=STATE, source=weak))
    assert "had replica identity full when it was read" in lost.found
    kept = replace(STATE, tables=[replace(FOLLOWED, row_images=True, identity="default")])
    assert wrong(Facts(state=kept, source=weak)) == []
    dropped = replace(SOURCE, tables=[replace(TABLE, identity="index", has_key=False)])
    (refused,) = wrong(Facts(state=kept, source=dropped))
    assert "updates and deletes cannot be applied" in refused.found
    (gone,) = wrong(Facts(state=STATE, source=replace(SOURCE, tables=[])))
    name = "shop.public.items"  # it was bootstrapped with --qualify
    assert gone.way_out == f"subsetd attribute drop {name} --force, or subsetd attribute rename {name} NEW"


@pytest.mark.parametrize(
    ("slot", "level", "words"),
    [
        (SlotFacts("s", "shop", True, "lost", None, 15), "fail", "pg_drop_replication_slot('s')"),
        (SlotFacts("s", "shop", True, "unreserved", 1, 15), "warn", "catch up"),
        (SlotFacts("s", "shop", False, "reserved", 7 << 20, 15), "warn", "start its reader"),
    ],
)
def test_slots_of_a_source(slot: SlotFacts, level: str, words: str) -> None:
    (finding,) = wrong(Facts(source=replace(SOURCE, slots=[slot])))
    assert (finding.level, words in finding.way_out) == (level, True)


def test_a_slot_that_is_younger_than_the_bootstrap_may_have_left_a_gap() -> None:
    slot = SlotFacts("s", "shop", True, "reserved", 0, 25)
    fresh = replace(STATE, positions={})
    (finding,) = wrong(Facts(state=fresh, source=replace(SOURCE, slots=[slot])))
    assert "made after the bootstrap" in finding.found
    assert wrong(Facts(state=fresh, source=replace(SOURCE, slots=[replace(slot, catalog_xmin=15)]))) == []


@pytest.mark.parametrize(
    ("changed", "level", "way_out"),
    [
        ({"skipped__operations": None}, "fail", "skipped.operations=none"),
        ({"provide__transaction__metadata": None}, "warn", "provide.transaction.metadata=true"),
        ({"snapshot__mode": "initial"}, "warn", "snapshot.mode=no_data"),
        ({"decimal__handling__mode": "double"}, "fail", "decimal.handling.mode=string"),
        ({"value__converter__schemas__enable": "false"}, "warn", "decimal.handling.mode=string"),
        ({"time__precision__mode": "connect"}, "fail", "time.precision.mode=adaptive"),
        ({"time__precision__mode": "nanoseconds"}, "fail", "time.precision.mode=adaptive"),
        ({"binary__handling__mode": "hex"}, "fail", "SUBSETD_BINARY_HANDLING=hex"),
        ({"value__converter": None}, "warn", "value.converter=org.apache.kafka.connect.json.JsonConverter"),
        ({**AVRO, "value__converter__ignore__default__for__nullables": "true"}, "fail", "SUBSETD_SCHEMA_REGISTRY"),
        ({"event__converting__failure__handling__mode": "skip"}, "warn", "failure.handling.mode=fail"),
        ({"value__converter__replace__null__with__default": None}, "fail", "replace.null.with.default=false"),
        ({"value__converter": "x.ProtobufConverter"}, "fail", "JsonConverter"),
        ({"unavailable__value__placeholder": "?"}, "fail", "remove unavailable.value.placeholder"),
        ({"field__name__adjustment__mode": "avro"}, "fail", "field.name.adjustment.mode=none"),
        ({"column__exclude__list": "public.items.secret"}, "fail", "remove column.exclude.list"),
        ({"column__mask__hash__v2__SHA-256__with__salt__x": "a"}, "fail", "remove column.mask.hash"),
        ({"message__key__columns": "a:b"}, "warn", "remove message.key.columns"),
        ({"plugin__name": "wal2json"}, "fail", "plugin.name=pgoutput"),
        ({"table__include__list": "public.orders,other.*"}, "fail", "add public.items to table.include.list"),
        ({"schema__include__list": "other"}, "fail", "add public.items"),
    ],
)
def test_settings_of_a_connector(changed: Mapping[str, str | None], level: str, way_out: str) -> None:
    (finding,) = wrong(connector(**changed))
    assert (finding.level, way_out in finding.way_out) == (level, True)


@pytest.mark.parametrize(
    ("connector_class", "told", "said"),
    [
        ("postgresql.PostgresConnector", "true", []),
        ("postgresql.PostgresConnector", "false", ["so that none is kept whole, and what it sends again"]),
        (
            "sqlserver.SqlServerConnector",
            "false",
            ["does not say how long columns are", "so that none is kept whole, and what it sends again"],
        ),
        ("mysql.MySqlConnector", "true", []),
        ("mysql.MySqlConnector", "false", ["so that none is kept whole"]),
        ("oracle.OracleConnector", "true", ["so what it sends again after a restart cannot be recognised"]),
    ],
)
def test_connectors_whose_repeats_cannot_be_recognised(connector_class: str, told: str, said: list[str]) -> None:
    changed = {"connector__class": f"io.debezium.connector.{connector_class}", "provide__transaction__metadata": told}
    facts = connector(plugin__name=None, **changed)
    found = wrong(facts)
    assert [words in one.found for words, one in zip(said, found, strict=True)] == [True] * len(said)
    images = replace(STATE, tables=[replace(FOLLOWED, row_images=True)])
    assert not [one for one in wrong(replace(facts, state=images)) if "recognised" in one.found]


@pytest.mark.parametrize("database", [None, "other"])
def test_a_connector_need_not_send_the_tables_of_another_database(database: str | None) -> None:
    assert wrong(connector(database__dbname=database, table__include__list="other.items")) == []


def test_a_connector_of_sql_server_has_to_say_how_long_columns_are() -> None:
    kind = {"connector__class": "io.debezium.connector.sqlserver.SqlServerConnector", "plugin__name": None}
    (finding,) = wrong(connector(**kind))
    assert finding.way_out.startswith("column.propagate.source.type=.*")
    assert wrong(connector(**kind, column__propagate__source__type=".*")) == []
    without = {"value__converter__schemas__enable": "false", "column__propagate__source__type": ".*"}
    assert finding in wrong(connector(**kind, **without))


def test_binaries_in_hexadecimal_are_well_where_the_setting_says_so() -> None:
    said = replace(connector(binary__handling__mode="hex"), binary_handling="hex")
    assert wrong(said) == []
    assert wrong(replace(connector(), binary_handling="hex")) == [], "with a schema they are bytes"
    (finding,) = wrong(replace(connector(binary__handling__mode="base64"), binary_handling="hex"))
    assert finding.way_out == "SUBSETD_BINARY_HANDLING=base64"


def test_a_connector_that_flattens_has_to_say_what_its_events_are() -> None:
    kind = {"transforms": "flat", "transforms__flat__type": "io.debezium.transforms.ExtractNewRecordState"}
    found = {finding.way_out for finding in wrong(connector(**kind))}
    assert "transforms.flat.add.fields=op,source.ts_ms,table" in found
    assert any(one.startswith("transforms.flat.delete.tombstone.handling.mode=rewrite, or before") for one in found)
    kind["transforms__flat__type"] = "io.debezium.transforms.Filter"
    (finding,) = wrong(connector(**kind))
    assert finding.level == "fail"


@pytest.mark.parametrize(
    ("told", "level"),
    [
        ({"delete__tombstone": "rewrite"}, None),
        ({"delete__tombstone": "drop", "delete": "rewrite"}, "fail"),
        ({"delete": "rewrite"}, "warn"),
        ({"delete": "drop"}, "fail"),
        ({}, "fail"),
    ],
)
def test_the_older_setting_of_deletes_counts_where_the_newer_one_is_not_set(
    told: Mapping[str, str], level: str | None
) -> None:
    kind = {"transforms": "flat", "transforms__flat__type": "io.debezium.transforms.ExtractNewRecordState"}
    kind |= {f"transforms__flat__{name}__handling__mode": mode for name, mode in told.items()}
    found = [one.level for one in wrong(connector(**kind)) if "flattens deletes" in one.found]
    assert found == ([] if level is None else [level])


def test_nulls_are_not_to_be_sent_as_defaults() -> None:
    """Avro and the transform have settings of their own for it."""
    (avro,) = wrong(replace(connector(**AVRO), has_registry=True))
    flat = {"transforms": "flat", "transforms__flat__type": "io.debezium.transforms.ExtractNewRecordState"}
    (flattened,) = (one for one in wrong(connector(**flat)) if "in place of NULL" in one.found)
    assert (avro.level, flattened.level) == ("fail", "fail")
    assert avro.way_out.startswith("value.converter.ignore.default.for.nullables=true ")
    assert flattened.way_out.startswith("transforms.flat.replace.null.with.default=false ")
    flat["transforms__flat__replace__null__with__default"] = "false"
    assert not [one for one in wrong(connector(**flat)) if "in place of NULL" in one.found]


def test_intervals_of_a_source_need_their_own_setting() -> None:
    facts = connector()
    with_interval = replace(SOURCE, tables=[replace(TABLE, types=frozenset({"interval"}))])
    (finding,) = wrong(replace(facts, source=with_interval))
    assert finding.way_out == "interval.handling.mode=string"


def test_a_connector_that_does_not_run_is_told_with_the_way_to_start_it() -> None:
    (finding,) = wrong(Facts(connectors=[ConnectorFacts("c", CONFIG, ["RUNNING", "FAILED"])]))
    assert "is FAILED" in finding.found
    assert "restart?includeTasks=true" in finding.way_out
    (none,) = wrong(Facts(connectors=[]))
    assert none.level == "fail"


def test_a_publication_is_held_against_the_tables() -> None:
    cut = PublicationFacts(
        "dbz_publication", frozenset({"insert"}), frozenset({("public", "items")}), frozenset({("public", "items")})
    )
    facts = replace(connector(), source=replace(SOURCE, publications=[cut]))
    assert [finding.way_out for finding in wrong(facts)] == [
        "ALTER PUBLICATION dbz_publication SET (publish = 'insert, update, delete, truncate')",
        "ALTER PUBLICATION dbz_publication DROP TABLE public.items; "
        "ALTER PUBLICATION dbz_publication ADD TABLE public.items",
    ]


@pytest.mark.parametrize(
    ("changed", "level", "words"),
    [
        ({"partitions": 0}, "fail", "create it"),
        ({"cleanup": "compact"}, "fail", "cleanup.policy=delete"),
        ({"retention_ms": 3_600_000}, "warn", "retention.ms=604800000"),
        ({"begins": {0: 9}}, "fail", "--replace"),
        ({"partitions": 3}, "warn", "one partition"),
    ],
)
def test_topics(changed: Mapping[str, object], level: str, words: str) -> None:
    (finding,) = wrong(Facts(state=STATE, feed="kafka:c", topics=[replace(TOPIC, **changed)]))  # type: ignore[arg-type]
    assert (finding.level, words in finding.way_out) == (level, True)


def test_what_a_state_needs_of_a_person() -> None:
    none_yet = StateFacts(0, [], [], {})
    (empty,) = wrong(Facts(state=none_yet))
    assert (empty.level, "subsetd bootstrap" in empty.way_out) == ("fail", True)
    (begins,) = wrong(Facts(state=none_yet, source=SOURCE))
    assert (begins.level, "subsetd follow" in begins.way_out) == ("warn", True)
    assert wrong(Facts(state=none_yet, source=SOURCE, feed="kafka:c", topics=[TOPIC]))[0] == empty
    letters, stale = wrong(Facts(state=replace(STATE, dead_letters=2, stale=["s.t.c"])))
    assert "subsetd dead-letters" in letters.way_out
    assert "subsetd attribute drop s.t.c" in stale.way_out


def test_a_compacted_topic_is_to_be_read_before_it_is_compacted() -> None:
    """With row images the rest of a row's changes makes it right, but for deletes and cells that were not sent."""
    state = replace(STATE, tables=[replace(FOLLOWED, row_images=True)])
    compacted = replace(TOPIC, cleanup="compact", retention_ms=-1)
    for lag, words in ((0, "at once"), (3_600_000, "after 60 minutes")):
        (finding,) = wrong(Facts(state=state, feed="kafka:c", topics=[replace(compacted, compaction_lag_ms=lag)]))
        assert (finding.level, words in finding.found) == ("warn", True)
        assert finding.way_out.endswith("min.compaction.lag.ms=604800000")
    kept = replace(compacted, compaction_lag_ms=2 * 86_400_000)
    elsewhere = replace(compacted, name="t.public.others")
    both = replace(kept, cleanup="compact,delete", retention_ms=3_600_000)
    (finding,) = wrong(Facts(state=state, feed="kafka:c", topics=[kept, elsewhere, both]))
    assert (finding.level, finding.way_out.endswith("retention.ms=604800000")) == ("warn", True)
