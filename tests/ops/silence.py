"""Alerts on made-up series of an hour: a healthy table of each kind sets off none, a table in need those that it must.

Prometheus' own unit test evaluates the rules.  Prometheus is new in each world: the healthy table's counters begin at what
they counted before.  The world of a table in need differs from a healthy one only in what sets the alert off.
"""

from __future__ import annotations

import math
import re
import subprocess
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import yaml

from lancewal_core.names.ids import Position
from lancewal_ingest.service.freshness import Freshness, IngestProgress
from tests.ops.tools import program
from tests.support.regions import region
from watch.alerts.rules import plain_rules

MINUTES = 60
Values = Callable[[int], float | None]
"""Minute since Prometheus began -> the value that it scraped; None: the series was not there."""
Series = Mapping[str, Values]
_FIRED = 'count by (alertname) (count_over_time(ALERTS{alertstate="firing"}[2h]))'


@dataclass(frozen=True, slots=True)
class World:
    name: str
    changed: Series
    """Series that differ from those of ``HEALTHY``."""
    fires: frozenset[str] = frozenset()


def _always(value: float) -> Values:
    return lambda _: value


def _per_minute(rate: float, before: float = 0.0) -> Values:
    return lambda minute: before + rate * minute


def _ingest(name: str, **labels: str) -> str:
    return _series(name, job="lancewal-ingest", instance="i", **labels)


def _flusher(name: str, **labels: str) -> str:
    return _series(name, job="lancewal-flusher", instance="f", **labels)


def _series(name: str, **labels: str) -> str:
    of_table = {"table": "t"} if name.startswith("lancewal_") else {}
    shown = ",".join(f'{label}="{value}"' for label, value in {**of_table, **labels}.items())
    return f"{name}{{{shown}}}"


_HORIZON = _ingest("lancewal_ingest_retention_horizon_seconds")
_RETENTION = _ingest("lancewal_ingest_retention_seconds")
_LAG = _ingest("lancewal_ingest_lag_records", partition="0")
_RESERVE = _ingest("lancewal_ingest_retention_reserve_offsets", partition="0")
_LETTERS = _ingest("lancewal_ingest_dead_letters_total", partition="0", kind="not_json")
_IGNORED = _ingest("lancewal_ingest_records_ignored_total", partition="0", kind="not_json")
_OTHER_FORMAT = _ingest("lancewal_ingest_dead_letters_total", partition="0", kind="wrong_format")
_OTHER_FORMAT_IGNORED = _ingest("lancewal_ingest_records_ignored_total", partition="0", kind="wrong_format")
_STARTED = _ingest("process_start_time_seconds")
_REFUSALS = _flusher("lancewal_flusher_index_refusals_total", index="i")
_SUBSCRIBED = _flusher("lancewal_flusher_subscription_lag_ratio", subscription="s")
_WIDENING = _flusher("lancewal_flusher_open_widening_seconds")
_CUT = _flusher("lancewal_flusher_cut_age_seconds", cut="live")
_HEARTBEATS = _ingest("lancewal_ingest_records_passed_over_total", kind="heartbeat")
_END = _ingest("lancewal_ingest_end_position", partition="0")
_STOPPED = _ingest("lancewal_ingest_partition_stopped", partition="0", kind="misrouted")
_FRESHNESS = _ingest("lancewal_ingest_freshness_seconds", partition="0")
_BROKERS = _ingest("lancewal_kafka_connected_brokers")
_CATALOG = _flusher("lancewal_flusher_catalog_silent_seconds")

HEALTHY: Series = {
    _ingest("up"): _always(1),
    _flusher("up"): _always(1),
    # Prometheus' unit tests begin at 1970: the services began a day before.
    _STARTED: _always(-86400),
    _flusher("process_start_time_seconds"): _always(-86400),
    # Records come all the time, so some always wait.  The topic keeps them for a week.
    _LAG: lambda minute: 20 + minute % 3,
    _HORIZON: _always(604798),
    _RETENTION: _always(604800),
    _RESERVE: _always(1_000_000),
    _FRESHNESS: _always(2),
    _ingest("lancewal_ingest_standing_seconds", partition="0"): _always(1),
    _STOPPED: _always(0),
    _ingest("lancewal_ingest_paused"): _always(0),
    _ingest("lancewal_ingest_throttled"): lambda minute: minute % 5 == 0,
    _ingest("lancewal_ingest_assigned_partitions"): _always(1),
    _ingest("lancewal_ingest_open_partitions"): _always(1),
    _BROKERS: _always(3),
    # No connector writes heartbeats here.
    _HEARTBEATS: _always(0),
    _END: _per_minute(120, 1_000_000),
    # What was counted before.
    _LETTERS: _always(12),
    _OTHER_FORMAT: _always(3),
    _OTHER_FORMAT_IGNORED: _always(3),
    # Bad records are ignored all the time.
    _IGNORED: _per_minute(2, 90),
    _ingest("lancewal_ingest_dead_letter_failures_total"): _always(40),
    _ingest("lancewal_ingest_fences_total"): _always(300),
    _ingest("lancewal_ingest_ownership_losses_total"): _always(300),
    _REFUSALS: _always(50),
    # What must never be counted.
    _ingest("lancewal_ingest_invariant_violations_total", kind="durable_position_fell"): _always(0),
    _flusher("lancewal_flusher_invariant_violations_total", kind="merged_position_fell"): _always(0),
    _flusher("lancewal_flusher_visible_seconds_count"): _per_minute(60, 9000),
    _flusher("lancewal_flusher_visible_seconds_bucket", le="2.0"): _per_minute(60, 8000),
    _flusher("lancewal_flusher_visibility_failures_total", reason="timeout"): _always(90),
    _flusher("lancewal_flusher_damaged_partitions"): _always(0),
    _flusher("lancewal_flusher_keys_in_conflict"): _always(0),
    # A column is widened, half an hour long.
    _WIDENING: lambda minute: 60.0 * minute if minute < 30 else 0.0,
    _flusher("lancewal_flusher_oldest_unmerged_seconds", partition="0"): lambda minute: 60 * (minute % 5),
    _flusher("lancewal_flusher_last_round_timestamp_seconds"): _per_minute(60),
    _flusher("lancewal_flusher_paused"): _always(0),
    _flusher("lancewal_flusher_hidden_ratio"): _always(0.1),
    _flusher("lancewal_flusher_deletion_debt_bytes"): _always(10_000_000),
    _flusher("lancewal_flusher_gc_waiting_objects"): _always(500),
    _SUBSCRIBED: _always(0.01),
    # A cut is published every five minutes.
    _CUT: lambda minute: 60.0 * (minute % 5),
    # The catalog's server is restarted, which takes two minutes.
    _CATALOG: lambda minute: 60.0 * (minute - 30) if 30 < minute < 33 else 0.0,
    _ingest("lancewal_store_requests_total", operation="put", object="segment", outcome="done"): _per_minute(60, 9000),
    _ingest("lancewal_store_requests_total", operation="put", object="segment", outcome="failed"): _always(700),
    _ingest("lancewal_store_request_seconds_bucket", operation="put", object="segment", le="0.1"): _per_minute(
        60, 9000
    ),
    _ingest("lancewal_store_request_seconds_bucket", operation="put", object="segment", le="+Inf"): _per_minute(
        60, 9000
    ),
}


def _backfill(behind_s: float) -> Series:
    """What the service makes of records of 1970, a hundred a second, that are durable ``behind_s`` after they came."""
    freshness, now_ms = Freshness(), 1_800_000_000_000
    found, ours = [], region(0)
    for now in range(0, 60 * MINUTES + 60, 5):
        durable, end = Position(int(100 * max(0.0, now - behind_s))), Position(100 * now)
        at = IngestProgress((), {ours: durable}, {ours: 1000}, {ours: end}, {}, looked_at=now, retention_s=604800.0)
        found.append(freshness.look(now + 4, now_ms + 1000 * now, at)[ours])
    return {_FRESHNESS: lambda minute: found[12 * minute], _LAG: _always(100 * behind_s)}


def _kept(retention_s: float, horizon_s: float) -> Series:
    return {_RETENTION: _always(retention_s), _HORIZON: _always(horizon_s)}


def _begins(at: int) -> Values:
    """Return a counter that counts one each minute from ``at`` on and is not there before."""
    return lambda minute: None if minute < at else minute - at + 1


_NOTHING_COUNTED: Series = dict.fromkeys(
    (_LETTERS, _IGNORED, _OTHER_FORMAT, _OTHER_FORMAT_IGNORED, _REFUSALS), lambda _: None
)
_IDLE: Series = {
    _LAG: _always(0),
    _END: _always(1_000_000),
    _FRESHNESS: _always(0),
    _ingest("lancewal_ingest_standing_seconds", partition="0"): _always(0),
    _flusher("lancewal_flusher_visible_seconds_count"): _always(9000),
    _flusher("lancewal_flusher_visible_seconds_bucket", le="2.0"): _always(8000),
}
_STARTS: Series = {
    **_NOTHING_COUNTED,
    _STARTED: _always(-10),
    _flusher("process_start_time_seconds"): _always(-10),
    _flusher("lancewal_flusher_last_round_timestamp_seconds"): lambda minute: None if minute < 5 else 60.0 * minute,
    _HORIZON: lambda minute: math.nan if minute < 1 else 604798,
    _RETENTION: lambda minute: math.nan if minute < 1 else 604800,
    _ingest("lancewal_ingest_open_partitions"): lambda minute: min(1, minute),
}


def _heartbeats(heard: Values) -> Series:
    """Return a table whose source is quiet.  ``heard``: how many heartbeats of its connector have come."""

    def end(minute: int) -> float | None:
        count = heard(minute)
        return None if count is None else 1_000_000 + count

    return {**_IDLE, _HEARTBEATS: heard, _END: end}


def _until(end: int, rate: float) -> Values:
    """Return a counter that grows until the minute ``end``."""
    return lambda minute: rate * min(minute, end)


def _away(minute: int) -> float | None:
    """Heartbeats of each six seconds, as a process counts that has gone in minute 25 and comes again in minute 50.

    It has not heard another one since, as if they came each ten minutes by now."""
    if minute < 25:
        return 10.0 * minute
    return None if minute < 50 else 0.0


WORLDS = (
    World("busy, a week is kept", {}),
    World("quiet, a week is kept", _IDLE),
    World("busy, six hours are kept", _kept(21600, 21598)),
    World("busy, an hour is kept", _kept(3600, 3598)),
    World("quiet, an hour is kept", {**_IDLE, **_kept(3600, 3600)}),
    World("busy, five minutes are kept", _kept(300, 297)),
    World("all is kept", _kept(math.inf, math.inf)),
    World("compacted, deletes are kept for a day", _kept(86400, 86390)),
    World("compacted, deletes are kept for an hour", _kept(3600, 3590)),
    World("no right to ask how long records are kept", _kept(math.nan, math.nan)),
    World("fewer records come than an hour ago", {**_kept(3600, 3598), _RESERVE: _per_minute(-10_000, 700_000)}),
    World("whole segments are deleted, by size", {_RESERVE: lambda minute: 1_000_000 - 900_000 * (minute % 60 > 40)}),
    World("services that start, nothing was counted", _STARTS),
    World("a backfill of 1970 that ingest keeps up with", _backfill(behind_s=2)),
    World("a backfill of 1970 that ingest is behind with", _backfill(behind_s=900), frozenset({"LancewalRowsLate"})),
    World(
        "an hour is kept, ingest falls behind",
        _kept(3600, 1700),
        frozenset({"LancewalRetentionHorizonShort"}),
    ),
    World("a week is kept, ingest is days behind", _kept(604800, 21000), frozenset({"LancewalRetentionHorizonShort"})),
    World("all was kept, and records are gone", _kept(math.inf, 0), frozenset({"LancewalRetentionHorizonShort"})),
    World(
        "Kafka deletes what waits, by size",
        {_LAG: _per_minute(1000, 100_000), _RESERVE: _per_minute(-1000, 100_000)},
        frozenset({"LancewalRetentionReserveShrinks"}),
    ),
    World(
        "the first dead letter of a process that runs",
        {_LETTERS: lambda minute: None if minute < 30 else 1},
        frozenset({"LancewalDeadLettersArrive"}),
    ),
    World(
        "a dead letter before the first scrape of a process that starts",
        {**_STARTS, _LETTERS: _always(1)},
        frozenset({"LancewalDeadLettersArrive"}),
    ),
    World(
        "one more dead letter", {_LETTERS: lambda minute: 12 + (minute > 30)}, frozenset({"LancewalDeadLettersArrive"})
    ),
    World(
        "one record of another format in a partition at work",
        {_OTHER_FORMAT: lambda minute: 3 + (minute > 30)},
        frozenset({"LancewalDeadLettersArrive", "LancewalWrongFormat"}),
    ),
    World(
        "the first record of another format that is ignored",
        {_OTHER_FORMAT_IGNORED: lambda minute: None if minute < 30 else 1},
        frozenset({"LancewalWrongFormat"}),
    ),
    World(
        "a widening has been open for an hour, and nobody works on it",
        {_WIDENING: _per_minute(60, 3000)},
        frozenset({"LancewalWideningOpen"}),
    ),
    World(
        "the consumer of a subscription does not commit for days",
        {_SUBSCRIBED: _per_minute(0.002, 0.45)},
        frozenset({"LancewalSubscriptionLags"}),
    ),
    World(
        "a table has held a moving cut back for half an hour",
        {_CUT: lambda minute: max(0.0, 60.0 * (minute - 30))},
        frozenset({"LancewalCutHeldBack"}),
    ),
    World(
        "the catalog has not answered for a quarter of an hour",
        {_CATALOG: lambda minute: max(0.0, 60.0 * (minute - 45))},
        frozenset({"LancewalCatalogSilent"}),
    ),
    World("a quiet source with heartbeats", _heartbeats(_per_minute(6))),
    World("a quiet source with a heartbeat each hour", _heartbeats(lambda minute: 20 + (minute > 5))),
    World("heartbeats are turned off while rows come", {_HEARTBEATS: _until(25, 6)}),
    World("heartbeats have ended, and so has ingest for a while", _heartbeats(_away)),
    World(
        "heartbeats end, since Kafka is gone",
        {**_heartbeats(_until(25, 6)), _BROKERS: lambda minute: 3 if minute < 26 else 0},
        frozenset({"LancewalBrokersUnreachable"}),
    ),
    World(
        "heartbeats come again three minutes after Kafka, which was gone for 20 minutes",
        {
            **_heartbeats(lambda minute: 6 * (min(minute, 30) + max(0, minute - 53))),
            _BROKERS: lambda minute: 0 if 30 < minute < 50 else 3,
        },
        frozenset({"LancewalBrokersUnreachable"}),
    ),
    World("heartbeats end, and nothing else comes", _heartbeats(_until(25, 6)), frozenset({"LancewalSourceSilent"})),
    World("heartbeats ended 17 minutes ago", _heartbeats(_until(43, 6)), frozenset({"LancewalSourceSilent"})),
    World("heartbeats ended 13 minutes ago", _heartbeats(_until(47, 6))),
    World(
        "heartbeats end while a person has paused ingest",
        {
            **_heartbeats(_until(25, 6)),
            _END: _per_minute(6, 1_000_000),
            _ingest("lancewal_ingest_paused"): lambda minute: minute > 25,
        },
    ),
    World(
        "heartbeats are not read any more, since their partition has stopped",
        {
            **_heartbeats(_until(25, 6)),
            _END: _per_minute(6, 1_000_000),
            _STOPPED: lambda minute: minute > 25,
        },
        frozenset({"LancewalPartitionStopped"}),
    ),
    World("an index is refused", {_REFUSALS: _begins(20)}, frozenset({"LancewalIndexesBehind"})),
)


def wrong_alerts(folder: Path) -> list[str]:
    """Return each alert that fires and must not, or does not fire and must, with its world."""
    (folder / "rules-silence.yml").write_text(yaml.safe_dump(plain_rules()))
    return [
        f"{world.name}: {alert} {'does not fire' if alert in world.fires else 'fires'}"
        for world in WORLDS
        for alert in sorted(_fired(folder, world) ^ world.fires)
    ]


def _fired(folder: Path, world: World) -> frozenset[str]:
    """Return the names of the alerts that fired.  promtool shows them as it complains that a wrong answer was expected."""
    test = {
        "interval": "1m",
        "input_series": [{"series": name, "values": _text(values)} for name, values in series_of(world).items()],
        "promql_expr_test": [{"expr": f"{_FIRED} or vector(0)", "eval_time": f"{MINUTES}m", "exp_samples": []}],
    }
    unit = {"rule_files": ["rules-silence.yml"], "evaluation_interval": "1m", "tests": [test]}
    (folder / "silence.yml").write_text(yaml.safe_dump(unit))
    command = (program("promtool"), "test", "rules", folder / "silence.yml")
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    said = done.stdout + done.stderr
    assert "got:" in said, said
    return frozenset(re.findall(r'alertname=\\?"(\w+)', said))


def series_of(world: World) -> Series:
    """Return all series of the world."""
    return {**HEALTHY, **world.changed}


def _text(values: Values) -> str:
    """Return the values, one a minute, in promtool's notation."""
    return " ".join(_numbers(values))


def _numbers(values: Values) -> Iterator[str]:
    for minute in range(MINUTES + 1):
        value = values(minute)
        yield "_" if value is None else {"inf": "Inf", "nan": "NaN"}.get(str(value), f"{value:.15g}")
