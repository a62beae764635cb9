"""Addresses of catalogs that are servers: which ones are allowed.

Guarantees
 1. An address with a password in it is refused, and no part of it is in the message.  An address of PostgreSQL may name a
    user.
 2. An address of PostgreSQL names hosts, a database, and files for TLS.  Other parameters are refused, since they would
    set what lancewal sets, or what a session keeps.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from ipaddress import ip_address
from types import MappingProxyType
from urllib.parse import parse_qsl, urlsplit

from lancewal_core.errors import InvalidSettings

SCHEMES: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {"postgres": ("postgresql", "postgres"), "rest": ("https", "http")}
)
"""Schemes of addresses, for each kind of catalog that is a server."""
_FORMS = {
    "postgres": "postgresql://USER@HOST:PORT/DATABASE, several hosts with commas",
    "rest": "https://HOST:PORT/PATH, or http:// for a server on a trusted network",
}
_PARAMETERS = frozenset({"dbname", "host", "port", "user", "sslmode", "sslrootcert", "sslcert", "sslkey", "sslcrl"})
_HOST = r"(?:[^\s/@:?#\[\],]*|\[[0-9A-Fa-f:.%]+\])(?::\d{1,5})?"
_HOSTS = re.compile(rf"{_HOST}(?:,{_HOST})*")
_DATABASE = re.compile(r"(?:/[^/@:?#]*)?")
_PATH = re.compile(r"(?:/[^@:?#]*)?")
_HIDDEN = "the catalog's address has a secret in it (it is not shown here): set catalog.password, in a secret file"


def kind_of_url(text: str) -> str | None:
    """Return the kind of catalog server that an address with this scheme has; None: ``text`` is a folder's address."""
    scheme = text.partition("://")[0] if "://" in text else ""
    return next((kind for kind, schemes in SCHEMES.items() if scheme in schemes), None)


def catalog_url(url: str, kind: str) -> str:
    """Return ``url``, the address of a server.  Raises ``InvalidSettings`` if this kind of catalog cannot have it, or
    if it holds a secret."""
    wrong = InvalidSettings(f"the catalog's address is not valid (it is not shown here): expected {_FORMS[kind]}")
    try:
        parts = urlsplit(url)
        query = dict(parse_qsl(parts.query, keep_blank_values=True, strict_parsing=bool(parts.query)))
    except ValueError:
        raise wrong from None
    user, at, hosts = parts.netloc.rpartition("@")
    if "password" in query or (at and (kind != "postgres" or set(":@%") & set(user))):
        raise InvalidSettings(_HIDDEN)
    path = (_DATABASE if kind == "postgres" else _PATH).fullmatch(parts.path)
    if parts.scheme not in SCHEMES[kind] or parts.fragment or path is None or not _HOSTS.fullmatch(hosts):
        raise wrong
    if unknown := sorted(query.keys() - (_PARAMETERS if kind == "postgres" else frozenset())):
        raise InvalidSettings(
            f"the catalog's address has the parameter {unknown[0][:40]!a}, which is not allowed there"
            + (f": allowed are {', '.join(sorted(_PARAMETERS))}" if kind == "postgres" else "")
        )
    if kind == "rest" and not hosts:
        raise wrong
    return url.rstrip("/") if kind == "rest" else url


def shown_url(url: str) -> str:
    """Return a valid address in the form for messages: without the user and the parameters."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"


def is_local(host: str) -> bool:
    """Return whether a host, or the folder of a socket, is on this machine.  The empty text counts as local."""
    if host in ("", "localhost") or host.startswith(("/", "@")):
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False
