"""The probe of the store: it passes stores that keep put-if-absent, and names those that do not.

The careless ones are twins, and the real S3 server behind a proxy that drops the condition of every PUT.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path

import obstore
import pytest
from obstore.store import S3Store

from lancewal_core.errors import LancewalError, StoreRefused, StoreUnavailable, StoreUnsafe
from lancewal_core.process.clock import SystemClock
from lancewal_core.process.tasks import ThreadTasks
from lancewal_core.store.object_store import ObjectStore, PutOutcome, PutUnknown, Stored, Taken
from lancewal_core.store.obstore import open_store
from lancewal_core.table.proof.store_probe import WRITERS, check_store
from lancewal_demo.stack import S3Server
from tests.support.http_fault_proxy import HttpFaultProxy
from tests.twins.memory_store import MemoryStore


@pytest.fixture
def tasks() -> Iterator[ThreadTasks]:
    started = ThreadTasks()
    yield started
    started.close()


@pytest.fixture
def check(tasks: ThreadTasks) -> Callable[[ObjectStore], None]:
    names = count()
    return lambda store: check_store(store, tasks, "the-store", lambda: f"{next(names):032x}")


class Careless(MemoryStore):
    """Ignores the condition."""

    def put_if_absent(self, key: str, data: bytes) -> PutOutcome:
        self.bucket.delete(key)
        super().put_if_absent(key, data)
        return Stored()


class LooksFirst(MemoryStore):
    """Looks whether the object is there, and writes later: what a gateway over a plain file system may do."""

    def __init__(self) -> None:
        super().__init__(SystemClock())
        self._together = threading.Barrier(2)

    def put_if_absent(self, key: str, data: bytes) -> PutOutcome:
        if self.bucket.get(key) is not None:
            return Taken()
        try:
            self._together.wait(0.2)  # two have looked
        except threading.BrokenBarrierError:
            self._together.reset()
        self.bucket.delete(key)
        super().put_if_absent(key, data)
        return Stored()


class LastWins(MemoryStore):
    """Tells all but the first that they lost, and keeps the bytes of the last."""

    def put_if_absent(self, key: str, data: bytes) -> PutOutcome:
        there = self.bucket.get(key) is not None
        self.bucket.delete(key)
        super().put_if_absent(key, data)
        return Taken() if there else Stored()


class Late(MemoryStore):
    """Keeps its promise only while requests race."""

    puts = 0

    def put_if_absent(self, key: str, data: bytes) -> PutOutcome:
        self.puts += 1
        if self.puts > WRITERS:
            self.bucket.delete(key)
        return super().put_if_absent(key, data)


class LateReads(MemoryStore):
    """Shows an object some time after it was stored."""

    def get(self, key: str) -> bytes | None:
        return None


class Refusing(MemoryStore):
    def put_if_absent(self, key: str, data: bytes) -> PutOutcome:
        return PutUnknown("PermissionDeniedError: 403 Forbidden: AccessDenied")


class Away(MemoryStore):
    def put_if_absent(self, key: str, data: bytes) -> PutOutcome:
        return PutUnknown("GenericError while writing 'key': non-2xx status code: 503 Service Unavailable")


class Full(MemoryStore):
    def put_if_absent(self, key: str, data: bytes) -> PutOutcome:
        return PutUnknown(
            "GenericError while writing 'key': Unable to copy data to file: No space left on device (os error 28)"
        )


class KeepsAll(MemoryStore):
    """May not delete."""

    def delete(self, keys: object) -> None:
        raise StoreUnavailable("AccessDenied")


@pytest.mark.parametrize(
    ("store", "error", "message"),
    [
        (Careless(SystemClock()), StoreUnsafe, f"{WRITERS} of {WRITERS} writers create the same object"),
        (LooksFirst(), StoreUnsafe, "writers create the same object"),
        (LastWins(SystemClock()), StoreUnsafe, "other bytes"),
        (Late(SystemClock()), StoreUnsafe, "replaced an object"),
        (LateReads(SystemClock()), StoreUnsafe, "does not show an object"),
        (Refusing(SystemClock()), StoreRefused, "AccessDenied"),
        (Away(SystemClock()), StoreUnavailable, "503.*the credentials"),
        (Full(SystemClock()), StoreUnavailable, r"os error 28\). The store is full: make room, or a larger one$"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, MemoryStore) else "",
)
def test_it_is_refused(
    check: Callable[[ObjectStore], None], store: ObjectStore, error: type[LancewalError], message: str
) -> None:
    with pytest.raises(error, match=message) as raised:
        check(store)
    assert "the-store" in str(raised.value)
    assert str(raised.value.where["object"]).startswith("_lancewal/probe/")
    assert list(store.list("_lancewal/")) == []


def test_a_store_that_lets_nobody_delete_is_accepted(check: Callable[[ObjectStore], None]) -> None:
    check(KeepsAll(SystemClock()))


def test_a_folder_and_the_real_server_pass(check: Callable[[ObjectStore], None], tmp_path: Path, s3: S3Server) -> None:
    bucket = s3.bucket("probe")
    options = {key.lower(): value for key, value in s3.environment.items()}
    for store in (open_store(str(tmp_path)), open_store(f"s3://{bucket}/{tmp_path.name}", options)):
        check(store)
        assert list(store.list("_lancewal/")) == []


def test_a_real_server_without_the_condition_is_refused(
    check: Callable[[ObjectStore], None], tmp_path: Path, s3: S3Server
) -> None:
    bucket = s3.bucket("probe")
    options = {key.lower(): value for key, value in s3.environment.items()}
    direct = S3Store(
        bucket,
        endpoint=s3.endpoint,
        access_key_id=s3.access_key,
        secret_access_key=s3.secret_key,
        region=s3.region,
        client_options={"allow_http": True},
    )

    def overwrite(path: str, body: bytes) -> None:
        obstore.put(direct, path.removeprefix(f"/{bucket}/"), body, mode="overwrite")

    with HttpFaultProxy(s3.endpoint, "/_lancewal/", 0, overwrite) as proxy:
        store = open_store(f"s3://{bucket}/{tmp_path.name}", {**options, "aws_endpoint": proxy.endpoint})
        with pytest.raises(StoreUnsafe, match=f"{WRITERS} of {WRITERS} writers"):
            check(store)
