"""Choose the keys that are compared, and the share of each key, by a hash of the primary key alone.

Every run with the same fraction chooses the same keys, on every side: records, read and table.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lancewal_core.errors import InvalidInput
from lancewal_core.rows.murmur2 import NO_PARTITION, partitions_of
from lancewal_core.table.contract import Contract

_RANGE = 2**31 - 1
_SALT = pa.scalar(b"verify", pa.binary())
"""Salt of the hash.  Without it a key that is its own region key would have the hash that chose its partition."""

Numbers = npt.NDArray[np.int32]


class KeySample:
    """Choice of keys: those with the lowest ``fraction`` of the hashes, in these partitions (None: all partitions).

    A key's partition follows from today's number of partitions.  Raises ``InvalidInput`` if partitions are given for a
    table whose rows do not tell their partition.
    """

    def __init__(self, contract: Contract, fraction: float, partitions: frozenset[int] | None) -> None:
        rows = contract.rows
        if not contract.rows_tell_partition and partitions is not None:
            raise InvalidInput(
                f"rows of this table do not show their partition ({contract.why_rows_do_not_tell}): keys cannot be chosen "
                "by it. Leave out --partition; --sample and --keys compare fewer keys"
            )
        self._primary_key = rows.primary_key
        self._region_key = rows.region_key
        self._below = int(fraction * _RANGE)
        self._all = fraction >= 1.0
        self._partitions = None if partitions is None else np.array(sorted(partitions), np.int32)
        self._contract = contract
        self._codec = contract.key_codec if contract.rows_tell_partition else None

    def choose(self, batch: pa.RecordBatch) -> tuple[pa.RecordBatch, Numbers, Numbers]:
        """Return the rows with a chosen key, the partition to which each belongs (-1: unknown), and its key's hash."""
        hashes = self._hashes([batch.column(name) for name in self._primary_key])
        belongs = np.full(len(hashes), NO_PARTITION, np.int32)
        if self._codec is not None:
            encoded = self._codec.encode_batch([batch.column(name) for name in self._region_key])
            belongs = self._contract.partitions_of(encoded)
        kept = np.full(len(hashes), True) if self._all else hashes < self._below
        if self._partitions is not None:
            kept &= np.isin(belongs, self._partitions)
        if kept.all():
            return batch, belongs, hashes
        return batch.filter(pa.array(kept)), belongs[kept], hashes[kept]

    def _hashes(self, columns: Sequence[pa.Array]) -> Numbers:
        texts = [_bytes(column) for column in columns]
        # Any function of the key will do, so it does not matter how nulls and NUL bytes are encoded.
        joined = pc.binary_join_element_wise(
            pa.repeat(_SALT, len(columns[0])), *texts, pa.scalar(b"\x00", pa.binary()), null_handling="replace"
        )
        return partitions_of(joined, _RANGE)


def _bytes(column: pa.Array) -> pa.Array:
    if pa.types.is_temporal(column.type):
        column = column.cast(pa.int32() if column.type.bit_width == 32 else pa.int64())
    elif not (pa.types.is_integer(column.type) or pa.types.is_boolean(column.type)):
        return column.cast(pa.binary())
    return column.cast(pa.string()).cast(pa.binary())
