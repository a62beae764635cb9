"""What a store is asked for, by key."""

from __future__ import annotations

import pytest

from lancewal_core.store.object_store import ObjectStore


def keys_read(store: ObjectStore, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Keys of the objects that stores of this class are asked for from now on, whole or in part."""
    asked, of = list[str](), type(store)
    get, get_range = of.get, of.get_range

    def whole(self: ObjectStore, key: str) -> bytes | None:
        asked.append(key)
        return get(self, key)

    def part(self: ObjectStore, key: str, start: int, end: int) -> bytes | None:
        asked.append(key)
        return get_range(self, key, start, end)

    monkeypatch.setattr(of, "get", whole)
    monkeypatch.setattr(of, "get_range", part)
    return asked
