"""A child of a fork: it works where the parent had only imported lancewal, and else says at once what to do."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.support.pipeline import Pipeline

OPENED = "table = lancewal.open_table(uri); rows = table.scan(); table.count_rows(); rows.to_arrow()"
USES = {
    "scan": "table.scan().to_arrow()",
    "the same plan": "rows.to_arrow()",
    "count": "table.count_rows(consistency='eventual')",
    "get": "table.get([('r1', 1)])",
    "another table": "lancewal.open_table(uri)",
}


def in_child(before: str, use: str, uri: str) -> str:
    """What the child says; a child that hangs fails the test."""
    program = f"""
import os, sys
import lancewal, lancewal_core.open, lancewal_reader.table
uri = sys.argv[1]
{before}
child = os.fork()
if child == 0:
    try:
        {use}
        print("done", flush=True)
    except BaseException as error:
        print(type(error).__name__, error, flush=True)
    os._exit(0)
os.waitpid(child, 0)
"""
    ended = subprocess.run([sys.executable, "-c", program, uri], capture_output=True, text=True, timeout=60)
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


@pytest.fixture(scope="module")
def uri(tmp_path_factory: pytest.TempPathFactory) -> str:
    pipeline = Pipeline(tmp_path_factory.mktemp("forks"), partitions=1)
    pipeline.upsert("r1", 1, a=1)
    pipeline.merge_all()
    pipeline.upsert("r1", 2, a=1)
    pipeline.ingest()
    pipeline.close()
    return pipeline.uri


def test_a_child_of_one_that_only_imported_works(uri: str) -> None:
    assert in_child("pass", f"{OPENED}; assert rows.to_arrow().num_rows == 2", uri) == "done\n"


@pytest.mark.in_turns("use", each=2)
@pytest.mark.parametrize("use", USES)
def test_a_child_of_one_that_had_read_says_what_to_do(use: str, uri: str) -> None:
    said = in_child(OPENED, USES[use], uri)
    assert said.startswith("ProcessForked")
    assert "spawn" in said
    assert "forkserver" in said


def test_a_child_of_such_a_child_too(uri: str) -> None:
    said = in_child(f"{OPENED}\nif os.fork(): os.wait(); os._exit(0)", USES["scan"], uri)
    assert said.startswith("ProcessForked")
