"""The flusher as a service and as a program: start-up checks, rounds on a timer, metrics, health, signals, exit codes."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from http.client import HTTPException
from pathlib import Path
from typing import Any

import lance
import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from lancewal_core.errors import (
    ContractMismatch,
    FlusherPaused,
    InvalidSettings,
    NotALancewalTable,
    ObjectCorrupt,
    ObjectMissing,
    PlanRetriesExhausted,
    Problem,
    StoreUnavailable,
    StoreUnsafe,
    TableReplaced,
    TableRestored,
)
from lancewal_core.names.ids import Generation, Position, Region, TableVersion, TopicId
from lancewal_core.names.paths import WAL, control_version
from lancewal_core.process.clock import SystemClock
from lancewal_core.process.silence import Pace
from lancewal_core.settings.load import Settings
from lancewal_core.store.folder import FolderStore
from lancewal_core.table.control import Service
from lancewal_core.table.watermarks import TABLE_UUID, InForce, Watermark
from lancewal_flusher.commit.send import Refused
from lancewal_flusher.event_table import FlusherEvents
from lancewal_flusher.garbage.collect import collect_garbage
from lancewal_flusher.merge.merge import merge_next
from lancewal_flusher.service import process as flusher_process
from lancewal_flusher.service import round as rounds
from lancewal_flusher.service import table as flusher_table
from lancewal_flusher.service.backlog import Backlog, BacklogReader
from lancewal_flusher.service.metric_table import FlusherMetricTable
from lancewal_flusher.service.metrics import FlusherMetrics
from lancewal_flusher.service.round import RoundState, run_round
from lancewal_flusher.service.service import run_once, serve
from lancewal_flusher.service.upkeep import CompactionReport, IndexTurnReport, TableFigures
from tests.support.flusher_tables import COLUMNS, OPEN_ROWS, FlusherTable, delete, patch, upserts
from tests.support.pauses import pause, resume
from tests.support.scrapes import not_shown
from tests.support.scripted import ManualClock

DEADLINE_S = 240.0


def tree(made: FlusherTable, /, **sections: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {
        "table": {"uri": made.uri},
        "flusher": {"merge_interval_s": 0.05, "merge_defer_s": 0, "gc_interval_s": 0.05},
        "http": {"ingest_port": 0, "flusher_port": 0},
    }
    for name, section in sections.items():
        found[name] = {**found.get(name, {}), **section}
    return found


def settings_of(made: FlusherTable, /, **sections: dict[str, Any]) -> Settings:
    return Settings(**tree(made, **sections))


def wait_for(condition: Callable[[], object]) -> None:
    until = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < until, "waited too long"
        time.sleep(0.01)


@contextmanager
def serving(settings: Settings, *, fails: bool = False) -> Iterator[int]:
    """A service in a thread; yields its port, and raises its error at the end."""
    stop = threading.Event()
    ports: list[int] = []
    errors: list[BaseException] = []

    def target() -> None:
        try:
            serve(settings, stop.is_set, ports.append)
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=target)
    thread.start()
    try:
        wait_for(lambda: ports or errors)
        if errors:
            raise errors[0]
        yield ports[0]
    finally:
        stop.set()
        thread.join(DEADLINE_S)
        assert not thread.is_alive()
    if errors:
        raise errors[0]


def get(port: int, path: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=60) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def samples(port: int) -> dict[str, float]:
    """``name{label values}`` to value, the prefix and the table left out."""
    found = {}
    for family in text_string_to_metric_families(get(port, "/metrics")[1]):
        for sample in family.samples:
            labels = ",".join(v for k, v in sorted(sample.labels.items()) if k != "table")
            found[sample.name.removeprefix("lancewal_flusher_") + (f"{{{labels}}}" if labels else "")] = sample.value
    return found


def test_a_file_system_without_hard_links_ends_the_start_by_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = FlusherTable(tmp_path)

    def link(*_: object, **__: object) -> None:
        raise OSError(errno.EPERM, os.strerror(errno.EPERM))

    monkeypatch.setattr(os, "link", link)
    with pytest.raises(StoreUnsafe, match="has no hard links"), serving(settings_of(made)):
        pass
    made.close()


# -- once ------------------------------------------------------------------------------------------------------


def test_once_flushes_and_merges_everything(table: FlusherTable) -> None:
    table.generation(0, upserts(range(10)))
    table.generation(0, [delete(3), patch(4, a=4)], flush=False)
    table.generation(1, upserts(range(5)), flush=False)
    stopped = run_once(settings_of(table), lambda: True)
    assert (stopped.merges, stopped.finished) == (0, False)
    done = run_once(settings_of(table))
    assert (done.merges, done.generations, done.finished) == (1, 3, True)
    table.check()
    assert table.states(0) == ["MERGED", "MERGED"]
    assert table.states(1) == ["MERGED"]
    assert run_once(settings_of(table)) == replace(done, merges=0, generations=0)
    table.check()


def test_what_a_merge_may_hold_is_a_setting_once_and_in_the_service(table: FlusherTable) -> None:
    table.generation(0, upserts(range(40)))
    little = settings_of(table, flusher={"merge_memory_bytes_max": 1_000})
    for run in (run_once, serve):
        with pytest.raises(InvalidSettings, match=r"flusher\.merge_memory_bytes_max is 1000\. Set it to 4000"):
            run(little, lambda: False)
    assert table.states(0) == ["FLUSHED"]
    run_once(settings_of(table, flusher={"merge_memory_bytes_max": 4_000}))
    table.check()


def test_once_gives_up_where_nothing_lands(table: FlusherTable, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any, **__: Any) -> Any:
        raise OSError("connection refused")

    table.generation(0, upserts(range(10)))
    monkeypatch.setattr(lance.LanceDataset, "commit", refuse)
    with pytest.raises(PlanRetriesExhausted, match="connection refused"):
        run_once(settings_of(table))


# -- what is checked first -------------------------------------------------------------------------------------

CONTRADICTIONS: list[tuple[dict[str, Any], Sequence[str]]] = [
    ({"table": {"primary_key": ["id"]}}, ["table.primary_key", "['id']", "['region', 'id']"]),
    ({"table": {"region_key": ["id"]}}, ["table.region_key", "['id']", "['region']"]),
    ({"table": {"patches": False}}, ["table.patches", "False", "True", "LANCEWAL_TABLE__PATCHES"]),
    ({"table": {"history_window_s": 5}}, ["table.history_window_s", "5", "86400"]),
    ({"table": {"columns": {"region": "string"}}}, ["table.columns", "tags: list<string>"]),
    ({"table": {"topic": "other"}}, ["table.topic", "'other'", "'orders'"]),
    ({"table": {"grace_s": 5, "topic": "other"}}, ["table.grace_s", "table.topic"]),
]


@pytest.mark.parametrize(("sections", "texts"), CONTRADICTIONS)
def test_settings_that_contradict_the_contract(
    table: FlusherTable, sections: dict[str, Any], texts: Sequence[str]
) -> None:
    with pytest.raises(ContractMismatch) as caught:
        run_once(settings_of(table, **sections))
    for text in texts:
        assert text in str(caught.value)


def test_settings_that_say_the_same(table: FlusherTable) -> None:
    same = {
        "primary_key": ["region", "id"],
        "region_key": ["region"],
        "patches": True,
        "history_window_s": 86_400,
        "columns": {c.name: c.type for c in table.contract.columns},
    }
    run_once(settings_of(table, table={**same, "topic": "orders"}))


def test_no_table_no_contract_another_table(table: FlusherTable, tmp_path: Path) -> None:
    with pytest.raises(InvalidSettings, match=r"table\.uri"):
        run_once(Settings())
    plain = str(tmp_path / "plain")
    lance.write_dataset(COLUMNS.empty_table(), plain)
    with pytest.raises(NotALancewalTable):
        run_once(settings_of(table, table={"uri": plain}))
    table.dataset.update_config({TABLE_UUID: "uuid-2"})
    with pytest.raises(TableReplaced, match=r"uuid-2.*uuid-1"):
        run_once(settings_of(table))


def test_a_port_that_is_taken(table: FlusherTable) -> None:
    with (
        serving(settings_of(table)) as port,
        pytest.raises(InvalidSettings, match=r"http\.flusher_port"),
        serving(settings_of(table, http={"flusher_port": port})),
    ):
        pass


# -- the service -----------------------------------------------------------------------------------------------


def test_it_merges_what_comes(table: FlusherTable) -> None:
    with serving(settings_of(table)) as port:
        wait_for(lambda: get(port, "/readyz")[0] == 200)
        for n in range(3):
            table.generation(0, [*upserts(range(n, n + 5), a=n), delete(100)])
            table.generation(1, [patch(n, a=n)])
            wait_for(lambda n=n: table.states(0) == ["MERGED"] * (n + 1) == table.states(1))  # type: ignore[misc] # no type for a default
            table.check()
        wait_for(lambda: samples(port)["merged_position{1}"] == 3)
        found = samples(port)
        assert not_shown(get(port, "/metrics")[1], FlusherMetricTable) == set()
        assert get(port, "/livez") == (200, "ok\n")
    assert found["merges_total"] >= 3
    assert found["generations_merged_total{0}"] == found["generations_merged_total{1}"] == 3
    assert found["adopted_rows_total"] + found["written_rows_total"] == 18
    assert found["replaced_rows_total"] == 8
    assert found["keys_deleted_total"] == 3
    assert found["merged_generation{0}"] == 3
    assert found["merged_position{0}"] == 18
    assert found["unmerged_generations{0}"] == found["unmerged_rows{0}"] == found["oldest_unmerged_seconds{0}"] == 0
    assert found["table_version"] == table.dataset.version
    assert found["round_seconds_count"] >= 3
    assert found["conflicts_total{conflict}"] == 0
    assert found["adopted_bytes_total"] + found["rewritten_bytes_total{merge}"] > 0
    assert found["rewritten_bytes_total{compaction}"] == found["invariant_violations_total{merged_position_fell}"] == 0
    assert abs(found["merged_timestamp_seconds{0}"] - time.time()) < DEADLINE_S
    requests = {name: n for name, n in found.items() if name.startswith("lancewal_store_requests_total{merge-record")}
    assert sum(requests.values()) > 0
    assert found["process_resident_memory_bytes"] > 0


def test_of_a_former_topic_nothing_is_shown() -> None:
    """Its partitions have the same numbers, and its watermarks stay with the table."""
    now, former = (Region("orders", TopicId(topic_id), 0) for topic_id in ("now", "former"))
    marks = {now: Watermark(Generation(2), Position(7)), former: Watermark(Generation(9), Position(900))}
    metrics = FlusherMetrics(SystemClock(), "t", FlusherEvents())
    metrics.backlog(Backlog(TableVersion(3), InForce(TableVersion(3), "m", marks), {now: ()}, {now: 0}))
    place = {"table": "t", "partition": "0"}
    assert metrics.registry.get_sample_value("lancewal_flusher_merged_generation", place) == 2
    assert metrics.registry.get_sample_value("lancewal_flusher_merged_position", place) == 7


def test_what_waits_is_shown_and_orphans_are_left_for_a_while(table: FlusherTable) -> None:
    table.generation(0, upserts(range(5)), flush=False)
    with serving(settings_of(table)) as port:
        wait_for(lambda: samples(port).get("unmerged_generations{0}") == 1)
        wait_for(lambda: samples(port)["oldest_unmerged_seconds{0}"] > 0.05)
        assert "merged_timestamp_seconds{0}" not in samples(port)
        assert table.states(0) == ["SEALED"]
        assert samples(port)["unmerged_generations{1}"] == 0


def test_orphans_are_flushed_after_the_grace(table: FlusherTable, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flusher_table, "SEALED_GRACE_S", 0.2)
    table.generation(0, upserts(range(5)), flush=False)
    with serving(settings_of(table)) as port:
        wait_for(lambda: samples(port)["generations_flushed_total"] == 1)
        wait_for(lambda: table.states(0) == ["MERGED"])
    table.check()


def test_garbage_is_collected(tmp_path: Path) -> None:
    table = FlusherTable(tmp_path, history_window_s=0, grace_s=0)
    with serving(settings_of(table)) as port:
        for n in range(3):
            table.generation(0, upserts(range(n, n + 5), a=n))
        wait_for(lambda: table.index(0).trimmed_generation == 3)
        wait_for(lambda: samples(port)["gc_deleted_objects_total"] > 0)
    table.check()
    table.close()


def test_merges_go_on_beside_garbage_collection(table: FlusherTable, monkeypatch: pytest.MonkeyPatch) -> None:
    """A pause begins once it has ended."""
    begun, may_end, ended = (threading.Event() for _ in range(3))

    def collect(*arguments: Any) -> Any:
        begun.set()
        assert may_end.wait(DEADLINE_S)
        report = collect_garbage(*arguments)
        ended.set()
        return report

    monkeypatch.setattr(flusher_table, "collect_garbage", collect)
    monkeypatch.setattr(flusher_table, "POLL_S", 0.05)
    with serving(settings_of(table)) as port:
        assert begun.wait(DEADLINE_S)
        table.generation(0, upserts(range(5)))
        wait_for(lambda: table.states(0) == ["MERGED"])
        assert not ended.is_set()
        pause(table.store, SystemClock(), lambda: "1", Service.FLUSHER, None)
        may_end.set()
        wait_for(lambda: samples(port)["paused"] == 1)
        assert ended.is_set()
    table.check()


def test_garbage_collection_that_hangs_is_named(table: FlusherTable, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the probe, a metric and the log, which also says so where a pause waits for it."""
    begun, may_end = threading.Event(), threading.Event()
    logged: list[str] = []

    def collect(*arguments: Any) -> Any:
        begun.set()
        assert may_end.wait(DEADLINE_S)
        return collect_garbage(*arguments)

    monkeypatch.setattr(flusher_table, "collect_garbage", collect)
    monkeypatch.setattr(flusher_table, "POLL_S", 0.05)
    monkeypatch.setattr(flusher_table, "PAUSE_WAITS_S", 0.0)
    monkeypatch.setattr(FlusherMetrics, "stands", lambda self, turn, seconds: logged.append(turn))
    with serving(settings_of(table)) as port:
        assert begun.wait(DEADLINE_S)
        wait_for(lambda: samples(port)["gc_running_seconds"] > 0)
        assert logged == []
        assert get(port, "/livez")[0] == 200
        pause(table.store, SystemClock(), lambda: "1", Service.FLUSHER, None)
        wait_for(lambda: logged)
        assert samples(port)["paused"] == 0
        may_end.set()
        wait_for(lambda: samples(port)["paused"] == 1)
        assert samples(port)["gc_running_seconds"] == 0
    assert set(logged) == {"gc"}


def test_garbage_collection_that_hangs_for_long_is_to_be_restarted(
    table: FlusherTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    may_end, logged = threading.Event(), list[str]()

    def collect(*arguments: Any) -> Any:
        assert may_end.wait(DEADLINE_S)
        return collect_garbage(*arguments)

    monkeypatch.setattr(flusher_table, "collect_garbage", collect)
    for module in (flusher_table, flusher_process):
        monkeypatch.setattr(module, "LOOP_LIMIT_S", 0.2)
    monkeypatch.setattr(FlusherMetrics, "stands", lambda self, turn, seconds: logged.append(turn))
    with serving(settings_of(table)) as port:
        wait_for(lambda: "loop_stands: gc, in parallel with the loop, has been running for " in get(port, "/livez")[1])
        assert get(port, "/livez")[0] == 503
        wait_for(lambda: logged)
        may_end.set()


def test_what_garbage_collection_fails_with_as_the_service_ends_is_logged(
    table: FlusherTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    for error in (StoreUnavailable("away"), InvalidSettings("look at this")):
        begun, stopping = threading.Event(), threading.Event()
        failed: list[tuple[str, str]] = []

        def collect(*_: Any, begun: Any = begun, stopping: Any = stopping, error: Exception = error) -> Any:
            begun.set()
            assert stopping.wait(DEADLINE_S)
            raise error

        with monkeypatch.context() as patched:
            patched.setattr(flusher_table, "collect_garbage", collect)
            patched.setattr(FlusherEvents, "service_stopping", lambda self, stopping=stopping: stopping.set())
            patched.setattr(
                FlusherMetrics, "failed", lambda self, act, error, *_, failed=failed: failed.append((act, error.kind))
            )
            with serving(settings_of(table)):
                assert begun.wait(DEADLINE_S)
        assert failed == [("gc", error.kind)]


def test_garbage_is_collected_while_something_always_waits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = FlusherTable(tmp_path, history_window_s=0, grace_s=0)

    def behind(*arguments: Any) -> Any:
        table.generation(0, upserts(range(3)))
        return merge_next(*arguments[:4])  # and look

    monkeypatch.setattr(rounds, "merge_next", behind)
    with serving(settings_of(table)) as port:
        wait_for(lambda: samples(port).get("gc_deleted_objects_total", 0) > 0)
        assert get(port, "/readyz")[0] == 200
    monkeypatch.undo()
    run_round(table.context(), OPEN_ROWS, RoundState(), 0)
    table.check()
    table.close()


def test_passing_faults_are_counted_and_tried_again(table: FlusherTable, monkeypatch: pytest.MonkeyPatch) -> None:
    down = threading.Event()
    read = FolderStore.get

    def fail(self: FolderStore, key: str) -> bytes | None:
        if down.is_set():
            raise StoreUnavailable("503")
        return read(self, key)

    monkeypatch.setattr(FolderStore, "get", fail)
    monkeypatch.setattr(flusher_table, "PAUSE_S", 0.01)
    with serving(settings_of(table)) as port:
        wait_for(lambda: get(port, "/readyz")[0] == 200)
        table.generation(0, upserts(range(5)))
        down.set()
        wait_for(lambda: samples(port).get("failures_total{store_unavailable}", 0) >= 3)
        wait_for(lambda: "store_unavailable: merge failed: 503" in get(port, "/readyz")[1].splitlines())
        assert get(port, "/readyz")[0] == 503
        down.clear()
        wait_for(lambda: get(port, "/readyz")[0] == 200)
        wait_for(lambda: table.states(0) == ["MERGED"])
    table.check()


def test_damage_of_a_region_holds_up_no_other_and_is_waited_out(
    table: FlusherTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(flusher_table, "SEALED_GRACE_S", 0.0)
    table.generation(0, upserts(range(5)), flush=False)
    held = table.take_away(WAL)
    table.generation(1, upserts(range(5)))
    with serving(settings_of(table)) as port:
        wait_for(lambda: table.states(1) == ["MERGED"])
        wait_for(lambda: samples(port)["damaged_partitions"] == 1)
        wait_for(lambda: samples(port).get("failures_total{object_missing}", 0) >= 2)
        status, text = get(port, "/readyz")
        assert status == 503
        assert text.startswith(f"object_missing: region {table.regions[0].name}: ")
        assert get(port, "/livez")[0] == 200
        table.put_back(held)
        wait_for(lambda: table.states(0) == ["MERGED"])
        wait_for(lambda: get(port, "/readyz")[0] == 200)
        assert samples(port)["damaged_partitions"] == 0
    table.check()


def test_a_damaged_index_is_waited_out(table: FlusherTable, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flusher_table, "PAUSE_S", 0.01)
    table.generation(0, upserts(range(5)))
    indexes = {path: path.read_bytes() for path in (Path(table.uri) / "_lancewal" / "pages").rglob("*.binpb")}
    for path, data in indexes.items():
        path.write_bytes(data[:-3])
    without_gc = {"gc_interval_s": 3600}  # it would name the regions beside the merge
    with serving(settings_of(table, flusher=without_gc)) as port:
        wait_for(lambda: samples(port).get("failures_total{object_corrupt}", 0) >= 2)
        status, text = get(port, "/readyz")
        assert status == 503
        assert {line.split(": ")[1] for line in text.splitlines()} == {
            f"region {region.name}" for region in table.regions
        }
        assert all(line.startswith("object_corrupt: ") and "/pages/" in line for line in text.splitlines())
        for path, data in indexes.items():
            path.write_bytes(data)
        wait_for(lambda: table.states(0) == ["MERGED"])
        wait_for(lambda: get(port, "/readyz")[0] == 200)
    table.check()


def test_damage_that_garbage_collection_meets_is_named_until_it_is_gone(
    table: FlusherTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Though rounds end well meanwhile."""
    damaged = threading.Event()
    damaged.set()

    def collect(*arguments: Any) -> Any:
        if damaged.is_set():
            raise ObjectCorrupt("a page is corrupt")
        return collect_garbage(*arguments)

    monkeypatch.setattr(flusher_table, "collect_garbage", collect)
    monkeypatch.setattr(flusher_table, "PAUSE_S", 0.01)
    with serving(settings_of(table, flusher={"gc_interval_s": 1.0})) as port:
        wait_for(lambda: samples(port).get("failures_total{object_corrupt}", 0) >= 1)
        rounds_before = samples(port)["round_seconds_count"]
        wait_for(lambda: samples(port)["round_seconds_count"] >= rounds_before + 3)
        assert get(port, "/readyz") == (503, "object_corrupt: gc failed: a page is corrupt\n")
        damaged.clear()
        wait_for(lambda: get(port, "/readyz")[0] == 200)


def test_damaged_partitions_are_named_beside_a_fault_of_garbage_collection(
    table: FlusherTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: Any) -> Any:
        raise StoreUnavailable("deleting is forbidden")

    monkeypatch.setattr(flusher_table, "SEALED_GRACE_S", 0.0)
    monkeypatch.setattr(flusher_table, "collect_garbage", refuse)
    monkeypatch.setattr(flusher_table, "PAUSE_S", 60.0)
    table.generation(0, upserts(range(5)), flush=False)
    table.take_away(WAL)
    with serving(settings_of(table, flusher={"gc_interval_s": 1.0})) as port:
        wait_for(lambda: samples(port).get("failures_total{store_unavailable}", 0) >= 1)
        lines = get(port, "/readyz")[1].splitlines()
        assert len(lines) == 2
        assert lines[0].startswith(f"object_missing: region {table.regions[0].name}: ")
        assert lines[1].startswith("store_unavailable: gc failed: ")


@pytest.mark.parametrize("act", ["compaction", "expiry"])
def test_a_turn_that_was_refused_says_nothing_of_the_damage_that_an_earlier_one_met(
    table: FlusherTable, act: str
) -> None:
    context = table.context()
    context = replace(context, contract=context.contract.model_copy(update={"ttl_column": "at", "ttl_s": 86_400}))
    metrics = FlusherMetrics(context.clock, "t", context.events)
    served = flusher_table.FlusherTable(settings_of(table), context, metrics, bool)
    refused = Refused("a commit came first")
    results: dict[str, Sequence[Any]] = {
        "compaction": [
            CompactionReport(what, TableFigures.of(()), IndexTurnReport((), {})) for what in (refused, None)
        ],
        "expiry": (refused, None),
    }
    (turn,) = [turn for turn in served.turns.others if turn.name == act]

    def corrupt() -> Any:
        raise ObjectCorrupt("a page is corrupt")

    seen = []
    for do in (corrupt, *(lambda result=result: result for result in results[act])):
        turn.do = do
        turn.take()
        seen.append(list(turn.problems))
    damage = [Problem("object_corrupt", f"{act} failed: a page is corrupt")]
    assert seen == [damage, damage, []]


def test_a_lost_index_is_named(table: FlusherTable, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flusher_table, "PAUSE_S", 0.01)
    table.generation(0, upserts(range(5)))
    table.round()
    for path in (Path(table.uri) / "_lancewal" / "pages").rglob("*.binpb"):
        path.unlink()
    with serving(settings_of(table)) as port:
        wait_for(lambda: samples(port).get("failures_total{store_inconsistent}", 0) >= 2)
        status, text = get(port, "/readyz")
        assert status == 503
        assert text.startswith(f"store_inconsistent: merge failed: region {table.regions[0].name}: ")
        assert "repair region" in text


def test_once_merges_the_others_before_it_ends_by_damage(table: FlusherTable) -> None:
    table.generation(0, upserts(range(5)), flush=False)
    table.take_away(WAL)
    table.generation(1, upserts(range(5)))
    with pytest.raises(ObjectMissing, match="repair segment"):
        run_once(settings_of(table))
    assert table.states(1) == ["MERGED"]


def test_a_paused_flusher_begins_no_round(table: FlusherTable, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flusher_table, "POLL_S", 0.05)
    clock = SystemClock()
    pause(table.store, clock, lambda: "1", Service.FLUSHER, None)
    table.generation(0, upserts(range(5)))
    with pytest.raises(FlusherPaused, match="lancewal resume flusher"):
        run_once(settings_of(table))
    with serving(settings_of(table)) as port:
        wait_for(lambda: samples(port)["paused"] == 1)
        assert get(port, "/readyz") == (200, "ok\n")
        assert samples(port)["round_seconds_count"] == 0
        assert samples(port)["unmerged_generations{0}"] == 1  # known before any round
        resume(table.store, clock, lambda: "2", Service.FLUSHER, None)
        wait_for(lambda: table.states(0) == ["MERGED"])
        wait_for(lambda: samples(port)["paused"] == 0)
        pause(table.store, clock, lambda: "3", Service.FLUSHER, None)
        wait_for(lambda: samples(port)["paused"] == 1)
        rounds = samples(port)["round_seconds_count"]
        table.generation(0, upserts(range(5), a=1))
        assert table.states(0) == ["MERGED", "FLUSHED"]
        wait_for(lambda: samples(port)["unmerged_generations{0}"] == 1)  # a pause hides nothing
        wait_for(lambda: samples(port)["unmerged_rows{0}"] == 5)  # known once it is flushed
        assert samples(port)["round_seconds_count"] == rounds
        pause(table.store, clock, lambda: "4", Service.FLUSHER, None, 0.5)
        wait_for(lambda: table.states(0) == ["MERGED", "MERGED"])  # the pause ends by itself
        wait_for(lambda: samples(port)["round_seconds_count"] > rounds)  # counted when the round ends
    table.check()


def test_during_a_pause_it_is_looked_as_often_as_rounds_would_begin(table: FlusherTable) -> None:
    context, clock, looked = table.context(), ManualClock(), list[float]()

    class Noted(BacklogReader):
        def now(self) -> Backlog:
            looked.append(clock.monotonic())
            return super().now()

    context = replace(context, clock=clock)
    metrics = FlusherMetrics(clock, "t", context.events)
    served = flusher_table.FlusherTable(settings_of(table), context, metrics, bool)
    served.backlogs = Noted(context)
    began = clock.monotonic()
    for _ in range(9):
        served.look_again(10.0)
        clock.sleep(4.0)
    assert [at - began for at in looked] == [0.0, 12.0, 24.0]


def test_a_control_that_cannot_be_read_is_shown(table: FlusherTable) -> None:
    table.store.put_if_absent(control_version(1, None), b"{}")
    table.generation(0, upserts(range(5)))
    with serving(settings_of(table)) as port:
        wait_for(lambda: table.states(0) == ["MERGED"])
        wait_for(lambda: "object_corrupt: control cannot be read: " in get(port, "/readyz")[1])
        assert get(port, "/readyz")[0] == 503
    table.check()


def test_a_store_that_is_silent_is_shown_while_a_round_waits_for_it(
    table: FlusherTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its requests hang, those of the round and those of the watch beside it; with the first answer it is over."""
    monkeypatch.setattr(flusher_table, "STORE", Pace(0.01, 0.3))
    answers = threading.Event()
    got, listed = FolderStore.get, FolderStore.list

    def slow_get(self: FolderStore, key: str) -> bytes | None:
        assert answers.wait(DEADLINE_S)
        return got(self, key)

    def slow_list(self: FolderStore, *arguments: Any, **named: Any) -> Any:
        assert answers.wait(DEADLINE_S)
        return listed(self, *arguments, **named)

    with serving(settings_of(table)) as port:
        wait_for(lambda: get(port, "/readyz") == (200, "ok\n"))
        monkeypatch.setattr(FolderStore, "get", slow_get)
        monkeypatch.setattr(FolderStore, "list", slow_list)
        wait_for(lambda: "store_unavailable: the store at " in get(port, "/readyz")[1])
        assert get(port, "/livez")[0] == 200
        answers.set()
        wait_for(lambda: get(port, "/readyz") == (200, "ok\n"))


def test_what_a_person_must_see_ends_it(table: FlusherTable) -> None:
    table.generation(0, upserts(range(5)))

    def restore() -> None:
        with serving(settings_of(table)) as port:
            wait_for(lambda: table.states(0) == ["MERGED"])
            old: Any = lance.dataset(table.uri, version=table.dataset.version - 1)
            old.restore()
            wait_for(lambda: not _answers(port))

    with pytest.raises(TableRestored):
        restore()


def _answers(port: int) -> bool:
    try:
        get(port, "/livez")
    except (OSError, HTTPException):  # it may end in the middle of an answer
        return False
    return True


# -- the program -----------------------------------------------------------------------------------------------

PROGRAM = """
import sys
from lancewal_core.cli import program as cli
sys.exit(cli.run(sys.argv[1:]))
"""


def program(
    table: FlusherTable, settings: dict[str, Any], *arguments: str, command: str = "flusher run", **environment: str
) -> subprocess.Popen[str]:
    file = Path(table.uri).parent / "settings.yaml"
    file.write_text(yaml.safe_dump(settings))
    return subprocess.Popen(
        [sys.executable, "-c", PROGRAM, *command.split(), "--config", str(file), *arguments],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def once(table: FlusherTable, settings: dict[str, Any], *arguments: str, **environment: str) -> subprocess.Popen[str]:
    return program(table, settings, *arguments, command="merge", **environment)


def test_once_as_a_program(table: FlusherTable) -> None:
    table.generation(0, upserts(range(10)))
    table.generation(0, upserts(range(5, 15), a=1), flush=False)
    process = once(table, tree(table), "--runner", "threads")
    out, errors = process.communicate(timeout=DEADLINE_S)
    version = table.dataset.version
    said = f"1 merge of 2 generations; the table is at version {version}\n"
    assert (process.returncode, out) == (0, said), errors
    assert '"event": "merge_landed"' in errors
    table.check()
    assert table.states(0) == ["MERGED", "MERGED"]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_signals_end_it_orderly(table: FlusherTable, number: signal.Signals) -> None:
    table.generation(0, upserts(range(10)))
    process = program(table, tree(table))
    wait_for(lambda: table.states(0) == ["MERGED"] or process.poll() is not None)
    process.send_signal(number)
    _, errors = process.communicate(timeout=DEADLINE_S)
    assert process.returncode == 0, errors
    assert '"event": "service_stopping"' in errors
    table.check()


def test_errors_are_one_line_and_an_exit_code(table: FlusherTable) -> None:
    process = once(table, tree(table, table={"topic": "other"}))
    _, errors = process.communicate(timeout=DEADLINE_S)
    assert process.returncode == 2
    (line,) = errors.splitlines()
    assert line.startswith("lancewal: contract_mismatch: table.topic")


def test_damage_is_exit_code_4(table: FlusherTable) -> None:
    table.generation(0, upserts(range(10)))
    table.round()
    for path in (Path(table.uri) / "_lancewal" / "pages").rglob("*.binpb"):
        path.write_bytes(path.read_bytes()[:-3])
    process = once(table, tree(table))
    _, errors = process.communicate(timeout=DEADLINE_S)
    assert process.returncode == 4
    assert errors.splitlines()[-1].startswith("lancewal: object_corrupt:")


def test_a_killed_program_is_continued(table: FlusherTable) -> None:
    """SIGKILL right after the commit: nothing records it, nothing is marked."""
    table.generation(0, upserts(range(10)))
    process = once(table, tree(table), LANCEWAL_TESTING="1", LANCEWAL_FAILPOINT="commit.recv:after=kill")
    process.communicate(timeout=DEADLINE_S)
    assert process.returncode == -signal.SIGKILL
    assert table.states(0) == ["FLUSHED"]
    table.check()
    process = once(table, tree(table))
    _, errors = process.communicate(timeout=DEADLINE_S)
    assert process.returncode == 0, errors
    assert table.states(0) == ["MERGED"]
    table.check()
