"""Own the shapes of what is asked and answered about coefficients and sketches."""

from __future__ import annotations

from datetime import datetime

from pydantic import Field, model_validator

from service.api.cursors import LARGEST
from service.api.schemas import Answer, Paged, PageQuestion, Question, SidesQuestion, Text, Versioned
from service.usecases import answers
from service.usecases.coefficient_table import MethodName
from service.usecases.coefficients import Comparison, Plane
from service.usecases.sketched_columns import name_of

COLUMN_NAME = "full name `schema.table.column`, `id:17`, or `sketch:NAME` of an uploaded sketch"


class LevelQuestion(Question):
    level: float = Field(0.95, gt=0, lt=1, description="of the estimates' intervals")


class PairsQuestion(SidesQuestion, LevelQuestion):
    dependent: Text | None = Field(None, description=COLUMN_NAME, examples=["demo.orders.customer_id"])
    referenced: Text | None = Field(None, description=COLUMN_NAME, examples=["demo.customers.id"])
    with_uploaded: bool = Field(False, description="a side that names nothing has all uploaded sketches as well")
    method: MethodName | None = Field(
        None, description="how coefficients are found; if not said, exactly where that is possible, else `estimated`"
    )
    min_distinct: int = Field(0, ge=0, le=LARGEST, description="least number of distinct values, of either column")


class MatrixQuestion(PairsQuestion):
    plane: Plane = Field(
        Plane.COEFFICIENT, description="what cells are: coefficients, or the low or the high ends of their intervals"
    )


class CoefficientsQuestion(PairsQuestion, PageQuestion):
    min_coefficient: float = Field(0.5, ge=0, le=1, description="smallest coefficient; those of 0 never show")
    top: int | None = Field(None, ge=1, le=1000, description="so many, the largest of all pairs chosen, on one page")

    @model_validator(mode="after")
    def _has_one_order(self) -> CoefficientsQuestion:
        if self.top is not None and self.cursor is not None:
            raise ValueError("top is given with cursor; the largest are one page")
        return self


class ColumnRef(Answer):
    attribute_id: int | None = Field(description="null: an uploaded sketch")
    name: str = Field(description="schema.table.column, or sketch:NAME")
    parts: list[str] | None = Field(description="schema, table, column; null: an uploaded sketch")

    @classmethod
    def of(cls, one: answers.AttributeRef | answers.UploadedSketch) -> ColumnRef:
        if isinstance(one, answers.UploadedSketch):
            return cls(attribute_id=None, name=name_of(one), parts=None)
        return cls(attribute_id=one.attribute_id, name=name_of(one), parts=list(one.name))


class Coefficient(Answer):
    dependent: ColumnRef
    referenced: ColumnRef
    coefficient: float | None = Field(description="share of the dependent's values that are in the referenced")
    low: float | None = Field(description="of the interval; the coefficient itself when the method is exact")
    high: float | None
    method: MethodName
    exact: float | None = Field(description="the exact coefficient, where the values of both columns are stored")
    reason: str | None = Field(description="why there is no coefficient")
    overlap: int | None = Field(description="distinct values of the dependent that are in the referenced, if known")
    distinct_count: int | None = Field(description="distinct values of the dependent, if `exact` is known")

    @classmethod
    def of(cls, one: answers.EstimatedCoefficient) -> Coefficient:
        found, known = one.estimate, one.exact
        is_defined = found.phi is not None
        return cls(
            dependent=ColumnRef.of(one.dependent),
            referenced=ColumnRef.of(one.referenced),
            coefficient=found.phi,
            low=found.low if is_defined else None,
            high=found.high if is_defined else None,
            method=MethodName(found.method),
            exact=None if known is None else known.coefficient,
            reason=found.reason,
            overlap=None if known is None else known.overlap,
            distinct_count=None if known is None else known.distinct_count,
        )


class CoefficientsPage(Paged):
    level: float
    left_out: int = Field(description="columns for which the method has no answer: no usable sketch, or no values")
    items: list[Coefficient]


class Sketch(Answer):
    column: ColumnRef
    uploaded_at: datetime | None = Field(description="null: of an attribute, kept current")
    bucket_bits: int | None = Field(description="m: it has 2^m buckets")
    k: int | None = Field(description="smallest hashes that it answers with; null: it is one of a fixed size")
    spares_left: int | None = Field(description="how many of its smallest hashes may go before it has fewer than k")
    needs_rescan: bool | None = Field(
        description="it has fewer than k: read again out of the stored values; of a sketch-only source, bootstrap anew"
    )
    prefix_bits: int | None = Field(description="bits that it holds of each hash; null: it is not one of a fixed size")
    most_bytes: int | None = Field(description="the fixed size, without header and checksum")
    distinct_count: float | None = Field(description="distinct values of the column; exact when low = high")
    low: float | None = Field(description="of the interval at 95 %")
    high: float | None
    is_complete: bool | None = Field(description="it holds the hashes of all values: what it tells is exact")
    counts_values: bool | None = Field(description="it was fed each distinct value once, not each cell")
    fault: str | None = Field(description="why it is not to be had, and what to do; null: it is")

    @classmethod
    def of(cls, one: answers.SketchInfo) -> Sketch:
        fields = cls.model_fields.keys() - {"column", "uploaded_at"}
        return cls(
            column=ColumnRef.of(one.column),
            uploaded_at=one.column.uploaded_at if isinstance(one.column, answers.UploadedSketch) else None,
            **{field: getattr(one, field) for field in fields},
        )


class BucketBitsQuestion(LevelQuestion):
    error: float = Field(gt=0, lt=1, description="how far a coefficient may be from its estimate", examples=[0.02])
    dependent_count: int | None = Field(
        None, ge=1, le=LARGEST, description="distinct values of the dependent; not said: as many as matter"
    )
    referenced_count: int | None = Field(
        None, ge=1, le=LARGEST, description="of the referenced column; not said: as many as the dependent has"
    )


class BucketBits(Answer):
    error: float
    level: float
    bucket_bits: int | None = Field(description="the least m that does; null: no sketch is large enough")


class SketchesPage(Paged):
    items: list[Sketch]


class PairEstimates(Versioned):
    level: float
    dependent: Sketch
    referenced: Sketch
    coefficients: list[Coefficient] = Field(description="by every method that has an answer, the exact one first")

    @classmethod
    def of(cls, head: answers.StateHead, level: float, one: Comparison) -> PairEstimates:
        return cls.at(
            head,
            level=level,
            dependent=Sketch.of(one.dependent),
            referenced=Sketch.of(one.referenced),
            coefficients=[Coefficient.of(each) for each in one.coefficients],
        )
