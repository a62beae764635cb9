"""Rows as commands write them: a table for people, JSON lines, CSV, or an Arrow file."""

from __future__ import annotations

import csv
import io
import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Literal, TypeAlias, assert_never

from lancewal_core.cli.output import aligned, json_text, one_line, stdout_taken
from lancewal_core.errors import InvalidInput

if TYPE_CHECKING:
    import pyarrow as pa

_FORMULA = ("=", "+", "-", "@", "\\t", "\\r")
"""Beginnings of texts that spreadsheets take for a formula; tab and carriage return as they are shown."""


RowOutput: TypeAlias = Literal["text", "jsonl", "csv", "arrow"]
"""Form of written rows.  ``jsonl``: one object a line; ``arrow``: an Arrow IPC file."""


@dataclass(frozen=True, slots=True)
class Destination:
    """The format of the rows, and the file to write to (None: stdout).  Raises ``InvalidInput`` if stdout is closed, or
    if it is a terminal and the format is ``arrow``.
    """

    output: RowOutput
    to: Path | None
    guard_formulas: bool

    def __post_init__(self) -> None:
        if self.to is None and sys.stdout is None:
            raise InvalidInput("stdout is closed: name a file by --to")
        if self.output == "arrow" and self.to is None and sys.stdout.isatty():
            raise InvalidInput("--output arrow writes bytes: name a file by --to, or redirect stdout")

    def write(self, rows: pa.RecordBatchReader) -> None:
        if self.to is None:
            with stdout_taken():
                _write(rows, self.output, sys.stdout.buffer, self.guard_formulas)
                sys.stdout.buffer.flush()
            return
        try:
            with self.to.open("wb") as file:
                _write(rows, self.output, file, self.guard_formulas)
        except OSError as error:
            raise InvalidInput(f"--to {self.to}: {error.strerror or error}") from error


def _write(rows: pa.RecordBatchReader, output: RowOutput, file: IO[bytes], guard_formulas: bool) -> None:
    import pyarrow as pa

    from lancewal_reader.forms.plain_rows import plain_rows

    match output:
        case "arrow":
            # Uncompressed buffers begin at any multiple of 8 bytes.  Lance and other readers in Rust fail at a decimal that
            # does not begin at a multiple of 16.  Decompressed buffers begin where every type can be read.
            with pa.ipc.new_file(file, rows.schema, options=pa.ipc.IpcWriteOptions(compression="lz4")) as writer:
                for batch in rows:
                    writer.write_batch(batch)
        case "jsonl":
            for batch in rows:
                for row in plain_rows(batch):
                    text = json.dumps(row, ensure_ascii=False, allow_nan=False)
                    file.write(json_text(text).encode() + b"\n")
        case "csv":
            # Numbers and times begin with a sign too.
            guarded = [guard_formulas and (pa.types.is_string(t) or pa.types.is_binary(t)) for t in rows.schema.types]
            cells = [_guarded if yes else _text for yes in guarded]
            file.write(_csv_line([(_guarded if guard_formulas else _text)(name) for name in rows.schema.names]))
            for batch in rows:
                for row in plain_rows(batch):
                    file.write(_csv_line([cell(value) for cell, value in zip(cells, row.values(), strict=True)]))
        case "text":
            lines = [[_shown(v) for v in row.values()] for batch in rows for row in plain_rows(batch)]
            file.write(_table([_shown(name) for name in rows.schema.names], lines).encode())
        case _:
            assert_never(output)
    file.flush()


def _table(names: list[str], lines: list[list[str]]) -> str:
    rule = ["-" * max(map(len, column)) for column in zip(names, *lines, strict=True)]
    return "\n".join([*aligned([names, rule, *lines]), f"({len(lines)} row{'' if len(lines) == 1 else 's'})", ""])


def _shown(value: object) -> str:
    """Return a cell of the table for people: at most 40 characters."""
    text = "NULL" if value is None else _text(value)
    return text if len(text) <= 40 else text[:39] + "…"


def _text(value: object) -> str:
    """Return the text of a cell: empty for null, JSON for nested values.  Control characters of terminals are
    escaped."""
    if value is None:
        return ""
    return one_line(value) if isinstance(value, str) else json_text(json.dumps(value, ensure_ascii=False))


def _guarded(value: object) -> str:
    """Return the text of a cell, with an apostrophe before it if a spreadsheet would take it for a formula."""
    text = _text(value)
    return f"'{text}" if text.lstrip().startswith(_FORMULA) else text


def _csv_line(cells: list[str]) -> bytes:
    line = io.StringIO()
    csv.writer(line).writerow(cells)
    return line.getvalue().encode()
