"""Requests to the store as the metrics tell them: how many, of which kind and outcome, how long, how much, and again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest

from lancewal_core.errors import StoreUnavailable
from lancewal_core.names import paths
from lancewal_core.names.ids import LogId, TableVersion
from lancewal_core.names.ids import Sequence as Number
from lancewal_core.process.clock import SystemClock
from lancewal_core.store import observed
from lancewal_core.store.object_kinds import KINDS
from lancewal_core.store.object_store import ObjectInfo, PutOutcome, PutUnknown, Stored
from lancewal_core.store.observed import OBJECTS, ObservedStore, StoreMetricTable, object_of
from tests.twins.memory_store import MemoryStore

LOG = LogId("host-1-0a")
SEGMENT, NEXT = paths.wal_segment(LOG, Number(1)), paths.wal_segment(LOG, Number(2))
RECORD = paths.merge_record(TableVersion(3), None)


class Store(MemoryStore):
    """Fails and gives no verdict when told to."""

    fault: StoreUnavailable | PutUnknown | None = None

    def get(self, key: str) -> bytes | None:
        self._fail()
        return super().get(key)

    def list(self, prefix: str, limit: int | None = None, after: str | None = None) -> Sequence[ObjectInfo]:
        self._fail()
        return super().list(prefix, limit, after)

    def put_if_absent(self, key: str, data: bytes) -> PutOutcome:
        if isinstance(self.fault, PutUnknown):
            return self.fault
        self._fail()
        return super().put_if_absent(key, data)

    def _fail(self) -> None:
        if isinstance(self.fault, StoreUnavailable):
            raise self.fault


def shown(table: StoreMetricTable, metric: str) -> Mapping[str, float]:
    """Samples that are not 0, by the values of their labels."""
    return {
        " ".join(value for name, value in sample.labels.items() if name != "table"): sample.value
        for family in table.registry.collect()
        for sample in family.samples
        if sample.name == f"lancewal_store_{metric}" and sample.value
    }


def test_every_request_is_counted_by_operation_object_and_outcome() -> None:
    table, inner = StoreMetricTable("orders"), Store(SystemClock())
    store = ObservedStore(inner, table)
    assert store.put_if_absent(SEGMENT, b"12345") == Stored()
    store.put_if_absent(SEGMENT, b"123456789")
    assert store.get(SEGMENT) == b"12345"
    assert store.get_range(SEGMENT, 1, 3) == b"23"
    assert store.get(RECORD) is None
    assert store.get("data/x.lance") is None
    assert [info.key for info in store.list(paths.WAL)] == [SEGMENT]
    assert list(store.list(paths.merges_prefix(None))) == []
    store.delete([SEGMENT, NEXT])
    store.delete([])
    assert shown(table, "requests_total") == {
        "put segment done": 1,
        "put segment taken": 1,
        "get segment done": 1,
        "get-range segment done": 1,
        "get merge-record absent": 1,
        "get other absent": 1,
        "list segment done": 1,
        "list other done": 1,
        "delete segment done": 1,
    }
    assert shown(table, "written_bytes_total") == {"segment": 5}
    assert shown(table, "read_bytes_total") == {"segment": 7}
    assert shown(table, "retries_total") == {}


def test_a_request_that_comes_again_behind_a_fault_is_a_retry() -> None:
    table, inner = StoreMetricTable("orders"), Store(SystemClock())
    store = ObservedStore(inner, table)
    inner.fault = PutUnknown("timed out")
    assert store.put_if_absent(SEGMENT, b"1") == inner.fault
    inner.fault = StoreUnavailable("it does not answer")
    with pytest.raises(StoreUnavailable):
        store.put_if_absent(SEGMENT, b"1")
    with pytest.raises(StoreUnavailable):
        store.get(RECORD)
    with pytest.raises(StoreUnavailable):
        store.list(paths.WAL)
    inner.fault = None
    store.put_if_absent(SEGMENT, b"1")
    store.put_if_absent(NEXT, b"1")  # another one
    store.get(SEGMENT)  # another operation
    store.put_if_absent(SEGMENT, b"1")  # the one before had its answer
    assert shown(table, "retries_total") == {"put segment": 2}
    of_faults = {k: v for k, v in shown(table, "requests_total").items() if k.endswith(("failed", "unknown"))}
    assert of_faults == {
        "put segment unknown": 1,
        "put segment failed": 1,
        "get merge-record failed": 1,
        "list other failed": 1,
    }


def test_of_requests_that_failed_only_so_many_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(observed, "REMEMBERED_MAX", 3)
    table, inner = StoreMetricTable("orders"), Store(SystemClock())
    store = ObservedStore(inner, table)
    inner.fault = StoreUnavailable("it does not answer")
    for number in range(3 + 1):
        with pytest.raises(StoreUnavailable):
            store.get(paths.wal_segment(LOG, Number(number)))
    inner.fault = None
    store.get(paths.wal_segment(LOG, Number(0)))
    assert shown(table, "retries_total") == {}
    store.get(SEGMENT)
    assert shown(table, "retries_total") == {"get segment": 1}


def test_requests_are_timed() -> None:
    table, now = StoreMetricTable("orders"), iter([10.0, 10.04, 20.0, 27.0])
    store = ObservedStore(Store(SystemClock()), table, lambda: next(now))
    store.get(SEGMENT)
    store.get(NEXT)
    assert shown(table, "request_seconds_sum") == {"get segment": pytest.approx(7.04)}
    within = shown(table, "request_seconds_bucket")
    assert "get segment 0.025" not in within
    assert (within["get segment 0.05"], within["get segment 5.0"], within["get segment 10.0"]) == (1, 1, 2)


def test_there_are_as_many_objects_as_kinds_and_one_more() -> None:
    assert len(OBJECTS) == len(KINDS) + 1
    assert {object_of(SEGMENT), object_of(RECORD), object_of("_lancewal/x"), object_of("data/a.lance")} == {
        "segment",
        "merge-record",
        "other",
    }
    assert all(set(name) <= set("abcdefghijklmnopqrstuvwxyz-") for name in OBJECTS)
