"""Own what is to be delivered of watches' alerts, and what became of it."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from sqlalchemy import Connection, Engine, text

from service.store.watches import ALERT, SILENCED, alert_of, channel_of
from service.usecases.watch_evaluation import can_be_told_later, columns_of
from service.usecases.watches import Alert, AlertKind, Channel, Silence

# Of each watch the oldest: what comes behind it waits for it.
PENDING = f"""
select {ALERT}, channel, secret from (
    select distinct on (watch_id) a.*, w.channel, w.secret from watch_alert a join watch w using (watch_id)
    where state = 'pending' and (cast(:watch_id as integer) is null or watch_id = :watch_id) order by watch_id, alert_id
) oldest order by attempts, alert_id
"""
# One that was on its way when it was silenced was delivered all the same.
DELIVERED = """
update watch_alert set state = 'delivered', attempts = attempts + 1, fault = null, ended_at = now()
where alert_id = :alert_id and state in ('pending', 'silenced')
"""
FAILED = """
update watch_alert set attempts = attempts + 1, fault = :fault,
    state = case when :given_up then 'failed' else state end, ended_at = case when :given_up then now() end
where alert_id = :alert_id and state = 'pending'
"""


SILENCE = "update watch_alert set state = 'silenced', ended_at = now() where alert_id = :alert_id and state = 'pending'"
# What still stands of it is to be told when the silence ends; where it names not all, all of its watch.
TELL_LATER = """
update watch_standing set told = false, is_muted = true, turns = greatest(turns, 1)
where watch_id = :watch_id and is_bad and told and (:more or subject ->> 'name' = any (:names))
"""


class PostgresAlertOutbox:
    """Implement usecases.watches.Outbox, of all watches or of one alone."""

    def __init__(self, engine: Engine, watch_id: int | None = None) -> None:
        self._engine = engine
        self._watch_id = watch_id

    def pending(self, begun: Collection[int]) -> list[tuple[Alert, Channel]]:
        with self._engine.begin() as connection:
            rows = connection.execute(text(PENDING), {"watch_id": self._watch_id}).all()
            silences = [Silence(**row._mapping) for row in connection.execute(text(SILENCED))]
            found: list[tuple[Alert, Channel]] = []
            for row in rows:
                fields = row._asdict()
                channel = channel_of(fields.pop("channel"), fields.pop("secret"))
                alert = alert_of(fields)
                if alert.alert_id in begun or not _is_silenced(alert, silences):
                    found.append((alert, channel))
                elif can_be_told_later(alert):
                    _silence(connection, alert)
        return found

    def delivered(self, alert_id: int) -> None:
        with self._engine.begin() as connection:
            connection.execute(text(DELIVERED), {"alert_id": alert_id})

    def failed(self, alert_id: int, fault: str, *, is_given_up: bool) -> None:
        with self._engine.begin() as connection:
            values = {"alert_id": alert_id, "fault": fault, "given_up": is_given_up}
            connection.execute(text(FAILED), values)


def _is_silenced(alert: Alert, silences: Sequence[Silence]) -> bool:
    """Tell whether silences cover the watch of an alert, or all that it tells of."""
    if alert.watch_id is None or alert.kind is AlertKind.TEST:
        return False
    watch_id, watch, body = alert.watch_id, alert.watch, alert.body
    subjects = [columns_of(one["name"]) for one in body["subjects"]]
    told = [[]] if body["more"] or not subjects else subjects
    return all(any(one.covers(watch_id, watch, *names) for one in silences) for names in told)


def _silence(connection: Connection, alert: Alert) -> None:
    names = [one["name"] for one in alert.body["subjects"]]
    values = {"alert_id": alert.alert_id, "watch_id": alert.watch_id, "names": names, "more": alert.body["more"] > 0}
    connection.execute(text(SILENCE), values)
    connection.execute(text(TELL_LATER), values)
