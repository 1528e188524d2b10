"""Own the routes about corpora and their refreshes: register, refresh, follow, cancel, remove."""

from __future__ import annotations

from typing import Annotated
from urllib.parse import quote, unquote

from fastapi import APIRouter, Path, Query, Response

from service.api import corpus_schemas as shapes
from service.api import cursors, schemas
from service.api.asking_corpora import CorpusPath, Register, Registered
from service.api.problems import accepted, documented
from service.usecases import corpora as values
from service.usecases import corpus_answers
from service.usecases.corpora_ports import Corpora

router = APIRouter(prefix="/api/v1/corpora", tags=["corpora"])

CORPORA = cursors.Cursors("corpora", "s")
REFRESHES = cursors.Cursors("refreshes", "i")
FAULTS = cursors.Cursors("faults", "i")

BY_API = "api"
"""Who asks for a refresh over HTTP."""

RefreshPath = Annotated[
    int, Path(ge=0, lt=1 << 31, description="id of a refresh", openapi_examples={"a refresh": {"value": 7}})
]


@router.get("", responses=documented(422, 500, 503))
def list_corpora(corpora: Registered, question: Annotated[schemas.PageQuestion, Query()]) -> shapes.CorporaPage:
    """List the corpora by name, and how the newest refresh of each stands."""
    after = CORPORA.decode(question.cursor)
    page = corpus_answers.corpora(corpora, after, question.limit)
    standings = {one.corpus: one for one in corpora.standings()}
    return shapes.CorporaPage.listing(
        CORPORA, page, lambda one: shapes.ListedCorpus.listed(one, standings.get(one.name))
    )


@router.post("", status_code=201, responses=documented(409, 422, 500, 503))
def add_corpus(response: Response, register: Register, body: shapes.NewCorpus) -> shapes.Corpus:
    """Register a corpus: what is in it, what is looked for, and when. A refresh then reads it."""
    added = register.add(body.to_core())
    response.headers["Location"] = f"{router.prefix}/{quote(added.name, safe='')}"
    return shapes.Corpus.of(added)


@router.get("/{corpus}", responses=documented(404, 422, 500, 503))
def show_corpus(
    corpora: Registered, corpus: CorpusPath, _: Annotated[schemas.Question, Query()]
) -> shapes.CorpusDetail:
    """Show a corpus, what its served generation holds, and its last refresh."""
    found = corpora.named(unquote(corpus))
    newest = corpora.refreshes(found.name, limit=1)
    counts, generations = None, []
    if found.generation is not None:
        with corpora.snapshot(found.name) as snapshot:
            found, counts, generations = snapshot.corpus, snapshot.counts(), list(snapshot.generations)
    return shapes.CorpusDetail(
        **shapes.Corpus.of(found).model_dump(),
        counts=None if counts is None else shapes.CorpusCounts(**counts),
        generations=generations,
        last_refresh=shapes.Refresh.model_validate(newest[0]) if newest else None,
    )


@router.patch("/{corpus}", responses=documented(404, 422, 500, 503))
def change_corpus(register: Register, corpus: CorpusPath, body: shapes.CorpusChanges) -> shapes.Corpus:
    """Change settings, schedule, time limit or retries of a corpus; the next refresh goes by them."""
    return shapes.Corpus.of(register.change(unquote(corpus), body.given()))


@router.delete("/{corpus}", status_code=204, responses=documented(404, 409, 422, 500, 503))
def remove_corpus(register: Register, corpus: CorpusPath) -> None:
    """Forget a corpus with all that was found in it; its files stay."""
    register.remove(unquote(corpus))


@router.post("/{corpus}/refreshes", status_code=202, responses=accepted("It waits") | documented(404, 422, 500, 503))
def request_refresh(
    response: Response, corpora: Registered, corpus: CorpusPath, body: shapes.NewRefresh
) -> shapes.Refresh:
    """Ask for a refresh; one that waits already is given instead."""
    refresh = corpora.request_refresh(unquote(corpus), full=body.full, requested_by=BY_API)
    response.headers["Location"] = _address(refresh)
    return shapes.Refresh.model_validate(refresh)


@router.get("/{corpus}/refreshes", responses=documented(404, 422, 500, 503))
def list_refreshes(
    corpora: Registered, corpus: CorpusPath, question: Annotated[schemas.PageQuestion, Query()]
) -> shapes.RefreshesPage:
    """List the refreshes of a corpus, newest first, with what they found, or why they failed."""
    after = REFRESHES.decode(question.cursor)
    page = corpus_answers.refreshes(corpora, unquote(corpus), after, question.limit)
    return shapes.RefreshesPage.listing(REFRESHES, page, shapes.Refresh.model_validate)


@router.get("/{corpus}/refreshes/{refresh_id}", responses=documented(404, 422, 500, 503))
def show_refresh(
    corpora: Registered, corpus: CorpusPath, refresh_id: RefreshPath, _: Annotated[schemas.Question, Query()]
) -> shapes.Refresh:
    """Show a refresh: what it is at, how far, and when it should end; or what became of it."""
    return shapes.Refresh.model_validate(_refresh_of(corpora, corpus, refresh_id))


@router.post(
    "/{corpus}/refreshes/{refresh_id}/cancel",
    status_code=202,
    responses=accepted("It is asked to end") | documented(404, 409, 422, 500, 503),
)
def cancel_refresh(
    response: Response, corpora: Registered, corpus: CorpusPath, refresh_id: RefreshPath, _: shapes.Nothing
) -> shapes.Refresh:
    """Cancel a refresh that waits, or let one that runs end; the generation that is served stays."""
    refresh = corpora.cancel(_refresh_of(corpora, corpus, refresh_id).refresh_id)
    response.headers["Location"] = _address(refresh)
    return shapes.Refresh.model_validate(refresh)


@router.get("/{corpus}/refreshes/{refresh_id}/faults", responses=documented(404, 422, 500, 503))
def list_faults(
    corpora: Registered,
    corpus: CorpusPath,
    refresh_id: RefreshPath,
    question: Annotated[schemas.PageQuestion, Query()],
) -> shapes.FaultsPage:
    """List the files and tables that a refresh could not read, and why."""
    after = FAULTS.decode(question.cursor)
    refresh = _refresh_of(corpora, corpus, refresh_id)
    page = corpus_answers.faults(corpora, refresh.refresh_id, after, question.limit)
    return shapes.FaultsPage.listing(FAULTS, page, shapes.Fault.model_validate)


def _refresh_of(corpora: Corpora, corpus: str, refresh_id: int) -> values.Refresh:
    return corpus_answers.refresh(corpora, unquote(corpus), refresh_id)


def _address(refresh: values.Refresh) -> str:
    return f"{router.prefix}/{quote(refresh.corpus, safe='')}/refreshes/{refresh.refresh_id}"
