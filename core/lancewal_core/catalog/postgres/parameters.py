"""Parameters of a connection to PostgreSQL, from ``catalog.url`` and ``catalog.password``.

Guarantees
 1. A connection to another machine is encrypted, and the server's certificate and name are verified.  An address that
    asks for less is refused.  The authorities are those of ``sslrootcert`` in the address, else of the variable
    ``SSL_CERT_FILE``, else of the system.  The address alone names the server: libpq's variables and services that
    name a host count for nothing.
 2. A connection is opened only to a server that takes writes.
 3. Nothing is set that a session would keep, so that PgBouncer may pool transactions.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

from psycopg import ProgrammingError
from psycopg.conninfo import conninfo_to_dict
from psycopg.pq import Conninfo

from lancewal_core.errors import InvalidSettings
from lancewal_core.settings.catalog_url import catalog_url, is_local

CONNECT_S = 5
"""Time limit for connecting to one host, in seconds."""
_VERIFIED = "verify-full"
_PORT = "5432"


def parameters(url: str, password: str) -> dict[str, Any]:
    """Return the parameters for ``psycopg.connect``.  Raises ``InvalidSettings`` if the address is not valid, or if it
    leads to another machine without verifying the server's certificate.
    """
    try:
        given: dict[str, Any] = conninfo_to_dict(catalog_url(url, "postgres"))
    except ProgrammingError:
        raise InvalidSettings(
            "catalog.url is not a valid address (it is not shown here): expected postgresql://USER@HOST:PORT/DATABASE"
        ) from None
    return {
        "host": "",
        "hostaddr": "",
        **given,
        **_encryption(given),
        **({"password": password} if password else {}),
        "connect_timeout": CONNECT_S,
        "target_session_attrs": "read-write",
        "application_name": "lancewal",
        "client_encoding": "UTF8",
    }


def shown(of: Mapping[str, Any]) -> str:
    """Return the address of the database for messages, without user and parameters.

    Different databases have different addresses.  One database has one address if its hosts are always written alike.
    """
    defaults = {option.keyword.decode(): (option.val or b"").decode() for option in Conninfo.get_defaults()}
    database, ports = (
        str(of.get("dbname") or defaults["dbname"] or of.get("user") or defaults["user"]),
        str(of.get("port") or defaults["port"]).split(","),
    )
    hosts = str(of["host"]).split(",")
    if len(ports) == 1:
        ports *= len(hosts)
    servers = [_server(host, port) for host, port in zip(hosts, ports, strict=False)]
    return f"postgresql://{','.join(servers)}/{quote(database)}"


def _server(host: str, port: str) -> str:
    said = f"[{host}]" if ":" in host else quote(host.lower() if "/" not in host else host, safe="")
    return said if port in ("", _PORT) else f"{said}:{port}"


def _encryption(given: Mapping[str, Any]) -> dict[str, str]:
    mode = given.get("sslmode")
    hosts = str(given.get("host") or "").split(",")
    if all(is_local(host) for host in hosts):
        if mode != _VERIFIED:
            return {}
    elif mode not in (None, _VERIFIED):
        raise InvalidSettings(
            f"catalog.url has sslmode={mode}, and its host is another machine: leave sslmode out, since lancewal "
            f"always uses {_VERIFIED} there. A private authority is named by sslrootcert=FILE"
        )
    root = given.get("sslrootcert") or os.environ.get("SSL_CERT_FILE") or "system"
    return {"sslmode": _VERIFIED, "sslrootcert": root}
