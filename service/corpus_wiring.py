"""Own the composition of corpora: what registers them, and what searches their tables."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import partial
from shutil import rmtree
from typing import TYPE_CHECKING

from sqlalchemy import Engine

from service import wiring
from service.config import Settings
from service.job_process import require_readable_scheme
from service.scheduler import next_time
from service.store.corpora import PostgresCorpora
from service.usecases.corpora import Corpus, index_folder
from service.usecases.register_corpora import CorpusRegister

if TYPE_CHECKING:  # most commands of corpora search nothing
    from service.usecases.joinable_details import JoinSearch


@contextmanager
def corpus_register(*, migrate: bool = False) -> Iterator[CorpusRegister]:
    """Give the register of corpora on the state's database, for a command."""
    settings = wiring.configured_settings()
    with wiring.state_database(settings, migrate=migrate) as url, wiring.reading_engine(url) as engine:
        yield make_corpus_register(engine, settings)


def make_corpus_register(engine: Engine, settings: Settings) -> CorpusRegister:
    """Make what registers and removes corpora."""
    now = partial(datetime.now, UTC)
    corpora = PostgresCorpora(engine)
    return CorpusRegister(corpora, next_time, now, partial(_remove_index, settings, corpora), require_readable_scheme)


def _remove_index(settings: Settings, corpora: PostgresCorpora, corpus: Corpus) -> None:
    """Remove the index of a corpus that is gone; a folder that the user has named stays."""
    if corpus.settings.index is None:
        rmtree(index_folder(corpus, str(settings.data_dir), corpora.database()), ignore_errors=True)


def make_join_search(engine: Engine) -> JoinSearch:
    """Make the search for joinable tables."""
    from service.corpus_row_reader import CorpusRowReader
    from service.store.join_index import PostgresJoinIndexes
    from service.store.join_tracked_search import PostgresTrackedTables
    from service.usecases.joinable_details import JoinSearch

    corpora = PostgresCorpora(engine)
    return JoinSearch(PostgresJoinIndexes(engine), PostgresTrackedTables(engine), corpora, CorpusRowReader(corpora))
