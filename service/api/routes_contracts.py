"""Own the routes about contracts: add, list, remove, and what became of them."""

from __future__ import annotations

from functools import partial
from typing import Annotated

from fastapi import APIRouter, Query, Request, Response

from service.api import contract_schemas as shapes
from service.api import cursors, examples, schemas
from service.api.asking import Asked, Asking, who_says
from service.api.asking_contracts import ETAG, ContractPath, Kept, contracts_snapshot
from service.api.problems import documented
from service.usecases.foreign_key_names import contract_side
from service.usecases.queries import check_since, page_of

router = APIRouter(prefix="/api/v1/contracts", tags=["foreign keys and contracts"])

CONTRACTS = cursors.Cursors("contracts", "i")
TRANSITIONS = cursors.Cursors("contract_transitions", "ii")

_answered = partial(examples.answered, etag=ETAG)


@router.get("", responses=_answered("A page of contracts") | documented(404, 409, 422, 500, 503))
def list_contracts(asked: Asked, question: Annotated[shapes.ContractsQuestion, Query()]) -> shapes.ContractsPage:
    """List the contracts as they stand, by id: inclusions that are to hold, and are watched after each batch."""
    after = CONTRACTS.decode(question.cursor)
    with contracts_snapshot(asked) as snapshot:
        dependent = None if question.dependent is None else contract_side(snapshot, question.dependent, "dependent")
        referenced = None if question.referenced is None else contract_side(snapshot, question.referenced, "referenced")
        asked.stop_if_known()
        found = snapshot.contracts(0 if after is None else int(after[0]), question.limit + 1, dependent, referenced)
        page = page_of(found, question.limit, lambda one: (one.contract_id,))
    return shapes.ContractsPage.page(snapshot.head, CONTRACTS, page, shapes.Contract.of)


@router.post("", status_code=201, responses=documented(404, 409, 422, 500, 503))
def add_contract(request: Request, response: Response, contracts: Kept, body: shapes.NewContract) -> shapes.Contract:
    """Demand that so many of some columns' values are in others'; the answer says how it stands."""
    added = contracts.add(body.to_core(), body.least, who_says(request, body.created_by))
    response.headers["Location"] = f"{router.prefix}/{added.contract_id}"
    return shapes.Contract.of(added)


@router.get("/transitions", responses=_answered("A page of transitions") | documented(404, 410, 422, 500, 503))
def list_all_contract_transitions(
    asked: Asked, question: Annotated[shapes.EventsQuestion, Query()]
) -> shapes.ContractTransitionsPage:
    """List when contracts were violated and mended after a version, oldest first."""
    return _transitions(asked, None, question)


@router.get("/{contract_id}", responses=_answered("A contract") | documented(404, 422, 500, 503))
def show_contract(asked: Asked, contract_id: ContractPath, _: Annotated[schemas.Question, Query()]) -> shapes.Contract:
    """Show a contract as it stands."""
    with contracts_snapshot(asked) as snapshot:
        found = snapshot.contract(contract_id)
        asked.stop_if_known()
    return shapes.Contract.of(found)


@router.delete("/{contract_id}", status_code=204, responses=documented(404, 422, 500, 503))
def remove_contract(contracts: Kept, contract_id: ContractPath) -> None:
    """Forget a contract with its transitions."""
    contracts.remove(contract_id)


@router.get(
    "/{contract_id}/transitions", responses=_answered("A page of transitions") | documented(404, 410, 422, 500, 503)
)
def list_contract_transitions(
    asked: Asked, contract_id: ContractPath, question: Annotated[shapes.EventsQuestion, Query()]
) -> shapes.ContractTransitionsPage:
    """List when a contract was violated and mended after a version, oldest first."""
    return _transitions(asked, contract_id, question)


def _transitions(
    asked: Asking, contract_id: int | None, question: shapes.EventsQuestion
) -> shapes.ContractTransitionsPage:
    after = TRANSITIONS.decode(question.cursor)
    with contracts_snapshot(asked) as snapshot:
        check_since(snapshot, question.since)
        if contract_id is not None:
            snapshot.contract(contract_id)
        if question.since == 0:
            asked.depends_on_history(snapshot)
        asked.stop_if_known()
        # Of the version itself come transitions of contracts that were added after it, some of them once more.
        behind = (question.since, 0) if after is None else after
        found = snapshot.contract_events(contract_id, behind, question.limit + 1, since=question.since)
        page = page_of(found, question.limit, lambda one: (one.version, one.contract_id))
    return shapes.ContractTransitionsPage.page(
        snapshot.head, TRANSITIONS, page, shapes.ContractTransition.of, since=question.since
    )
