"""``lancewal read``, ``get``, ``search`` and ``count`` in this process, its stdout and stderr."""

from __future__ import annotations

import csv
import io
import json
import math
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import duckdb
import lance
import pyarrow as pa
import pytest
import typer
from typer.testing import CliRunner, Result

from lancewal_core.cli.groups import with_options
from lancewal_core.cli.output import say
from lancewal_core.errors import InvalidInput, SearchUnsupported, TokenTimeout
from lancewal_reader.commands import count, get, search
from lancewal_reader.commands.read import command
from lancewal_reader.forms.row_output import Destination, RowOutput
from lancewal_reader.point.receipt import Receipt, receipt_of
from lancewal_reader.table import open_table
from tests.support.pipeline import EVERY_TYPE, KEY, Pipeline, by_key

app = typer.Typer()
app.command()(with_options(command))
others = typer.Typer()
others.command("get")(with_options(get.command))
others.command("count")(with_options(count.command))
others.command("search")(with_options(search.command))


@pytest.fixture(scope="module")
def pipeline(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pipeline]:
    made = Pipeline(tmp_path_factory.mktemp("read"), EVERY_TYPE, seed=3)
    made.produce(60)
    made.merge_all()
    made.produce(60)
    made.ingest()
    yield made
    made.close()


def read(pipeline: Pipeline, *arguments: str) -> Result:
    return done(app, pipeline, *arguments)


def done(program: typer.Typer, pipeline: Pipeline, *arguments: str) -> Result:
    """What a command of one table has written; it raises its errors."""
    result = CliRunner().invoke(program, ["-t", pipeline.uri, *arguments])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert result.exit_code == 0, result.output
    return result


def test_json_lines_and_the_receipt(pipeline: Pipeline) -> None:
    result = read(pipeline, "--output", "jsonl")
    rows = [json.loads(line) for line in result.stdout.splitlines()]
    assert len(rows) == len(pipeline.oracle)
    for row in rows:
        expected = pipeline.oracle[row["region"], row["id"]]
        assert row["st"] == expected["st"]
        assert row["a"] == expected["a"]
        assert row["dec"] == (None if expected["dec"] is None else str(expected["dec"]))
        assert row["day"] == (None if expected["day"] is None else expected["day"].isoformat())
    receipt = Receipt.parse(result.stderr.partition("receipt: ")[2])
    assert sum(receipt.positions.values()) == 120


def strictly(line: str) -> dict[str, Any]:
    def refuse(text: str) -> None:
        raise AssertionError(f"{text} is no JSON")

    found: dict[str, Any] = json.loads(line, parse_constant=refuse)
    return found


def test_json_is_json_whatever_a_column_holds(tmp_path: Path) -> None:
    """No number that JSON has not, and every time that 64 bits hold."""
    numbers = [math.nan, math.inf, -math.inf, 0.5, None]
    shown = ["nan", "inf", "-inf", 0.5, None]
    fine = {
        -(2**63): "1677-09-21T00:12:43.145224192+00:00",
        2**63 - 1: "2262-04-11T23:47:16.854775807+00:00",
        -1: "1969-12-31T23:59:59.999999999+00:00",
        -1000: "1969-12-31T23:59:59.999999+00:00",
        0: "1970-01-01T00:00:00+00:00",
    }
    coarse = {
        -(2**63): "-9223372036854775808 us since 1970",
        2**63 - 1: "9223372036854775807 us since 1970",
        -62_135_596_800_000_000: "0001-01-01T00:00:00",
        253_402_300_799_999_999: "9999-12-31T23:59:59.999999",
        -1_000_000: "1969-12-31T23:59:59",
    }
    days = {
        -(2**31): "-2147483648 days since 1970",
        2**31 - 1: "2147483647 days since 1970",
        -719_162: "0001-01-01",
        -1: "1969-12-31",
        0: "1970-01-01",
    }
    values = {
        "f": pa.array(numbers, pa.float64()),
        "g": pa.array(numbers, pa.float32()),
        "all": pa.array([numbers, [], None, [math.nan], [None]], pa.list_(pa.float64())),
        "fine": pa.array(list(fine), pa.timestamp("ns", "UTC")),
        "coarse": pa.array(list(coarse), pa.timestamp("us")),
        "day": pa.array(list(days), pa.int32()).cast(pa.date32()),
    }
    values["one"] = pa.StructArray.from_arrays([values["f"], values["fine"]], ["f", "fine"])
    made = Pipeline(tmp_path, pa.schema([*KEY, *((name, column.type) for name, column in values.items())]))
    keys = {"region": pa.array(["r"] * 5), "id": pa.array(range(5), pa.int64())}
    lance.write_dataset(pa.table({**keys, **values}).cast(made.columns), made.uri, mode="append")
    found = [strictly(line) for line in read(made, "--output", "jsonl").stdout.splitlines()]
    assert [row["f"] for row in found] == [row["g"] for row in found] == shown
    assert [row["all"] for row in found] == [shown, [], None, ["nan"], [None]]
    assert [row["fine"] for row in found] == list(fine.values())
    assert [row["coarse"] for row in found] == list(coarse.values())
    assert [row["day"] for row in found] == list(days.values())
    assert [row["one"] for row in found] == [{"f": f, "fine": at} for f, at in zip(shown, fine.values(), strict=True)]
    for output in ("csv", "text"):
        assert "NaN" not in read(made, "--output", output).stdout
    made.close()


def test_a_receipt_printed_earlier_reads_the_same_rows(pipeline: Pipeline) -> None:
    merged = read(pipeline, "--consistency", "eventual", "--output", "jsonl")
    receipt = merged.stderr.partition("receipt: ")[2].strip()
    again = read(pipeline, "--at", receipt, "--output", "jsonl")
    assert sorted(again.stdout.splitlines()) == sorted(merged.stdout.splitlines())
    assert again.stderr.partition("receipt: ")[2].strip() == receipt
    assert len(again.stdout.splitlines()) != len(read(pipeline, "--output", "jsonl").stdout.splitlines())
    assert receipt.startswith("lw1.")
    assert merged.stderr.splitlines()[-1] == f"receipt: {receipt}"
    version = Receipt.parse(receipt).version
    of_version = read(pipeline, "--at", f"version:{version}", "-o", "jsonl")
    assert sorted(of_version.stdout.splitlines()) == sorted(merged.stdout.splitlines())
    in_json = read(pipeline, "--at", Receipt.parse(receipt).to_json(), "-o", "jsonl")
    assert sorted(in_json.stdout.splitlines()) == sorted(merged.stdout.splitlines())
    with pytest.raises(InvalidInput, match="not a receipt: the text is damaged"):
        read(pipeline, "--at", receipt[:-3])


def test_columns_filter_limit_and_consistency(pipeline: Pipeline) -> None:
    result = read(pipeline, "--columns", "id, region", "--filter", "a IS NULL", "--output", "jsonl", "--limit", "3")
    rows = [json.loads(line) for line in result.stdout.splitlines()]
    assert len(rows) == 3
    assert read(pipeline, "--output", "jsonl", "--limit", "0").stdout == ""
    assert all(list(r) == ["id", "region"] and pipeline.oracle[r["region"], r["id"]]["a"] is None for r in rows)
    eventual = read(pipeline, "--consistency", "eventual", "--output", "jsonl").stdout.splitlines()
    assert 0 < len(eventual) < len(pipeline.oracle)


def test_csv(pipeline: Pipeline) -> None:
    found = list(csv.DictReader(io.StringIO(read(pipeline, "--output", "csv").stdout)))
    assert {(row["region"], int(row["id"])) for row in found} == set(pipeline.oracle)
    for row in found:
        expected = pipeline.oracle[row["region"], int(row["id"])]
        assert row["s"] == (expected["s"] or "")
        assert (json.loads(row["tags"]) if row["tags"] else None) == expected["tags"]


def test_arrow_file(pipeline: Pipeline, tmp_path: Path) -> None:
    read(pipeline, "--output", "arrow", "--to", str(tmp_path / "rows.arrow"))
    with pa.ipc.open_file(tmp_path / "rows.arrow") as file:
        rows = file.read_all()
    assert by_key(rows) == pipeline.oracle
    assert receipt_of(rows.schema).table_uuid == "table-uuid"


def test_an_arrow_file_suits_other_programs(pipeline: Pipeline, tmp_path: Path) -> None:
    """A table of Lance and one of DuckDB are made of it, mapped into memory and read; decimals want the strictest address."""
    expected = sum(row["dec"] for row in pipeline.oracle.values() if row["dec"] is not None)
    for number, arguments in enumerate(([], ["--filter", "a > 2"], ["--limit", "3"], ["--filter", "id < 0"])):
        path = str(tmp_path / f"{number}.arrow")
        read(pipeline, "--output", "arrow", "--to", path, *arguments)
        for source in (pa.memory_map(path), pa.OSFile(path)):
            with source, pa.ipc.open_file(source) as file:
                rows = file.read_all()
                made = lance.write_dataset(rows, f"memory://{uuid.uuid4().hex}").to_table()
                assert made.equals(rows)
                connection = duckdb.connect()
                connection.register("rows", rows)
                count, total = connection.execute("SELECT count(*), sum(dec) FROM rows").fetchall()[0]
                assert count == rows.num_rows
                if not arguments:
                    assert by_key(made) == pipeline.oracle
                    assert total == expected


def test_table(pipeline: Pipeline) -> None:
    lines = read(pipeline, "--columns", "region,id,s").stdout.splitlines()
    assert lines[0].split() == ["region", "id", "s"]
    assert len(lines) == len(pipeline.oracle) + 3
    assert lines[-1] == f"({len(pipeline.oracle)} rows)"


def test_a_malformed_storage_option_is_named_without_its_value(pipeline: Pipeline) -> None:
    with pytest.raises(InvalidInput, match="expected NAME=VALUE"):
        read(pipeline, "--storage-option", "=secret")


def test_every_way_to_say_which_state(pipeline: Pipeline) -> None:
    ends = {p: len(pipeline.messages(p)) for p in range(pipeline.contract.partitions)}
    last = max(ends, key=lambda p: ends[p])
    positions = "positions:" + ",".join(f"{p}={end}" for p, end in ends.items())
    for arguments in (
        ("--at-least", f"orders-{last}-{ends[last] - 1}", "--timeout", "0s"),
        ("--max-staleness", "5s"),
        ("--at", positions),
    ):
        rows = read(pipeline, "--output", "jsonl", *arguments).stdout.splitlines()
        assert len(rows) == len(pipeline.oracle)
    with pytest.raises(TokenTimeout, match="positions reached"):
        read(pipeline, "--at-least", f"orders-{last}-{ends[last]}", "--timeout", "0s")
    with pytest.raises(InvalidInput, match="--timeout 'soon': expected an integer and ms, s, m, h or d"):
        read(pipeline, "--timeout", "soon")
    with pytest.raises(InvalidInput, match="at and at_least cannot be given together"):
        read(pipeline, "--at-least", "orders-0-0", "--at", "version:1")


def run(pipeline: Pipeline, name: str, *arguments: str) -> Result:
    """``lancewal get``, ``search`` or ``count``."""
    result = CliRunner().invoke(others, [name, "-t", pipeline.uri, *arguments])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert result.exit_code == 0, result.output
    return result


def test_get_finds_the_rows_of_keys(pipeline: Pipeline) -> None:
    found = [*pipeline.oracle][::7]
    gone = [("nowhere", 1), ("r1", 10_000)]
    keys = [json.dumps(list(key)) for key in (*found[:3], gone[0], *found[3:], gone[1], found[0])]
    result = run(pipeline, "get", "-o", "jsonl", *keys)
    shown = {
        (row["region"], row["id"]): row for row in map(json.loads, read(pipeline, "-o", "jsonl").stdout.splitlines())
    }
    assert [json.loads(line) for line in result.stdout.splitlines()] == [shown[key] for key in found]
    *lacking, receipt = result.stderr.splitlines()
    assert lacking == ['no row: ["nowhere", 1]', 'no row: ["r1", 10000]']
    assert sum(Receipt.parse(receipt.removeprefix("receipt: ")).positions.values()) == 120


def test_get_gives_the_columns_asked_for(pipeline: Pipeline, tmp_path: Path) -> None:
    region, id = next(iter(pipeline.oracle))
    key = json.dumps({"id": id, "region": region})
    expected = pipeline.oracle[region, id]
    (row,) = map(json.loads, run(pipeline, "get", key, "--columns", "s, a", "-o", "jsonl").stdout.splitlines())
    assert row == {"s": expected["s"], "a": expected["a"]}
    run(pipeline, "get", key, "--columns", "s", "-o", "csv", "--to", str(tmp_path / "rows.csv"))
    assert (tmp_path / "rows.csv").read_text().splitlines()[0] == "s"
    run(pipeline, "get", key, "-o", "arrow", "--to", str(tmp_path / "rows.arrow"))
    with pa.ipc.open_file(tmp_path / "rows.arrow") as file:
        assert by_key(file.read_all()) == {(region, id): expected}
    with pytest.raises(InvalidInput, match="a list of the values of"):
        run(pipeline, "get", "7")
    with pytest.raises(InvalidInput, match="unknown"):
        run(pipeline, "get", key, "--columns", "nothing")


def test_get_and_count_as_at_a_point(pipeline: Pipeline) -> None:
    merged = {
        (r["region"], r["id"])
        for r in map(json.loads, read(pipeline, "--consistency", "eventual", "-o", "jsonl").stdout.splitlines())
    }
    later = next(key for key in pipeline.oracle if key not in merged)
    eventual = run(pipeline, "get", json.dumps(list(later)), "--consistency", "eventual")
    assert f"no row: {json.dumps(list(later))}" in eventual.stderr.splitlines()
    receipt = eventual.stderr.splitlines()[-1].removeprefix("receipt: ")
    for condition in ("", "id >= 0"):
        assert run(pipeline, "count", "--at", receipt, "--filter", condition).stdout == f"{len(merged)}\n"
    assert run(pipeline, "count", "--consistency", "eventual").stdout == f"{len(merged)}\n"
    with pytest.raises(InvalidInput, match="at and at_least cannot be given together"):
        run(pipeline, "count", "--at-least", "orders-0-0", "--at", receipt)


def test_count_is_as_many_as_there_are_rows(pipeline: Pipeline) -> None:
    for condition in ("", "a > 2", "a IS NULL", "id < 0"):
        rows = len(read(pipeline, "-o", "jsonl", "--filter", condition).stdout.splitlines())
        result = run(pipeline, "count", "--filter", condition)
        assert result.stdout == f"{rows}\n"
        receipt = result.stderr.splitlines()[-1].removeprefix("receipt: ")
        assert json.loads(run(pipeline, "count", "--filter", condition, "-o", "json").stdout) == {
            "rows": rows,
            "receipt": receipt,
        }
        assert run(pipeline, "count", "--filter", condition, "--at", receipt).stdout == f"{rows}\n"
    with pytest.raises(InvalidInput):
        run(pipeline, "count", "--filter", "nothing = 3")


def test_search_finds_rows_by_vector_by_words_and_by_both(tmp_path: Path) -> None:
    made = Pipeline(tmp_path, pa.schema([*KEY, ("title", pa.string()), ("embedding", pa.list_(pa.float32(), 2))]))
    for id in range(12):
        made.upsert("north", id, title=f"{'river' if id % 3 else 'dry'} notice w{id}", embedding=[float(id), 0.0])
        if id == 6:
            made.merge_all()
    made.ingest()
    (tmp_path / "one.json").write_text("[10.2, 0]")
    (tmp_path / "two.json").write_text("[[10.2, 0], [0, 0]]")
    (tmp_path / "none.json").write_text("[10.2,")

    def found(*arguments: str) -> list[dict[str, Any]]:
        result = run(made, "search", "-o", "jsonl", "--limit", "2", "--columns", "id", *arguments)
        assert result.stderr.splitlines()[-1].startswith("receipt: lw1.")
        assert "searched: 0 rows by an index, 7 one by one, " in result.stderr
        return [strictly(line) for line in result.stdout.splitlines()]

    assert [row["id"] for row in found("--vector", str(tmp_path / "one.json"))] == [10, 11]
    near = found("--vector", str(tmp_path / "one.json"), "--filter", "id < 9", "--exact")
    assert [(row["id"], round(row["_distance"], 3)) for row in near] == [(8, 4.84), (7, 10.24)]
    assert [row["query_index"] for row in found("--vector", str(tmp_path / "two.json"))] == [0, 0, 1, 1]
    assert [row["id"] for row in found("--text", "w11 w3 w3", "--text-columns", "title")] == [3, 11]
    (both, _) = found("--text", "w11", "--vector", str(tmp_path / "one.json"))
    assert both["id"] == 11
    assert both["_relevance_score"] == pytest.approx(1 / 61 + 1 / 62)
    by_dot = found("--vector", str(tmp_path / "one.json"), "--metric", "dot")
    assert [(row["id"], round(row["_distance"], 3)) for row in by_dot] == [(11, -111.2), (10, -101.0)]
    with pytest.raises(SearchUnsupported, match="'embedding' has floats"):
        found("--vector", str(tmp_path / "one.json"), "--metric", "hamming")
    wrong = (("--vector", str(tmp_path / "none.json")), ("--vector", str(tmp_path / "nowhere")), ())
    for arguments, told in zip(
        wrong,
        ("expected a JSON list", "a file with a JSON list of numbers: No such file", "a vector, a text"),
        strict=True,
    ):
        with pytest.raises(InvalidInput, match=told):
            found(*arguments)
    made.close()


def test_search_by_bits_that_records_brought(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Merged, by an index, which is asked, and unmerged."""
    monkeypatch.setattr("lancewal_reader.search.merged.FLAT_ROWS_MAX", 0)
    made = Pipeline(tmp_path, pa.schema([*KEY, ("bits", pa.list_(pa.uint8(), 2))]))
    for id in range(256):
        made.upsert("north", id, bits=[id, 255])
    made.merge_all()
    lance.dataset(made.uri).create_index("bits", "IVF_FLAT", num_partitions=2, metric="hamming")
    made.upsert("north", 0, bits=None)
    made.upsert("north", 300, bits=[0, 127])
    made.ingest()
    (tmp_path / "one.json").write_text("[0, 255]")
    asked = ["search", "-o", "jsonl", "--vector", str(tmp_path / "one.json"), "--limit", "9", "--columns", "id"]
    for metric in ([], ["--metric", "hamming"]):
        result = run(made, *asked, *metric)
        assert "searched: 256 rows by an index, 0 one by one, 2 unmerged; 1 merged row hidden" in result.stderr
        found = {row["id"]: row["_distance"] for row in map(strictly, result.stdout.splitlines())}
        assert found == {1 << bit: 1.0 for bit in range(8)} | {300: 1.0}
    with pytest.raises(SearchUnsupported, match="'bits' has binary vectors: use 'hamming'"):
        run(made, *asked, "--metric", "cosine")
    made.close()


@pytest.mark.parametrize("output", get_args(RowOutput))
def test_a_stdout_that_takes_no_more_is_named(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch, output: RowOutput
) -> None:
    rows = open_table(pipeline.uri).scan()
    with open("/dev/full", "w", encoding="utf-8") as full, monkeypatch.context() as patched:
        patched.setattr(sys, "stdout", full)
        with pytest.raises(InvalidInput, match=r"stdout: No space left on device\. The output is cut off"):
            Destination(output, None, False).write(rows.to_reader())
    with open("/dev/full", "w", encoding="utf-8") as full, monkeypatch.context() as patched:
        patched.setattr(sys, "stdout", full)
        with pytest.raises(InvalidInput, match="stdout: No space left on device"):
            say("7")


def test_a_stdout_that_is_closed_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdout", None)
    with pytest.raises(InvalidInput, match="stdout is closed: name a file by --to"):
        Destination("csv", None, False)
    say("7")  # as before, no error: a service may run without
