"""Keys of data files that a merge has just adopted: the merge has read them, so the key index need not read them again.

Guarantees
 1. ``take`` returns the keys of all physical rows of a file, in their order, as the merge has read and checked them; or
    None.  Data files never change, so these keys are never out of date.
 2. Bounded memory: at most ``BYTES_MAX`` bytes of keys are held; keys beyond that are read from the files.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from lancewal_core.table.protocol import fragment_files, fragment_rows

BYTES_MAX = 64 << 20


class AdoptedKeys:
    """Keys of data files that merges adopted, held until the key index gets runs for the files."""

    def __init__(self) -> None:
        self._held: dict[str, pa.Table] = {}
        self._nbytes = 0

    def add(self, fragments: Sequence[str], keys: pa.Table) -> None:
        """Add the ``keys`` of the rows of these fragments, in order.  Each fragment must have one file."""
        start = 0
        for fragment in fragments:
            (name,), rows = fragment_files(fragment), fragment_rows(fragment)
            part = keys.slice(start, rows)
            start += rows
            if self._nbytes + part.nbytes <= BYTES_MAX:
                self._held[name] = part
                self._nbytes += part.nbytes

    def take(self, name: str) -> pa.Table | None:
        """Return the keys of a data file, and forget them; None if they are not held."""
        found = self._held.pop(name, None)
        self._nbytes -= 0 if found is None else found.nbytes
        return found

    def clear(self) -> None:
        self._held.clear()
        self._nbytes = 0
