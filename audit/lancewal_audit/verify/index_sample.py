"""Sample keys, with present and former values from records and rows, for queries to the indexes.

At most half of the keys have more than one value in an indexed column, by their records.  The others are any keys,
including rows without a record.  A hash of the key chooses them, so each run takes the same keys.  Memory:
``keys_max`` keys, with at most ``VALUES_MAX`` values of a column each.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b

import pyarrow as pa

from lancewal_audit.verify.compare import Key, key_reader, key_table
from lancewal_audit.verify.key_fold import RowOperation, plain_rows, same
from lancewal_core.rows.schema import Op, RowSchema

VALUES_MAX = 4
"""Upper bound of the values that are kept of one key and column: the newest ones."""


@dataclass(frozen=True, slots=True, order=True)
class SampledKey:
    """A key and its values.  ``values``: by column, the oldest first.  A repeated value is only at its last position."""

    hash: int
    key: Key = field(compare=False)
    values: Mapping[str, Sequence[object]] = field(compare=False)


class IndexSample:
    """Sample of up to ``keys_max`` keys, drawn from shares of records and rows."""

    def __init__(self, rows: RowSchema, columns: Sequence[str], keys_max: int) -> None:
        self._rows = rows
        self._columns = {name: rows.table.get_field_index(name) for name in columns}
        self._keys_max = max(keys_max, 2)
        self._key = key_reader(rows)
        self._changed: list[SampledKey] = []
        self._others: list[SampledKey] = []

    @property
    def keys(self) -> Sequence[SampledKey]:
        return [*self._changed, *self._others[: self._keys_max - len(self._changed)]]

    def add(self, records: Sequence[RowOperation], rows: pa.Table) -> None:
        """Sample one share.  ``records``: all records of its keys; ``rows``: their rows in the merged table."""
        values: dict[Key, dict[str, list[object]]] = {}
        for record in sorted(records, key=lambda r: (r.partition, r.offset)):
            key = self._key(record.values)
            if not (self._may_come(self._changed, key) or self._may_come(self._others, key)):
                continue
            known = values.setdefault(key, {name: [] for name in self._columns})
            for name, at in self._columns.items():
                if record.op == Op.UPSERT or (record.op == Op.PATCH and record.carries(at)):
                    _note(known[name], record.values[at])
        names = list(self._rows.primary_key)
        keys = plain_rows(rows, names)
        chosen = [i for i, key in enumerate(keys) if key in values or self._may_come(self._others, key)]
        taken = rows.take(pa.array(chosen, pa.int64()))
        # Without an index there is no column to ask by: pyarrow gives no row for no columns.
        asked = plain_rows(taken, list(self._columns)) if self._columns else [()] * len(chosen)
        for i, row in zip(chosen, asked, strict=True):
            known = values.setdefault(keys[i], {name: [] for name in self._columns})
            for name, value in zip(self._columns, row, strict=True):
                _note(known[name], value)
        for key, found in values.items():
            several = any(len(seen) > 1 for seen in found.values())
            stratum, most = (self._changed, self._keys_max // 2) if several else (self._others, self._keys_max)
            insort(stratum, SampledKey(_hash(key), key, {name: seen[-VALUES_MAX:] for name, seen in found.items()}))
            del stratum[most:]

    def _may_come(self, stratum: Sequence[SampledKey], key: Key) -> bool:
        most = self._keys_max // 2 if stratum is self._changed else self._keys_max
        return len(stratum) < most or _hash(key) < stratum[-1].hash

    def key_table(self) -> pa.Table:
        """Return the sampled keys as a table of the primary key's columns."""
        return key_table(self._rows, [found.key for found in self.keys])


def _note(seen: list[object], value: object) -> None:
    seen[:] = [other for other in seen if not same(other, value)]
    seen.append(value)


def _hash(key: Key) -> int:
    return int.from_bytes(blake2b(repr(key).encode(), digest_size=8).digest())
