"""Run the migrations on the connection or address that the caller put into the Alembic config."""

from __future__ import annotations

from alembic import context
from sqlalchemy import Connection, create_engine

from service.store.tables import metadata


def run(connection: Connection) -> None:
    context.configure(connection=connection, target_metadata=metadata, transaction_per_migration=False)
    with context.begin_transaction():
        context.run_migrations()


given = context.config.attributes.get("connection")
if given is not None:
    run(given)
else:
    url = context.config.get_main_option("sqlalchemy.url")
    if not url:
        raise SystemExit("migrations: no database; run them through `subsetd` or set sqlalchemy.url")
    engine = create_engine(url, hide_parameters=True)
    with engine.connect() as connection:
        run(connection)
        connection.commit()
