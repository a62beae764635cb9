"""A Lance Namespace over a catalog in PostgreSQL, for Python clients: ``lancewal.namespace.PostgresNamespace``.

All tables lie in the root namespace under their whole names, as in Lance's directory namespace.  The ids
``["shop.orders"]`` and ``["shop", "orders"]`` both mean the table ``shop.orders``.  Tables that were dropped are not
shown.

Tables are registered and deregistered by the rules of ``registration``, with two exceptions.  A name that has an entry
is always refused.  A folder that was moved or copied is refused too, since a person must decide what becomes of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from lance_namespace import (
    DeregisterTableRequest,
    DeregisterTableResponse,
    DescribeNamespaceRequest,
    DescribeNamespaceResponse,
    DescribeTableRequest,
    DescribeTableResponse,
    InternalError,
    InvalidInputError,
    LanceNamespace,
    ListNamespacesRequest,
    ListNamespacesResponse,
    ListTablesRequest,
    ListTablesResponse,
    NamespaceExistsRequest,
    NamespaceExistsResponse,
    NamespaceNotFoundError,
    PermissionDeniedError,
    RegisterTableRequest,
    RegisterTableResponse,
    ServiceUnavailableError,
    TableAlreadyExistsError,
    TableExistsRequest,
    TableExistsResponse,
    TableNotFoundError,
)

from lancewal_core.catalog.catalog import found_table
from lancewal_core.catalog.entry import TableEntry
from lancewal_core.catalog.named import active
from lancewal_core.catalog.opened import open_postgres
from lancewal_core.catalog.table_name import table_name
from lancewal_core.errors import (
    ActionNeeded,
    CatalogRefused,
    InvalidSettings,
    LancewalError,
    Retry,
    StoreRefused,
    TableExists,
    TableUnknown,
)
from lancewal_core.open import Address
from lancewal_core.settings.load import Settings, with_accounts
from lancewal_core.settings.sections import StorageSettings, TableSettings
from lancewal_core.store.address import table_address
from lancewal_core.table.checks import check_place
from lancewal_tables.catalog.registration import forget_table, register_table

_STORAGE = "storage."


class PostgresNamespace(LanceNamespace):
    """Tables of a catalog in PostgreSQL, for Lance's clients.  It lists, describes, registers and deregisters them.

    ``url`` is ``postgresql://USER@HOST/DATABASE``.  Properties with the prefix ``storage.`` are Lance's storage
    options, as for the directory namespace.  Errors are those of ``lance_namespace``.  Only the constructor raises
    ``lancewal.errors.InvalidSettings``: a property is unknown, the address is not valid, or psycopg is not installed.
    """

    def __init__(self, url: str, password: str = "", **properties: str) -> None:
        unknown = sorted(name for name in properties if not name.startswith(_STORAGE))
        if unknown:
            raise InvalidSettings(f"{unknown[0]!a} is not a property: expected url, password, or {_STORAGE}OPTION")
        self._catalog = open_postgres(url, password)
        self._options = {name.removeprefix(_STORAGE): value for name, value in properties.items()}

    def namespace_id(self) -> str:
        return f"PostgresNamespace {{ url: {self._catalog.where!r} }}"

    def list_namespaces(self, request: ListNamespacesRequest) -> ListNamespacesResponse:
        _only_root(request.id)
        return ListNamespacesResponse(namespaces=[])

    def describe_namespace(self, request: DescribeNamespaceRequest) -> DescribeNamespaceResponse:
        _only_root(request.id)
        return DescribeNamespaceResponse()

    def namespace_exists(self, request: NamespaceExistsRequest) -> NamespaceExistsResponse:
        _only_root(request.id)
        return NamespaceExistsResponse()

    def list_tables(self, request: ListTablesRequest) -> ListTablesResponse:
        """Return the names of the active tables in order, at most ``limit`` of them.  ``page_token`` is the last name
        of the page before."""
        _only_root(request.id)
        if request.limit is not None and request.limit < 1:
            raise InvalidInputError(f"limit {request.limit} is not valid: expected 1 or more")
        with _told():
            names = [name for name, entry in self._catalog.tables().items() if entry.state == "active"]
        names = [name for name in names if name > (request.page_token or "")]
        page = names if request.limit is None else names[: request.limit]
        return ListTablesResponse(tables=page, page_token=page[-1] if page and len(page) < len(names) else None)

    def describe_table(self, request: DescribeTableRequest) -> DescribeTableResponse:
        """Return the table's address, which Lance opens."""
        name = _name(request.id)
        entry = self._active(name)
        properties = {"table_uuid": entry.table_uuid or "", "topic": entry.topic}
        return DescribeTableResponse(
            table=name, namespace=[], location=entry.uri, table_uri=entry.uri, properties=properties
        )

    def table_exists(self, request: TableExistsRequest) -> TableExistsResponse:
        self._active(_name(request.id))
        return TableExistsResponse()

    def register_table(self, request: RegisterTableRequest) -> RegisterTableResponse:
        """Add the lancewal table at the address ``location``, and write the name into its contract."""
        name = _name(request.id)
        with _told():
            settings = self._settings(request.location)
            address = Address.of(settings)
            check_place(address.uri, address.contract())
            if self._catalog.table(name) is not None:
                raise TableAlreadyExistsError(f"the catalog {self._catalog.where} has a table {name} already")
            entry = register_table(self._catalog, settings, name).entry
        return RegisterTableResponse(location=entry.uri)

    def deregister_table(self, request: DeregisterTableRequest) -> DeregisterTableResponse:
        """Remove the table's entry.  The table stays.  Raises ``InvalidInputError`` if the table is in a kept cut."""
        name = _name(request.id)
        self._active(name)
        with _told():
            entry = forget_table(self._catalog, name)
        return DeregisterTableResponse(id=request.id, location=entry.uri)

    def _settings(self, location: str) -> Settings:
        """Return settings with the table's address ``location`` and the storage options of the properties."""
        table_address(location)
        storage = StorageSettings(options=self._options)
        settings = with_accounts(Settings(table=TableSettings(uri=location), storage=storage))
        settings.need("table.uri")
        return settings

    def _active(self, name: str) -> TableEntry:
        with _told():
            return active(self._catalog, found_table(self._catalog, name))


def _name(parts: list[str] | None) -> str:
    with _told():
        return table_name(".".join(parts or []))


def _only_root(parts: list[str] | None) -> None:
    if parts:
        raise NamespaceNotFoundError(
            f"{'.'.join(parts)[:200]}: all tables lie in the root namespace, under their names"
        )


_ERRORS: tuple[tuple[type[LancewalError], Callable[[str], Exception]], ...] = (
    (TableUnknown, TableNotFoundError),
    (TableExists, TableAlreadyExistsError),
    (CatalogRefused, PermissionDeniedError),
    (StoreRefused, PermissionDeniedError),
    (Retry, ServiceUnavailableError),
    (ActionNeeded, InvalidInputError),
    (LancewalError, InternalError),
)
"""Classes of lancewal's errors, each with the namespace's error to raise instead.  The first class that an error
belongs to counts."""


@contextmanager
def _told() -> Iterator[None]:
    """Convert lancewal's errors in the ``with`` block to errors of ``lance_namespace``."""
    try:
        yield
    except LancewalError as error:
        of_namespace = next(of_namespace for kind, of_namespace in _ERRORS if isinstance(error, kind))
        raise of_namespace(str(error)) from error
