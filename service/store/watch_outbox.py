"""Own what is to be delivered of watches' alerts, and what became of it."""

from __future__ import annotations

from sqlalchemy import Engine, text

from service.store.watches import ALERT, alert_of, channel_of
from service.usecases.watches import Alert, Channel

# Of each watch the oldest: what comes behind it waits for it.
PENDING = f"""
select {ALERT}, channel, secret from (
    select distinct on (watch_id) a.*, w.channel, w.secret from watch_alert a join watch w using (watch_id)
    where state = 'pending' and (cast(:watch_id as integer) is null or watch_id = :watch_id) order by watch_id, alert_id
) oldest order by attempts, alert_id limit :limit
"""
DELIVERED = """
update watch_alert set state = 'delivered', attempts = attempts + 1, fault = null, ended_at = now()
where alert_id = :alert_id and state = 'pending'
"""
FAILED = """
update watch_alert set attempts = attempts + 1, fault = :fault,
    state = case when :given_up then 'failed' else state end, ended_at = case when :given_up then now() end
where alert_id = :alert_id and state = 'pending'
"""


class PostgresAlertOutbox:
    """Implement usecases.watches.Outbox, of all watches or of one alone."""

    def __init__(self, engine: Engine, watch_id: int | None = None) -> None:
        self._engine = engine
        self._watch_id = watch_id

    def pending(self, limit: int) -> list[tuple[Alert, Channel]]:
        with self._engine.begin() as connection:
            rows = connection.execute(text(PENDING), {"limit": limit, "watch_id": self._watch_id}).all()
        found = []
        for row in rows:
            fields = row._asdict()
            channel = channel_of(fields.pop("channel"), fields.pop("secret"))
            found.append((alert_of(fields), channel))
        return found

    def delivered(self, alert_id: int) -> None:
        with self._engine.begin() as connection:
            connection.execute(text(DELIVERED), {"alert_id": alert_id})

    def failed(self, alert_id: int, fault: str, *, is_given_up: bool) -> None:
        with self._engine.begin() as connection:
            values = {"alert_id": alert_id, "fault": fault, "given_up": is_given_up}
            connection.execute(text(FAILED), values)
