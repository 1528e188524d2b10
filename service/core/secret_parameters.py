"""Own which parameters of a Postgres address are not shown or kept: passwords, and the files that hold secrets."""

SECRET_PARAMETERS = frozenset({"password", "passfile", "sslpassword", "sslkey"})
"""Names of libpq's connection parameters."""
