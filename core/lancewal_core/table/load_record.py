"""The beginning of a bulk load: what had been merged when the load was named for the first time.

Everything that is merged after the beginning is newer than the rows of the load, deletes above all.  A load that is
repeated under the same name still knows of these merges.  The record is immutable and kept for ever: if a name were
forgotten, its load would begin again.  Its key is ``paths.load_record``.
"""

from __future__ import annotations

from typing import Annotated, Self

from pydantic import Field

from lancewal_core.errors import InvalidInput, ObjectCorrupt
from lancewal_core.names import paths
from lancewal_core.names.ids import Generation, Making, Region
from lancewal_core.store.json_model import StoredVersion, Version1, Word
from lancewal_core.store.json_object import JsonFault, region_named
from lancewal_core.store.object_store import Done, ObjectStore, put_new
from lancewal_core.table.contract import Contract

NAME_MAX = 200


class LoadRecord(StoredVersion):
    """The newest merged generation of each region (0: none)."""

    what = "beginning of a load"
    format: Version1 = 1
    began_at_ms: int
    topic_id: Word
    """Topic id of the contract then: regions of another topic are not those of today."""
    merged: dict[str, Annotated[int, Field(ge=0, le=2**63 - 1)]]
    """Newest merged generations, by the region's name."""

    @classmethod
    def decode(cls, data: bytes, where: str) -> Self:
        """Decode as every ``StoredVersion``.  ``ObjectCorrupt`` also if ``merged`` has a name that no region has."""
        record = super().decode(data, where)
        try:
            for name in record.merged:
                region_named(name)
        except JsonFault as error:
            raise ObjectCorrupt(
                f"{where}, which records the beginning of a load, is corrupt: {error}", object=where
            ) from error
        return record

    def generation(self, region: Region) -> Generation:
        """Return the region's newest generation that was merged before the load began; 0 if there was none."""
        return Generation(self.merged.get(region.name, 0))


def begin_load(
    store: ObjectStore, name: str, contract: Contract, record: LoadRecord, *, look_only: bool = False
) -> LoadRecord:
    """Return the beginning of the load ``name``: ``record``, which is stored now, or the record of an earlier try.
    With ``look_only``, nothing is stored.

    Raise ``InvalidInput`` for a name that is not valid, or a load of another topic.  Raise ``StoreUnavailable`` without
    a verdict.
    """
    if len(name) > NAME_MAX:
        raise InvalidInput(f"a load's name has at most {NAME_MAX} characters, this one {len(name)}")
    key = paths.load_record(name, contract.making)
    if look_only:
        found = store.get(key)
    else:
        outcome = put_new(store, key, record.encode(), "run the command again")
        found = None if isinstance(outcome, Done) else outcome.found
    if found is None:
        return record
    began = LoadRecord.decode(found, key)
    if began.topic_id != contract.topic_id:
        raise InvalidInput(
            f"the load {name} began while the table's topic had id {began.topic_id}; now it has {contract.topic_id}, and "
            "the deletes since then are not known. Give the load another name to begin again",
            load=name,
        )
    return began


def read_loads(store: ObjectStore, making: Making | None) -> tuple[str, ...]:
    """Return the names of all loads that ever began."""
    names = (paths.parse_load_record(info.key) for info in store.list(paths.loads_prefix(making)))
    return tuple(sorted(name for name in names if name is not None))
