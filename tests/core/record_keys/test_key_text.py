"""A producer's text of JSON keys, learned from one key: it gives the keys of all rows in that text, and nothing else."""

from __future__ import annotations

import json

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lancewal_core.record_keys.key_text import key_text

SCHEMA = pa.schema([("id", pa.int64()), ("name", pa.string()), ("ok", pa.bool_())])
CALLED = {"id": "id", "name": "name", "ok": "ok", "number": "id"}
ROW = {"id": -42, "name": 'a","id":1', "ok": True}


@pytest.mark.parametrize(
    "text",
    [
        b'{"id":-42,"name":"a\\",\\"id\\":1","ok":true}',
        b' { "ok" : true ,\t"name":"a\\",\\"id\\":1" , "id":\n-42 } \r\n',
        b'{"number": -42, "n\\u0061me": "a\\",\\"id\\":1", "ok": true}',
    ],
)
def test_a_text_is_learned(text: bytes) -> None:
    found = key_text(text, ROW, CALLED)
    assert found is not None
    rows = [ROW, {"id": 7, "name": 'Ä\n\U0001f600"', "ok": False}, {"id": 2**63 - 1, "name": "", "ok": True}]
    first, *others = found.of(pa.RecordBatch.from_pylist(rows, SCHEMA)).to_pylist()
    assert first == text
    for key, row in zip(others, rows[1:], strict=True):
        assert {CALLED[name]: value for name, value in json.loads(key).items()} == row
        assert list(json.loads(key)) == list(json.loads(text))


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"{}",
        b'{"id":-42,"name":"a\\",\\"id\\":1"}',
        b'{"id":-42,"id":-42,"name":"a\\",\\"id\\":1","ok":true}',
        b'{"id":-42,"number":-42,"name":"a\\",\\"id\\":1","ok":true}',
        b'{"id":-42,"name":"a\\",\\"id\\":1","ok":true,"more":1}',
        b'{"id":-42,"name":"\\u0061\\",\\"id\\":1","ok":true}',
        b'{"id":-42,"name":"a","ok":true}',
        b'{"id":-420,"name":"a\\",\\"id\\":1","ok":true}',
        b'{"id":-42.0,"name":"a\\",\\"id\\":1","ok":true}',
        b'{"id":-42,"name":"a\\",\\"id\\":1","ok":true',
        b'{"id":-42,"name":"a\\",\\"id\\":1","ok":true}}',
        b'{"id":-42,"name":"a\\",\\"id\\":1","ok":true,}',
        b'{,"id":-42,"name":"a\\",\\"id\\":1","ok":true}',
        b'{"id":-42{"name":"a\\",\\"id\\":1","ok":true}',
        b'{"id":-42,"name":"a\\",\\"id\\":1","o\\k":true}',
        b'{"id":-42,"name":"a\\",\\"id\\":1","\xff":true}',
        b'\xef\xbb\xbf{"id":-42,"name":"a\\",\\"id\\":1","ok":true}',
    ],
)
def test_nothing_is_learned_from_another_key(text: bytes) -> None:
    assert key_text(text, ROW, CALLED) is None


_ROWS = st.fixed_dictionaries(
    {"id": st.integers(-(2**63), 2**63 - 1), "name": st.text(max_size=6), "ok": st.booleans()}
)


@given(rows=st.lists(_ROWS, min_size=2, max_size=6), ascii_=st.booleans(), indent=st.none() | st.integers(0, 2))
def test_equal_bytes_are_the_row_s_key(rows: list[dict[str, object]], ascii_: bool, indent: int | None) -> None:
    keys = [json.dumps(row, ensure_ascii=ascii_, indent=indent).encode() for row in rows]
    found = next((text for key, row in zip(keys, rows, strict=True) if (text := key_text(key, row, CALLED))), None)
    if found is not None:
        for made, row in zip(found.of(pa.RecordBatch.from_pylist(rows, SCHEMA)).to_pylist(), rows, strict=True):
            assert json.loads(made) == row
