"""Own the shapes of the API about candidates for foreign keys: what is asked of them, and what is answered."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from service.api.contract_schemas import NamedKey, named
from service.api.schemas import FULL_NAME, Answer, Page, Paged, PageQuestion, Question
from service.api.schemas import Text as Name
from service.core.foreign_keys.candidates import THETA
from service.core.foreign_keys.ranking import Method
from service.core.quantile_grids import COMPOSITE_CELLS, SINGLE_CELLS
from service.usecases import foreign_keys, kept_candidates
from service.usecases.coefficient_table import MethodName
from service.usecases.finding_progress import Stage
from service.usecases.foreign_key_decisions import Verdict
from service.usecases.foreign_key_export import KeyFormat
from service.usecases.key_values import DeclaredForeignKey

METHOD = "what ranked them"


class CandidatesQuestion(PageQuestion):
    method: Method = Field(Method.COMBINED, description=METHOD)
    suggested: bool = Field(False, description="those alone that are suggested")
    schema_: Name | None = Field(None, alias="schema", description="dependents of this schema", examples=["demo"])
    table: Name | None = Field(None, description="dependents of tables of this name", examples=["orders"])


class EvidenceQuestion(Question):
    dependent: Name = Field(description=f"{FULL_NAME}; of several columns schema.table(a, b)",
                            examples=["demo.orders.customer_id"])  # fmt: skip
    referenced: Name = Field(description="the same", examples=["demo.customers.id"])
    method: Method = Field(Method.COMBINED, description=METHOD)


class ExportQuestion(Question):
    format: KeyFormat = Field(KeyFormat.SQL, description="of the file")
    method: Method | None = Field(None, description="also what it suggests, but for what was rejected")


class NewKeyRefresh(BaseModel):
    """How candidates are to be found."""

    model_config = ConfigDict(extra="forbid", json_schema_extra={"example": {"method": "names"}})

    method: Method = Field(Method.COMBINED, description="what ranks them")
    min_coefficient: float = Field(THETA, ge=0, le=1, description="least inclusion coefficient of a candidate")
    keys: foreign_keys.Keys = Field(
        foreign_keys.Keys.KNOWN,
        description="what may be referred to: declared keys, what is unique, or (known) this where none is declared",
    )
    cells: int = Field(SINGLE_CELLS, ge=2, le=65_536, description="quantiles of a key that randomness is measured on")
    tuple_cells: int = Field(COMPOSITE_CELLS, ge=2, le=256, description="the same of each column of a composite key")
    estimator: MethodName | None = Field(
        None, description="how coefficients are found; null: exactly where values are stored"
    )

    def to_core(self) -> foreign_keys.Question:
        """Give it as the use cases know it."""
        return foreign_keys.Question(
            self.method, self.min_coefficient, self.keys, self.cells, self.tuple_cells, self.estimator
        )


class KeyFinding(Answer):
    method: Method
    stage: Stage
    done: int = Field(description="of the stage: candidates (inclusions, evidence) or keys (randomness)")
    total: int | None = Field(description="of how many; null: not known")
    seconds: float = Field(description="since it began")
    is_cancelled: bool = Field(description="it was cancelled, and ends by its next step")


class KeyFindingAtWork(Answer):
    finding: KeyFinding | None = Field(description="null: none is at work")


class KeyRefreshQuestion(Answer):
    min_coefficient: float
    keys: foreign_keys.Keys
    cells: int
    tuple_cells: int
    estimator: MethodName | None


class KeyRefresh(Answer):
    refresh_id: int
    method: Method
    version: int = Field(description="the one state version that candidates were found in")
    made_at: datetime
    seconds: float
    left_out: list[str] = Field(description="columns without candidates, or without randomness, and why")
    candidates: int
    suggested: int
    question: KeyRefreshQuestion | None = Field(description="what it was asked with; null: not kept yet at that time")


class KeyRefreshes(Answer):
    items: list[KeyRefresh] = Field(description="newest first, the last of each method")


class KeyCandidate(NamedKey):
    score: float = Field(description="of combined and rostin a probability")
    suggested: bool
    implied: bool = Field(description="it follows from those that are suggested, along their chains or backwards")
    coefficient: float = Field(description="share of the dependent's distinct values that are referenced")
    missing_count: int | None = Field(description="of the dependent's distinct values; null: not known")
    cardinality: str = Field(description="1:1 or 1:n")
    against: list[str] = Field(description="what speaks against it")
    verdict: Verdict | None = Field(description="what was decided of it last")

    @classmethod
    def of(cls, one: kept_candidates.Candidate) -> KeyCandidate:
        return cls.model_validate(_fields(one))


class KeyCandidatesPage(Page):
    version: int = Field(description="the one state version that candidates were found in")
    refresh_id: int
    items: list[KeyCandidate]


class DeclaredKey(NamedKey):
    source: str
    holds: bool | None = Field(description="null: not known, as a side is not kept current or its tuples not followed")

    @classmethod
    def of(cls, one: DeclaredForeignKey) -> DeclaredKey:
        return cls(**named(one.foreign_key), source=one.source, holds=one.holds)


class DeclaredKeysPage(Paged):
    items: list[DeclaredKey]


class KeyEvidence(KeyCandidate):
    version: int = Field(description="the one state version that the candidate was found in")
    missing_values_version: int | None = Field(
        description="the state version that `missing_values` were read in, as the finding named none; null: its own"
    )
    evidence: dict[str, Any] = Field(
        description="inclusion with its interval and some of the missing values; distribution: randomness, its error, "
        "and the shares of both sides by cell of the key's quantiles; names: how alike they are, by part; coverage of "
        "the key; intercept and terms of the model's score"
    )

    @classmethod
    def at(cls, version: int, one: kept_candidates.Candidate, missing_values_version: int | None) -> KeyEvidence:
        """Show a candidate that was found in this version, and values that were missing in another one."""
        told = {"version": version, "missing_values_version": missing_values_version, "evidence": one.evidence}
        return cls.model_validate({**_fields(one), **told})


def _fields(one: kept_candidates.Candidate) -> dict[str, Any]:
    evidence = one.evidence
    return {
        **named(one.foreign_key),
        "score": one.score,
        "suggested": one.suggested,
        "implied": one.implied,
        "coefficient": evidence["inclusion"]["coefficient"],
        "missing_count": evidence["inclusion"]["missing"],
        "cardinality": evidence["cardinality"],
        "against": evidence["against"],
        "verdict": one.verdict,
    }
