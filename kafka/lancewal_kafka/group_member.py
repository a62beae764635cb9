"""The Kafka client id of an ingest, which tells everybody who describes the consumer group which table the member works for.

``lancewal:<table uuid>:<place>``.  A person may give clients another name (``kafka.options``: ``client.id``); such a member
tells nothing.
"""

from __future__ import annotations

from dataclasses import dataclass

from lancewal_core.store.place import place_of

_OURS = "lancewal"


@dataclass(frozen=True, slots=True)
class MemberTable:
    """The table that a member works for."""

    table_uuid: str
    place: str


def member_id(table_uuid: str, uri: str) -> str:
    """The client id of an ingest of the table at ``uri``."""
    return f"{_OURS}:{table_uuid}:{place_of(uri)}"


def parse_member_id(client_id: str) -> MemberTable | None:
    """Inverse of ``member_id``; None for any other client's."""
    parts = client_id.split(":", 2)
    return MemberTable(parts[1], parts[2]) if len(parts) == 3 and parts[0] == _OURS else None
