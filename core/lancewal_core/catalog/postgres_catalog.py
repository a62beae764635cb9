"""A catalog in PostgreSQL, which SQL tools read too.

Guarantees, besides those of ``catalog``
 1. Each call is one statement, and one more on a new connection.  A deletion that finds nothing to delete is two
    statements.
    ``connections`` has the time limits.
 2. ``CatalogRefused``: the schema is missing, newer than this release, or older than the release before.
 3. Nothing that the protocol promises lies here.  A server that lost its last commits may confirm a swap a second time.
    ``server`` tells that another server, or another history, answers.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

from lancewal_core.catalog.cut import Cut
from lancewal_core.catalog.entry import TableEntry
from lancewal_core.catalog.postgres.connections import Connections
from lancewal_core.catalog.postgres.rows import Document, Documents
from lancewal_core.catalog.report import Server, TableReport
from lancewal_core.catalog.table_name import NAME_MAX
from lancewal_core.errors import ObjectCorrupt

D = TypeVar("D", TableEntry, Cut)
_TIMELINE = slice(0, 8)
"""Place of the timeline in the name of a file of PostgreSQL's write-ahead log."""


class PostgresCatalog:
    """A catalog in PostgreSQL.  Raises ``InvalidSettings`` if the address is not valid.

    ``root`` is the address below which new tables are created.  None: each new table needs its own address.
    """

    keeps_cuts = True

    def __init__(self, url: str, password: str = "", root: str | None = None) -> None:
        self._connections = Connections(url, password)
        self._entries, self._cuts = Documents(self._connections, "entries"), Documents(self._connections, "cuts")
        self.where, self.root = self._connections.shown, root

    def tables(self) -> Mapping[str, TableEntry]:
        return {name: self._entry(name, text) for name, text in self._entries.all()}

    def table(self, name: str) -> TableEntry | None:
        text = self._entries.one(name)
        return None if text is None else self._entry(name, text)

    def swap_table(self, name: str, instead_of: TableEntry | None, new: TableEntry | None) -> bool:
        return _swap(self._entries, name, instead_of, new)

    def cuts(self) -> Mapping[str, Cut]:
        return {name: self._cut(name, text) for name, text in self._cuts.all()}

    def cut(self, name: str) -> Cut | None:
        text = self._cuts.one(name)
        return None if text is None else self._cut(name, text)

    def swap_cut(self, name: str, instead_of: Cut | None, new: Cut | None) -> bool:
        if instead_of is not None and new is not None and not (instead_of.moving and new.moving):
            raise AssertionError(f"cut {name!r}: a kept cut was to be changed, or kept and moving were to change")
        return _swap(self._cuts, name, instead_of, new)

    def _entry(self, name: str, text: str) -> TableEntry:
        where = f"{self.where}: {name[:NAME_MAX]} in {self._entries.table}"
        return _checked(TableEntry.decode(text.encode(), where), name, where)

    def _cut(self, name: str, text: str) -> Cut:
        where = f"{self.where}: {name[:NAME_MAX]} in {self._cuts.table}"
        return _checked(Cut.decode(text.encode(), where), name, where)

    def server(self) -> Server:
        """Return the identity of the server that answers now."""
        statement = b"SELECT (SELECT system_identifier FROM pg_control_system()), pg_walfile_name(pg_current_wal_lsn())"
        [(system, file)] = self._connections.run(statement)
        return Server(system, int(file[_TIMELINE], 16))

    def reported_to(self, table_uuid: str) -> Server | None:
        """Return the server that received the newest report about a table.  None: there is no report, or it does not
        tell the server."""
        statement = b"SELECT system_identifier, timeline FROM lancewal.reports WHERE table_uuid = %s"
        rows = self._connections.run(statement, (table_uuid,))
        return Server(*rows[0]) if rows and None not in rows[0] else None

    def report(self, report: TableReport, server: Server) -> None:
        """Replace the report about a table, and note the server that received it."""
        statement = (
            b"INSERT INTO lancewal.reports (table_uuid, merged_version, merged_at, lag_seconds, system_identifier, timeline) "
            b"VALUES (%s, %s, to_timestamp(%s::double precision / 1000), %s, %s, %s) ON CONFLICT (table_uuid) DO UPDATE SET "
            b"merged_version = excluded.merged_version, merged_at = excluded.merged_at, "
            b"lag_seconds = excluded.lag_seconds, system_identifier = excluded.system_identifier, "
            b"timeline = excluded.timeline, reported_at = now()"
        )
        of = (report.table_uuid, report.merged_version, report.merged_ms, report.lag_s, server.system, server.timeline)
        self._connections.run(statement, of)


def _swap(rows: Documents, name: str, instead_of: D | None, new: D | None) -> bool:
    if new is not None and new.name != name:
        raise AssertionError(f"an entry or cut named {new.name!r} was to be stored under another name: {name!r}")
    before = None if instead_of is None else instead_of.write_id
    document = None if new is None else Document(new.write_id, new.encode().decode())
    return rows.swap(name, before, document)


def _checked(found: D, name: str, where: str) -> D:
    if found.name != name:
        raise ObjectCorrupt(f"{where} is corrupt: it has the name {found.name[:NAME_MAX]!r}", object=where)
    return found
