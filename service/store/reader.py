"""Own the reading side of the state: the SQL behind `StateReader`, one transaction for one answer."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from sqlalchemy import Connection, Engine, Row, text
from sqlalchemy.exc import ProgrammingError

from service.core.errors import StateError
from service.core.foreign_keys.sides import Side
from service.core.histogram_changes import Histograms, Switched
from service.core.memberships import Memberships
from service.core.model import AttributeName, TransitionKind
from service.core.quantile_grids import GridHistogram, KeyHistogram
from service.core.records import UInt64s
from service.core.sketches.column import ColumnSketch
from service.store import candidates, contracts, uploaded_sketches
from service.store.audits import read_audits
from service.store.bootstrap_runs import read_runs
from service.store.coefficient_samples import read_spans as read_coefficient_spans
from service.store.coefficient_samples import read_tag as read_coefficient_tag
from service.store.database import LostConnectionError, place
from service.store.declared_references import read_references
from service.store.foreign_keys import read_declared_keys, read_memberships, read_spreads, read_statistics
from service.store.histograms import read_histograms, read_kept_statistics, read_value_changes
from service.store.keys import read_keys, read_known_tuples, read_repeated
from service.store.locks import FINDING_NAME
from service.store.missing_values import read_missing
from service.store.reader_sql import (
    ACTIVITY,
    ATTRIBUTES,
    COUNTS,
    DEAD_LETTERS,
    FEEDS,
    GOES_ON,
    HEAD,
    IND_PAIRS,
    OVERLAP,
    OVERLAPS,
    POSITIONS,
    SOURCES,
    TRANSITIONS,
    UINDS,
    UPKEEP,
    conditions_of,
    conditions_of_pair,
    name_in,
)
from service.store.shard_reading import Elsewhere, gathered, lock_records
from service.store.sketch_reading import read_upkeep_tag, stream_hashes, stream_sketches
from service.usecases.activity import Activity, Minute
from service.usecases.answers import (
    AttributeFilter,
    AttributeInfo,
    AttributeRef,
    ClusterInfo,
    DeadLetterInfo,
    FeedInfo,
    Key,
    MissingValue,
    PositionInfo,
    SourceInfo,
    StateCounts,
    StateHead,
    TransitionFilter,
    TransitionInfo,
    UindInfo,
    UploadedSketch,
    VersionPoint,
)
from service.usecases.audits import Audit
from service.usecases.bootstrap_runs import BootstrapRun
from service.usecases.coefficient_history import CoefficientSpan
from service.usecases.foreign_key_decisions import Contract, ContractEvent, ContractState, Decision
from service.usecases.foreign_key_ports import DeclaredKey, KeptStatistics, ValueStatistics, WantedGrid
from service.usecases.kept_candidates import Candidate, CandidateFilter, Refresh
from service.usecases.key_values import DeclaredForeignKey, KeyFilter, KeyInfo, RepeatedValue, TupleInfo

Found = Row[*tuple[Any, ...]]

ACTIVITY_VERSIONS = 20_000
"""Versions that are looked at for what was done lately: those of half an hour, unless more than ten come a second."""

RECORD_LIMIT = 4096
"""Characters of a dead letter's record (and message) that a list shows; a record may hold a cell of 10 MB."""


class PostgresStateReader:
    """Answer from Postgres; every snapshot is one REPEATABLE READ, READ ONLY transaction."""

    def __init__(self, engine: Engine) -> None:
        """Read through this engine; give it a statement timeout, which bounds every query."""
        self._place = place(engine.url)
        self._engine = engine.execution_options(isolation_level="REPEATABLE READ", postgresql_readonly=True)

    @contextmanager
    def snapshot(self, *, with_values: bool = False) -> Iterator[PostgresSnapshot]:
        """Open a snapshot of the newest version, `with_values` when generator records will be read.

        A pooled connection that a restart of the server cut is replaced once. Raises `StateError`.
        """
        try:
            connection, elsewhere, head = self._begin(with_values)
        except LostConnectionError:
            connection, elsewhere, head = self._begin(with_values)
        with connection, elsewhere:
            yield PostgresSnapshot(connection, head, elsewhere)

    def _begin(self, with_values: bool) -> tuple[Connection, Elsewhere, StateHead]:
        with self._saying_what_is_wrong():
            connection = self._engine.connect()
            elsewhere = Elsewhere()
            try:
                if with_values:
                    elsewhere = lock_records(connection)
                row = connection.execute(text(HEAD)).one_or_none()
            except BaseException:
                elsewhere.close()
                connection.close()
                raise
        if row is None:
            return connection, elsewhere, StateHead(0, 0, 0, None, None, None, None)
        return connection, elsewhere, StateHead(**row._mapping)

    @contextmanager
    def _saying_what_is_wrong(self) -> Iterator[None]:
        try:
            yield
        except ProgrammingError as error:
            if getattr(error.orig, "pgcode", None) != "42P01":
                raise
            raise no_state(self._place) from error


class PostgresSnapshot:
    """Read one version; see `StateSnapshot` for what each method gives."""

    def __init__(self, connection: Connection, head: StateHead, elsewhere: Elsewhere | None = None) -> None:
        self._connection = connection
        self._elsewhere = elsewhere or Elsewhere()
        self._memberships: Memberships | None = None
        self.head = head

    def sources(self) -> list[SourceInfo]:
        """List the sources by name."""
        return [SourceInfo(**row._mapping) for row in self._rows(SOURCES)]

    def positions(self) -> list[PositionInfo]:
        """List the feeds' positions by feed, topic, partition."""
        return [PositionInfo(**row._mapping) for row in self._rows(POSITIONS)]

    def feeds(self) -> list[FeedInfo]:
        """List the feeds by name, and how they are now, whatever the version."""
        return [FeedInfo(**row._mapping) for row in self._rows(FEEDS)]

    def counts(self) -> StateCounts:
        """Count what the state holds."""
        return StateCounts(**self._rows(COUNTS)[0]._mapping)

    def goes_on(self, since: int) -> bool:
        """Tell whether all versions after one are batches."""
        return bool(self._rows(f"select {GOES_ON.format(since=':since')} as goes_on", since=since)[0].goes_on)

    def version_point(self, version: int) -> VersionPoint:
        """Give the time of a version."""
        rows = self._rows("select committed_at from state_version where version = :version", version=version)
        return VersionPoint(version, rows[0].committed_at if rows else None)

    def attributes(self, chosen: AttributeFilter, after: Key | None, limit: int) -> list[AttributeInfo]:
        """List attributes by (schema, table, ordinal, attribute_id)."""
        where, values = conditions_of("a", chosen)
        if after is not None:
            where.append(
                '(a.schema_name collate "C", a.table_name collate "C", a.ordinal, a.attribute_id)'
                " > (:after_schema, :after_table, :after_ordinal, :after_id)"
            )
            values |= dict(zip(("after_schema", "after_table", "after_ordinal", "after_id"), after, strict=True))
        return [_attribute(row) for row in self._rows(ATTRIBUTES, where, limit=limit, **values)]

    def attributes_named(self, full_name: str) -> list[AttributeInfo]:
        """Find the attributes whose `schema.table.column` is exactly this text."""
        where = [f"{name_in('a')} = :full_name"]
        return [_attribute(row) for row in self._rows(ATTRIBUTES, where, full_name=full_name, limit=10)]

    def attribute(self, attribute_id: int) -> AttributeInfo | None:
        """Find an attribute by its id."""
        found = self.attributes(AttributeFilter(attribute_id=attribute_id), None, 1)
        return found[0] if found else None

    def references(self, attribute_ids: Iterable[int]) -> dict[int, AttributeRef]:
        """Give the names of these attributes, by id."""
        rows = self._rows(
            "select attribute_id, schema_name, table_name, column_name from attribute where attribute_id = any(:ids)",
            ids=sorted(attribute_ids),
        )
        return {row[0]: AttributeRef(row[0], AttributeName(row[1], row[2], row[3])) for row in rows}

    def clusters(self, attribute_id: int | None, after: Key | None, limit: int) -> list[ClusterInfo]:
        """List clusters, those with one attribute or all, by (cluster_id)."""
        where = ["cluster_id > :after"]
        if attribute_id is not None:
            where.append("attribute_ids @> :one")
        else:  # no cluster is of columns and of tuples
            where.append("attribute_ids[1] <> all (array(select attribute_id from attribute where parts is not null))")
        rows = self._rows(
            "select cluster_id, attribute_ids, value_count from cluster where {where} order by cluster_id limit :limit",
            where,
            after=after[0] if after else -1,
            one=[attribute_id],
            limit=limit,
        )
        return [ClusterInfo(**row._mapping) for row in rows]

    def uinds(
        self,
        dependent: AttributeFilter,
        referenced: AttributeFilter,
        as_of: int | None,
        *,
        after: Key | None,
        limit: int,
    ) -> list[UindInfo]:
        """List the INDs that held at version `as_of` (None: now) by (dependent_id, referenced_id)."""
        where, values = conditions_of_pair(dependent, referenced)
        if as_of is None:
            where.append("u.until_version is null")
        else:
            where.append("u.since_version <= :as_of and (u.until_version is null or u.until_version > :as_of)")
            values["as_of"] = as_of
        if after is not None:
            where.append("(u.dependent_id, u.referenced_id) > (:after_dependent, :after_referenced)")
            values |= dict(zip(("after_dependent", "after_referenced"), after, strict=True))
        return [
            UindInfo(*_pair(row), VersionPoint(row.since_version, row.since_at), row.until_version)
            for row in self._rows(UINDS, where, limit=limit, **values)
        ]

    def ind_pairs(self) -> list[tuple[int, int]]:
        """Give (dependent_id, referenced_id) of all INDs that hold now, in this order."""
        return [(row[0], row[1]) for row in self._rows(IND_PAIRS)]

    def overlap(self, first_id: int, second_id: int) -> int:
        """Count the values that two attributes share."""
        return int(self._rows(OVERLAP, both=[first_id, second_id])[0][0])

    def overlaps(self, attribute_id: int) -> list[tuple[int, int, int]]:
        """Give (other attribute's id, number of shared values, of shared clusters) for all that share one."""
        if self._memberships is not None:
            return self._memberships.overlaps(attribute_id)
        rows = self._rows(OVERLAPS, one=[attribute_id], attribute_id=attribute_id)
        return [(row[0], row[1], row[2]) for row in rows]

    def sketches(self, attribute_ids: Sequence[int]) -> Iterator[tuple[int, ColumnSketch | str]]:
        """Give the sketches of these attributes, or why one is not to be had, by (attribute_id)."""
        return stream_sketches(self._connection, attribute_ids)

    def sketches_tag(self) -> str:
        """Name what a compactor has changed in sketches beside versions; an empty text when nothing is left to it."""
        return read_upkeep_tag(self._connection)

    def hashes(self, attribute_id: int, count: int) -> Iterator[UInt64s]:
        """Give the hashes of an attribute's `count` values, in portions and no order."""
        for connection in self._everywhere:
            yield from stream_hashes(connection, attribute_id, count)

    def value_statistics(self, attribute_ids: Sequence[int]) -> Iterator[tuple[int, ValueStatistics]]:
        """Tell how the values of attributes look, by (attribute_id)."""
        with gathered(self._connection, self._elsewhere, attribute_ids) as connection:
            yield from read_statistics(connection, attribute_ids)

    def kept_statistics(self) -> dict[int, KeptStatistics]:
        """Give what is kept of attributes beside their histograms, by id."""
        return read_kept_statistics(self._connection)

    def spreads(
        self, wanted: WantedGrid, attribute_ids: Sequence[int]
    ) -> tuple[KeyHistogram, dict[int, GridHistogram]]:
        """Give a key's exact histogram, and those of attributes over its grid, of all values that are stored."""
        ids = [wanted.key_id, *wanted.columns, *attribute_ids]
        with gathered(self._connection, self._elsewhere, ids) as connection:
            return read_spreads(connection, self.memberships(), wanted, attribute_ids)

    def memberships(self) -> Memberships:
        """Give which attributes are in which clusters; they are read once, and overlaps answered from them then."""
        if self._memberships is None:
            with gathered(self._connection, self._elsewhere, ()) as connection:
                self._memberships = read_memberships(connection)
        return self._memberships

    def histograms(self, key_id: int) -> tuple[int, Histograms] | None:
        """Give the histograms of a key that are kept, and as of which version; None where there are none."""
        return read_histograms(self._connection, key_id)

    def value_changes(self) -> list[tuple[int, dict[int, Switched]]]:
        """Give what is logged of the values of followed attributes, by version."""
        return read_value_changes(self._connection)

    def declared_keys(self) -> list[DeclaredKey]:
        """List the keys that sources declare."""
        return read_declared_keys(self._connection)

    def uploaded(self) -> list[UploadedSketch]:
        """List what is uploaded by (name)."""
        return uploaded_sketches.read_names(self._connection)

    def uploads(self, names: Sequence[str]) -> Iterator[tuple[str, bytes]]:
        """Give the bytes of the uploaded sketches of these names, by (name)."""
        return uploaded_sketches.read_uploads(self._connection, names)

    def uploads_tag(self) -> str:
        """Name what is uploaded, all of it; an empty text when nothing is."""
        return uploaded_sketches.read_tag(self._connection)

    def upkeep_tag(self) -> str:
        """Name what commands have changed beside versions; an empty text when nothing is."""
        return str(self._connection.execute(text(UPKEEP)).scalar_one())

    def missing_values(
        self, dependent_id: int, referenced_id: int, after: Key | None, limit: int
    ) -> list[MissingValue]:
        """List values of one attribute that another lacks by (cluster_id, value_key)."""
        return read_missing(self._everywhere, dependent_id, referenced_id, after, limit)

    def transitions(self, chosen: TransitionFilter, after: Key | None, limit: int) -> list[TransitionInfo]:
        """List transitions by (version, dependent_id, referenced_id), or the reverse of it."""
        where, values = conditions_of_pair(chosen.dependent, chosen.referenced)
        where.append("t.version > :since")
        values["since"] = chosen.since
        if chosen.kind is not None:
            where.append("t.kind = :kind")
            values["kind"] = chosen.kind.value
        if after is not None:
            sign = "<" if chosen.newest_first else ">"
            where.append(
                f"(t.version, t.dependent_id, t.referenced_id) {sign}"
                " (:after_version, :after_dependent, :after_referenced)"
            )
            values |= dict(zip(("after_version", "after_dependent", "after_referenced"), after, strict=True))
        way = "desc" if chosen.newest_first else "asc"
        rows = self._rows(TRANSITIONS.replace("{way}", way), where, limit=limit, **values)
        return [transition_of(row) for row in rows]

    def activity(self) -> Activity:
        """Tell what was committed in the last half hour, of the newest `ACTIVITY_VERSIONS` versions."""
        rows = self._rows(ACTIVITY, version=self.head.version, most=ACTIVITY_VERSIONS)
        minutes = [Minute(row.begin, row.changes, row.appeared, row.broke) for row in rows]
        return Activity(minutes, float(rows[0].changes_per_second))

    def last_transition(self, dependent_id: int, referenced_id: int, kind: TransitionKind) -> TransitionInfo | None:
        """Find the newest transition of one kind of a pair."""
        sides = AttributeFilter(attribute_id=dependent_id), AttributeFilter(attribute_id=referenced_id)
        found = self.transitions(TransitionFilter(0, kind, *sides, newest_first=True), None, 1)
        return found[0] if found else None

    def coefficient_spans(
        self, dependent_id: int, referenced_id: int, before: int | None, limit: int
    ) -> list[CoefficientSpan]:
        """List what is known of a pair's coefficient, newest first: by descending (since_version)."""
        newest = self.head.version
        return read_coefficient_spans(self._connection, dependent_id, referenced_id, newest, before, limit)

    def coefficient_tag(self, dependent_id: int, referenced_id: int) -> str:
        """Name what looks have found of a pair's coefficient."""
        return read_coefficient_tag(self._connection, dependent_id, referenced_id)

    def keys(self, chosen: KeyFilter, after: Key | None, limit: int) -> list[KeyInfo]:
        """List keys by (schema, table, ordinal, attribute_id)."""
        return read_keys(self._connection, chosen, after, limit)

    def tuples(self) -> list[TupleInfo]:
        """List the attributes that are tuples of columns by (attribute_id)."""
        return read_known_tuples(self._connection)

    def repeated_values(self, attribute_id: int, limit: int) -> list[RepeatedValue]:
        """List values that an attribute has more than once, the most frequent first."""
        found = [one for place in self._everywhere for one in read_repeated(place, attribute_id, limit)]
        return sorted(found, key=lambda one: (-one.frequency, one.value_key))[:limit]

    def audits(self, before: int | None, limit: int) -> list[Audit]:
        """List audits, newest first: by descending (audit_id), those below `before`."""
        return read_audits(self._connection, before, limit)

    def decisions(self, before: int | None, limit: int) -> list[Decision]:
        """List decisions about foreign keys, newest first: by descending (decision_id), those below `before`."""
        return contracts.read_decisions(self._connection, before, limit)

    def contracts(
        self, after: int, limit: int, dependent: Side | None = None, referenced: Side | None = None
    ) -> list[Contract]:
        """List contracts by (contract_id)."""
        return contracts.read_contracts(self._connection, after, limit, dependent=dependent, referenced=referenced)

    def contract(self, contract_id: int) -> Contract:
        """Find a contract; raise NotFoundError when there is none."""
        return contracts.read_contract(self._connection, contract_id)

    def contract_events(
        self, contract_id: int | None, after: Key, limit: int, newer_than: int = 0, since: int = 0
    ) -> list[ContractEvent]:
        """List transitions of one contract, or of all with an id above one, by (version, contract_id).

        Of version `since` and earlier those alone that no change brought, as of a contract that was added after it.
        """
        return contracts.read_events(self._connection, contract_id, after, limit, newer_than, since)

    def newest_contract(self) -> int:
        """Give the id of the contract that was added last; 0 when there is none."""
        return contracts.read_newest(self._connection)

    def contract_counts(self) -> dict[ContractState, int]:
        """Count contracts by how they stand."""
        return contracts.count_contracts(self._connection)

    def bootstraps(self) -> list[BootstrapRun]:
        """List the bootstraps that run, died or failed, newest first."""
        return read_runs(self._connection)

    def declared_references(self, after: int, limit: int) -> list[DeclaredForeignKey]:
        """List the foreign keys that sources declare by (reference_id)."""
        return read_references(self._connection, after, limit)

    def foreign_key_refreshes(self) -> list[Refresh]:
        """List the last finding of foreign keys by each method."""
        return candidates.read_refreshes(self._connection)

    def candidates(self, refresh_id: int, chosen: CandidateFilter, after: int, limit: int) -> list[Candidate]:
        """List candidates of a finding by (place)."""
        return candidates.read_candidates(self._connection, refresh_id, chosen, after, limit)

    def take_its_time(self) -> None:
        """Bound no statement of this snapshot in time, and let a bootstrap wait for its end, by its session's name."""
        for connection in self._everywhere:
            connection.execute(text(f"set local statement_timeout = 0; set local application_name = '{FINDING_NAME}'"))

    def contracts_tag(self) -> str:
        """Name what there is of contracts and decisions."""
        return contracts.read_tag(self._connection)

    def dead_letters(self, feed: str | None, after: Key | None, limit: int) -> list[DeadLetterInfo]:
        """List dead letters by (dead_letter_id); long records are cut."""
        if feed is not None and "\x00" in feed:
            return []
        where = ["dead_letter_id > :after"] + (["feed = :feed"] if feed is not None else [])
        rows = self._rows(
            DEAD_LETTERS, where, after=after[0] if after else -1, feed=feed, cut=RECORD_LIMIT, limit=limit
        )
        return [DeadLetterInfo(**row._mapping) for row in rows]

    @property
    def _everywhere(self) -> list[Connection]:
        """Give where records are: in the state's own database, and on the servers of shards."""
        return [self._connection, *self._elsewhere.connections]

    def _rows(self, query: str, where: Sequence[str] = (), **values: Any) -> Sequence[Found]:
        statement = query.replace("{where}", " and ".join(where) or "true")
        return self._connection.execute(text(statement), values).all()


def no_state(where: str) -> StateError:
    """Say that a database is not one of subsetd."""
    return StateError(
        f"The {where} holds no state of subsetd; run `subsetd bootstrap`, or correct SUBSETD_DATABASE_URL."
    )


def _attribute(row: Found) -> AttributeInfo:
    columns = dict(row._mapping)
    name = AttributeName(columns.pop("schema_name"), columns.pop("table_name"), columns.pop("column_name"))
    return AttributeInfo(name=name, **columns)


def _pair(row: Found) -> tuple[AttributeRef, AttributeRef]:
    return (
        AttributeRef(row.dependent_id, AttributeName(row.d_schema, row.d_table, row.d_column)),
        AttributeRef(row.referenced_id, AttributeName(row.r_schema, row.r_table, row.r_column)),
    )


def transition_of(row: Any) -> TransitionInfo:
    """Make a transition of what `TRANSITIONS` selects."""
    dependent, referenced = _pair(row)
    return TransitionInfo(
        version=row.version,
        committed_at=row.committed_at,
        kind=TransitionKind(row.kind),
        dependent=dependent,
        referenced=referenced,
        witness_value=row.witness_value,
        witness_key=row.witness_key,
        cause_count=row.cause_count,
        position=row.position,
        row=row.changed_row,
    )
