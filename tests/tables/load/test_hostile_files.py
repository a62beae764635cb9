"""Files that somebody else has made: cut, damaged, foreign, and small ones that unpack to gigabytes."""

from __future__ import annotations

import os
import random
import struct
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lancewal_core.errors import InvalidInput, InvalidSchema, LancewalError
from lancewal_core.rows.schema import RowSchema
from lancewal_tables.load import files as files_module
from lancewal_tables.load.files import find_files

COLUMNS = pa.schema([pa.field("id", pa.int64(), nullable=False), ("s", pa.string()), ("tags", pa.list_(pa.string()))])
ROWS = RowSchema(COLUMNS, ("id",), ("id",))


def rows(count: int, text: str = "word") -> pa.Table:
    return pa.table({"id": range(count), "s": [text] * count, "tags": [["x", None]] * count}, schema=COLUMNS)


def parquet(path: Path, table: pa.Table) -> Path:
    pq.write_table(table, path)
    return path


def arrow(path: Path, table: pa.Table, compression: str | None = None) -> Path:
    with pa.ipc.new_file(path, table.schema, options=pa.ipc.IpcWriteOptions(compression=compression)) as writer:
        writer.write_table(table)
    return path


def batches(path: Path) -> list[pa.RecordBatch]:
    (file,) = find_files([str(path)], {})
    file.check(ROWS)
    found = list(file.batches(ROWS.table.names, ROWS))
    assert sum(batch.num_rows for batch in found) == file.rows()
    return found


WRITERS: dict[str, Callable[[Path, pa.Table], Path]] = {
    "parquet": parquet,
    "arrow": arrow,
    "zstd": lambda path, table: arrow(path, table, "zstd"),
}


@pytest.mark.parametrize("form", WRITERS)
def test_damaged_bytes_are_an_error_of_ours_or_rows(form: str, tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    path = WRITERS[form](tmp_path / f"a.{'parquet' if form == 'parquet' else 'arrow'}", rows(20))
    sound = path.read_bytes()
    messages: list[str] = []
    for _ in range(150):
        data = bytearray(sound)
        for _ in range(rng.randint(1, 3)):
            data[rng.randrange(len(data))] = rng.randrange(256)
        path.write_bytes(data if rng.random() < 0.8 else data[: rng.randrange(len(data))])
        try:
            batches(path)
        except LancewalError as error:
            messages.append(str(error))
    assert len(messages) > 30
    assert [message for message in messages if str(path) not in message or len(message) > 1000] == []


@pytest.mark.parametrize("form", ["parquet", "arrow"])
def test_a_name_that_is_no_text(form: str, tmp_path: Path) -> None:
    path = WRITERS[form](tmp_path / f"a.{form}", rows(2).rename_columns(["id", "s", "QQQQ"]))
    path.write_bytes(path.read_bytes().replace(b"QQQQ", b"Q\xffQQ"))
    with pytest.raises(InvalidInput, match=r"cannot be (read|loaded)"):
        batches(path)


@pytest.mark.parametrize("compression", ["zstd", "lz4"])
def test_a_batch_that_unpacks_to_far_more_than_it_is(
    compression: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files_module, "UNPACKED_BYTES", 1 << 20)
    path = arrow(tmp_path / "bomb.arrow", rows(4, "x" * (1 << 20)), compression)
    with pytest.raises(InvalidInput, match=r"bomb\.arrow.* unpacks to 41\d{5}\. Write the file with smaller batches"):
        batches(path)


def test_a_dictionary_that_unpacks_to_far_more_than_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files_module, "UNPACKED_BYTES", 1 << 20)
    words = pa.DictionaryArray.from_arrays(pa.array([0, 0], pa.int32()), ["x" * (4 << 20)])
    table = pa.table({"id": [1, 2], "s": words, "tags": pa.nulls(2, pa.list_(pa.string()))})
    with pytest.raises(InvalidInput, match="unpacks to"):
        batches(arrow(tmp_path / "bomb.arrow", table, "zstd"))


def test_a_batch_that_is_large_and_hardly_compressed_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files_module, "UNPACKED_BYTES", 1000)
    table = rows(100, "").set_column(1, "s", pa.array([os.urandom(50).hex() for _ in range(100)]))
    (batch,) = batches(arrow(tmp_path / "a.arrow", table, "zstd"))
    assert batch.to_pylist() == table.to_pylist()


def test_a_value_that_parquet_holds_once_is_many_only_in_bounds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files_module, "UNPACKED_BYTES", 1 << 20)
    table = rows(100, "x" * 100_000)  # 10 MB, in a file of a few kilobytes
    path = parquet(tmp_path / "bomb.parquet", table)
    assert path.stat().st_size < 20_000
    found = batches(path)
    assert max(batch.nbytes for batch in found) <= 1 << 20
    assert pa.Table.from_batches(found).to_pylist() == table.to_pylist()


def test_faults_without_end_are_counted(tmp_path: Path) -> None:
    table = rows(1)
    for number in range(200):
        table = table.append_column(f"more{number}", pa.array([1]))
    with pytest.raises(
        InvalidSchema, match=r"'more9' is not in the table, or holds Kafka's metadata: leave it out; and 190 more$"
    ) as caught:
        batches(parquet(tmp_path / "wide.parquet", table))
    assert len(str(caught.value)) < 1000


def test_a_type_without_end_is_cut(tmp_path: Path) -> None:
    deep: pa.Array = pa.array([1])
    for _ in range(50):
        deep = pa.StructArray.from_arrays([deep], ["member"])
    with pytest.raises(InvalidSchema, match=r"column 's' has type struct<.*\.\.\., the table has string") as caught:
        batches(arrow(tmp_path / "deep.arrow", rows(1).set_column(1, "s", deep)))
    assert len(str(caught.value)) < 500


@pytest.mark.parametrize("suffix", [".parquet", ".arrow"])
def test_a_pipe_is_not_waited_for(suffix: str, tmp_path: Path) -> None:
    pipe = tmp_path / f"a{suffix}"
    os.mkfifo(pipe)
    with pytest.raises(InvalidInput, match="is not a regular file"):
        find_files([str(pipe)], {})
    parquet(tmp_path / "b.parquet", rows(1))
    assert [file.key for file in find_files([str(tmp_path)], {})] == ["b.parquet"]


def test_a_file_whose_name_is_no_text_is_named(tmp_path: Path) -> None:
    parquet(tmp_path / "b.parquet", rows(1))
    with open(os.fsencode(tmp_path) + b"/n\xff.parquet", "wb") as odd:
        odd.write(b"x")
    with pytest.raises(LancewalError, match=r"n%FF\.parquet") as caught:
        find_files([str(tmp_path)], {})
    str(caught.value).encode()  # can be shown


@pytest.mark.parametrize("length", [0x7FFFFFFF, 0xFFFFFFFF, 0, 1])
def test_a_footer_of_any_length(length: int, tmp_path: Path) -> None:
    for name, data in (
        ("a.parquet", b"PAR1" + struct.pack("<I", length) + b"PAR1"),
        ("a.arrow", b"ARROW1\0\0" + struct.pack("<I", length) + b"ARROW1"),
    ):
        (tmp_path / name).write_bytes(data)
        with pytest.raises(InvalidInput, match=name):
            batches(tmp_path / name)
