"""Every load and fault that is made, what it must show on which panels, and the alerts that it must set off.

To add one is one entry.  ``begin`` makes it and ``end`` takes it away; in between each panel that says ``moved_by`` its name
must show something else than before, and each of ``alerts`` must fire; after ``end`` they must clear.  The values with which
an alert is loaded stand here too: minutes become seconds, and thresholds what a small stage reaches.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import lance

from tests.ops.stage import Stage
from tests.support.http_fault_proxy import Faults
from tests.whole_path.feed import Record
from tests.whole_path.world import user_row
from watch.alerts.alert import Value

Act = Callable[[Stage], None]


@dataclass(frozen=True, slots=True)
class Fault:
    name: str
    says: str
    begin: Act
    end: Act
    alerts: Sequence[str] = ()


def _load(stage: Stage) -> None:
    stage.traffic.on()


def _nothing(stage: Stage) -> None:
    pass


def _churn(stage: Stage) -> None:
    """Rows, and then each of them anew: what was there before is hidden."""
    stage.traffic.on()
    for status in ("one", "two", "three"):
        rows = [{"customer": f"churn-{number % 40}", "id": number, "status": status} for number in range(4_000)]
        stage.traffic.send(Record("upsert", row) for row in rows)


def _pause(what: str) -> Act:
    def begin(stage: Stage) -> None:
        stage.traffic.on()
        stage.run("pause", what)

    return begin


def _resume(what: str) -> Act:
    return lambda stage: stage.run("resume", what)


def _delete_records(stage: Stage) -> None:
    stage.run("pause", "ingest")
    stage.world.feed.produce(200)
    stage.delete_records(behind=150)


def _store_down(stage: Stage) -> None:
    stage.traffic.on()
    stage.store.kill()
    stage.kill("ingest-2")


def _store_up(stage: Stage) -> None:
    stage.store.start()
    stage.start("ingest-2")


def _store_slow(stage: Stage) -> None:
    stage.traffic.on()
    stage.proxy.faults = Faults(late_s=3.0)


def _store_well(stage: Stage) -> None:
    stage.proxy.faults = Faults()


def _burst(stage: Stage) -> None:
    stage.proxy.faults = Faults(late_s=4.0)
    rows = [{"customer": f"large-{number % 40}", "id": number, "status": "x" * 1_500} for number in range(40_000)]
    stage.traffic.send(Record("upsert", row) for row in rows)


def _bad_records(stage: Stage) -> None:
    stage.traffic.off()
    for number in range(20):
        stage.world.feed.send_raw(b"{", f"customer-{number}".encode())
    stage.traffic.on()


def _misrouted(stage: Stage) -> None:
    """A record in another partition than its key's."""
    stage.traffic.off()
    row = {"customer": "customer-1", "id": 1, "status": "astray"}
    key = stage.world.feed.kafka_key(row)
    right, _ = stage.world.feed.send_raw(json.dumps(row).encode(), key)
    wrong = (right + 1) % 4
    stage.astray = stage.world.feed.send_raw(json.dumps(row).encode(), key, partition=wrong)


def _reject(stage: Stage) -> None:
    partition, offset = stage.astray
    stage.run("offset", "reject", f"{stage.world.feed.topic}-{partition}-{offset}")
    stage.restart("ingest-1", "ingest-2")
    stage.traffic.on()


def _foreign(stage: Stage) -> None:
    """Fragments that the key index does not cover."""
    stage.traffic.on()
    for number in range(5):
        stage.world.append_as_user([user_row("a user", number, "appended")])


def _indexed(stage: Stage) -> None:
    table = lance.dataset(stage.world.uri, storage_options=dict(stage.world.options))
    table.create_scalar_index("count", "BTREE")
    stage.traffic.on()


def _broker_gone(stage: Stage) -> None:
    stage.traffic.off()
    stage.broker.kill()


def _broker_back(stage: Stage) -> None:
    stage.broker.start()
    stage.traffic.on()


def _crash_loop(stage: Stage) -> None:
    for _ in range(4):
        stage.restart_when_ready("flusher")


def _frozen(stage: Stage) -> None:
    """Its partitions go to the other one; when it comes round, somebody else owns them."""
    stage.traffic.on()
    stage.services["ingest-2"].freeze()
    stage.wait_for_value("ingest-1", "lancewal_ingest_open_partitions", 4)
    stage.services["ingest-2"].thaw()


def _takeover(stage: Stage) -> None:
    stage.traffic.on()
    stage.kill("ingest-1")


def _damage(stage: Stage) -> None:
    """Files of flushes are away when the flusher comes to merge them."""
    stage.traffic.on()
    stage.run("pause", "flusher")
    stage.wait_for_value("flusher", "lancewal_flusher_unmerged_rows", 1)
    stage.put_aside()
    stage.run("resume", "flusher")


def _repair(stage: Stage) -> None:
    stage.put_back()
    stage.traffic.on()


FAULTS: tuple[Fault, ...] = (
    Fault("load", "rows are produced after a silence", _load, _nothing),
    Fault("churn", "two thousand rows are written three times", _churn, _nothing, ("LancewalCompactionBehind",)),
    Fault(
        "ingest_paused",
        "`lancewal pause ingest` while rows are produced",
        _pause("ingest"),
        _resume("ingest"),
        ("LancewalPaused", "LancewalRetentionHorizonShort"),
    ),
    Fault(
        "records_deleted",
        "ingest is paused, and somebody deletes the records that Kafka has before the durable position",
        _delete_records,
        _resume("ingest"),
        ("LancewalRetentionReserveShrinks",),
    ),
    Fault(
        "flusher_paused",
        "`lancewal pause flusher` while rows are produced",
        _pause("flusher"),
        _resume("flusher"),
        ("LancewalMergesDoNotLand",),
    ),
    Fault(
        "store_down",
        "the S3 server is killed, and one of two ingest processes with it",
        _store_down,
        _store_up,
        (
            "LancewalStoreErrors",
            "LancewalRowsLate",
            "LancewalPartitionStands",
            "LancewalPartitionsNotOpen",
            "LancewalRoundsFail",
        ),
    ),
    Fault(
        "store_slow",
        "every PUT takes three seconds longer",
        _store_slow,
        _store_well,
        ("LancewalStoreSlow", "LancewalVisibilityBurnsFast", "LancewalVisibilityBurnsSlowly"),
    ),
    Fault("burst", "60 MB of rows at once, and a slow store", _burst, _store_well),
    Fault("bad_records", "records that are no JSON", _bad_records, _nothing, ("LancewalDeadLettersArrive",)),
    Fault(
        "misrouted",
        "a record in another partition than its key's; ended by `lancewal offset reject` and a restart",
        _misrouted,
        _reject,
        ("LancewalPartitionStopped",),
    ),
    Fault("takeover", "an ingest process is killed", _takeover, lambda stage: stage.start("ingest-1")),
    Fault(
        "frozen",
        "an ingest process is stopped (SIGSTOP) for longer than its session",
        _frozen,
        _nothing,
        ("LancewalOwnersFight",),
    ),
    Fault("foreign", "a user appends to the table", _foreign, _nothing),
    Fault("indexed", "a secondary index is built, and rows come behind it", _indexed, _nothing),
    Fault(
        "damage",
        "the manifests of flushes are away when they are to be merged; ended by putting them back",
        _damage,
        _repair,
        ("LancewalDamaged",),
    ),
    Fault("broker_gone", "the broker is killed", _broker_gone, _broker_back, ("LancewalBrokersUnreachable",)),
    Fault(
        "ingest_gone",
        "both ingest processes are killed",
        lambda stage: stage.kill("ingest-1", "ingest-2"),
        lambda stage: stage.start("ingest-1", "ingest-2"),
        ("LancewalIngestDown", "LancewalProcessDown"),
    ),
    Fault(
        "flusher_gone",
        "the flusher is killed",
        lambda stage: stage.kill("flusher"),
        lambda stage: stage.start("flusher"),
        ("LancewalFlusherDown",),
    ),
    Fault(
        "crash_loop",
        "the flusher is killed and started four times",
        _crash_loop,
        _nothing,
        ("LancewalProcessCrashLoops",),
    ),
)

SHORTENED: Mapping[str, Mapping[str, Value]] = {
    "LancewalProcessCrashLoops": {"window": "90s", "threshold": 2},
    "LancewalPartitionStands": {"threshold": 6},
    "LancewalRowsLate": {"threshold": 6},
    "LancewalOwnersFight": {"window": "15s", "threshold": 0},
    "LancewalVisibilityBurnsFast": {"long": "20s", "short": "10s"},
    "LancewalVisibilityBurnsSlowly": {"long": "30s", "short": "15s"},
    "LancewalRetentionHorizonShort": {"threshold": 165},
    "LancewalRetentionReserveShrinks": {"window": "20s", "horizon": 600},
    "LancewalDeadLettersArrive": {"window": "15s"},
    "LancewalMergesDoNotLand": {"window": "5s", "threshold": 10},
    "LancewalRoundsFail": {"threshold": 12},
    "LancewalCompactionBehind": {"ratio": 0.05},
    "LancewalStoreErrors": {"window": "10s"},
    "LancewalStoreSlow": {"window": "15s"},
}
"""``for`` of all of them is a second."""

BY_SERIES: Mapping[str, str] = {
    "LancewalInvariantViolated": "an invariant that is violated would be a bug, and there is none to make it with",
    "LancewalIngestThrottled": "ingest waits for the segment in flight long before its memory is full; no load here fills it",
    "LancewalDeadLettersFail": "a broker that takes rows and refuses dead letters for half a minute is not made here",
    "LancewalKeysInConflict": "needs a table keyed by bytes; the tests of conflicts make the state itself",
    "LancewalIndexesBehind": "an index that refuses is made by the tests of upkeep; here its figures are",
    "LancewalCleanUpBehind": "a hundred thousand objects take longer to make than the proof runs",
}
"""Alerts whose fault is not made: Prometheus' own unit test runs them on made-up series (``series``)."""

UNMOVED: Mapping[str, str] = {
    "never": "nothing may move it",
    "never_full": "ingest waits for the segment in flight long before its memory is full",
    "replay": "no takeover here left rows that had to be read back",
    "index_behind": "rows behind the index were taken in before Prometheus could see them",
    "keys_in_conflict": "needs a table keyed by bytes",
}
"""Why no fault moves the panels that say so; they must show a value all the same."""
