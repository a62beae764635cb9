"""The Kafka client id of an ingest.  A description of the consumer group shows by it which table a member works for.

The id is ``lancewal:<table uuid>:<place>``.  A person may give clients another id (``kafka.options``: ``client.id``).  The
table of such a member is not known.
"""

from __future__ import annotations

from dataclasses import dataclass

from lancewal_core.store.address import place_of

_OURS = "lancewal"


@dataclass(frozen=True, slots=True)
class MemberTable:
    """The table that a member works for."""

    table_uuid: str
    place: str


def member_id(table_uuid: str, uri: str) -> str:
    """Return the client id of an ingest of the table at ``uri``."""
    return f"{_OURS}:{table_uuid}:{place_of(uri)}"


def parse_member_id(client_id: str) -> MemberTable | None:
    """Return the table in a client id that ``member_id`` made; None for any other id."""
    parts = client_id.split(":", 2)
    return MemberTable(parts[1], parts[2]) if len(parts) == 3 and parts[0] == _OURS else None
