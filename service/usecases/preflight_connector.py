"""Own what a Debezium connector leaves out of its events, or changes in them, by its configuration."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

from service.core.sql_names import sql_name
from service.usecases.preflight_facts import (
    ConnectorFacts,
    Facts,
    Finding,
    Level,
    PublicationFacts,
    SourceFacts,
    StateFacts,
)
from service.usecases.preflight_source import check_publication, followed_of

_Get = Callable[..., str]
"""Read a setting of a connector: its name, and what Debezium takes where it is not set."""


def check_connector(connector: ConnectorFacts, facts: Facts) -> Iterator[Finding]:
    """Find what a connector's configuration leaves out of its events, or changes in them."""
    about, config = f"connector {connector.name}", connector.config

    def get(name: str, default: str = "") -> str:
        return config.get(name, default).strip()

    bad = [one for one in connector.states if one != "RUNNING"]
    if bad or not connector.states:
        yield Finding(
            Level.FAIL,
            about,
            f"is {bad[0] if bad else 'without a task'}",
            f"POST /connectors/{connector.name}/restart?includeTasks=true&onlyFailed=true",
        )
    skipped = get("skipped.operations", "t")
    if skipped != "none":
        yield Finding(Level.FAIL, about, f"leaves out operations ({skipped})", "skipped.operations=none")
    yield from _encodings(about, get, facts)
    yield from _transactions(about, get, facts)
    yield from _transforms(about, get)
    mode = get("snapshot.mode", "initial")
    if mode not in ("no_data", "never", "schema_only"):
        yield Finding(
            Level.WARN,
            about,
            f"begins with a snapshot (snapshot.mode={mode}) of rows that the bootstrap has read as well",
            "snapshot.mode=no_data, with the slot made before the bootstrap; or keep row images",
        )
    for name in config:
        if re.fullmatch(r"column\.(include|exclude)\.list", name):
            yield Finding(Level.FAIL, about, f"leaves out columns ({name})", f"remove {name}")
        elif re.match(r"column\.(mask|truncate)\.", name):
            yield Finding(Level.FAIL, about, f"changes values ({name})", f"remove {name}")
    if get("message.key.columns"):
        yield Finding(
            Level.WARN, about, "gives records other keys than the primary key's", "remove message.key.columns"
        )
    if get("plugin.name", "decoderbufs") not in ("pgoutput", "decoderbufs") and "postgres" in get("connector.class"):
        yield Finding(
            Level.FAIL, about, f"plugin.name={get('plugin.name')} is no plugin of Debezium's", "plugin.name=pgoutput"
        )
    yield from _chosen_tables(about, get, facts)
    yield from _publication(about, get, facts.source, facts.state)


def _transactions(about: str, get: _Get, facts: Facts) -> Iterator[Finding]:
    """Find where transactions are not kept whole, and where events that are sent again look like new ones."""
    kind = get("connector.class").lower()
    needs_metadata = any(one in kind for one in ("postgres", "sqlserver"))
    repeats = "what it sends again after a restart cannot be recognised"
    has_kept_rows = facts.state is not None and all(table.row_images for table in facts.state.tables)
    if get("provide.transaction.metadata", "false") != "true":
        yield Finding(
            Level.WARN,
            about,
            "tells no transactions, so that none is kept whole"
            + (f", and {repeats}" if needs_metadata and not has_kept_rows else ""),
            "provide.transaction.metadata=true, with the transaction topic in the feed",
        )
    if not (needs_metadata or has_kept_rows or any(one in kind for one in ("mysql", "mariadb"))):
        yield Finding(
            Level.WARN,
            about,
            f"does not number its events in the order in which it sends them, so {repeats}",
            "keep row images: bootstrap from its topics, or with --row-images always",
        )


def _encodings(about: str, get: _Get, facts: Facts) -> Iterator[Finding]:
    types = {kind for table in (facts.source.tables if facts.source else ()) for kind in table.types}
    has_schema = get("value.converter.schemas.enable", "true") == "true"
    converter = get("value.converter")
    if not converter:
        yield Finding(
            Level.WARN,
            about,
            "has the worker's converters, which cannot be seen here",
            "value.converter=org.apache.kafka.connect.json.JsonConverter, and key.converter likewise",
        )
    elif "Avro" in converter:
        if not facts.has_registry:
            yield Finding(
                Level.FAIL,
                about,
                "sends Avro, and no schema registry is known here",
                "SUBSETD_SCHEMA_REGISTRY=http://...",
            )
        has_schema = True
        yield from _nulls(about, get, "value.converter.ignore.default.for.nullables=true", "Confluent's converter")
    elif not converter.endswith("JsonConverter"):
        yield Finding(
            Level.FAIL,
            about,
            f"sends records that are not read ({converter})",
            "value.converter=org.apache.kafka.connect.json.JsonConverter",
        )
    else:
        known_to = "Kafka Connect 3.5 and later"
        yield from _nulls(about, get, "value.converter.replace.null.with.default=false", known_to)
    decimals = get("decimal.handling.mode", "precise")
    if decimals == "double":
        yield Finding(
            Level.FAIL, about, "rounds decimals (decimal.handling.mode=double)", "decimal.handling.mode=string"
        )
    elif decimals == "precise" and not has_schema:
        yield Finding(
            Level.WARN,
            about,
            "sends decimals whose scale is in no schema; it is taken from the column's type where that says it",
            "decimal.handling.mode=string",
        )
    binaries = get("binary.handling.mode", "bytes")
    handling = "hex" if binaries == "hex" else "base64"
    if handling != facts.binary_handling and not (has_schema and binaries == "bytes"):
        yield Finding(
            Level.FAIL,
            about,
            f"sends binaries in {handling}, which are read as {facts.binary_handling}",
            f"SUBSETD_BINARY_HANDLING={handling}",
        )
    if "sqlserver" in get("connector.class").lower() and not (
        has_schema and (get("column.propagate.source.type") or get("datatype.propagate.source.type"))
    ):
        yield Finding(
            Level.WARN,
            about,
            "does not say how long columns are, so changes are refused in which a NULL may be a large value that SQL "
            "Server left out",
            "column.propagate.source.type=.*, with schemas in the records",
        )
    times = get("time.precision.mode", "adaptive")
    if times == "connect":
        yield Finding(
            Level.FAIL,
            about,
            "cuts times to milliseconds (time.precision.mode=connect)",
            "time.precision.mode=adaptive",
        )
    elif times == "nanoseconds":
        yield Finding(
            Level.FAIL,
            about,
            "has no room for times before 1678 and after 2261 (time.precision.mode=nanoseconds)",
            "time.precision.mode=adaptive",
        )
    if "interval" in types and get("interval.handling.mode", "numeric") == "numeric":
        yield Finding(
            Level.FAIL,
            about,
            "sends intervals in microseconds, in which a month is no month",
            "interval.handling.mode=string",
        )
    placeholder = get("unavailable.value.placeholder", "__debezium_unavailable_value")
    if placeholder != "__debezium_unavailable_value":
        yield Finding(
            Level.FAIL, about, "marks values that were not sent in its own way", "remove unavailable.value.placeholder"
        )
    if "postgres" in get("connector.class") and get("event.converting.failure.handling.mode", "warn") != "fail":
        yield Finding(
            Level.WARN,
            about,
            "sends NULL where it has nothing to send: for NaN in a decimal, and for a large value that did not change "
            "in most arrays, in vectors and geometries",
            "event.converting.failure.handling.mode=fail (Debezium 2.5 and later), with which it stops there",
        )
    if get("field.name.adjustment.mode", "none") != "none":
        yield Finding(Level.FAIL, about, "changes the names of columns", "field.name.adjustment.mode=none")


def _nulls(about: str, get: _Get, setting: str, known_to: str) -> Iterator[Finding]:
    """Find a converter or a transform that puts a column's default in the place of NULL, as it does unless told."""
    name, value = setting.split("=")
    if get(name) != value:
        yield Finding(Level.FAIL, about, "sends a column's default in place of NULL", f"{setting} ({known_to})")


def _transforms(about: str, get: _Get) -> Iterator[Finding]:
    for name in filter(None, (part.strip() for part in get("transforms").split(","))):
        kind = get(f"transforms.{name}.type").rsplit(".", 1)[-1]
        prefix = f"transforms.{name}."
        if kind == "ExtractNewRecordState":
            wanted = {"op", "table", "source.ts_ms"}
            given = {part.strip() for part in get(prefix + "add.fields").split(",")}
            if not given >= {"op", "table"}:
                yield Finding(
                    Level.FAIL,
                    about,
                    "flattens events without saying what they are",
                    f"{prefix}add.fields={','.join(sorted(wanted | given - {''}))}",
                )
            yield from _flattened_deletes(about, get, prefix)
            yield from _nulls(about, get, f"{prefix}replace.null.with.default=false", "Debezium 3.0.5 and later")
            yield Finding(
                Level.WARN,
                about,
                "flattens events: rows before are not sent, so the state has to keep rows",
                f"remove the transform {name}, or bootstrap with --row-images always",
            )
        elif kind in ("Filter", "DropHeaders", "ReplaceField", "ReplaceField$Value", "MaskField", "MaskField$Value"):
            yield Finding(
                Level.FAIL if kind != "DropHeaders" else Level.WARN,
                about,
                f"its transform {name} ({kind}) takes something out of events",
                f"remove {name} from transforms",
            )


def _flattened_deletes(about: str, get: _Get, prefix: str) -> Iterator[Finding]:
    deletes, rewriting = get(prefix + "delete.tombstone.handling.mode"), "delete.tombstone.handling.mode=rewrite"
    if not deletes and get(prefix + "delete.handling.mode") == "rewrite":
        yield Finding(
            Level.WARN,
            about,
            "flattens deletes by delete.handling.mode, which Debezium no longer has from 3.2 on",
            f"{prefix}{rewriting}, which it has from 2.5 on",
        )
    elif deletes not in ("rewrite", "rewrite-with-tombstone"):
        yield Finding(
            Level.FAIL,
            about,
            "flattens deletes to nothing",
            f"{prefix}{rewriting}, or before Debezium 2.5 {prefix}delete.handling.mode=rewrite",
        )


def _chosen_tables(about: str, get: _Get, facts: Facts) -> Iterator[Finding]:
    """Hold the connector's lists of tables against those that are followed."""
    if facts.state is None:
        return
    included, excluded = get("table.include.list"), get("table.exclude.list")
    schemas, database = get("schema.include.list"), get("database.dbname")
    for table in facts.state.tables:
        if not database or table.database != database:  # another connector may send it
            continue
        name = f"{table.schema}.{table.name}"
        if (
            (included and not _listed(included, name))
            or (excluded and _listed(excluded, name))
            or (schemas and not _listed(schemas, table.schema))
        ):
            yield Finding(
                Level.FAIL, about, f"leaves out {name}, which is followed", f"add {name} to table.include.list"
            )


def _listed(patterns: str, name: str) -> bool:
    """Tell whether one of Debezium's expressions (anchored, letters of any case) fits a name."""
    return any(re.fullmatch(one.strip(), name, re.IGNORECASE) for one in patterns.split(","))


def _publication(about: str, get: _Get, source: SourceFacts | None, state: StateFacts | None) -> Iterator[Finding]:
    """Hold a connector's publication against the source's tables."""
    if source is None or "postgres" not in get("connector.class") or get("plugin.name") != "pgoutput":
        return
    name = get("publication.name", "dbz_publication")
    publication = next((one for one in source.publications if one.name == name), None)
    yield from _generated_columns(about, name, publication, source, state)
    yield from _partitions(about, get, name, publication, source)
    if publication is None:
        if get("publication.autocreate.mode", "all_tables") == "disabled":
            yield Finding(
                Level.FAIL,
                about,
                f"there is no publication {name}",
                f"CREATE PUBLICATION {sql_name(name)} FOR ALL TABLES",
            )
        return
    yield from check_publication(publication, source)


def _partitions(
    about: str, get: _Get, name: str, publication: PublicationFacts | None, source: SourceFacts
) -> Iterator[Finding]:
    """Find partitioned tables whose changes have the names of their partitions: a bootstrap knows the root's alone."""
    by_property = get("publish.via.partition.root", "false") == "true"
    if by_property if publication is None else publication.via_root:
        return
    alter = f"ALTER PUBLICATION {sql_name(name)} SET (publish_via_partition_root = true)"
    steps = [] if publication is None else [alter]
    steps += [] if by_property else ["publish.via.partition.root=true"]
    for table in source.tables:
        if table.is_partitioned:
            yield Finding(
                Level.FAIL,
                about,
                f"tells changes of {table} by the names of its partitions, which are not followed",
                ", and ".join(steps),
            )


def _generated_columns(
    about: str, name: str, publication: PublicationFacts | None, source: SourceFacts, state: StateFacts | None
) -> Iterator[Finding]:
    """Find columns that a bootstrap reads and no change tells: they become stale with the first one."""
    followed = followed_of(source, state)
    for table in source.tables:
        stored = () if publication is not None and publication.tells_stored else table.stored
        untold = (*stored, *table.virtual)
        if untold:
            known = followed.get((table.schema, table.name))
            named = f"{table.schema}.{table.name}" if known is None else known.known_as
            drop = "; ".join(f"subsetd attribute drop --force {named}.{one}" for one in untold)
            may_tell = source.version >= 180000 and not table.virtual
            yield Finding(
                Level.WARN,
                about,
                f"does not tell the generated columns of {table}: {', '.join(untold)}",
                f"ALTER PUBLICATION {sql_name(name)} SET (publish_generated_columns = stored)"
                if may_tell
                else f"after the bootstrap: {drop}",
            )
