"""The small S3: what Lance and obstore need besides puts and gets, and that its log tells rounds."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import lance
import numpy as np
import obstore
import pyarrow as pa
import pytest
from obstore.exceptions import PreconditionError
from obstore.store import S3Store

from lancewal_core.store.obstore import open_store
from tests.support.small_s3.child import SmallS3Process
from tests.support.small_s3.requests import StoreRequest, by_kind, of_the_protocol, rounds_of
from tests.support.small_s3.server import SmallS3


def _store(small: SmallS3) -> S3Store:
    return S3Store(
        "bucket",
        endpoint=small.options["aws_endpoint"],
        region="us-east-1",
        access_key_id="a",
        secret_access_key="a",
        client_options={"allow_http": True},
    )


def test_conditions_ranges_parts_copies_and_pages() -> None:
    with SmallS3() as small:
        store = _store(small)
        first = obstore.put(store, "a", b"one", mode="create")
        obstore.put(store, "a", b"two", mode={"e_tag": str(first["e_tag"])})
        with pytest.raises(PreconditionError):
            obstore.put(store, "a", b"three", mode={"e_tag": str(first["e_tag"])})
        assert obstore.get_range(store, "a", start=1, end=9).to_bytes() == b"wo"
        parts = bytes(range(256)) * 100_000
        obstore.put(store, "parts", parts, use_multipart=True, chunk_size=6 << 20)
        assert obstore.get(store, "parts").bytes().to_bytes() == parts
        obstore.copy(store, "a", "copied & renamed")
        assert obstore.get(store, "copied & renamed").bytes().to_bytes() == b"two"
        for n in range(1_100):
            small.buckets.put(f"bucket/many/{n:04d}", b"")
        small.buckets.put("bucket/many/folder/x", b"")
        assert sum(len(page) for page in obstore.list(store, "many/")) == 1_101
        found = obstore.list_with_delimiter(store, "many/")
        assert len(found["objects"]) == 1_100
        assert list(found["common_prefixes"]) == ["many/folder"]
        obstore.delete(store, ["a", "copied & renamed"])
        assert small.buckets.get("bucket/a") is None


def test_lance_makes_changes_and_reads_a_table_there() -> None:
    rows = pa.table({"a": np.random.default_rng(1).integers(0, 1 << 60, 1_500_000)})  # more than one part
    with SmallS3() as small:
        lance.write_dataset(rows, "s3://bucket/t", storage_options=small.options)
        dataset = lance.dataset("s3://bucket/t", storage_options=small.options)
        dataset.delete("a % 2 = 0")
        kept = int((rows["a"].to_numpy() % 2 == 1).sum())
        assert lance.dataset("s3://bucket/t", storage_options=small.options).count_rows() == kept
        kinds = by_kind(small.take(), "t")
        assert kinds["PUT data"] >= 2
        assert kinds["PUT _versions"] == 2


def test_requests_side_by_side_are_one_round() -> None:
    """The server holds each of them until all have come: they are under way at the same time, however slow the machine."""
    with SmallS3() as small, ThreadPoolExecutor(4) as threads:
        together = threading.Barrier(4)
        small.before = lambda: together.wait(60)
        store = open_store("s3://bucket/t", small.options)
        assert list(threads.map(store.get, ["_lancewal/wal/a", "_lancewal/wal/b", "data/c", "x"])) == [None] * 4
        small.before = lambda: None
        assert store.get("_lancewal/wal/e") is None
        taken = small.take()
        assert rounds_of(taken) == 2
        assert by_kind(of_the_protocol(taken, "t"), "t") == {"GET _lancewal/wal": 3, "GET x": 1}
        assert small.take() == []


def test_rounds_are_the_longest_chain() -> None:
    def asked(begin: float, end: float) -> StoreRequest:
        return StoreRequest("GET", "k", begin, end, 200)

    assert rounds_of([]) == 0
    assert rounds_of([asked(0, 10), asked(1, 2), asked(2, 3), asked(4, 5)]) == 3
    assert rounds_of([asked(0, 3), asked(1, 4), asked(2, 5)]) == 1


def test_as_a_process_of_its_own(tmp_path: Path) -> None:
    with SmallS3Process(0.001, tmp_path / "log") as small:
        store = open_store("s3://bucket/t", small.options)
        store.put_if_absent("k", b"data")
        assert store.get("k") == b"data"
        assert [(r.method, r.key, r.status) for r in small.take()] == [("PUT", "t/k", 200), ("GET", "t/k", 200)]
