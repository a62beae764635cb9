"""Values between a flusher and a catalog in PostgreSQL: the state of a table, and the identity of the server."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Server:
    """Identity of a PostgreSQL server.  If it changes, a failover may have lost the newest entries."""

    system: int
    """System identifier.  Another one is another cluster."""
    timeline: int
    """Timeline of the server's write-ahead log.  A replica that is promoted begins a new one."""


@dataclass(frozen=True, slots=True)
class TableReport:
    """State of a table, as its flusher reports it for SQL tools."""

    table_uuid: str
    merged_version: int
    merged_ms: int | None
    """Time when the newest merged rows became durable, in milliseconds since 1970; None: unknown."""
    lag_s: float
    """Age of the oldest rows that are flushed and not merged, in seconds; 0: none wait."""
