"""Partition in which a record belongs: by its row's region key, or by the bytes of its own key, as the contract says.

``format.key: canonical`` uses murmur2 of the canonical encoding of the row's region key.  All rows of one region key
then belong in one partition, and a row elsewhere is misrouted.  ``format.key: bytes`` uses murmur2 of the record key,
whatever its bytes are.  A record without a key belongs in no partition.  This finds a producer with another partitioner,
but not one that gives one primary key several record keys.  The merge finds such primary keys (``RegionConflict``).
"""

from __future__ import annotations

from typing import Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lancewal_core.rows.murmur2 import partitions_of
from lancewal_core.rows.region_key import RegionKeyCodec, why_misrouted
from lancewal_core.table.contract import Contract
from lancewal_ingest.decode.outcomes import Decoded
from lancewal_kafka.records import Records

Partitions = npt.NDArray[np.int32]


class Routing(Protocol):
    """Rule that assigns records to partitions.  ``subject`` is the word for messages: "region key" or "key"."""

    subject: str

    def partitions(self, records: Records, decoded: Decoded) -> Partitions:
        """Return the partition in which each row of ``decoded`` belongs; -1 if in none.  ``records`` are its records."""

    def cause(self, key: bytes | None, row: pa.RecordBatch) -> str:
        """Return a sentence that says why a misrouted record with this key and this row lies in a wrong partition."""


def routing_of(contract: Contract) -> Routing:
    """Return the routing rule for the contract's ``key_format``."""
    return _ByRegionKey(contract) if contract.key_format == "canonical" else _ByRecordKey(contract)


class _ByRegionKey:
    def __init__(self, contract: Contract) -> None:
        rows = contract.rows
        self._region_key = rows.region_key
        self._codec = RegionKeyCodec(pa.schema([rows.columns.field(name) for name in rows.region_key]))
        self._partitions = contract.partitions
        self.subject = "region key"

    def partitions(self, records: Records, decoded: Decoded) -> Partitions:
        return partitions_of(self._encoded(decoded.rows), self._partitions)

    def cause(self, key: bytes | None, row: pa.RecordBatch) -> str:
        return why_misrouted(self._region_key, key, self._encoded(row)[0].as_py())

    def _encoded(self, rows: pa.RecordBatch) -> pa.Array:
        return self._codec.encode_batch([rows.column(name) for name in self._region_key])


class _ByRecordKey:
    def __init__(self, contract: Contract) -> None:
        self._partitions = contract.partitions
        self.subject = "key"

    def partitions(self, records: Records, decoded: Decoded) -> Partitions:
        belongs = partitions_of(pa.array(records.keys, pa.binary()), self._partitions)
        found: Partitions = belongs if decoded.is_row.all() else belongs[decoded.is_row]
        return found

    def cause(self, key: bytes | None, row: pa.RecordBatch) -> str:
        return why_misrouted((), key, None)
