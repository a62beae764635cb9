"""The in-memory twin of an object store.

It keeps the promises of ``lancewal_core.store.object_store`` and no more than those: what a real store may do (lose a reply,
let a put arrive late, refuse without reason, list stale or partial) it does when its ``Faults`` say so.  Every call passes a
*switch* before and after its effect, where a scheduler may let another actor run.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections import deque
from collections.abc import Callable, Sequence
from typing import assert_never

from lancewal_core.errors import StoreUnavailable
from lancewal_core.process.clock import Clock
from lancewal_core.store.object_kinds import check_size, check_written
from lancewal_core.store.object_store import ObjectInfo, PutOutcome, PutUnknown, Stored, Taken
from tests.twins.faults import Faultless, Faults, ListFault, PutFault
from tests.twins.scheduler import Switch, no_switch

_STALE_OBJECTS = 20
"""How far a stale listing may lie behind, in puts and in deletes."""


class MemoryBucket:
    """The objects themselves, shared by all clients of one store."""

    def __init__(self) -> None:
        self._objects: dict[str, tuple[bytes, int, str]] = {}
        self._stored = 0
        self._keys: list[str] = []
        self._newest: deque[str] = deque(maxlen=_STALE_OBJECTS)
        self._deleted: deque[ObjectInfo] = deque(maxlen=_STALE_OBJECTS)
        self.under_way: list[tuple[str, bytes]] = []
        """Puts that were sent and have not arrived."""
        self.told: list[Callable[[str, bytes], object]] = []
        """Called with each object at the moment that it is stored."""

    def __len__(self) -> int:
        return len(self._keys)

    def get(self, key: str) -> bytes | None:
        found = self._objects.get(key)
        return None if found is None else found[0]

    def put(self, key: str, data: bytes, now_ms: int) -> str | None:
        """The object's entity tag; None if the key is taken."""
        if key in self._objects:
            return None
        self._stored += 1
        etag = f"{self._stored:x}"
        self._objects[key] = (data, now_ms, etag)
        insort(self._keys, key)
        self._newest.append(key)
        for tell in self.told:
            tell(key, data)
        return etag

    def delete(self, key: str) -> None:
        found = self._objects.pop(key, None)
        if found is not None:
            del self._keys[bisect_left(self._keys, key)]
            self._deleted.append(ObjectInfo(key, len(found[0]), found[1], found[2]))

    def listing(self, prefix: str, after: str | None = None) -> list[ObjectInfo]:
        """In key order."""
        found: list[ObjectInfo] = []
        begin = bisect_left(self._keys, prefix)
        for at in range(begin if after is None else max(begin, bisect_right(self._keys, after)), len(self._keys)):
            key = self._keys[at]
            if not key.startswith(prefix):
                break
            data, modified, etag = self._objects[key]
            found.append(ObjectInfo(key, len(data), modified, etag))
        return found

    def stale_listing(self, prefix: str, after: str | None = None) -> list[ObjectInfo]:
        """In key order, as some time ago."""
        hidden = set(self._newest)
        found = {info.key: info for info in self.listing(prefix, after) if info.key not in hidden}
        deleted = [info for info in self._deleted if info.key.startswith(prefix)]
        found.update({info.key: info for info in deleted if after is None or info.key > after})
        return [found[key] for key in sorted(found)]


class MemoryStore:
    """One client of a bucket; several may share it, each with faults of its own."""

    def __init__(
        self, clock: Clock, bucket: MemoryBucket | None = None, faults: Faults | None = None, switch: Switch = no_switch
    ) -> None:
        self.bucket = MemoryBucket() if bucket is None else bucket
        self._clock = clock
        self._faults = faults or Faultless()
        self._switch = switch

    def get(self, key: str) -> bytes | None:
        self._begin("get", key)
        found = self.bucket.get(key)
        self._switch("store.get done")
        if found is not None:
            check_size(key, len(found))
        return found

    def get_range(self, key: str, start: int, end: int) -> bytes | None:
        self._begin("get", key)
        found = self.bucket.get(key)
        self._switch("store.get done")
        return None if found is None else found[start:end]

    def put_if_absent(self, key: str, data: bytes) -> PutOutcome:
        check_written(key, len(data))
        self._switch("store.put")
        self._land()
        fault = self._faults.put(key)
        outcome = self._put(key, bytes(data), fault)
        self._switch("store.put done")
        return outcome

    def _put(self, key: str, data: bytes, fault: PutFault) -> PutOutcome:
        match fault:
            case PutFault.NONE:
                etag = self._stored(key, data)
                return Taken() if etag is None else Stored(etag)
            case PutFault.NEVER_ARRIVED:
                return PutUnknown("the request was lost")
            case PutFault.REPLY_LOST:
                self._stored(key, data)
                return PutUnknown("the reply was lost")
            case PutFault.LANDS_LATER:
                self.bucket.under_way.append((key, data))
                return PutUnknown("timed out")
            case PutFault.REFUSED:
                return Taken()
            case _:
                assert_never(fault)

    def list(self, prefix: str, limit: int | None = None, after: str | None = None) -> Sequence[ObjectInfo]:
        self._begin("list", prefix)
        fault = self._faults.listing(prefix)
        match fault:
            case ListFault.NONE:
                found = self.bucket.listing(prefix, after)[:limit]
            case ListFault.SHUFFLED:
                found = self._faults.shuffled(self.bucket.listing(prefix, after))
            case ListFault.PARTIAL:
                found = self._faults.some(self.bucket.listing(prefix, after))[:limit]
            case ListFault.STALE:
                found = self.bucket.stale_listing(prefix, after)[:limit]
            case _:
                assert_never(fault)
        self._switch("store.list done")
        return found

    def delete(self, keys: Sequence[str]) -> None:
        for key in keys:
            self._begin("delete", key)
            self.bucket.delete(key)
        self._switch("store.delete done")

    def _begin(self, act: str, what: str) -> None:
        self._switch(f"store.{act}")
        self._land()
        if self._faults.unavailable(act, what):
            raise StoreUnavailable(f"could not {act} {what!r}: 503", object=what)

    def _stored(self, key: str, data: bytes) -> str | None:
        return self.bucket.put(key, data, self._clock.now_ms())

    def _land(self) -> None:
        while self.bucket.under_way and self._faults.lands():
            self._stored(*self.bucket.under_way.pop(0))
