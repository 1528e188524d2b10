"""Postgres through SQLAlchemy and psycopg2: one unit of work is one transaction."""
