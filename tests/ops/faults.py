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

from tests.ops.stage import TOPIC, Stage
from tests.support.http_fault_proxy import Faults
from tests.support.retention import delete_records
from tests.whole_path.feed import Record
from tests.whole_path.world import user_row
from watch.alerts.alert import Value

Act = Callable[[Stage], None]
_LOOKS = 32
"""Measurements of one partition; more than are made within the window of a panel."""


@dataclass(frozen=True, slots=True)
class Fault:
    name: str
    says: str
    begin: Act
    end: Act
    alerts: Sequence[str] = ()
    before: Act = lambda _: None
    """Awaits what must be so before, where the panels could show by themselves what the fault makes."""


def _load(stage: Stage) -> None:
    stage.traffic.on()


def _nothing(stage: Stage) -> None:
    pass


_LEAVES_ALL = {"LANCEWAL_FLUSHER__COMPACTION_TARGET_ROWS": "1", "LANCEWAL_FLUSHER__COMPACTION_DELETED_RATIO": "1"}
"""Compaction looks, and finds nothing worth its while."""


def _worn(stage: Stage) -> None:
    """What merges hide stays."""
    stage.restart("flusher", **_LEAVES_ALL)
    stage.traffic.on()


def _mended(stage: Stage) -> None:
    stage.restart("flusher")


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
    """All that goes has become durable first, however slow the machine is: no record is lost."""
    stage.traffic.off()
    stage.world.wait_caught_up()
    durable = stage.world.feed.history.ends
    stage.run("pause", "ingest")
    stage.wait_for_value("ingest-1", "lancewal_ingest_paused", 1)
    stage.wait_for_value("ingest-2", "lancewal_ingest_paused", 1)
    stage.world.feed.produce(200)
    reserve = 10  # fewer than wait
    delete_records(stage.broker.bootstrap_servers, TOPIC, {p: end - reserve for p, end in durable.items()})


def _store_down(stage: Stage) -> None:
    stage.traffic.on()
    stage.store.kill()
    stage.kill("ingest-2")


def _store_up(stage: Stage) -> None:
    stage.store.start()
    stage.start("ingest-2")


def _all_in_time(stage: Stage) -> None:
    """A machine with much else to do may be as slow as the fault."""
    stage.traffic.on()
    stage.wait_until_visible_in_time(_LOOKS)


def _store_slow(stage: Stage) -> None:
    stage.traffic.on()
    stage.proxy.faults = Faults(late_s=3.0)


def _store_well(stage: Stage) -> None:
    stage.harm_nothing()


def _flushes_refused(stage: Stage) -> None:
    """Rows are durable and stay in memory."""
    stage.traffic.on()
    stage.refuse_flushes()


def _burst(stage: Stage) -> None:
    stage.proxy.faults = Faults(late_s=4.0)
    rows = [{"customer": f"large-{number % 40}", "id": number, "status": "x" * 1_500} for number in range(40_000)]
    stage.traffic.send(Record("upsert", row) for row in rows)


def _bad_records(stage: Stage) -> None:
    stage.traffic.off()
    for number in range(20):
        stage.world.feed.send_raw(b"{", f"customer-{number}".encode())
    # After a row of its partition, which would stop otherwise.
    stage.traffic.send([Record("upsert", {"customer": "customer-1", "id": 1, "status": "new"})])
    stage.world.feed.send_raw(b"\x00\x00\x00\x00\x07\x02a", b"customer-1")
    stage.traffic.on()


def _letters_refused(stage: Stage) -> None:
    stage.forbid_letters()
    _bad_records(stage)


def _letters_taken(stage: Stage) -> None:
    stage.allow_letters()


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
    stage.traffic.on()


def _columns_changed(stage: Stage) -> None:
    """While rows wait for a flusher that is paused.  It sees both changes, and makes none."""
    stage.traffic.on()
    stage.run("pause", "flusher")
    stage.wait_for_value("flusher", "lancewal_flusher_paused", 1)
    stage.wait_for_flush()
    stage.run("table", "alter", "--add-column", "origin: int32")
    stage.run("table", "alter", "--widen-column", "origin: int64")


def _left_behind(stage: Stage) -> None:
    """A consumer that never commits, while rows come and are merged."""
    stage.run("subscription", "create", "left-behind")
    stage.traffic.on()


def _caught_up(stage: Stage) -> None:
    stage.run("subscription", "drop", "left-behind", "--yes")


def _foreign(stage: Stage) -> None:
    """Fragments that the key index does not cover."""
    stage.traffic.on()
    for number in range(5):
        stage.world.append_as_user([user_row("a user", number, "appended")])


def _indexed(stage: Stage) -> None:
    never = {
        "LANCEWAL_FLUSHER__INDEX_UNINDEXED_RATIO_MAX": "1",
        "LANCEWAL_FLUSHER__INDEX_UNINDEXED_ROWS_MAX": "1000000",
    }
    stage.restart("flusher", **_LEAVES_ALL, **never)
    table = lance.dataset(stage.world.uri, storage_options=dict(stage.world.options))
    table.create_scalar_index("count", "BTREE")
    stage.traffic.on()


def _index_spoilt(stage: Stage) -> None:
    stage.spoil_index("amount")
    stage.restart("flusher", LANCEWAL_FLUSHER__INDEX_UNINDEXED_ROWS_MAX="1")
    stage.traffic.on()


def _index_gone(stage: Stage) -> None:
    stage.drop_index("amount")
    stage.restart("flusher")


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
    """It leaves sealed generations that nobody has flushed, and a flusher that may not do it either."""
    stage.traffic.on()
    stage.run("pause", "flusher")
    stage.refuse_flushes()
    stage.wait_for_value("ingest-1", "lancewal_ingest_unflushed_generations", 1)
    stage.kill("ingest-1")
    stage.harm_nothing()


def _taken_over(stage: Stage) -> None:
    stage.run("resume", "flusher")
    stage.start("ingest-1")


def _damage(stage: Stage) -> None:
    """Files of flushes are damaged when the flusher comes to merge them."""
    stage.traffic.on()
    stage.run("pause", "flusher")
    stage.wait_for_value("flusher", "lancewal_flusher_paused", 1)
    stage.wait_for_flush()
    stage.spoil_flushes()
    stage.run("resume", "flusher")


def _repair(stage: Stage) -> None:
    stage.mend_flushes()
    stage.traffic.on()


def _connector_gone(stage: Stage) -> None:
    """A connector is late, and then gone."""
    stage.connector_writes(10, late_s=3)


def _connector_back(stage: Stage) -> None:
    stage.connector_writes(3, late_s=0)


def _catalog_gone(stage: Stage) -> None:
    """The table's state goes on to change, so that the flusher has something to report."""
    stage.traffic.on()
    stage.catalog.kill()


def _catalog_back(stage: Stage) -> None:
    stage.catalog.start()


FAULTS: tuple[Fault, ...] = (
    Fault(
        "load",
        "rows are produced after a silence; ended by another silence",
        _load,
        lambda stage: stage.traffic.off(),
        ("LancewalCleanUpBehind",),
    ),
    Fault("churn", "four thousand rows are written three times", _churn, _nothing),
    Fault(
        "worn",
        "rows are written over and over, and compaction is told to leave every fragment alone; ended by a restart",
        _worn,
        _mended,
        ("LancewalCompactionBehind",),
    ),
    Fault(
        "ingest_paused",
        "`lancewal pause ingest` while rows are produced",
        _pause("ingest"),
        _resume("ingest"),
        ("LancewalPaused", "LancewalRetentionHorizonShort", "LancewalCutHeldBack"),
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
        _all_in_time,
    ),
    Fault("burst", "60 MB of rows at once, and a slow store", _burst, _store_well),
    Fault(
        "flushes_refused",
        "the store refuses every manifest of a flush, so that rows stay in memory until it is full",
        _flushes_refused,
        _store_well,
        ("LancewalIngestThrottled",),
    ),
    Fault(
        "bad_records",
        "records that are not JSON, and one in the form of a schema registry's client",
        _bad_records,
        _nothing,
        ("LancewalDeadLettersArrive", "LancewalWrongFormat"),
    ),
    Fault(
        "letters_refused",
        "ingest has no right (ACL) to write to the dead-letter topic, and there are bad records; ended by granting the right",
        _letters_refused,
        _letters_taken,
        ("LancewalDeadLettersFail",),
    ),
    Fault(
        "misrouted",
        "a record in another partition than its key's; ended by `lancewal offset reject`",
        _misrouted,
        _reject,
        ("LancewalPartitionStopped",),
    ),
    Fault(
        "takeover",
        "an ingest process is killed that has sealed generations which nobody could flush",
        _takeover,
        _taken_over,
    ),
    Fault(
        "frozen",
        "an ingest process is stopped (SIGSTOP) for longer than its session",
        _frozen,
        _nothing,
        ("LancewalOwnersFight",),
    ),
    Fault(
        "columns_changed",
        "the flusher is paused while rows wait, and a column is added and widened; ended by `lancewal resume flusher`",
        _columns_changed,
        _resume("flusher"),
        ("LancewalWideningOpen",),
    ),
    Fault(
        "left_behind",
        "a subscription is created, and nobody commits to it; ended by `lancewal subscription drop`",
        _left_behind,
        _caught_up,
        ("LancewalSubscriptionLags",),
    ),
    Fault("foreign", "a user appends to the table", _foreign, _nothing),
    Fault(
        "indexed",
        "a secondary index is built and not extended while rows come; ended by a restart with an extension",
        _indexed,
        _mended,
    ),
    Fault(
        "index_spoilt",
        "the files of a secondary index are damaged, so that Lance cannot extend it; ended by dropping it, and a restart",
        _index_spoilt,
        _index_gone,
        ("LancewalIndexesBehind",),
    ),
    Fault(
        "keys_at_odds",
        "a primary key of the table keyed by others comes through two partitions; ended by `lancewal conflict settle`",
        Stage.set_keys_at_odds,
        Stage.settle_keys,
        ("LancewalKeysInConflict",),
    ),
    Fault(
        "damage",
        "the manifests of flushes are damaged when they are to be merged; ended by putting the original manifests back",
        _damage,
        _repair,
        ("LancewalDamaged",),
    ),
    Fault(
        "catalog_gone",
        "the PostgreSQL server of the catalog is killed",
        _catalog_gone,
        _catalog_back,
        ("LancewalCatalogSilent",),
    ),
    Fault(
        "connector_gone",
        "a connector writes changes that are three seconds old, and heartbeats, and then nothing; ended by further changes",
        _connector_gone,
        _connector_back,
        ("LancewalSourceSilent",),
    ),
    Fault("broker_gone", "the broker is killed", _broker_gone, _broker_back, ("LancewalBrokersUnreachable",)),
    Fault(
        "ingest_gone",
        "all ingest processes are killed",
        lambda stage: stage.kill("ingest-1", "ingest-2", "events-ingest"),
        lambda stage: stage.start("ingest-1", "ingest-2", "events-ingest"),
        ("LancewalIngestDown", "LancewalProcessDown"),
    ),
    Fault(
        "flusher_gone",
        "the flushers are killed",
        lambda stage: stage.kill("flusher", "keyed-flusher"),
        lambda stage: stage.start("flusher", "keyed-flusher"),
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
    "LancewalIndexesBehind": {"window": "15s", "threshold": 0},
    "LancewalOwnersFight": {"window": "15s", "threshold": 0},
    "LancewalVisibilityBurnsFast": {"long": "20s", "short": "10s"},
    "LancewalVisibilityBurnsSlowly": {"long": "30s", "short": "15s"},
    "LancewalRetentionHorizonShort": {"threshold": 165, "share": 1},
    "LancewalRetentionReserveShrinks": {"window": "20s", "horizon": 600},
    "LancewalDeadLettersArrive": {"window": "15s"},
    "LancewalWrongFormat": {"window": "15s"},
    "LancewalMergesDoNotLand": {"window": "5s", "threshold": 10},
    "LancewalRoundsFail": {"threshold": 12},
    "LancewalWideningOpen": {"threshold": 5},
    "LancewalSubscriptionLags": {"threshold": 0.05},
    "LancewalCompactionBehind": {"ratio": 0.3},
    "LancewalCleanUpBehind": {"window": "3s", "threshold": 10},
    "LancewalIngestThrottled": {"window": "5s"},
    "LancewalDeadLettersFail": {"window": "15s"},
    "LancewalStoreErrors": {"window": "10s"},
    "LancewalStoreSlow": {"window": "15s"},
    "LancewalCatalogSilent": {"threshold": 5},
    "LancewalCutHeldBack": {"threshold": 8},
    "LancewalSourceSilent": {"past": "60s", "heartbeats": 9, "window": "5s"},
}
"""``for`` of all of them is a second."""

BY_SERIES: Mapping[str, str] = {
    "LancewalInvariantViolated": "an invariant that is violated would be a bug, and there is none to make it with",
}
"""Alerts whose fault is not made: Prometheus' own unit test runs them on made-up series (``series``)."""

UNMOVED: Mapping[str, str] = {
    "never": "nothing may move it",
}
"""Why no fault moves the panels that say so; they must show a value all the same."""
