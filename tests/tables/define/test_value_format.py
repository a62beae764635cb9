"""``table alter --format-value``: while a table has no row, and only then.  The second format is a fake, the rest is real."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from lancewal_core.cli import program as cli
from lancewal_core.errors import ContractMismatch, InvalidInput, InvalidSettings, WrongFormat
from lancewal_core.process.clock import SystemClock
from lancewal_core.record_keys.key_format import encode_region_key
from lancewal_core.rows.murmur2 import partition_of
from lancewal_core.settings.load import Settings
from lancewal_core.settings.sections import FormatSettings, TableSettings
from lancewal_core.table.contract import put_next, read_contract
from lancewal_reader.table import open_table
from lancewal_tables.define.value_format import alter_value_format
from tests.support.pipeline import SMALL, Pipeline, by_key
from tests.support.second_format import NAME, two_formats

JSON = {"region": "r0", "id": 1, "a": 7}


@pytest.fixture
def pipeline(tmp_path: Path) -> Iterator[Pipeline]:
    with two_formats():
        made = Pipeline(tmp_path, SMALL, partitions=2, seal_rows=10**6, on_bad_record="ignore")
        yield made
        made.close()


def settings(pipeline: Pipeline, **table: object) -> Settings:
    return Settings(table=TableSettings.model_validate({"uri": pipeline.uri, **table}))


def send(pipeline: Pipeline, value: bytes) -> None:
    key = encode_region_key("r0")
    pipeline._messages[partition_of(key, 2)].append((key, value, "upsert"))


def run(pipeline: Pipeline, until_stopped: bool = False) -> None:
    for _ in range(200):
        pipeline._worker.step(0)
        pipeline._let_work()
        worker = pipeline._worker
        if pipeline._quiet() and (worker.stopped if until_stopped else pipeline._reached(worker.durable)):
            return
    raise AssertionError((pipeline._worker.durable, pipeline._worker.stopped))


def refused(pipeline: Pipeline, says: str, wanted: str = NAME) -> None:
    before = read_contract(pipeline.store, pipeline.uri)
    for look_only in (True, False):
        with pytest.raises(InvalidInput, match=says) as raised:
            alter_value_format(settings(pipeline), wanted, look_only=look_only)
        assert "new topic" in str(raised.value)
    assert read_contract(pipeline.store, pipeline.uri) == before


@pytest.mark.parametrize("handed_over", [False, True])
def test_a_stopped_table_goes_on_in_another_format(pipeline: Pipeline, handed_over: bool) -> None:
    """The running worker takes the version up by itself: before it rejects a record, and where one has stopped it."""
    for _ in range(120):
        send(pipeline, json.dumps(JSON).encode()[::-1])
    run(pipeline, until_stopped=True)
    (error,) = pipeline._worker.stopped.values()
    assert (type(error), error.where["offset"]) == (WrongFormat, 99)
    if handed_over:
        pipeline.hand_over()
        run(pipeline, until_stopped=True)
    looked = alter_value_format(settings(pipeline), NAME, look_only=True)
    assert read_contract(pipeline.store, pipeline.uri).version == looked.version - 1
    altered = alter_value_format(settings(pipeline), NAME)
    assert altered == looked
    assert (altered.value_format, altered.format, altered.version) == (NAME, 2, 2)
    assert read_contract(pipeline.store, pipeline.uri) == altered
    with pytest.raises(InvalidSettings, match="already has the format"):
        alter_value_format(settings(pipeline), NAME)
    newer = pipeline._worker.find_newer(pipeline._worker.terms, {})
    assert newer is not None
    pipeline._worker.take_up(newer.preparer, newer.dead_letters)
    run(pipeline)
    assert by_key(open_table(pipeline.uri).to_arrow()) == {("r0", 1): {**JSON, "s": None}}
    refused(pipeline, "had rows in partitions", "json")


def test_a_record_is_not_rejected_by_a_former_format(pipeline: Pipeline) -> None:
    run(pipeline)
    alter_value_format(settings(pipeline), NAME)
    send(pipeline, json.dumps(JSON).encode()[::-1])
    run(pipeline)
    assert [row["a"] for row in open_table(pipeline.uri).to_arrow().to_pylist()] == [7]


@pytest.mark.parametrize("state", ["in a log", "sealed", "merged", "deleted"])
def test_a_table_with_rows_keeps_its_format(pipeline: Pipeline, state: str) -> None:
    pipeline.upsert("r0", 1, a=7)
    run(pipeline)
    if state != "in a log":
        pipeline.hand_over()
    if state in ("merged", "deleted"):
        pipeline.merge()
    if state == "deleted":
        pipeline.ingest()
        pipeline.delete("r0", 1)
        pipeline.merge_all()
        assert open_table(pipeline.uri).to_arrow().num_rows == 0
    refused(pipeline, "the table has 1 rows" if state == "merged" else "had rows in partitions")


def test_rows_of_other_programs_count(pipeline: Pipeline) -> None:
    pipeline.append_by_hand([{"region": "r9", "id": 1, "a": 1, "s": None}])
    refused(pipeline, "the table has 1 rows")


def test_settings_and_formats_that_do_not_fit(pipeline: Pipeline) -> None:
    with pytest.raises(ContractMismatch, match=r"nothing was changed.*table\.format\.value.*'json'"):
        alter_value_format(settings(pipeline, format=FormatSettings(value="json")), NAME)
    with pytest.raises(InvalidInput, match="--format-value 'xml': expected one of json, reversed"):
        alter_value_format(settings(pipeline), "xml")
    assert read_contract(pipeline.store, pipeline.uri).version == 1


def test_a_format_whose_schemas_say_forms_has_no_column_with_one(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("LANCEWAL_TABLE__URI", pipeline.uri)
    monkeypatch.setattr("lancewal_tables.define.value_format.TYPED_FORMATS", {NAME})
    assert cli.run(("table", "alter", "--add-column", "n: {type: int64, json: number_text}")) == 0
    assert cli.run(("table", "alter", "--format-value", NAME)) == 2
    assert f"column 'n' has json, and the schemas of {NAME} say the form" in capsys.readouterr().err
    assert cli.run(("table", "alter", "--drop-column", "n")) == 0
    assert cli.run(("table", "alter", "--format-value", NAME)) == 0


def test_the_command(pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("LANCEWAL_TABLE__URI", pipeline.uri)
    assert cli.run(("table", "alter", "--format-value", NAME, "--dry-run")) == 0
    assert "reversed, at most" in capsys.readouterr().out
    assert read_contract(pipeline.store, pipeline.uri).version == 1
    assert cli.run(("table", "alter", "--format-value", NAME, "--group", "g")) == 2
    assert "name one change" in capsys.readouterr().err
    assert cli.run(("table", "alter", "--format-value", NAME)) == 0
    assert read_contract(pipeline.store, pipeline.uri).value_format == NAME


def test_a_policy_for_other_records_needs_a_name_of_records(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("LANCEWAL_TABLE__URI", pipeline.uri)
    assert cli.run(("table", "alter", "--on", "other-record=ignore")) == 2
    assert "table.format.record, which" in capsys.readouterr().err
    old = read_contract(pipeline.store, pipeline.uri)
    new = old.model_copy(update={"version": 2, "format": 2, "value_record": "shop.Order"})
    put_next(pipeline.store, SystemClock(), old, new)
    assert cli.run(("table", "alter", "--on", "other-record=ignore")) == 0
    assert read_contract(pipeline.store, pipeline.uri).on_other_record == "ignore"
    with pytest.raises(InvalidInput, match=r"'shop\.Order'"):
        alter_value_format(settings(pipeline), NAME)
