"""Rows and records of the chosen keys, gathered on disk by share."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

import pyarrow as pa

from lancewal_audit.verify.records.source import Range, RegionRecords
from lancewal_audit.verify.shares.on_disk import Shares
from lancewal_audit.verify.shares.sample import KeySample
from lancewal_core.names.ids import Region
from lancewal_core.table.contract import Contract

PARTITION = "_partition"
"""Additional column of the shares: the partition of a record, or the partition to which a row's key belongs."""
_FIELD = pa.field(PARTITION, pa.int32(), nullable=False)


class ShareWriter:
    """Writes ``count`` shares of each kind of rows into files below ``folder``."""

    def __init__(self, contract: Contract, choice: KeySample, folder: Path, count: int) -> None:
        self._rows = contract.rows
        self._choice = choice
        self._folder = folder
        self.count = count

    def rows(self, name: str, batches: Iterable[pa.RecordBatch]) -> Shares:
        """Write the chosen rows of a table, and return their shares.  The batches have the contract's columns in any order."""
        schema = self._rows.table
        shares = Shares(self._folder / name, schema.append(_FIELD), self.count)
        for batch in batches:
            chosen, belongs, hashes = self._choice.choose(batch.select(schema.names).cast(schema))
            shares.add(_with(chosen, pa.array(belongs), shares.schema), hashes)
        return shares

    def records(self, name: str, taken: Iterable[RegionRecords], ranges: Mapping[Region, Range]) -> Shares:
        """Write the chosen records of a source, and return their shares.  Rejected offsets go to the region's range."""
        shares = Shares(self._folder / name, self._rows.wal.append(_FIELD), self.count)
        for part in taken:
            chosen, _, hashes = self._choice.choose(ranges[part.region].take(part))
            partition = pa.repeat(pa.scalar(part.region.partition, pa.int32()), chosen.num_rows)
            shares.add(_with(chosen, partition, shares.schema), hashes)
        return shares


def _with(batch: pa.RecordBatch, column: pa.Array, schema: pa.Schema) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([*batch.columns, column], schema=schema)
