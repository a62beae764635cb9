"""A catalog behind a server of Lance Namespace that lancewal does not run, over REST.

The server keeps a table's name and address.  Names lie in its root namespace, as in Lance's directory namespace.

Guarantees, fewer than those of ``catalog``
 1. The ``write_id`` of an entry follows from its address, as a place (``store.address``).  The server does not tell the
    other facts of an entry: its ``table_uuid`` is None.
 2. Adding a name and removing one are each one request, which the server decides.
 3. A swap to another address reads, removes and adds.  In between the name is missing, and another client's swap may be
    lost.  An entry with the state ``dropped`` is removed.
 4. ``tables`` asks once for each page of names and once for each table, so it shows no single moment.  A listing that
    has no end is an error.
 5. If the server manages the versions of a table, ``table`` raises ``CatalogRefused``, because lancewal commits by
    address.  ``tables`` leaves such a table out.
 6. Cuts lie in ``root``, as in a directory.  Without a root there are none.

A request takes at most ``REQUEST_S`` seconds, and is not repeated.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NoReturn, TypeVar
from urllib.parse import urlsplit

from lance_namespace import DeregisterTableRequest, DescribeTableRequest, RegisterTableRequest
from lance_namespace_urllib3_client.api.table_api import TableApi
from lance_namespace_urllib3_client.api_client import ApiClient
from lance_namespace_urllib3_client.configuration import Configuration
from lance_namespace_urllib3_client.exceptions import ApiException
from pydantic import ValidationError
from urllib3.exceptions import HTTPError

from lancewal_core.catalog.catalog import StoredCatalog, check_keeps_cuts
from lancewal_core.catalog.cut import Cut
from lancewal_core.catalog.entry import TableEntry
from lancewal_core.catalog.table_name import is_table_name, table_name
from lancewal_core.errors import CatalogRefused, CatalogUnavailable, InvalidSettings
from lancewal_core.process.library_errors import without_secrets
from lancewal_core.process.tasks import Tasks
from lancewal_core.settings.catalog_url import catalog_url, is_local, shown_url
from lancewal_core.store.address import place_of

REQUEST_S = 5.0
"""Time limit for a request and its answer, in seconds."""
PAGES_MAX = 10_000
"""Largest number of pages of one listing of names.  A server that gives more has a listing without end."""
_ROOT = "$"
"""The root namespace in a request's path: the delimiter alone."""
_NOT_FOUND, _CONFLICT = 404, 409
_REFUSED = frozenset({401, 403})
_LENGTH_MAX = 300
_SHOWN = 60
T = TypeVar("T")


class RestCatalog:
    """A catalog behind a REST server.  Raises ``InvalidSettings`` if the address is not valid, or if the token would be
    sent unencrypted to another machine.

    ``root`` is the address below which the server's relative locations lie.  ``cuts`` stores the cuts; None if there
    are none.
    """

    def __init__(self, url: str, token: str, root: str | None, cuts: StoredCatalog | None, tasks: Tasks) -> None:
        self._url = catalog_url(url, "rest")
        parts = urlsplit(self._url)
        if token and parts.scheme == "http" and not is_local(parts.hostname or ""):
            raise InvalidSettings("catalog.password would go unencrypted to catalog.url: use an address with https://")
        self.where, self.root = shown_url(self._url), root
        self._cuts, self._tasks = cuts, tasks
        configuration = Configuration(host=self._url, retries=False)
        configuration.ssl_ca_cert = os.environ.get("SSL_CERT_FILE") or None
        header = {"header_name": "Authorization", "header_value": f"Bearer {token}"} if token else {}
        self._api = TableApi(ApiClient(configuration, **header))

    # -- tables ---------------------------------------------------------------------------------------------------

    def tables(self) -> Mapping[str, TableEntry]:
        names = self._names()
        found = self._tasks.map(self._described, sorted(filter(is_table_name, names)))
        return {entry.name: entry for entry, managed in filter(None, found) if not managed}

    def _names(self) -> set[str]:
        """Return the names of all tables, page by page.  Raises ``CatalogRefused`` if the pages have no end."""
        names, pages = set[str](), set[str | None]()
        page: str | None = None
        while page != "":
            pages.add(page)
            answer = self._ask(partial(self._api.list_tables, _ROOT, page_token=page, **_LIMIT))
            names |= set() if answer is None else set(answer.tables)
            page = "" if answer is None else answer.page_token or ""
            if page in pages or len(pages) > PAGES_MAX:
                what = (
                    "repeats the page_token"
                    if page in pages
                    else f"gives more than {PAGES_MAX} pages, the last page_token"
                )
                raise CatalogRefused(
                    f"the catalog {self.where} lists its tables without end: it {what} {page[:_SHOWN]!a}. Correct the server"
                )
        return names

    def table(self, name: str) -> TableEntry | None:
        found = self._described(table_name(name))
        if found is None:
            return None
        entry, managed = found
        if managed:
            raise CatalogRefused(
                f"the server {self.where} manages the versions of table {name}, but lancewal commits by address. Switch "
                "managed versions off for this table"
            )
        return entry

    def swap_table(self, name: str, instead_of: TableEntry | None, new: TableEntry | None) -> bool:
        if new is not None and new.name != name:
            raise AssertionError(f"the entry of table {new.name!r} was to be stored under another name: {name!r}")
        if new is not None and new.state == "dropped":
            new = None
        found = self.table(name)
        if _address(found) == _address(new):
            return True
        if _address(found) != _address(instead_of):
            return False
        if found is not None and not self._removed(name):
            return False
        return new is None or self._added(name, new.uri)

    def _described(self, name: str) -> tuple[TableEntry, bool] | None:
        """Return the entry of a table, and whether the server manages its versions."""
        request = DescribeTableRequest(id=[name])
        answer = self._ask(lambda: self._api.describe_table(name, request, **_LIMIT))
        location = None if answer is None else answer.table_uri or answer.location
        if answer is None or not location:
            return None
        uri = self._uri(location)
        try:
            uri = place_of(uri) if uri else uri
            write_id = hashlib.sha256(uri.encode()).hexdigest()[:32]
            entry = TableEntry(name=name, uri=uri, table_uuid=None, topic="", changed_ms=0, write_id=write_id)
        except InvalidSettings as error:  # the location may have a secret
            raise CatalogRefused(
                f"the catalog {self.where} gives the table {name} a wrong location: {error}"
            ) from error
        except ValidationError as error:
            raise CatalogRefused(
                f"the catalog {self.where} gives the table {name} the location {location[:_LENGTH_MAX]!a}, which is not an "
                "address. Correct it there"
            ) from error
        return entry, bool(answer.managed_versioning)

    def _added(self, name: str, uri: str) -> bool:
        request = RegisterTableRequest(id=[name], location=self._location(uri))
        answer = self._ask(lambda: self._api.register_table(name, request, **_LIMIT), conflicts=True)
        return answer is not None

    def _removed(self, name: str) -> bool:
        request = DeregisterTableRequest(id=[name])
        return self._ask(lambda: self._api.deregister_table(name, request, **_LIMIT)) is not None

    def _location(self, uri: str) -> str:
        """Return the address as the server takes it: relative to the root if it lies there."""
        below = "" if self.root is None else f"{self.root.rstrip('/')}/"
        return uri.removeprefix(below) if below else uri

    def _uri(self, location: str) -> str:
        if "://" not in location and not location.startswith("/"):
            if self.root is None:
                raise CatalogRefused(
                    f"the catalog {self.where} gives the relative location {location[:_LENGTH_MAX]!a}: set catalog.root to "
                    "the address of the server's root"
                )
            return f"{self.root.rstrip('/')}/{location}"
        return location.removeprefix("file://")

    # -- cuts -----------------------------------------------------------------------------------------------------

    @property
    def keeps_cuts(self) -> bool:
        return self._cuts is not None

    def cuts(self) -> Mapping[str, Cut]:
        return {} if self._cuts is None else self._cuts.cuts()

    def cut(self, name: str) -> Cut | None:
        return None if self._cuts is None else self._cuts.cut(name)

    def swap_cut(self, name: str, instead_of: Cut | None, new: Cut | None) -> bool:
        check_keeps_cuts(self)
        assert self._cuts is not None
        return self._cuts.swap_cut(name, instead_of, new)

    # -- requests -------------------------------------------------------------------------------------------------

    def _ask(self, request: Callable[[], T], *, conflicts: bool = False) -> T | None:
        """Return the answer; None if the server has no such table.  With ``conflicts``, return None also if the
        server has one already."""
        try:
            return request()
        except ApiException as error:
            if error.status == _NOT_FOUND or (conflicts and error.status == _CONFLICT):
                return None
            self._raise(error)
        except HTTPError as error:
            text = without_secrets(str(error))[:_LENGTH_MAX]
            kind = CatalogRefused if "CERTIFICATE_VERIFY_FAILED" in text else CatalogUnavailable
            raise kind(
                f"the catalog {self.where} does not answer: {text}. Tables are still opened by their addresses"
            ) from error
        except ValidationError as error:
            raise CatalogUnavailable(
                f"the catalog {self.where} gives an answer that is not one of Lance Namespace: correct catalog.url"
            ) from error

    def _raise(self, error: ApiException) -> NoReturn:
        said = f"the catalog {self.where} answers {error.status}: {_text(error.body)}"
        if error.status in _REFUSED:
            raise CatalogRefused(f"{said}. Correct catalog.password") from error
        if error.status is not None and error.status < 500:
            raise CatalogRefused(f"{said}. Correct catalog.url and the table's address") from error
        raise CatalogUnavailable(f"{said}. Tables are still opened by their addresses") from error


_LIMIT: dict[str, Any] = {"delimiter": _ROOT, "_request_timeout": REQUEST_S}


def _address(entry: TableEntry | None) -> str | None:
    return None if entry is None else entry.uri


def _text(body: object) -> str:
    try:
        found = json.loads(str(body))
        text = str(found.get("detail") or found.get("error") or body)
    except (ValueError, AttributeError):
        text = str(body)
    return " ".join(without_secrets(text).split())[:_LENGTH_MAX]
