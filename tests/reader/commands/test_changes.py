"""``lancewal changes``: rows on stdout, the receipt on stderr; with ``--follow`` in a process of its own."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import typer
from typer.testing import CliRunner, Result

from lancewal_core.cli.groups import with_options
from lancewal_core.errors import InvalidInput, SubscriptionMissing
from lancewal_reader.commands.changes import command
from lancewal_reader.forms.row_output import Destination
from lancewal_reader.table import open_table
from tests.reader.changes.test_net import applied
from tests.reader.commands.test_commands import done
from tests.support.pipeline import Key, Pipeline, Row

app = typer.Typer()
app.command()(with_options(command))
COLUMNS = ["region", "id", "a", "s"]


@pytest.fixture
def pipeline(tmp_path: Path) -> Iterator[Pipeline]:
    made = Pipeline(tmp_path, seed=4)
    made.produce(60)
    made.merge_all()
    yield made
    made.close()


def changes(pipeline: Pipeline, *arguments: str) -> Result:
    return done(app, pipeline, *arguments)


def _rows(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]


def test_each_call_starts_at_the_receipt_of_the_one_before(pipeline: Pipeline) -> None:
    first = changes(pipeline, "--start", "earliest", "-o", "jsonl")
    before = applied({}, _rows(first.stdout), COLUMNS)
    assert before == pipeline.oracle
    receipt = first.stderr.partition("receipt: ")[2].strip()
    pipeline.produce(40)
    pipeline.merge_all()
    later = changes(pipeline, "--start", receipt, "-o", "jsonl")
    assert applied(before, _rows(later.stdout), COLUMNS) == pipeline.oracle
    commits = changes(
        pipeline, "--start", receipt, "--mode", "commits", "--columns", "id", "--filter", "a > 0", "-o", "csv"
    )
    assert commits.stdout.splitlines()[0] == "id,_change_type,_commit_version,_commit_timestamp,_sequence"
    text = changes(pipeline, "--start", receipt, "--end", receipt)
    assert text.stdout.splitlines()[-1] == "(0 rows)"


def test_a_subscription_is_where_to_start(pipeline: Pipeline) -> None:
    table = open_table(pipeline.uri)
    table.subscriptions().create("one")
    for _ in range(2):
        before = dict(pipeline.oracle)
        pipeline.produce(20)
        pipeline.ingest()
        found = changes(pipeline, "--subscription", "one", "-o", "jsonl")
        assert applied(before, _rows(found.stdout), COLUMNS) == pipeline.oracle
        assert table.subscriptions().get("one").receipt == found.stderr.partition("receipt: ")[2].strip()


def test_following_goes_on_until_it_is_interrupted(pipeline: Pipeline) -> None:
    receipt = str(open_table(pipeline.uri).receipt())
    command = [sys.executable, "-m", "lancewal_core.cli.program", "changes", "-t", pipeline.uri, "--start", receipt]
    state: dict[Key, Row] = dict(pipeline.oracle)
    with subprocess.Popen(
        [*command, "--follow"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as following:
        assert following.stdout is not None
        assert following.stderr is not None
        for id in (1000, 1001):
            pipeline.upsert("r0", id, a=id)
            pipeline.ingest()
            row = json.loads(following.stdout.readline())
            state = applied(state, [row], COLUMNS)
            assert state == pipeline.oracle
            assert following.stderr.readline().startswith("receipt: lw1.")
        following.send_signal(signal.SIGINT)
        assert following.wait(120) == 130


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ([], "give --start, .*: neither is given"),
        (["--start", "now", "--subscription", "one"], "give --start, .*: both are given"),
        (["--start", "earliest", "--follow", "--end", "now"], "--follow writes JSON lines"),
        (["--start", "earliest", "--follow", "-o", "csv"], "--follow writes JSON lines"),
        (["--start", "version:99"], "there is no table version 99"),
        (["--start", "soon"], "'now' is taken too, and as start also 'earliest'"),
    ],
)
def test_wrong_options_are_refused(pipeline: Pipeline, arguments: list[str], told: str) -> None:
    with pytest.raises(InvalidInput, match=told):
        changes(pipeline, *arguments)


def test_one_is_created_anew_while_the_command_writes_its_rows(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    subscriptions = open_table(pipeline.uri).subscriptions()
    former = subscriptions.create("cache")
    pipeline.produce(5)
    pipeline.ingest()

    def write(self: Destination, rows: pa.RecordBatchReader) -> None:
        subscriptions.drop("cache")
        subscriptions.create("cache", former.receipt)

    monkeypatch.setattr(Destination, "write", write)
    asked = ["-t", pipeline.uri, "--subscription", "cache", "-o", "jsonl", "--to", str(tmp_path / "rows")]
    result = CliRunner().invoke(app, asked)
    assert isinstance(result.exception, SubscriptionMissing)
    assert subscriptions.get("cache").receipt == former.receipt
