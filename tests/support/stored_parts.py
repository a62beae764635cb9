"""Parts of the key index without a file of their own."""

from __future__ import annotations

import pyarrow as pa

from lancewal_core.keys.catalog import KeyPart
from lancewal_core.keys.parts import fetch
from lancewal_core.keys.run import Entries, decode_part
from lancewal_core.store.object_store import ObjectStore


class StoredParts:
    """Parts of any store, each fetched when it is asked for."""

    def __init__(self, store: ObjectStore) -> None:
        self._store = store

    def open(self, part: KeyPart) -> Entries:
        return decode_part(pa.py_buffer(fetch(self._store, part)), part.object)

    def at_hand(self, part: KeyPart) -> bool:
        return False

    def keep(self, part: KeyPart, data: bytes) -> None: ...
