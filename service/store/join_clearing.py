"""Own what is left over of join indexes: segments that no index has, of jobs that died."""

from __future__ import annotations

from typing import Any

from service.store.locks import end_sessions

TASK_NAME = "subsetd join index task"


def clear(cursor: Any, corpus_id: int) -> None:
    """Clear an index of what jobs that died left; the caller holds its lock, as `join_loads.building` does."""
    end_sessions(cursor, f"{TASK_NAME} {corpus_id}")
    delete_others(cursor, corpus_id)


def delete_others(cursor: Any, corpus_id: int) -> None:
    """Delete the segments that the corpus' index lacks; who searches one goes on with what it has seen.

    The caller holds the index by `join_loads.building`.
    """
    cursor.execute(
        "DELETE FROM join_segment s WHERE corpus_id = %s AND NOT EXISTS (SELECT FROM join_index i "
        "WHERE i.corpus_id = s.corpus_id AND s.segment_id = ANY (i.segment_ids))",
        (corpus_id,),
    )
