"""What ``forks`` promises of the processes that it makes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.support.forks import Nursery
from tests.support.whole_path import Lancewal, until

KEYS = {"access_key_id": "a", "secret_access_key": "b", "region": "us-east-1"}
OUT_OF_REACH: dict[str, Any] = {
    "kafka": {"bootstrap_servers": "127.0.0.1:1"},
    "table": {"uri": "s3://nowhere/t", "topic": "orders"},
    "http": {"ingest_port": 0},
    "storage": {"options": {"endpoint": "http://127.0.0.1:1", "allow_http": "true", **KEYS}},
}


def test_a_command_is_the_program_with_its_arguments_and_files_and_this_environment_alone(tmp_path: Path) -> None:
    lancewal = Lancewal(tmp_path, OUT_OF_REACH)
    shown = lancewal.run("config", "show", environment={"LANCEWAL_TABLE__TOPIC": "from-the-environment"})
    assert shown.code == 0, shown.err
    assert "from-the-environment" in shown.out
    assert "from-the-environment" not in lancewal.succeed("config", "show")
    refused = lancewal.run("no-such-command")
    assert (refused.code, refused.out) == (2, "")
    assert "no-such-command" in refused.err


def test_a_service_is_a_process_of_its_own_that_signals_end(tmp_path: Path) -> None:
    lancewal = Lancewal(tmp_path, OUT_OF_REACH)
    killed, stopped = lancewal.start("ingest", "run"), lancewal.start("ingest", "run")
    until(lambda: bool(killed.lines) and bool(stopped.lines), lambda: lancewal.tails, timeout_s=60)
    assert os.getsid(killed.pid) == killed.pid != os.getsid(stopped.pid)  # it leaves its parent's before it says a line
    killed.kill()
    assert killed.exit_code == -signal.SIGKILL
    assert stopped.running
    stopped.freeze()
    until(lambda: stopped.frozen)
    stopped.thaw()
    stopped.stop()
    assert stopped.exit_code == 0


def test_no_thread_runs_where_it_is_forked_but_those_of_libraries() -> None:
    libraries = "numpy, pyarrow.dataset, pandas, lance, obstore, confluent_kafka"
    program = f"import os, {libraries}\nprint(len(os.listdir('/proc/self/task')))"
    alone = {**os.environ, "OPENBLAS_NUM_THREADS": "1"}
    there = subprocess.run([sys.executable, "-c", program], env=alone, capture_output=True, text=True, check=True)
    assert len(os.listdir(f"/proc/{Nursery.only().pid}/task")) == int(there.stdout)
