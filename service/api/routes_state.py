"""Own the routes about what the state holds: itself, attributes, clusters, dead letters."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path, Query, Request

from service.api import corpus_schemas, cursors, examples, schemas
from service.api.asking import Asked
from service.api.problems import documented
from service.usecases import queries
from service.usecases.answers import AttributeFilter

router = APIRouter(prefix="/api/v1", tags=["state"])

ATTRIBUTES = cursors.Cursors("attributes", "ssii")
CLUSTERS = cursors.Cursors("clusters", "i")
DEAD_LETTERS = cursors.Cursors("dead_letters", "i")

DeadLetterPath = Annotated[
    int, Path(ge=1, le=cursors.LARGEST, openapi_examples={"a record": {"value": 1}}, description="as it is listed")
]


@router.get("/state", responses=examples.answered("The state") | documented(422, 500, 503))
def get_state(request: Request, asked: Asked, _: Annotated[schemas.Question, Query()]) -> schemas.State:
    """Describe the state: version, counts, sources, and up to where each feed is applied."""
    with asked.snapshot() as snapshot:
        asked.depends_on_upkeep(snapshot)
        asked.depends_on_sketches(snapshot)
        away = list(request.app.state.shards_away())
        asked.depends_on_servers(away)
        asked.stop_if_known()
        found = queries.state(snapshot)
    head = found.head
    return schemas.State.at(
        head,
        generation=head.generation,
        first_version=head.first_version,
        kind=head.kind,
        committed_at=head.committed_at,
        newest_source_ms=head.newest_source_ms,
        counts=schemas.Counts.model_validate(found.counts),
        sources=[schemas.Source.model_validate(one) for one in found.sources],
        positions=[schemas.Position.model_validate(one) for one in found.positions],
        shards_away=away,
    )


@router.get(
    "/attributes",
    responses=examples.answered("A page of attributes") | documented(404, 409, 422, 500, 503),
)
def list_attributes(asked: Asked, question: Annotated[schemas.AttributesQuestion, Query()]) -> schemas.AttributesPage:
    """List attributes with their counters, by schema, table and ordinal."""
    after = ATTRIBUTES.decode(question.cursor)
    with asked.snapshot() as snapshot:
        one = None if question.attribute is None else queries.resolve(snapshot, question.attribute).attribute_id
        asked.stop_if_known()
        chosen = AttributeFilter(question.schema_, question.table, one, question.contains, question.arity)
        page = queries.attributes(snapshot, chosen, after, question.limit)
    return schemas.AttributesPage.page(snapshot.head, ATTRIBUTES, page, schemas.Attribute.of)


@router.get(
    "/clusters",
    responses=examples.answered("A page of clusters") | documented(404, 409, 422, 500, 503),
)
def list_clusters(asked: Asked, question: Annotated[schemas.ClustersQuestion, Query()]) -> schemas.ClustersPage:
    """List attribute clusters by id: attributes that share `value_count` values which no other attribute has."""
    after = CLUSTERS.decode(question.cursor)
    with asked.snapshot() as snapshot:
        one = None if question.attribute is None else queries.resolve(snapshot, question.attribute).attribute_id
        asked.stop_if_known()
        page, names = queries.clusters(snapshot, one, after, question.limit)
    return schemas.ClustersPage.page(
        snapshot.head,
        CLUSTERS,
        page,
        schemas.Cluster.model_validate,
        attributes=[schemas.AttributeRef.of(names[one]) for one in sorted(names)],
    )


@router.get(
    "/dead_letters",
    responses=examples.answered("A page of dead letters") | documented(422, 500, 503),
)
def list_dead_letters(
    asked: Asked, question: Annotated[schemas.DeadLettersQuestion, Query()]
) -> schemas.DeadLettersPage:
    """List the records that were set aside, oldest first; a long record is cut to 4,096 characters."""
    after = DEAD_LETTERS.decode(question.cursor)
    with asked.snapshot() as snapshot:
        asked.depends_on_upkeep(snapshot)
        asked.stop_if_known()
        page = queries.dead_letters(snapshot, question.feed, after, question.limit)
    return schemas.DeadLettersPage.page(snapshot.head, DEAD_LETTERS, page, schemas.DeadLetter.model_validate)


@router.post("/dead_letters/{dead_letter_id}/retry", responses=documented(404, 409, 422, 500, 503))
def retry_dead_letter(
    request: Request, dead_letter_id: DeadLetterPath, _: corpus_schemas.Nothing
) -> schemas.TriedDeadLetter:
    """Try a record again that was set aside, and answer when it is applied or has failed once more.

    A running consumer ends its batch and hands the state over meanwhile.
    """
    return schemas.TriedDeadLetter.model_validate(request.app.state.retry_dead_letter(dead_letter_id))
