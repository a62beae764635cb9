"""The flusher's page: what its rounds know of where records stop, and what a round meets that fails."""

from __future__ import annotations

import json
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from lancewal_core.process.clock import SystemClock
from lancewal_core.settings.load import Settings
from lancewal_core.table.control import Service
from lancewal_flusher.service.service import serve
from tests.support.flusher_tables import FlusherTable, upserts
from tests.support.pauses import pause
from tests.support.whole_path import until

DEADLINE_S = 240.0


def settings_of(made: FlusherTable) -> Settings:
    flusher = {"merge_interval_s": 0.05, "merge_defer_s": 0, "gc_interval_s": 60}
    tree: dict[str, Any] = {
        "table": {"uri": made.uri},
        "flusher": flusher,
        "http": {"ingest_port": 0, "flusher_port": 0},
    }
    return Settings(**tree)


@contextmanager
def serving(settings: Settings) -> Iterator[int]:
    """A service in a thread; yields its port."""
    stop, ports = threading.Event(), list[int]()
    thread = threading.Thread(target=lambda: serve(settings, stop.is_set, ports.append))
    thread.start()
    try:
        until(lambda: bool(ports))
        yield ports[0]
    finally:
        stop.set()
        thread.join(DEADLINE_S)
        assert not thread.is_alive()


def status(port: int) -> dict[str, Any]:
    asked = urllib.request.Request(f"http://127.0.0.1:{port}/status", headers={"Accept": "application/json"})
    try:
        with urllib.request.urlopen(asked, timeout=60) as answer:
            found: dict[str, Any] = json.loads(answer.read())
            return found
    except urllib.error.HTTPError as error:
        with error:
            if error.code != 503:
                raise
            return {"partitions": [], "recent_merges": [], "diagnosis": {"kind": "nothing is known yet"}, "paused": {}}


def kinds(port: int) -> dict[int, str]:
    return {
        one["partition"]: f"{one['diagnosis']['step']}: {one['diagnosis']['kind']}"
        for one in status(port)["partitions"]
    }


def test_merges_and_partitions_that_are_left(table: FlusherTable) -> None:
    table.generation(0, upserts(range(10)))
    table.generation(1, upserts(range(10, 15)))
    state = Path(table.uri) / "_lancewal"
    file = Path(table.uri) / table.flushed(1, 1).key
    file.unlink()
    sorted(state.glob("wal/*/*"))[1].unlink()  # else it would be made again
    with serving(settings_of(table)) as port:
        until(lambda: bool(status(port)["recent_merges"]), lambda: status(port))
        until(lambda: kinds(port).get(1) == "merged: object_missing", lambda: status(port), 20)
        found = status(port)
        assert found["seen_by"] == "flusher"
        assert found["diagnosis"]["kind"] == "object_missing"
        assert file.name in found["diagnosis"]["message"]
        assert found["partitions"][0]["diagnosis"]["state"] == "idle"
        assert found["partitions"][0]["merged"] == found["partitions"][0]["flushed"] == 10
        (merge,) = found["recent_merges"]
        assert (merge["partitions"], merge["generations"], merge["rows"]) == (1, 1, 10)
        assert found["table_version"] >= merge["version"]
        assert [text for text in found["problems"] if file.name in text]
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/", timeout=60) as page:
            assert page.url.endswith("/status")
            assert json.loads(page.read())["diagnosis"]["kind"] == "object_missing"


def test_rounds_that_fail(table: FlusherTable) -> None:
    table.generation(0, upserts(range(10)))
    index = min((Path(table.uri) / "_lancewal").glob("pages/*/*/00000/*.binpb"))  # the newest comes first
    whole = index.read_bytes()
    index.write_bytes(whole[:-1])
    with serving(settings_of(table)) as port:
        until(lambda: status(port)["diagnosis"]["kind"] == "object_corrupt", lambda: status(port))
        found = status(port)
        assert (found["diagnosis"]["step"], found["diagnosis"]["state"]) == ("merged", "problem")
        assert index.name in found["diagnosis"]["message"]
        index.write_bytes(whole)
        until(lambda: kinds(port).get(0) == "read: caught_up", lambda: status(port))
        assert status(port)["problems"] == []


def test_a_pause_is_shown(table: FlusherTable) -> None:
    pause(table.store, SystemClock(), lambda: "abcdef01", Service.FLUSHER, None)
    with serving(settings_of(table)) as port:
        until(lambda: status(port)["paused"] == {"flusher": "resumed"}, lambda: status(port))
        assert status(port)["problems"] == []
