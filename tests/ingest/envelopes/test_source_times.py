"""The time that the source gives one of the newest changes, from the bytes of events to the metric."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest
from prometheus_client.samples import Sample as Shown

from lancewal_core.process.clock import SystemClock
from lancewal_core.settings.sections import ValueFormat
from lancewal_core.table.contract import Contract
from lancewal_ingest.append import prepare
from lancewal_ingest.decode.naming import naming_of
from lancewal_ingest.decode.value_decoder import NO_HEADERS, DecodedValues, HeaderValues, Ops, Places
from lancewal_ingest.envelopes.envelope import envelope_of
from lancewal_ingest.event_table import IngestEvents
from lancewal_ingest.formats import value_decoder
from lancewal_ingest.service.metrics import IngestMetrics
from tests.ingest.envelopes.test_event_columns import ACCOUNTS, decoded, read
from tests.ingest.envelopes.test_postgres_with_schemas import EVENTS, SCHEMAS
from tests.support.debezium import Sample, contract_of, samples, taken
from tests.support.format_with_heartbeats import WithHeartbeats
from tests.support.pipeline import FIRST_MS, Pipeline
from tests.support.silent_observer import SilentObserver

AMOUNT = {"json": "string", "connect-json": "decimal128(12, 2)", "avro": "decimal128(12, 2)"}


def expected(events: Sequence[dict[str, Any]]) -> int:
    """The time of the last change; 0 without one."""
    times = [event["source"]["ts_ms"] for event in events if event["op"] in ("c", "u", "d")]
    return int(times[-1]) if times else 0


def check(values: Sequence[bytes], events: Sequence[dict[str, Any]], of: Contract, format_: ValueFormat) -> None:
    """Each beginning of the values, so that each event is once the last one."""
    found = [decoded(values[:end], of, format_).changed_ms for end in range(len(values) + 1)]
    assert found == [expected(events[:end]) for end in range(len(values) + 1)]
    assert len({*found}) > 2


@pytest.mark.parametrize(("format_", "sample"), [("json", "postgres_json"), ("connect-json", "postgres_connect_json")])
def test_the_last_change_in_json_tells_its_time(format_: ValueFormat, sample: str) -> None:
    values = [one.value for one in samples(sample, "accounts") if one.value is not None]
    events = [json.loads(value) for value in values]
    check(
        values,
        [one.get("payload", one) for one in events],
        contract_of({**ACCOUNTS, "amount": AMOUNT[format_]}),
        format_,
    )


@pytest.mark.parametrize("filled", [False, True])
def test_the_last_change_in_avro_tells_its_time(filled: bool) -> None:
    """With a column for a number of the envelope too, whose fields are read in another way then."""
    values = [event["value"] for event in EVENTS if event["table"] == "accounts"]
    of = contract_of({**ACCOUNTS, "amount": AMOUNT["avro"], "lsn": "int64"}, format=2)
    *columns, lsn = of.columns
    columns.append(lsn.model_copy(update={"metadata": "envelope.source.lsn"} if filled else {}))
    check(values, [read(value) for value in values], of.model_copy(update={"columns": tuple(columns)}), "avro")


def event(op: str, row: dict[str, Any] | None, ts_ms: object) -> bytes:
    source = {"ts_ms": ts_ms, "lsn": 1}
    return json.dumps({"before": None, "after": row, "source": source, "op": op}, separators=(",", ":")).encode()


KEY_1, KEY_2 = {"id": 1}, {"id": 2}
_TRUNCATE = event("t", None, 9)


@pytest.mark.parametrize(
    ("values", "time"),
    [
        ([], 0),
        ([event("c", KEY_1, 5)], 5),
        ([event("c", KEY_1, 5), event("d", None, 7)], 7),
        ([event("d", None, 7), event("u", KEY_1, 5)], 5),  # an event again, after the connector has died
        ([event("c", KEY_1, 5), event("r", KEY_2, 9)], 5),
        ([event("r", KEY_2, 9)], 0),
        ([event("c", KEY_1, 5), b'{"ts_ms": 9}', _TRUNCATE, event("m", None, 9), b"{"], 5),
        ([event("c", KEY_1, "5")], 0),
        ([event("c", KEY_1, 5.5)], 0),
        ([event("c", KEY_1, None)], 0),
        ([event("c", KEY_1, 2**63)], 0),
        ([event("d", None, 7), event("c", KEY_1, 5).replace(b'{"id":1}', b'{"id":}')], 0),
    ],
)
def test_only_changes_tell_a_time_and_only_a_valid_one_counts(values: list[bytes], time: int) -> None:
    of = contract_of({"id": "int64"})
    decoder = value_decoder("json", of.rows, naming_of(of), SCHEMAS, envelope=envelope_of(of))
    assert decoder.decode(values, np.zeros(len(values), np.uint8)).changed_ms == time


def test_a_time_before_1970_is_none() -> None:
    found = taken(contract_of({"id": "int64"}), [Sample("t", 0, 0, "", b'{"id":1}', event("c", KEY_1, -5))])
    assert [one.changed_ms for one in found] == [0] * len(found)


@pytest.mark.parametrize("heartbeat", [False, True])
def test_of_regions_that_are_decoded_together_one_has_the_time(heartbeat: bool) -> None:
    """With and without a record that is no row, since regions with rows alone share a batch."""
    of = contract_of({"id": "int64"})
    places = {k: of.partition_of(b'{"id":%d}' % k) for k in range(100)}
    first = {place: next(k for k, p in places.items() if p == place) for place in range(of.partitions)}
    sent = [Sample("t", p, 0, "", b'{"id":%d}' % k, event("c", {"id": k}, 100 + p)) for p, k in first.items()]
    sent += [Sample("t", 2, 1, "", None, b'{"ts_ms":1}')] if heartbeat else []
    found = taken(of, sent)
    assert [one.outcome.entry is not None and one.outcome.entry.row_count for one in found] == [1] * of.partitions
    assert [one.changed_ms for one in found] == [100 + of.partitions - 1, *[0] * (of.partitions - 1)]


class Told(SilentObserver):
    def __init__(self) -> None:
        self.times: list[int] = []

    def changed(self, source_ms: int) -> None:
        self.times.append(source_ms)


class WithTimes(WithHeartbeats):
    """A row's change was at the time in its column ``a``."""

    def decode(
        self, values: Sequence[bytes], ops: Ops, headers: HeaderValues = NO_HEADERS, places: Places | None = None
    ) -> DecodedValues:
        return replace(super().decode(values, ops), changed_ms=json.loads(values[-1])["a"])


def test_a_worker_tells_it_once_for_each_segment_that_is_durable(tmp_path: Path) -> None:
    told = Told()
    with mock.patch.object(prepare, "value_decoder", lambda _, rows, naming, *rest: WithTimes(rows, naming)):
        pipeline = Pipeline(tmp_path, partitions=1, observer=told)
        for time in (0, 7, 9):
            pipeline.upsert("r1", time, a=time)
            pipeline.ingest()
            pipeline.ingest()
    assert told.times == [7, 9]


def test_the_metric_is_the_time_from_the_change_to_now_and_never_negative() -> None:
    class At(SystemClock):
        def now_ms(self) -> int:
            return FIRST_MS

    metrics = IngestMetrics(At(), "orders", 1, IngestEvents())
    for source_ms in (FIRST_MS - 1500, FIRST_MS + 60_000, FIRST_MS - 3_600_000):
        metrics.changed(source_ms)
    name = "lancewal_ingest_source_latency_seconds"
    found: list[Shown] = [one for family in metrics.registry.collect() for one in family.samples]
    shown = {one.labels.get("le", one.name.removeprefix(name)): one.value for one in found if one.name.startswith(name)}
    assert (shown["_count"], shown["_sum"]) == (3, 3601.5)
    assert (shown["0.005"], shown["2.5"], shown["1800.0"], shown["7200.0"]) == (1, 2, 2, 3)
