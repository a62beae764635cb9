"""Documents of one table of the schema, each under a name, with the compare-and-swap of catalogs.

Each swap is one statement, and a deletion that finds nothing to delete is one more.  A swap may run again after its
answer was lost.  It then finds the new document, and returns True again.
"""

from __future__ import annotations

from typing import NamedTuple

from lancewal_core.catalog.postgres.connections import Connections


class Document(NamedTuple):
    """One version of a document."""

    write_id: str
    """Differs in every version."""
    content: str
    """The document as JSON text."""


class Documents:
    """Documents of the table ``lancewal.<table>``."""

    def __init__(self, connections: Connections, table: str) -> None:
        self._connections, self.table = connections, f"lancewal.{table}"

    def all(self) -> list[tuple[str, str]]:
        """Return name and content of all documents, in the order of names."""
        return sorted((str(name), str(text)) for name, text in self._run(b"SELECT name, content::text FROM {}"))

    def one(self, name: str) -> str | None:
        """Return the content of one document; None if there is none."""
        rows = self._run(b"SELECT content::text FROM {} WHERE name = %s", name)
        return str(rows[0][0]) if rows else None

    def swap(self, name: str, instead_of: str | None, new: Document | None) -> bool:
        """Replace the document that has the write id ``instead_of`` by ``new``.  None stands for no document.  Return
        whether ``new`` is stored.
        """
        if new is None:
            gone = self._run(b"DELETE FROM {} WHERE name = %s AND write_id = %s RETURNING 1", name, instead_of)
            return bool(gone) or self.one(name) is None  # another deletion may have come first
        if instead_of is None:
            statement = (
                b"INSERT INTO {} AS old (name, write_id, content) VALUES (%s, %s, %s::jsonb) ON CONFLICT (name) "
                b"DO UPDATE SET write_id = old.write_id WHERE old.write_id = excluded.write_id RETURNING 1"
            )
            return bool(self._run(statement, name, new.write_id, new.content))
        statement = (
            b"UPDATE {} SET write_id = %s, content = %s::jsonb WHERE name = %s AND write_id IN (%s, %s) RETURNING 1"
        )
        return bool(self._run(statement, new.write_id, new.content, name, instead_of, new.write_id))

    def _run(self, statement: bytes, *values: str | None) -> list[tuple[object, ...]]:
        return self._connections.run(statement.replace(b"{}", self.table.encode()), values)
