"""Own the shapes of the API about corpora: what is asked of them, and what is answered."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Annotated, Any, Self

from pydantic import BaseModel, ConfigDict, Field

from service.api import cursors
from service.api.schemas import Answer, Page, PageQuestion, Question
from service.core import corpus as core
from service.core.column_filters import Reason
from service.core.corpus_choices import Algorithm, Strategy
from service.core.near_matches import Near
from service.usecases import answers, corpora
from service.usecases.corpora_ports import CorpusSnapshot
from service.usecases.corpus_export import ExportFormat

Text = Annotated[str, Field(max_length=4096, pattern=r"^[^\x00]*$")]
Share = Annotated[float | str, Field(description="a number such as 0.2, or a fraction such as 1/5")]
Int = Annotated[int, Field(ge=0, lt=1 << 31)]


class Settings(BaseModel):
    """How a corpus is read and what is looked for; what is left out has its default."""

    model_config = ConfigDict(extra="forbid")

    null_tokens: list[Text] = Field([], description="texts that stand for NULL", examples=[["", "-", "n/a"]])
    delimiter: Text | None = Field(None, description="of CSV; null: a tab in .tsv, else a comma")
    quote: Text = '"'
    header: bool = Field(True, description="whether files begin with the columns' names")
    encoding: Text = "utf-8"
    db_schema: Text = Field("public", description="of a Postgres corpus")
    null_columns: bool = Field(False, description="leave out columns of nothing but null tokens")
    integer_columns: bool = Field(False, description="leave out columns of nothing but integers")
    non_unique_referenced: bool = Field(False, description="leave out, as referenced, columns with repeated cells")
    coverage: Share = Field("0", description="leave out pairs that share less of the referenced column's values")
    min_values: int = Field(1, description="leave out, as dependent, columns with fewer distinct values")
    threshold: Share = Field("1", description="share of the dependent's values that have to be in the referenced")
    algorithm: Algorithm | None = Field(None, description="null: what costs less")
    bits: int = Field(650, description="m, of a signature")
    hashes: int = Field(6, description="k, hash functions of a signature")
    passes: int = Field(2, description="p, signatures of a column")
    strategy: Strategy = Strategy.DEP2REFS
    top: int | None = Field(
        None, description="keep only so many referenced columns of each dependent, those covered best"
    )
    partitions: int | None = Field(None, description="of Spark; null: a rule by size")
    max_failed: Share = Field("1/10", description="a refresh fails when a larger share of the tables cannot be read")
    max_table_bytes: int = Field(1 << 30, description="a table of more bytes is not read, and is a fault")
    joinable: bool = Field(False, description="whether each refresh indexes all cells, to search joinable tables")
    near: list[Near] = Field([], description="what searches of joinable tables do not look at in cells")
    index: Text | None = Field(None, description="folder of the index; null: one of the service's own")


class CorpusChanges(BaseModel):
    """What of a corpus is to be otherwise; what is left out stays as it is."""

    model_config = ConfigDict(
        extra="forbid", json_schema_extra={"example": {"schedule": "0 4 * * 0", "settings": {"coverage": 0.2}}}
    )

    settings: Settings | None = Field(None, description="those that are to be others; all but index can be")
    schedule: Text | None = Field(None, description="cron's five fields, in UTC; null: none", examples=["30 2 * * *"])
    time_limit_seconds: Annotated[int, Field(ge=1, lt=1 << 31)] | None = Field(None, description="of one refresh")
    retries: int = Field(0, ge=0, le=100, description="attempts behind a first that failed")

    def given(self) -> dict[str, Any]:
        """Give what was said, with an object of settings."""
        told = self.model_dump(mode="json", exclude_unset=True)
        return told | {"settings": told.get("settings") or {}}


class NewCorpus(CorpusChanges):
    """A corpus to be; what is left out has its default."""

    model_config = ConfigDict(
        json_schema_extra={
            "example": {
                "name": "web_tables",
                "location": "/data/web_tables",
                "kind": "csv",
                "schedule": "30 2 * * *",
                "settings": {"null_tokens": ["-", "n/a"], "integer_columns": True},
            }
        }
    )

    name: Annotated[str, Field(min_length=1, max_length=256, pattern=r"^[^\x00]+$")] = Field(examples=["lake"])
    location: Text = Field(description="an absolute folder, a bucket, or postgresql://...", examples=["/data/lake"])
    kind: core.CorpusKind = Field(examples=["csv"])

    def to_core(self) -> corpora.NewCorpus:
        """Make a corpus of it; raise SourceError for what cannot be."""
        told = self.given()
        return corpora.NewCorpus(
            **told | {"kind": self.kind, "settings": core.CorpusSettings.from_json(told["settings"])}
        )


class Corpus(Answer):
    corpus_id: int
    name: str
    location: str
    kind: core.CorpusKind
    settings: Settings
    schedule: str | None
    time_limit_seconds: int | None
    retries: int
    generation: int | None = Field(description="the one that is served; null before the first refresh has landed")
    created_at: datetime

    @classmethod
    def of(cls, one: corpora.Corpus) -> Corpus:
        fields = {name: getattr(one, name) for name in cls.model_fields if name != "settings"}
        return cls(settings=Settings.model_validate(one.settings.to_json()), **fields)


class Refresh(Answer):
    refresh_id: int
    corpus: str
    generation: int | None = Field(description="as which it landed")
    state: corpora.RefreshState
    full: bool
    requested_by: str
    attempt: int
    queued_at: datetime
    not_before: datetime | None = Field(description="when it may be tried again")
    started_at: datetime | None
    ended_at: datetime | None
    stage: str | None = Field(description="what it is at")
    done: int | None = Field(description="of `total`, in this stage")
    total: int | None
    stage_started_at: datetime | None
    expected_end: datetime | None = Field(description="of this stage, if it goes on at its pace")
    cancel_requested: bool
    fault: str | None = Field(description="why it, or its last attempt, failed")
    report: dict[str, Any] | None = Field(description="what it read, left out, found, and how long each stage took")


class CorpusCounts(Answer):
    tables: int
    columns: int
    inds: int


class CorpusDetail(Corpus):
    counts: CorpusCounts | None = Field(description="of the generation that is served")
    generations: list[int] = Field(description="those that can be asked for")
    last_refresh: Refresh | None


class ListedCorpus(Corpus):
    state: corpora.RefreshState | None = Field(description="of its newest refresh; null: there was none")
    ended_at: datetime | None
    fault: str | None = Field(description="why it, or its last attempt, failed")

    @classmethod
    def listed(cls, one: corpora.Corpus, standing: corpora.CorpusStanding | None) -> ListedCorpus:
        told = {name: getattr(standing, name, None) for name in ("state", "ended_at", "fault")}
        return cls.model_validate(Corpus.of(one).model_dump() | told)


class CorporaPage(Page):
    items: list[ListedCorpus]


class Nothing(BaseModel):
    """Be an empty object: a page of another host cannot send JSON unasked."""

    model_config = ConfigDict(extra="forbid", json_schema_extra={"example": {}})


class NewRefresh(BaseModel):
    model_config = ConfigDict(extra="forbid", json_schema_extra={"example": {"full": True}})

    full: bool = Field(False, description="read everything anew, also what is unchanged")


class RefreshesPage(Page):
    items: list[Refresh]


class Fault(Answer):
    path: str
    message: str


class FaultsPage(Page):
    items: list[Fault]


class GenerationQuestion(Question):
    generation: Int | None = Field(None, description="the served one, or the one before it", examples=[2])


class GenerationPageQuestion(GenerationQuestion, PageQuestion):
    pass


class IndsQuestion(GenerationPageQuestion):
    dependent_table: Text | None = Field(None, examples=["2019/orders.csv"])
    dependent_position: Int | None = Field(None, description="from 0; needs dependent_table", examples=[1])
    referenced_table: Text | None = Field(None, examples=["customers.csv"])
    referenced_position: Int | None = Field(None, description="from 0; needs referenced_table", examples=[0])


class PairQuestion(GenerationQuestion):
    dependent_table: Text = Field(examples=["2019/orders.csv"])
    dependent_position: Int = Field(examples=[1])
    referenced_table: Text = Field(examples=["customers.csv"])
    referenced_position: Int = Field(examples=[0])


class ExportQuestion(GenerationQuestion):
    format: ExportFormat = ExportFormat.CSV


class Generational(Answer):
    corpus: str
    generation: int = Field(description="the one generation that this answer was computed from")


class GenerationPage(Page, Generational):
    @classmethod
    def page(
        cls,
        snapshot: CorpusSnapshot,
        written: cursors.Cursors,
        page: answers.Page[Any],
        show: Callable[[Any], Answer],
        **more: Any,
    ) -> Self:
        """Make a page that was computed from this generation, which its cursor names as well; see `listing`."""
        key = cursors.in_generation(page.next_key, snapshot.corpus.corpus_id, snapshot.generation)
        told = {"corpus": snapshot.corpus.name, "generation": snapshot.generation, **more}
        return cls.listing(written, answers.Page(page.items, key), show, **told)


class CorpusColumnRef(Answer):
    column_id: int
    table: str = Field(description="path below the corpus")
    position: int = Field(description="from 0")
    name: str


class Ind(Answer):
    dependent: CorpusColumnRef
    referenced: CorpusColumnRef
    overlap: int = Field(description="distinct values in both")
    coefficient: float = Field(description="their share of the dependent's values")
    coverage: float = Field(description="their share of the referenced column's values")


class IndsPage(GenerationPage):
    items: list[Ind]


class Table(Answer):
    table_number: int
    path: str
    row_count: int
    column_count: int
    since: int = Field(description="first generation with it as it is")


class TablesPage(GenerationPage):
    items: list[Table]


class Column(Answer):
    column: CorpusColumnRef
    distinct_count: int
    row_count: int
    dependent_reasons: list[str] = Field(description="why it is not examined as dependent; empty: it is")
    referenced_reasons: list[str] = Field(description="why it is not examined as referenced; empty: it is")

    @classmethod
    def of(cls, one: corpora.CorpusColumn) -> Column:
        return cls(
            column=CorpusColumnRef.model_validate(one.column),
            distinct_count=one.distinct_count,
            row_count=one.row_count,
            dependent_reasons=reason_names(one.dependent_reasons),
            referenced_reasons=reason_names(one.referenced_reasons),
        )


class ColumnsPage(GenerationPage):
    items: list[Column]


class CorpusPair(Generational):
    dependent: Column | None = Field(description="null: it could not be read")
    referenced: Column | None = Field(description="null: it could not be read")
    holds: bool
    examined: bool = Field(description="false: it is not known whether it holds, because of what follows")
    reasons: list[str] = Field(description="the filters that left it out")
    beyond_top: bool = Field(description="the dependent has as many better referenced columns as are kept")
    fault: str | None = Field(description="why a file of the two could not be read")
    overlap: int | None = Field(description="distinct values in both, when it holds")
    coverage: float | None

    @classmethod
    def of(cls, corpus: str, one: corpora.PairAnswer) -> CorpusPair:
        return cls(
            corpus=corpus,
            generation=one.generation,
            dependent=None if one.dependent is None else Column.of(one.dependent),
            referenced=None if one.referenced is None else Column.of(one.referenced),
            holds=one.holds,
            examined=one.examined,
            reasons=reason_names(one.reasons),
            beyond_top=one.beyond_top,
            fault=one.fault,
            overlap=one.overlap,
            coverage=None if one.coverage is None else float(one.coverage),
        )


class Change(Answer):
    kind: corpora.ChangeKind
    dependent: CorpusColumnRef
    referenced: CorpusColumnRef
    overlap: int = Field(description="distinct values in both; of one that went, as it was")


class CorpusChangesPage(GenerationPage):
    since: int = Field(description="the generation that this one is compared with")
    items: list[Change]


def reason_names(reasons: Reason) -> list[str]:
    """Name filters as docs/corpora.md does."""
    return [one.name.lower() for one in Reason if one & reasons and one.name]
