"""Own the candidates for foreign keys that are kept, in Postgres: the last finding by each method."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import count, islice
from typing import Any

import orjson
from sqlalchemy import Connection, Engine, text

from service.core.foreign_keys.ranking import Method
from service.store.contracts import NOT_FOLLOWED
from service.store.side_columns import NAMED, SIDES, foreign_key_of, same, side_values
from service.usecases.foreign_key_decisions import Verdict
from service.usecases.foreign_keys import Question
from service.usecases.kept_candidates import Candidate, CandidateFilter, NewCandidate, Refresh

PORTION = 1000

REFRESHES = """
select refresh_id, method, version, made_at, seconds, left_out, candidates, suggested, question
from foreign_key_refresh r, lateral (
    select count(*) as candidates, count(*) filter (where suggested) as suggested from foreign_key_candidate c
    where c.refresh_id = r.refresh_id
) counted order by refresh_id desc
"""

CANDIDATES = f"""
select place, {NAMED}, score, suggested, implied, evidence, (
    select verdict from foreign_key_decision d where {same("d", "c")} order by decision_id desc limit 1
) as verdict
from foreign_key_candidate c
where refresh_id = :refresh_id and place > :after and (suggested or not :only_suggested)
  and (cast(:schema as text) is null or dependent_schema = :schema)
  and (cast(:table as text) is null or dependent_table = :table) and {{condition}}
order by place limit :limit
"""

# Two services may have found by one method: one's finding waits for the other's, which may be long in the making.
ONE_BY_ONE = "set local statement_timeout = 0; lock table foreign_key_refresh in share row exclusive mode"

FORGET = "delete from foreign_key_refresh where method = :method"

KEEP = """
insert into foreign_key_refresh (method, version, seconds, left_out, question)
values (:method, :version, :seconds, :left_out, cast(:question as jsonb)) returning refresh_id
"""

PUT = f"""
insert into foreign_key_candidate (refresh_id, place, {NAMED}, score, suggested, implied, evidence)
values (:refresh_id, :place, {", ".join(f":{one}" for one in SIDES)}, :score, :suggested, :implied,
        cast(:evidence as jsonb))
"""


def read_refreshes(connection: Connection) -> list[Refresh]:
    """List the last finding by each method, newest first."""
    rows = connection.execute(text(REFRESHES))
    return [Refresh(**{**row._mapping, "method": Method(row.method)}) for row in rows]


def read_candidates(
    connection: Connection, refresh_id: int, chosen: CandidateFilter, after: int, limit: int
) -> list[Candidate]:
    """List candidates of a finding by (place)."""
    values: dict[str, Any] = {
        "refresh_id": refresh_id,
        "after": after,
        "only_suggested": chosen.suggested,
        "schema": chosen.schema,
        "table": chosen.table,
        "limit": limit,
    }
    conditions = ["true"]
    if chosen.followed:
        conditions += [f"not {NOT_FOLLOWED.format(side=side)}" for side in ("dependent", "referenced")]
    if chosen.foreign_key is not None:
        conditions += [f"{one} = :{one}" for one in SIDES]
        values |= side_values(chosen.foreign_key)
    if any("\x00" in one for one in (chosen.schema, chosen.table) if one):
        return []  # Postgres keeps no text with NUL and takes none as a parameter.
    return [
        Candidate(
            foreign_key_of(row),
            row.score,
            row.suggested,
            row.implied,
            row.evidence,
            row.place,
            None if row.verdict is None else Verdict(row.verdict),
        )
        for row in connection.execute(text(CANDIDATES.format(condition=" and ".join(conditions))), values)
    ]


def keep(
    engine: Engine,
    question: Question,
    version: int,
    seconds: float,
    left_out: Sequence[str],
    found: Iterator[NewCandidate],
) -> int:
    """Keep a finding in the place of the last one by its method, in one transaction."""
    with engine.begin() as connection:
        connection.execute(text(ONE_BY_ONE))
        connection.execute(text(FORGET), {"method": question.method.value})
        refresh = {
            "method": question.method.value,
            "version": version,
            "seconds": seconds,
            "left_out": list(left_out),
            "question": orjson.dumps(question.options()).decode(),
        }
        refresh_id = int(connection.execute(text(KEEP), refresh).scalar_one())
        places = count()
        while portion := list(islice(found, PORTION)):
            rows = [
                {
                    "refresh_id": refresh_id,
                    "place": next(places),
                    **side_values(one.foreign_key),
                    "score": one.score,
                    "suggested": one.suggested,
                    "implied": one.implied,
                    "evidence": orjson.dumps(one.evidence, option=orjson.OPT_SERIALIZE_NUMPY).decode(),
                }
                for one in portion
            ]
            connection.execute(text(PUT), rows)
    return refresh_id
