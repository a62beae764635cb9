"""The harness that measures lancewal beside peers, with a dict as the peer: no peer is fetched here."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.elapsed import Elapsed
from benchmarks.keyed_rows import Base, Upserts
from benchmarks.peers import __main__ as bench_peers
from benchmarks.peers import as_arrow, remote, scans
from benchmarks.peers.cpu_time import cpu_s
from benchmarks.peers.engines import Engine
from benchmarks.peers.measure import Aim, Measured, cells
from benchmarks.peers.remote import RemotePeer
from benchmarks.peers.sizes import Sizes, as_parquet, write_round
from lancewal_demo.stack import StackFailed
from tests.benchmarks.dict_peer import CLOSED, FAULT

ENGINE = Engine("dict", "tests.benchmarks.dict_peer", "")
SIZES = Sizes(rows=20_000, rounds=2, round_rows=2_000)


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Base:
    return Base(tmp_path_factory.mktemp("base") / "base", SIZES.rows)


@pytest.fixture(autouse=True)
def no_environment_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote, "python_of", lambda _engine: sys.executable)


def test_a_peer_in_its_own_process_holds_the_model_and_says_what_it_cannot(base: Base, tmp_path: Path) -> None:
    upserts = Upserts(base, 1)
    with RemotePeer(ENGINE, tmp_path / "peer") as peer:
        peer.create(as_parquet(base))
        peer.check(upserts.model)
        file = write_round(upserts.batch(500), tmp_path)
        with pytest.raises(AssertionError, match="the model"):
            peer.check(upserts.model)
        assert peer.upsert(file).wall > 0
        peer.check(upserts.model)
        with pytest.raises(StackFailed, match="NotImplementedError: a dict"):
            peer.compact()
        peer.check(upserts.model)  # it goes on after an error


def test_a_peer_ends_what_it_started_also_when_nobody_listens_any_more(tmp_path: Path) -> None:
    root = Path(__file__).parents[2]
    child = subprocess.Popen(
        [sys.executable, "-m", "benchmarks.peers.child", ENGINE.module, str(tmp_path)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env={**os.environ, "PYTHONPATH": str(root)},
    )  # fmt: skip
    assert child.stdin is not None
    assert child.stdout is not None
    child.stdout.close()
    child.stdin.close()
    child.wait(60)
    assert (tmp_path / CLOSED).exists()


def test_arrow_upserts_are_measured_in_turns(base: Base, tmp_path: Path) -> None:
    found = list(as_arrow.measure(base, tmp_path, SIZES, ENGINE))
    assert [str(m.aim) for m in found if m.aim] == ["at most 1.6", "at most 2.5"]
    assert all(m.ours > 0 and m.theirs > 0 and m.runs == 2 for m in found)
    for whole, read, committed, over_floor, floor in (found[:5], found[5:10], found[10:]):
        assert (read.ours, read.peer) == (whole.ours, whole.peer)
        assert read.theirs > whole.theirs
        assert committed.ours < whole.ours == over_floor.ours
        assert committed.theirs == whole.theirs == floor.theirs
        assert over_floor.peer == as_arrow.FLOOR
        assert over_floor.theirs == floor.ours


def test_a_peer_that_loses_a_row_is_no_peer(base: Base, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(FAULT, "lose")
    with pytest.raises(AssertionError, match="dict holds"):
        list(as_arrow.measure(base, tmp_path, SIZES, ENGINE))


def test_scans_are_measured_before_and_after_compaction(base: Base, tmp_path: Path) -> None:
    found = list(scans.against_lance(base, tmp_path, SIZES))
    assert [m.peer for m in found] == [scans.FRESH, scans.FRESH, scans.MERGE_INSERT, scans.MERGE_INSERT] * 4
    aimed = [(m.measure.split(",")[0], m.peer, str(m.aim)) for m in found if m.aim]
    assert aimed == [
        ("all columns by lancewal", scans.FRESH, "at most 1.5"),
        ("all columns by lancewal", scans.FRESH, "at most 1.1"),
        ("all columns by plain Lance", scans.FRESH, "at most 1.1"),
    ]


def test_a_snapshot_is_read_by_the_peer_beside_its_own_table(
    base: Base, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the branch's folder, which the peer must find to hold the model's rows."""
    monkeypatch.setattr(scans, "RUNS", 2)
    full, aggregate = scans.of_snapshot(base, tmp_path, SIZES, ENGINE)
    assert (
        (full.row, str(full.aim), full.runs)
        == (aggregate.row, str(aggregate.aim), aggregate.runs)
        == ("d", "at most 1", 2)
    )
    assert full.measure.startswith("all columns: a named snapshot by lance-spark")
    step = bench_peers._steps("abd", [ENGINE, replace(ENGINE, reads_lance=True, package="x")])
    assert [(s.measure, s.engine and s.engine.by_spark) for s in step] == [("a", True), ("b", False), ("d", True)]


def test_a_peer_that_cannot_be_had_is_named_and_the_others_are_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    absent = Engine("absent", "tests.benchmarks.no_such_module", "")
    monkeypatch.setattr(bench_peers, "ENGINES", {"absent": absent, "dict": ENGINE})
    output = tmp_path / "out.json"
    sizes = ["--rows", "2000", "--rounds", "1", "--round-rows", "100"]
    code = bench_peers.main([*sizes, "--peers", "absent,dict", "--measures", "b", "--output", str(output)])
    assert code == bench_peers.PEER_MISSING
    content = json.loads(output.read_text())
    assert list(content["missing"]) == ["b-absent"]
    assert "No module named" in content["missing"]["b-absent"]
    assert [m["peer"] for m in content["measured"]] == ["dict", "dict", "dict", as_arrow.FLOOR, "dict"] * 3
    assert "b-absent: not measured" in capsys.readouterr().out


def test_all_measured_is_exit_code_0(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench_peers, "ENGINES", {"dict": ENGINE})
    sizes = ["--rows", "2000", "--rounds", "1", "--round-rows", "100", "--measures", "b", "--peers", "dict"]
    assert bench_peers.main([*sizes, "--output", str(tmp_path / "out.json")]) == 0


def test_a_line_says_ratio_and_whether_the_aim_is_met() -> None:
    theirs = [Elapsed(1.0, 2.0), Elapsed(9.0, 2.0), Elapsed(2.0, 2.0)]
    slower = Measured.of_times("b", "text", "peer", [Elapsed(3.4, 1.0)] * 3, theirs, Aim("at most", 1.6))
    assert cells(slower.content())[3:8] == ["3.400 s", "2.000 s", "1.70", "at most 1.6", "no"]
    rates = Measured("a", "text", "peer", "rows/s", 250_000.0, 50_000.0, Aim("at least", 4))
    assert cells(rates.content())[3:8] == ["250,000 rows/s", "50,000 rows/s", "5.00", "at least 4", "yes"]


def test_cpu_time_is_of_whole_trees_and_can_leave_one_out() -> None:
    before = cpu_s([os.getpid()])
    until = time.process_time() + 0.2
    while time.process_time() < until:
        pass
    assert 0.15 <= cpu_s([os.getpid()]) - before < 0.6
    assert cpu_s([os.getppid()], [os.getpid()]) <= cpu_s([os.getppid()]) - 0.15
