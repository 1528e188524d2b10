"""Own the shapes of the service's answers. Made by `make client`: change what it is made of."""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeAlias, TypedDict

Time: TypeAlias = Annotated[str, "date-time"]
"""A time in UTC, in ISO 8601."""

AlertKind: TypeAlias = Literal["fired", "resolved", "test"]


AlertState: TypeAlias = Literal["pending", "delivered", "failed", "silenced"]


Algorithm: TypeAlias = Literal["rarest-first", "signatures"]


ChangeKind: TypeAlias = Literal["appeared", "went"]


ChannelKind: TypeAlias = Literal["webhook", "slack", "email", "kafka"]


ContractKind: TypeAlias = Literal["violated", "mended"]


ContractState: TypeAlias = Literal["held", "violated", "unknown"]


CorpusKind: TypeAlias = Literal["csv", "parquet", "jsonl", "postgres"]


Keys: TypeAlias = Literal["known", "declared", "inferred"]


LeadReason: TypeAlias = Literal["accepted", "suggested", "ind"]


Method: TypeAlias = Literal["randomness", "names", "chen", "rostin", "combined"]


MethodName: TypeAlias = Literal["exact", "bml", "bml-exact-load", "joint-mle", "bottom-k", "estimated"]


Near: TypeAlias = Literal["case", "spaces", "numbers"]


RefreshState: TypeAlias = Literal["queued", "running", "landed", "failed", "cancelled"]


RuleKind: TypeAlias = Literal["ind", "contract", "coefficient", "unique", "lag", "dead-letters", "refresh"]


RunState: TypeAlias = Literal["running", "failed", "gone"]


Strategy: TypeAlias = Literal["dep2refs", "ref2deps"]


TrackingState: TypeAlias = Literal["queued", "running", "tracked", "failed"]


TransitionKind: TypeAlias = Literal["appeared", "broke"]


Undecided: TypeAlias = Literal["undecided"]


Verdict: TypeAlias = Literal["accept", "reject", "pin"]


class Alert(TypedDict):
    alert_id: int
    delivery_id: str
    watch_id: int | None
    watch: str
    kind: AlertKind
    version: int
    created_at: Time
    body: dict[str, Any]
    state: AlertState
    attempts: int
    fault: str | None
    ended_at: Time | None


class Attribute(TypedDict):
    attribute_id: int
    name: str
    parts: list[str]
    source: str
    ordinal: int
    data_type: str
    insert_only: bool
    row_count: int
    null_count: int
    sketch_only: bool
    distinct_count: int | None
    repeated_count: int | None
    is_unique: bool | None
    shown_characters: int | None
    stale_since: int | None


class AttributeRef(TypedDict):
    attribute_id: int
    name: str
    parts: list[str]


class Audit(TypedDict):
    audit_id: int
    version: int
    started_at: Time
    ended_at: Time
    attributes: int
    value_count: int
    inds: int
    not_served: int
    not_holding: int
    differences: int
    examples: Examples
    filters: dict[str, LeftOut]
    inds_left: int
    sketch_only: int
    algorithm: Algorithm
    seconds: dict[str, float]


class Bootstrap(TypedDict):
    source_name: str
    state: RunState
    stage: str
    done: int | None
    total: int | None
    started_at: Time
    progressed_at: Time
    expected_end: Time | None
    ended_at: Time | None
    fault: str | None


class Change(TypedDict):
    kind: ChangeKind
    dependent: CorpusColumnRef
    referenced: CorpusColumnRef
    overlap: int


class ChangedRow(TypedDict):
    table: str
    key: dict[str, str | None]
    cells: dict[str, str | None]


class Channel(TypedDict):
    kind: ChannelKind
    url: str | None
    to: list[str]
    topic: str | None
    has_secret: bool


class Cluster(TypedDict):
    cluster_id: int
    attribute_ids: list[int]
    value_count: int


class Coefficient(TypedDict):
    dependent: ColumnRef
    referenced: ColumnRef
    coefficient: float | None
    low: float | None
    high: float | None
    method: MethodName
    exact: float | None
    reason: str | None
    overlap: int | None
    distinct_count: int | None


class CoefficientSpan(TypedDict):
    since_version: int
    since_at: Time | None
    until_version: int
    until_at: Time | None
    holds: bool
    coefficient: float | None
    overlap: int | None
    distinct_count: int | None


class Column(TypedDict):
    column: CorpusColumnRef
    distinct_count: int
    row_count: int
    dependent_reasons: list[str]
    referenced_reasons: list[str]


class ColumnRef(TypedDict):
    attribute_id: int | None
    name: str
    parts: list[str] | None


class Component(TypedDict):
    component: int
    tables: int
    edges: int
    inds: int
    hub: GraphTable


class ComponentSize(TypedDict):
    tables: int
    components: int


class Contract(TypedDict):
    dependent: list[list[str]]
    referenced: list[list[str]]
    contract_id: int
    decision_id: int | None
    least_coefficient: float
    created_by: str
    created_at: Time
    state: ContractState
    unknown: list[str]
    violated_since: int | None
    coefficient: float | None
    overlap: int | None
    distinct_count: int | None
    missing_count: int | None


class ContractTransition(TypedDict):
    dependent: list[list[str]]
    referenced: list[list[str]]
    version: int
    committed_at: Time | None
    contract_id: int
    kind: ContractKind
    witness_value: str | None
    witness_key: str | None
    cause_count: int
    position: dict[str, Any] | None
    row: ChangedRow | None


class Corpus(TypedDict):
    corpus_id: int
    name: str
    location: str
    kind: CorpusKind
    settings: Settings
    schedule: str | None
    time_limit_seconds: int | None
    retries: int
    generation: int | None
    created_at: Time


class CorpusColumnRef(TypedDict):
    column_id: int
    table: str
    position: int
    name: str


class CorpusCounts(TypedDict):
    tables: int
    columns: int
    inds: int


class CorpusDetail(TypedDict):
    corpus_id: int
    name: str
    location: str
    kind: CorpusKind
    settings: Settings
    schedule: str | None
    time_limit_seconds: int | None
    retries: int
    generation: int | None
    created_at: Time
    counts: CorpusCounts | None
    generations: list[int]
    last_refresh: Refresh | None


class CorpusPair(TypedDict):
    corpus: str
    generation: int
    dependent: Column | None
    referenced: Column | None
    holds: bool
    examined: bool
    reasons: list[str]
    beyond_top: bool
    fault: str | None
    overlap: int | None
    coverage: float | None


class Counts(TypedDict):
    tables: int
    attributes: int
    clusters: int
    values: int
    uinds: int
    dead_letters: int
    short_sketches: int


class DeadLetter(TypedDict):
    dead_letter_id: int
    feed: str
    topic: str
    partition: int
    record_offset: int
    error_class: str
    message: str
    record: str
    is_cut: bool
    version: int
    created_at: Time


class Decision(TypedDict):
    dependent: list[list[str]]
    referenced: list[list[str]]
    decision_id: int
    verdict: Verdict
    decided_by: str
    decided_at: Time
    note: str | None
    is_current: bool
    is_stale: bool


class DeclaredKey(TypedDict):
    dependent: list[list[str]]
    referenced: list[list[str]]
    source: str
    holds: bool | None


class Edge(TypedDict):
    dependent: int
    referenced: int
    inds: int


class Examples(TypedDict):
    not_served: list[list[str]]
    not_holding: list[list[str]]


class Excerpt(TypedDict):
    version: int
    tables: list[GraphTable]
    edges: list[Edge]
    tables_beyond: int


class Graph(TypedDict):
    version: int
    tables: int
    tables_outside: int
    edges: int
    inds: int
    components: int
    sizes: list[ComponentSize]


class GraphTable(TypedDict):
    name: str
    component: int
    neighbours: int
    references: int
    referenced_by: int
    inds: int


class Ind(TypedDict):
    dependent: CorpusColumnRef
    referenced: CorpusColumnRef
    overlap: int
    coefficient: float
    coverage: float


class Join(TypedDict):
    dependent_column: str
    dependent_position: int
    referenced_column: str
    referenced_position: int


class JoinAnswer(TypedDict):
    generation: int | None
    version: int | None
    built_at: Time
    near: list[Literal["case", "spaces", "numbers"]]
    rows: int
    keys: int
    empty: int
    is_cut: bool
    tables: list[JoinableTable]
    unfinished: list[str]
    not_indexed: list[str]


class JoinPath(TypedDict):
    tables: list[str]
    steps: list[list[Step]]


class JoinableTable(TypedDict):
    table: str
    columns: list[str]
    matched_keys: int
    share: float
    positions: list[int]
    matched_rows: int
    row_share: float
    new_columns: list[str]
    preview: list[JoinedRow]
    preview_fault: str | None
    leads_to: list[LeadsTo] | None


class JoinedRow(TypedDict):
    row: int | None
    key: list[str]
    values: list[str] | None


class KeyAnswer(TypedDict):
    columns: list[str]
    kind: str | None
    is_primary: bool
    is_unique: bool | None
    is_key: bool | None
    attribute: Attribute
    repeated_values: list[RepeatedValue]


class KeyCandidate(TypedDict):
    dependent: list[list[str]]
    referenced: list[list[str]]
    score: float
    suggested: bool
    implied: bool
    coefficient: float
    missing_count: int | None
    cardinality: str
    against: list[str]
    verdict: Verdict | None


class KeyEvidence(TypedDict):
    dependent: list[list[str]]
    referenced: list[list[str]]
    score: float
    suggested: bool
    implied: bool
    coefficient: float
    missing_count: int | None
    cardinality: str
    against: list[str]
    verdict: Verdict | None
    version: int
    missing_values_version: int | None
    evidence: dict[str, Any]


class KeyRefresh(TypedDict):
    refresh_id: int
    method: Method
    version: int
    made_at: Time
    seconds: float
    left_out: list[str]
    candidates: int
    suggested: int
    question: KeyRefreshQuestion | None


class KeyRefreshQuestion(TypedDict):
    min_coefficient: float
    keys: Keys
    cells: int
    tuple_cells: int
    estimator: MethodName | None


class LeadsTo(TypedDict):
    table: str
    reason: LeadReason
    through: list[str]
    through_positions: list[int]
    columns: list[str]
    positions: list[int]
    coverage: float | None


class LeftOut(TypedDict):
    dependent_columns: int
    referenced_columns: int
    inds: int
    inds_alone: int


class ListedCorpus(TypedDict):
    corpus_id: int
    name: str
    location: str
    kind: CorpusKind
    settings: Settings
    schedule: str | None
    time_limit_seconds: int | None
    retries: int
    generation: int | None
    created_at: Time
    state: RefreshState | None
    ended_at: Time | None
    fault: str | None


class Load(TypedDict):
    load_id: int
    schema: str
    table: str | None
    until: Time
    until_loaded: bool
    created_by: str
    created_at: Time
    is_active: bool


class MissingValue(TypedDict):
    value: str | None
    value_key: str
    is_cut: bool
    frequency: int | None


class Pair(TypedDict):
    version: int
    transaction_consistent: bool | None
    dependent: Attribute
    referenced: Attribute
    holds: bool
    coefficient: float | None
    reason: str | None
    overlap: int
    missing_count: int
    missing_values: list[MissingValue]
    since_version: int
    since_at: Time | None
    since_reason: str
    transitions: list[Transition]


class PairEstimates(TypedDict):
    version: int
    transaction_consistent: bool | None
    level: float
    dependent: Sketch
    referenced: Sketch
    coefficients: list[Coefficient]


class Paths(TypedDict):
    version: int
    length: int | None
    has_more: bool
    paths: list[JoinPath]


class Position(TypedDict):
    feed: str
    topic: str
    partition: int
    next_offset: int
    source_position: dict[str, Any]
    version: int
    paused_at: Time | None


class Refresh(TypedDict):
    refresh_id: int
    corpus: str
    generation: int | None
    state: RefreshState
    full: bool
    requested_by: str
    attempt: int
    queued_at: Time
    not_before: Time | None
    started_at: Time | None
    ended_at: Time | None
    stage: str | None
    done: int | None
    total: int | None
    stage_started_at: Time | None
    expected_end: Time | None
    cancel_requested: bool
    fault: str | None
    report: dict[str, Any] | None


class RepeatedValue(TypedDict):
    value: str | None
    value_key: str
    frequency: int


class Rule(TypedDict):
    kind: RuleKind
    when: str | None
    dependent: str | None
    referenced: str | None
    contract_id: int | None
    attribute: str | None
    corpus: str | None
    bound: float | None
    margin: float | None


class Settings(TypedDict):
    null_tokens: list[str]
    delimiter: str | None
    quote: str
    header: bool
    encoding: str
    db_schema: str
    null_columns: bool
    integer_columns: bool
    non_unique_referenced: bool
    coverage: float | str
    min_values: int
    threshold: float | str
    algorithm: Algorithm | None
    bits: int
    hashes: int
    passes: int
    strategy: Strategy
    top: int | None
    partitions: int | None
    max_failed: float | str
    max_table_bytes: int
    joinable: bool
    near: list[Literal["case", "spaces", "numbers"]]
    index: str | None


class Silence(TypedDict):
    silence_id: int
    watch_id: int | None
    pattern: str | None
    until: Time
    reason: str
    created_by: str
    created_at: Time
    is_active: bool


class Sketch(TypedDict):
    column: ColumnRef
    uploaded_at: Time | None
    bucket_bits: int | None
    k: int | None
    spares_left: int | None
    needs_rescan: bool | None
    prefix_bits: int | None
    most_bytes: int | None
    distinct_count: float | None
    low: float | None
    high: float | None
    is_complete: bool | None
    counts_values: bool | None
    fault: str | None


class Source(TypedDict):
    name: str
    kind: str
    location: str
    insert_only: bool
    bootstrapped_version: int
    bootstrapped_at: Time
    table_count: int
    attribute_count: int


class State(TypedDict):
    version: int
    transaction_consistent: bool | None
    generation: int
    first_version: int
    kind: str | None
    committed_at: Time | None
    newest_source_ms: int | None
    counts: Counts
    sources: list[Source]
    positions: list[Position]
    shards_away: list[str]


class Step(TypedDict):
    dependent: str
    referenced: str
    inds: int
    joins: list[Join]


class Table(TypedDict):
    table_number: int
    path: str
    row_count: int
    column_count: int
    since: int


class Tracking(TypedDict):
    tracking_id: int
    schema: str
    table: str
    columns: list[str]
    state: TrackingState
    asked_at: Time
    ended_at: Time | None
    message: str | None


class Transition(TypedDict):
    version: int
    committed_at: Time | None
    kind: TransitionKind
    dependent: AttributeRef
    referenced: AttributeRef
    witness_value: str | None
    witness_key: str | None
    cause_count: int
    position: dict[str, Any] | None
    row: ChangedRow | None


class Uind(TypedDict):
    dependent: AttributeRef
    referenced: AttributeRef
    since_version: int
    since_at: Time | None
    until_version: int | None


class Watch(TypedDict):
    watch_id: int
    name: str
    rule: Rule
    says: str
    channel: Channel
    debounce_seconds: float
    tell_resolved: bool
    with_values: bool
    created_by: str
    created_at: Time
    bad: int
