"""Partition in which a record belongs, as the contract says.

1. If rows tell their partition (``Contract.rows_tell_partition``): where the partitioner puts the key that follows from
   the row's region key.  All rows of one region key then belong in one partition, and a row elsewhere is misrouted.
2. Otherwise: where the partitioner puts the record's own key, whatever its bytes are.  A record without a key belongs
   in no partition.  This finds a producer with another partitioner, but not one that gives one primary key several
   record keys.  The merge finds such primary keys (``RegionConflict``).
3. With ``table.partitioner: none``: where it lies.
4. Only rows are checked, and records that are rejected only for a key form that the contract does not list.  A record
   that is passed over may have no key, or the key of something else.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lancewal_core.names.ids import Region
from lancewal_core.record_keys.key_format import KeyCodec
from lancewal_core.record_keys.why_misrouted import other_partitioner, why_misrouted
from lancewal_core.table.contract import Contract
from lancewal_ingest.decode.outcomes import Decoded
from lancewal_kafka.records import Records

Partitions = npt.NDArray[np.int32]
_AROUND = 50
"""Number of keys before a misrouted record, and after it, that show which partitioner the producer has used."""


class Routing:
    """Rule of a contract that assigns records to partitions."""

    def __init__(self, contract: Contract) -> None:
        self._contract = contract
        self._codec = None if contract.partitioner == "none" else contract.key_codec
        self.subject = "key" if self._codec is None else "region key"
        """The word for the routed key in messages."""

    def partitions(self, records: Records, decoded: Decoded, lies: Partitions) -> Partitions:
        """Return the partition to which each record of ``decoded.is_placed`` belongs; -1 if it belongs to none.

        ``records``: the records that were decoded.  ``lies``: the partition in which each of them lies.
        """
        if self._codec is not None:
            return self._contract.partitions_of(self._encoded(self._codec, decoded.rows))  # no such key has a form
        placed, of_all = decoded.is_placed, lies
        if self._contract.partitioner != "none":
            of_all = self._contract.partitions_of(pa.array(records.keys, pa.binary()))
        found: Partitions = of_all if placed.all() else of_all[placed]
        return found

    def cause(self, records: Records, at: int, row: pa.RecordBatch, region: Region) -> str:
        """Return a sentence that explains why the record at index ``at`` lies in a wrong partition.

        ``records``: all records of its region.  ``row``: the row of that record, if rows tell their partition.
        """
        contract, keys = self._contract, records.keys
        encoded = None if self._codec is None else self._encoded(self._codec, row)[0].as_py()
        why = why_misrouted(contract.record_rows, contract.key_format, keys[at], encoded, contract.partitioner)
        around = [(key, region.partition) for key in keys[max(0, at - _AROUND) : at + _AROUND]]
        other = other_partitioner(around, contract.partitions, contract.partitioner)
        return why if other is None else f"{why}. {other}"

    def _encoded(self, codec: KeyCodec, rows: pa.RecordBatch) -> pa.Array:
        return codec.encode_batch([rows.column(name) for name in self._contract.region_key])
