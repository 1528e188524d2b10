"""Own facts in tests of a source, a connector and a topic that are well."""

from __future__ import annotations

from service.usecases.preflight import check
from service.usecases.preflight_facts import (
    ConnectorFacts,
    Facts,
    Finding,
    FollowedTable,
    Level,
    SourceFacts,
    StateFacts,
    TableFacts,
    TopicFacts,
)

TABLE = TableFacts("public", "items", "app", "full", True)
SOURCE = SourceFacts(
    "database 'shop' at db:5432", "postgresql://app@db/shop", "app", 170000, False, "logical", True, (0, 10), (0, 10),
    False, [TABLE],
)  # fmt: skip
FOLLOWED = FollowedTable("shop", "shop", "public", "items", False, "full", "shop.public.items")
STATE = StateFacts(
    3, [("shop", "postgresql://app@db/shop", "10:20:")], [FOLLOWED], {("kafka:c", "t.public.items", 0): 5}
)
CONFIG = {
    "connector.class": "io.debezium.connector.postgresql.PostgresConnector",
    "plugin.name": "pgoutput",
    "database.dbname": "shop",
    "skipped.operations": "none",
    "event.converting.failure.handling.mode": "fail",
    "provide.transaction.metadata": "true",
    "snapshot.mode": "no_data",
    "value.converter": "org.apache.kafka.connect.json.JsonConverter",
    "value.converter.replace.null.with.default": "false",
}
TOPIC = TopicFacts("t.public.items", 1, "delete", 7 * 86_400_000, {0: 0}, True)


def wrong(facts: Facts) -> list[Finding]:
    return [finding for finding in check(facts) if finding.level is not Level.OK]


def connector(**changed: str | None) -> Facts:
    config = {**CONFIG, **{name.replace("__", "."): value for name, value in changed.items()}}
    return Facts(
        state=STATE,
        source=SOURCE,
        connectors=[ConnectorFacts("c", {k: v for k, v in config.items() if v is not None}, ["RUNNING", "RUNNING"])],
    )
