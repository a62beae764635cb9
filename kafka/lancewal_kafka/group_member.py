"""The Kafka client id of an ingest process.  With it, a description of the consumer group shows which table each
member works for.

The id is ``lancewal:<table uuid>:<place>``.  If a person gives clients another id (``kafka.options``: ``client.id``),
the table of such a member is not known.
"""

from __future__ import annotations

from dataclasses import dataclass

from lancewal_core.store.address import place_of

_OURS = "lancewal"


@dataclass(frozen=True, slots=True)
class MemberTable:
    """Table that a member works for: its uuid, and its place (canonical address)."""

    table_uuid: str
    place: str


def member_id(table_uuid: str, uri: str) -> str:
    """Return the client id of an ingest process of the table at ``uri``."""
    return f"{_OURS}:{table_uuid}:{place_of(uri)}"


def parse_member_id(client_id: str) -> MemberTable | None:
    """Return the table in a client id that ``member_id`` made; None for any other id."""
    parts = client_id.split(":", 2)
    return MemberTable(parts[1], parts[2]) if len(parts) == 3 and parts[0] == _OURS else None
