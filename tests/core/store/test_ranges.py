"""A range that the store refuses: behind the object's end, or of one that is deleted before anybody asks how long it is."""

from __future__ import annotations

from pathlib import Path

import pytest

from lancewal_core.store.obstore import ObstoreStore, open_files


def test_an_object_that_vanishes_behind_the_refusal_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = open_files(str(tmp_path))
    store.put_if_absent("a", b"0123456789")
    size = ObstoreStore.size

    def late(self: ObstoreStore, key: str) -> int | None:
        self.delete([key])
        return size(self, key)

    monkeypatch.setattr(ObstoreStore, "size", late)
    assert store.get_range("a", 10, 12) is None
