"""Own what answers about contracts and decisions share: their snapshot, and an ETag that changes with them too."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated

from fastapi import Depends, Path, Request

from service.api.asking import Asking
from service.usecases.foreign_key_decisions import Contracts
from service.usecases.ports import StateSnapshot

ContractPath = Annotated[
    int, Path(ge=0, lt=1 << 31, description="id of a contract", openapi_examples={"a contract": {"value": 1}})
]

ETAG = ("state version, and what there is of contracts and decisions, quoted", '"3-1.1.1"')


@contextmanager
def contracts_snapshot(asked: Asking, *, with_values: bool = False) -> Iterator[StateSnapshot]:
    """Open the snapshot of an answer about contracts or decisions, which are beside all versions."""
    with asked.snapshot(with_values=with_values) as snapshot:
        asked.name_answer(f"{snapshot.head.version}-{snapshot.contracts_tag()}")
        yield snapshot


def _contracts(request: Request) -> Contracts:
    contracts: Contracts = request.app.state.contracts
    return contracts


Kept = Annotated[Contracts, Depends(_contracts)]
