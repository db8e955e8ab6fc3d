"""The parameters of a connection URL: libpq's, and some that other clients have made up."""

from __future__ import annotations

from collections.abc import Mapping

ENVIRONMENT: Mapping[str, str] = {
    "host": "PGHOST",
    "hostaddr": "PGHOSTADDR",
    "port": "PGPORT",
    "dbname": "PGDATABASE",
    "user": "PGUSER",
    "password": "PGPASSWORD",
    "passfile": "PGPASSFILE",
    "service": "PGSERVICE",
    "application_name": "PGAPPNAME",
    "options": "PGOPTIONS",
    "connect_timeout": "PGCONNECT_TIMEOUT",
    "target_session_attrs": "PGTARGETSESSIONATTRS",
    "sslmode": "PGSSLMODE",
    "sslrootcert": "PGSSLROOTCERT",
    "sslcert": "PGSSLCERT",
    "sslkey": "PGSSLKEY",
    "sslcrl": "PGSSLCRL",
    "sslnegotiation": "PGSSLNEGOTIATION",
    "ssl_min_protocol_version": "PGSSLMINPROTOCOLVERSION",
    "ssl_max_protocol_version": "PGSSLMAXPROTOCOLVERSION",
    "krbsrvname": "PGKRBSRVNAME",
    "gsslib": "PGGSSLIB",
}
KEEPALIVES = (
    "keepalives",
    "keepalives_idle",
    "keepalives_interval",
    "keepalives_count",
    "tcp_user_timeout",
)
UNDERSTOOD = {*ENVIRONMENT, *KEEPALIVES, "ssl", "sslpassword", "fallback_application_name"}
# libpq knows these and asyncpg does not.  The values that ask for nothing are passed over in silence.
LEFT_OUT: Mapping[str, tuple[str, ...]] = {
    "channel_binding": ("disable", "prefer"),
    "client_encoding": ("utf8", "UTF8", "auto"),
    "gssdelegation": ("0",),
    "gssencmode": ("disable", "prefer"),
    "load_balance_hosts": ("disable",),
    "max_protocol_version": ("3.0", "latest"),
    "min_protocol_version": ("3.0",),
    "oauth_client_id": (),
    "oauth_client_secret": (),
    "oauth_issuer": (),
    "oauth_scope": (),
    "replication": ("false", "off", "no", "0"),
    "require_auth": (),
    "requirepeer": (),
    "requiressl": (),
    "scram_client_key": (),
    "scram_server_key": (),
    "servicefile": (),
    "sslcertmode": ("allow", "disable"),
    "sslcompression": ("0", "1"),
    "sslcrldir": (),
    "sslkeylogfile": (),
    "sslsni": ("0", "1"),
}
INSTEAD: Mapping[str, str] = {
    "connection_limit": "the number of connections is HANGO_DB_POOL_SIZE",
    "database": "its name is dbname",
    "pgbouncer": "hango needs a connection that is not lent out by the transaction",
    "pool_max_conns": "the number of connections is HANGO_DB_POOL_SIZE",
    "schema": "write options=-c%20search_path=NAME",
    "search_path": "write options=-c%20search_path=NAME",
    "statement_timeout": "hango sets it, from HANGO_RUN_LEASE_TTL",
}
