"""Own what every answer about corpora shares: its generation, its ETag, and how a path names a corpus."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated
from urllib.parse import unquote

from fastapi import Depends, Path, Request, Response

from service.api.asking import IfNoneMatch, Polled
from service.usecases.corpora_ports import Corpora, CorpusSnapshot
from service.usecases.register_corpora import CorpusRegister

CorpusPath = Annotated[
    str, Path(description="name of a corpus, percent-encoded", openapi_examples={"a corpus": {"value": "lake"}})
]


def _corpora(request: Request) -> Corpora:
    corpora: Corpora = request.app.state.corpora
    return corpora


def _register(request: Request) -> CorpusRegister:
    register: CorpusRegister = request.app.state.corpus_register
    return register


Registered = Annotated[Corpora, Depends(_corpora)]
Register = Annotated[CorpusRegister, Depends(_register)]


class CorpusAsking(Polled):
    """Serve one request about a generation of a corpus, and let the answer be named after it."""

    def __init__(self, corpora: Corpora, response: Response, if_none_match: str | None) -> None:
        super().__init__(response, if_none_match)
        self._corpora = corpora

    @contextmanager
    def snapshot(self, corpus: str, generation: int | None, corpus_id: int | None = None) -> Iterator[CorpusSnapshot]:
        """Open the generation that the whole answer is computed from; `corpus` is as in the path, still encoded."""
        with self._corpora.snapshot(unquote(corpus), generation, corpus_id) as snapshot:
            # A corpus that is removed and added again begins anew, with another id.
            self.name_answer(f"{snapshot.corpus.corpus_id}-{snapshot.generation}")
            yield snapshot


async def _asking(request: Request, response: Response, if_none_match: IfNoneMatch = None) -> CorpusAsking:
    return CorpusAsking(request.app.state.corpora, response, if_none_match)


CorpusAsked = Annotated[CorpusAsking, Depends(_asking)]
