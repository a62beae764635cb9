"""The Lance tables in the root folder of a catalog.  Lance's directory namespace lists them, so every program sees
the same tables.
"""

from __future__ import annotations

from lance.namespace import DirectoryNamespace
from lance_namespace import ListTablesRequest

from lancewal_core.catalog.table_name import default_uri, is_table_name
from lancewal_core.errors import StoreUnavailable
from lancewal_core.process.library_errors import first_line
from lancewal_core.settings.load import Settings


def tables_below(root: str, settings: Settings) -> dict[str, str]:
    """Return the addresses of the Lance tables in the catalog's root folder.  Their names follow from their folders."""
    options = {f"storage.{name}": value for name, value in settings.storage.options.items()}
    found: list[str] = []
    page: str | None = None
    try:
        namespace = DirectoryNamespace(root=root, manifest_enabled="false", **options)  # type: ignore[no-untyped-call]
        while page != "":
            answer = namespace.list_tables(ListTablesRequest(id=[], page_token=page))
            found += answer.tables
            page = answer.page_token or ""
    except Exception as error:  # Lance's errors have no common class
        raise StoreUnavailable(f"cannot list the tables in {root}: {first_line(error)}") from error
    return {name: default_uri(root, name) for name in sorted(found) if is_table_name(name)}
