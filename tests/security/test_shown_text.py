"""What a person's terminal would obey is never printed, whoever has written it: rows, names, owners, objects, errors."""

from __future__ import annotations

import csv
import io
import json
import os
import shutil
import unicodedata
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from typer.testing import CliRunner

from lancewal_audit.verify.report import IndexReport, Report, report_text
from lancewal_core.cli.output import json_text, many_lines, one_line, say
from lancewal_core.cli.program import app
from lancewal_core.cli.program import run as run_program
from lancewal_core.names import paths
from lancewal_core.settings.load import load_settings
from lancewal_tables.commands.status import status_text
from lancewal_tables.status.status import table_status
from tests.support.flusher_tables import COLUMNS, FlusherTable, upsert

HOSTILE = (
    "\x1b]52;c;aHVzaA==\x07",
    "\r\x1b[Kfake row",
    "\x9b31mred",
    "\u202egnp.exe",
    "\u2066a\u2069",
    "one\ntwo\r\nthree\ttab",
    "\x7f\x08",
    "\u2028line\u2029",
    "\ufefftag\U000e0041",
)
NAME = "n\x1b[2J\u202ex\ny"
"""Of a column."""
OTHER = "host\nproblem: all is lost\x1b[2J\x9b"
SPARED = {"\n"}


def obeyed(text: str) -> set[str]:
    """Characters that change how a terminal shows others, by their categories: the tables of Unicode are the oracle."""
    bidirectional = {"LRE", "RLE", "LRO", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI"}
    return {
        c
        for c in text
        if unicodedata.category(c) in {"Cc", "Cs", "Zl", "Zp"} or unicodedata.bidirectional(c) in bidirectional
    } - SPARED


def test_every_character_that_is_obeyed_is_escaped_and_no_letter_is() -> None:
    every = "".join(map(chr, range(0x110000)))
    for shown in (one_line(every), many_lines(every), json_text(every)):
        assert not obeyed(shown)
    seen = "".join(c for c in every if unicodedata.category(c)[0] in "LMNPS")
    assert one_line(seen) == many_lines(seen) == json_text(seen) == seen
    assert "\n" not in one_line(every)
    for text in (*HOSTILE, "\ud83d", "plain", "Ærø 東京 👩‍🚀"):
        shown = json_text(json.dumps([text, {text: 1}], ensure_ascii=False, indent=1))
        assert not obeyed(shown)
        assert json.loads(shown) == [text, {text: 1}]
    assert one_line("a\x1b\x9b\n\u202e\U000e0041") == r"a\x1b\x9b\n\u202e\U000e0041"


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FlusherTable]:
    """Rows and a column with everything that is hostile; owners and write ids can be none such (``words``)."""
    folder = tmp_path_factory.mktemp("shown")
    made = FlusherTable(folder, columns=pa.schema([*COLUMNS, pa.field(NAME, pa.string())]))
    made.generation(0, [upsert(i, a=-i, s=text, tags=[text]) for i, text in enumerate((*HOSTILE, "=1+1", " @x", "-5"))])
    made.round()
    yield made
    made.close()


@pytest.fixture(autouse=True)
def _settings(table: FlusherTable, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LANCEWAL_TABLE__URI", table.uri)
    monkeypatch.setenv("LANCEWAL_KAFKA__BOOTSTRAP_SERVERS", "127.0.0.1:1")


def run(*arguments: str) -> str:
    """What the command prints."""
    result = CliRunner().invoke(app, list(arguments))
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result.stdout


@pytest.mark.parametrize("output", ["text", "csv", "jsonl"])
def test_rows(table: FlusherTable, output: str) -> None:
    shown = run("read", "-t", table.uri, "--output", output)
    assert not obeyed(shown.replace("\r\n", "\n") if output == "csv" else shown)
    rows = len(table.model)
    match output:
        case "text":
            assert len(shown.splitlines()) == rows + 3
            assert r"\r\x1b[Kfake row" in shown
        case "csv":
            found = list(csv.reader(io.StringIO(shown)))
            assert len(found) == rows + 1 == len(shown.splitlines())
            assert r"n\x1b[2J\u202ex\ny" in found[0]
            assert {line[3] for line in found} >= {r"one\ntwo\r\nthree\ttab", "=1+1", "-5"}
        case _:
            parsed = [json.loads(line) for line in shown.splitlines()]
            assert {(row["region"], row["id"]): row for row in parsed} == table.model


def test_formulas_are_guarded_where_that_is_asked_for(table: FlusherTable) -> None:
    found = list(csv.reader(io.StringIO(run("read", "-t", table.uri, "--output", "csv", "--guard-formulas"))))
    texts = {line[3] for line in found}
    assert texts >= {"'=1+1", "' @x", "'-5"}
    numbers = {int(line[2]) for line in found[1:]}
    assert numbers == {row["a"] for row in table.model.values()}, "a number is none"
    assert not any(text.lstrip().startswith(("=", "+", "-", "@")) for text in texts)


COMMANDS: dict[str, tuple[str, ...]] = {
    "inspect": ("inspect", "--partition", "0"),
    "inspect as JSON": ("inspect", "--partition", "0", "--output", "json"),
    "table show": ("table", "show"),
    "table show as JSON": ("table", "show", "--output", "json"),
    "contract": ("inspect", paths.contract_version(1, None)),
}


@pytest.mark.parametrize("command", COMMANDS)
def test_names(table: FlusherTable, command: str) -> None:
    shown = run(*COMMANDS[command])
    assert not obeyed(shown)
    if "JSON" in command:
        assert json.loads(shown)
    if command in ("table show", "contract"):
        assert one_line(NAME) in shown


def test_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LANCEWAL_KAFKA__GROUP_ID", "g\u202epuorg")
    shown = run("config", "show")
    assert not obeyed(shown)
    assert r"g\u202epuorg" in shown


def test_status(table: FlusherTable, capsys: pytest.CaptureFixture[str]) -> None:
    say(status_text(table_status(load_settings(None, os.environ), table.uri, kafka_timeout_s=0.1)))
    shown = capsys.readouterr().out
    assert not obeyed(shown)


def test_an_error_s_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_program(["read", "-t", str(tmp_path / "no\x1b[2J\u202etable")]) == 2
    shown = capsys.readouterr().err
    assert not obeyed(shown)
    assert r"no\x1b[2J\u202etable" in shown


def test_a_line_break_in_a_name_makes_no_line_of_an_error(
    table: FlusherTable, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of the caller's text and of an object's name."""
    copy = tmp_path / "copy"
    shutil.copytree(table.uri, copy)
    (copy / "_lancewal" / OTHER).symlink_to(tmp_path)
    for arguments, name in (
        (["read", "-t", str(tmp_path / OTHER)], OTHER),
        (["gc", "--dry-run", "-t", str(copy)], OTHER),
    ):
        assert run_program(arguments) != 0
        shown = capsys.readouterr().err
        assert not obeyed(shown)
        assert [line for line in shown.splitlines() if line.startswith("problem")] == []
        assert one_line(name) in shown


@pytest.mark.parametrize("output", ["text", "json"])
def test_an_object_s_name_in_a_listing_of_gc(table: FlusherTable, tmp_path: Path, output: str) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(table.uri, copy)
    (copy / "_lancewal" / OTHER).write_bytes(b"")
    shown = run("gc", "--dry-run", "-t", str(copy), "--output", output)
    assert not obeyed(shown)
    assert [line for line in shown.splitlines() if line.startswith("problem")] == []
    if output == "json":
        assert f"_lancewal/{OTHER}" in [one["key"] for one in json.loads(shown)["orphans"]]
    else:
        assert one_line(OTHER) in shown


def test_an_index_s_name_in_a_report_of_verify() -> None:
    """It stays in its cell, and what stands behind it is aligned."""
    indexes = tuple(
        IndexReport(name, "BTREE", NAME, 0, 1, 0, looked_at=True, why_not="", repair="") for name in (OTHER, "plain")
    )
    report = Report(
        "t", "u", {"version": 1}, "the WAL", 1.0, (), 0, 0, 0, 0, 0, 0, {}, (), 0, (f"note of {OTHER}",), indexes
    )
    lines = report_text(report).split("\n")
    assert not [line for line in lines if line.startswith("problem")]
    table = lines[next(i for i, line in enumerate(lines) if line.startswith("index")) :][:3]
    assert len({line.index("kind" if line.startswith("index") else "BTREE") for line in table}) == 1
