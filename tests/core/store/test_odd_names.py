"""Names that somebody else gave to objects: a listing leaves out none without a word, and names the one it cannot show."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from lancewal_core.errors import ObjectCorrupt
from lancewal_core.store.obstore import TableStore, open_files, open_store
from tests.support.small_s3.server import SmallS3


@pytest.fixture
def s3() -> Iterator[SmallS3]:
    with SmallS3() as server:
        yield server


def stored(server: SmallS3, key: str) -> TableStore:
    store = open_store("s3://lake/t", server.options)
    store.put_if_absent("wal/a/1.arrow", b"x")
    server.buckets.put(f"lake/t/wal/{key}", b"x")
    return store


@pytest.mark.parametrize("key", ["/x", "a//b", "./y", "../z", "a\nb", "\x01"])
def test_a_key_in_a_bucket_that_its_client_does_not_take(key: str, s3: SmallS3) -> None:
    with pytest.raises(ObjectCorrupt, match=r"could not list 'wal/' at s3://lake/t: .* Remove or rename it: .*t/wal/"):
        stored(s3, key).list("wal/")


@pytest.mark.parametrize("key", ["a%20b", "é", "a b", "#1", "x" * 900])
def test_a_key_in_a_bucket_that_it_takes(key: str, s3: SmallS3) -> None:
    assert {found.key for found in stored(s3, key).list("wal/")} == {"wal/a/1.arrow", f"wal/{key}"}


@pytest.mark.parametrize("name", [b"n\xff", b"a\nb"])
def test_a_name_in_a_folder_of_files(name: bytes, tmp_path: Path) -> None:
    with open(os.fsencode(tmp_path) + b"/" + name, "wb"):
        pass
    with pytest.raises(ObjectCorrupt, match="Remove or rename it"):
        open_files(str(tmp_path)).list("")
