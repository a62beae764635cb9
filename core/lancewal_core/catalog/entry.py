"""The entry of a table in a catalog."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal
from uuid import uuid4

from pydantic import AfterValidator, Field

from lancewal_core.catalog.table_name import table_name
from lancewal_core.process.clock import SystemClock
from lancewal_core.store.address import place_of
from lancewal_core.store.json_model import StoredVersion, Version1, Word
from lancewal_core.store.json_object import WHOLE_MAX

if TYPE_CHECKING:
    from lancewal_core.table.contract import Contract

_URI_MAX = 4_096
_TEXT_MAX = 32_767
TableState = Literal["active", "dropped"]
TableName = Annotated[str, AfterValidator(table_name)]


class CatalogRecord(StoredVersion):
    """An object of a catalog.  Members that are None are left out of its JSON."""

    def encode(self) -> bytes:
        return self.model_dump_json(exclude_none=True).encode()


class TableEntry(CatalogRecord):
    """One version of a table's entry.  If the entry and the table's contract differ, the contract is right."""

    what = "entry of a table"
    format: Version1 = 1
    name: TableName
    uri: Annotated[str, Field(min_length=1, max_length=_URI_MAX)]
    """Address of the table's folder, without secrets."""
    table_uuid: Word | None
    """Id of the table in its contract when the entry was written.  None: this catalog stores neither the id nor topic
    and group."""
    topic: Annotated[str, Field(max_length=_TEXT_MAX)]
    group_id: Annotated[str, Field(max_length=_TEXT_MAX)] | None = None
    """Consumer group that takes the table's records; None: the contract names none."""
    state: TableState = "active"
    changed_ms: Annotated[int, Field(ge=0, le=WHOLE_MAX)]
    """Time when the entry was written, in milliseconds since 1970."""
    write_id: Word
    """Differs in every version of every entry.  Two entries are the same version if it is equal."""


def says_the_same(one: TableEntry, other: TableEntry) -> bool:
    """Return whether two entries agree.  The time of writing is ignored, and so are fields that only one entry has."""
    apart = {"changed_ms", "write_id"}
    if one.table_uuid is None or other.table_uuid is None:
        apart |= {"table_uuid", "topic", "group_id"}
    return one.model_dump(exclude=apart) == other.model_dump(exclude=apart)


def entry_of(contract: Contract, name: str, uri: str) -> TableEntry:
    """Return a new entry of the table at ``uri``, by its contract."""
    return TableEntry(
        name=name,
        uri=place_of(uri),
        table_uuid=contract.table_uuid,
        topic=contract.topic,
        group_id=contract.group_id,
        changed_ms=SystemClock().now_ms(),
        write_id=uuid4().hex,
    )
