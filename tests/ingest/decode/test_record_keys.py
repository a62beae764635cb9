"""Keys that are JSON in any text: each is the row's, or its record is bad; deletes without a value delete what they name."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lancewal_core.names.ids import Position, Region, TopicId
from lancewal_core.record_keys.key_format import encode_region_key
from lancewal_core.rows.schema import OP
from lancewal_core.table.contract import Column, Contract, FormerName
from lancewal_ingest.append.prepare import Consumed, Preparer
from lancewal_ingest.decode.outcomes import OF_COLUMNS
from lancewal_kafka.records import Records

CONTRACT = Contract(
    format=2, table_uuid="u", topic="t", topic_id="i", partitions=1, primary_key=("customer", "id"),
    region_key=("id", "customer"), key_format="json", start=(0,), on_bad_record="dead-letter",
    columns=(
        Column(name="customer", type="string", field_ids=(0,)),
        Column(name="id", type="int64", field_ids=(1,)),
        Column(name="s", type="string", field_ids=(2,)),
    ),
)  # fmt: skip
ROW = {"customer": "Ä/é", "id": 1000, "s": "secret"}


def prepared(
    keys: Sequence[bytes | None], values: Sequence[Mapping[str, object] | None], contract: Contract = CONTRACT
) -> list[object]:
    """For each record its row's (customer, id) and operation, or the kind of its rejection."""
    texts = [None if value is None else json.dumps(value).encode() for value in values]
    records = Records(list(range(len(keys))), [0] * len(keys), list(keys), list(texts), [None] * len(keys))
    region = Region("t", TopicId("i"), 0)
    consumed = Consumed(region, Position(0), Position(len(keys)), records)
    preparer = Preparer(contract)
    entry, letters, stop = preparer.prepare(consumed)
    assert stop is None, stop
    assert entry is not None
    # Once more by what it has learned from these keys.
    again, *others = preparer.prepare(consumed)
    assert again is not None
    assert (again.rows, again.rejected, *others) == (entry.rows, entry.rejected, letters, None)
    found: dict[int, object] = {letter.offset: letter.kind for letter in letters}
    for letter in letters:
        assert "secret" not in letter.message
        assert "mallory" not in letter.message
    names = (*contract.primary_key, OP)
    for row in entry.rows.to_pylist():
        found[row["_offset"]] = tuple(row[name] for name in names)
    assert sorted(found) == list(range(len(keys)))
    return [found[offset] for offset in sorted(found)]


UPSERT = ("Ä/é", 1000, 0)
DELETE = ("Ä/é", 1000, 1)
TEXTS = [
    '{"customer":"Ä/é","id":1000}',
    ' { "id" : 1000 ,\n"customer"\t: "Ä/é" } ',
    r'{"id":1000,"customer":"\u00c4\/\u00e9"}',
    r'{"id":1000,"customer":"\u00C4/\u00E9"}',
    r'{"\u0069d":1000,"customer":"Ä/é"}',
]
"""Texts of the key of ``ROW``."""
NO_KEYS = {
    "missing": None,
    "empty": b"",
    "a space": b" ",
    "null": b"null",
    "a number": b"1000",
    "a text": b'"1000"',
    "an array": b'["\xc3\x84/\xc3\xa9",1000]',
    "no members": b"{}",
    "a part": b'{"id":1000}',
    "a null": b'{"id":1000,"customer":null}',
    "a further member": b'{"id":1000,"customer":"\xc3\x84/\xc3\xa9","region":"mallory"}',
    "a further column": b'{"id":1000,"customer":"\xc3\x84/\xc3\xa9","s":"secret"}',
    "a member twice": b'{"id":1000,"id":1000,"customer":"\xc3\x84/\xc3\xa9"}',
    "a member twice, escaped": b'{"id":1000,"\\u0069d":1000,"customer":"\xc3\x84/\xc3\xa9"}',
    "a number as text": b'{"id":"1000","customer":"\xc3\x84/\xc3\xa9"}',
    "a text as number": b'{"id":1000,"customer":1000}',
    "true": b'{"id":true,"customer":"\xc3\x84/\xc3\xa9"}',
    "a fraction": b'{"id":1000.5,"customer":"\xc3\x84/\xc3\xa9"}',
    "beyond 64 bits": b'{"id":9223372036854775808,"customer":"\xc3\x84/\xc3\xa9"}',
    "far beyond": b'{"id":1e400,"customer":"\xc3\x84/\xc3\xa9"}',
    "leading zero": b'{"id":01000,"customer":"\xc3\x84/\xc3\xa9"}',
    "plus": b'{"id":+1000,"customer":"\xc3\x84/\xc3\xa9"}',
    "NaN": b'{"id":NaN,"customer":"\xc3\x84/\xc3\xa9"}',
    "a byte order mark": b'\xef\xbb\xbf{"id":1000,"customer":"\xc3\x84/\xc3\xa9"}',
    "UTF-16": '{"id":1000,"customer":"Ä/é"}'.encode("utf-16"),
    "not UTF-8": b'{"id":1000,"customer":"\xc4/\xe9"}',
    "a lone surrogate": b'{"id":1000,"customer":"\\ud800"}',
    "two objects": b'{"id":1000,"customer":"\xc3\x84/\xc3\xa9"}{}',
    "two lines": b'{"id":1000,"customer":"\xc3\x84/\xc3\xa9"}\n{"id":1000,"customer":"\xc3\x84/\xc3\xa9"}',
    "cut": b'{"id":1000,"customer":"\xc3\x84/\xc3\xa9"',
    "a breaking close": b'{"id":1000,"customer":"\xc3\x84/\xc3\xa9"}}\n{"_":{"id":1000,"customer":"\xc3\x84/\xc3\xa9"}',
    "deep": b'{"id":' + b"[" * 5000 + b"]" * 5000 + b"}",
    "huge": b'{"id":1000,"customer":"' + b"mallory" * 20_000 + b"\xff" + b'"}',
    "a frame": b'\0\0\0\0\1{"id":1000}',
    "with a schema": b'{"schema":{},"payload":{"id":1000,"customer":"\xc3\x84/\xc3\xa9"}}',
}
OTHERS = {
    "id": b'{"id":1001,"customer":"\xc3\x84/\xc3\xa9"}',
    "case": b'{"id":1000,"customer":"\xc3\xa4/\xc3\xa9"}',
    "composed otherwise": '{"id":1000,"customer":"A\u0308/e\u0301"}'.encode(),
    "huge": b'{"id":1000,"customer":"' + b"mallory" * 20_000 + b'"}',
    "empty": b'{"id":1000,"customer":""}',
    "negative": b'{"id":-1000,"customer":"\xc3\x84/\xc3\xa9"}',
}


@pytest.mark.parametrize("text", TEXTS)
def test_any_text_of_the_row_s_key(text: str) -> None:
    assert prepared([text.encode()] * 2, [ROW, None]) == [UPSERT, DELETE]


@pytest.mark.parametrize("name", NO_KEYS)
def test_a_key_that_does_not_decode(name: str) -> None:
    assert prepared([NO_KEYS[name]] * 2, [ROW, None]) == ["key_form", "key_form"]


@pytest.mark.parametrize("name", OTHERS)
def test_a_key_of_another_row(name: str) -> None:
    assert prepared([OTHERS[name]], [ROW]) == ["key_differs"]


def test_records_of_all_kinds_together() -> None:
    """The result for a record does not depend on those around it; also with many that Arrow reads in one pass."""
    keys: list[bytes | None] = [*map(str.encode, TEXTS * 40)]
    expected: list[object] = [UPSERT] * len(keys)
    for place, (key, kind) in enumerate(
        [*((k, "key_form") for k in NO_KEYS.values()), *((k, "key_differs") for k in OTHERS.values())]
    ):
        keys.insert(place * 3, key)
        expected.insert(place * 3, kind)
    values: list[Mapping[str, object] | None] = [ROW] * len(keys)
    for place in range(1, len(keys), 7):
        values[place] = None
        if expected[place] == UPSERT:
            expected[place] = DELETE
    keys[-1:] = [TEXTS[0].encode(), TEXTS[0].encode()]
    values[-1:] = [{"customer": 1, "id": 1000}, ROW]
    expected[-1:] = ["type", UPSERT]
    for place, key in enumerate(keys):
        if values[place] is None and expected[place] == "key_differs":  # it deletes the row that it names
            assert key is not None
            named = json.loads(key)
            expected[place] = (named["customer"], named["id"], 1)
    assert prepared(keys, values) == expected


@pytest.mark.parametrize(
    ("spelling", "number"), [("1.0", 1), ("1e3", 1000), ("-0", 0), ("1000.00", 1000), ("10E2", 1000)]
)
def test_other_spellings_of_a_number(spelling: str, number: int) -> None:
    """As of values: an integer has digits alone."""
    key = b'{"id":%s,"customer":"c"}' % spelling.encode()
    (value,) = prepared([b'{"id":%d,"customer":"c"}' % number], [{"customer": "c", "id": number}])
    assert value == ("c", number, 0)
    strict = Preparer(CONTRACT.model_copy(update={"key_format": "bytes", "region_key": ()}))
    records = Records([0], [0], [b""], [b'{"customer":"c","id":%s}' % spelling.encode()], [None])
    entry, _, _ = strict.prepare(Consumed(Region("t", TopicId("i"), 0), Position(0), Position(1), records))
    assert entry is not None
    as_value = ("c", number, 0) if entry.rows.num_rows else "key_form"
    deleted = ("c", number, 1) if entry.rows.num_rows else "key_form"
    assert prepared([key, key], [{"customer": "c", "id": number}, None]) == [as_value, deleted]


def test_strings_that_look_like_numbers_and_big_integers() -> None:
    numbers = [2**53 + 1, -(2**63), 2**63 - 1]
    rows = [{"customer": str(number), "id": number} for number in numbers]
    keys: list[bytes | None] = [json.dumps(row).encode() for row in rows]
    near = [{"customer": row["customer"], "id": 2**53} for row in rows]
    assert prepared(keys, rows) == [(row["customer"], row["id"], 0) for row in rows]
    assert prepared(keys, near) == ["key_differs"] * 3


def test_a_key_column_that_was_renamed() -> None:
    """Keys may use the former name, or the present one, not both; a name that another column has taken is that column's."""
    former = (FormerName(id=1, name="number"), FormerName(id=2, name="old_s"), FormerName(id=0, name="s"))
    contract = CONTRACT.model_copy(update={"former_names": former, "on_unknown_column": "ignore"})
    keys: list[bytes | None] = [
        b'{"number":1000,"customer":"c"}',
        b'{"id":1000,"customer":"c"}',
        b'{"id":1000,"number":1000,"customer":"c"}',
        b'{"number":1000,"customer":"c","old_s":"x"}',
        b'{"number":1000,"customer":"c","unknown":"x"}',
        b'{"number":1000,"s":"c"}',
        b'{"number":1001,"customer":"c"}',
    ]
    row = {"customer": "c", "id": 1000}
    expected = [("c", 1000, 0)] * 2 + ["key_form"] * 4 + ["key_differs"]
    assert prepared(keys, [row] * len(keys), contract) == expected
    assert prepared([keys[0]], [None], contract) == [("c", 1000, 1)]
    assert "key_form" in OF_COLUMNS  # a newer contract is looked for first


def test_a_key_column_that_records_call_otherwise() -> None:
    """The contract names the member for the column: keys and values have that name, or a former one."""
    customer, number, status = CONTRACT.columns
    columns = (customer, number.model_copy(update={"field": "number"}), status)
    former = (FormerName(id=1, name="nr"),)
    contract = CONTRACT.model_copy(update={"columns": columns, "former_names": former})
    keys: list[bytes | None] = [
        b'{"number":1000,"customer":"c"}',
        b'{"nr":1000,"customer":"c"}',
        b'{"id":1000,"customer":"c"}',
        b'{"number":1001,"customer":"c"}',
    ]
    rows = [{"customer": "c", "number": 1000}] * len(keys)
    assert prepared(keys, rows, contract) == [("c", 1000, 0), ("c", 1000, 0), "key_form", "key_differs"]
    assert prepared([keys[0]], [None], contract) == [("c", 1000, 1)]


def test_a_key_that_is_a_part_of_the_primary_key_deletes_nothing() -> None:
    contract = CONTRACT.model_copy(update={"region_key": ("customer",)})
    rows = [{"customer": "c", "id": 1}, None, {"customer": "d", "id": 1}]
    assert prepared([b'{"customer": "c"}'] * 3, rows, contract) == [("c", 1, 0), "null_value", "key_differs"]


@pytest.mark.parametrize("key_format", ["canonical", "json-compact", "long"])
def test_without_a_partitioner_every_decoded_key_is_compared(key_format: str) -> None:
    update = {"key_format": key_format, "region_key": ("id",), "primary_key": ("id",), "partitioner": "none"}
    contract = CONTRACT.model_copy(update=update)

    def key(number: int) -> bytes:
        return encode_region_key({"id": number} if key_format == "json-compact" else number, form=contract.key_format)

    keys: list[bytes | None] = [key(1), key(2), key(1) + b" ", None, b"", key(1), b"x", None]
    values = [{"customer": "c", "id": 1}] * 5 + [None] * 3
    expected = [(1, 0), "key_differs", *["key_form"] * 3, (1, 1), "key_form", "key_form"]
    assert prepared(keys, values, contract) == expected
    told = contract.model_copy(update={"partitioner": "murmur2"})
    assert prepared(keys, values, told) == [*[(1, 0)] * 5, (1, 1), "null_value", "null_value"]


@given(st.data())
def test_random_keys(data: st.DataObject) -> None:
    """Against Python's own JSON and a comparison of dicts."""
    customers = st.sampled_from(["a", "b", "ä", "1", "\U0001f600", 'a"b', "a\nb"])
    rows = data.draw(
        st.lists(st.fixed_dictionaries({"customer": customers, "id": st.integers(0, 2)}), min_size=1, max_size=80)
    )
    keys: list[bytes | None] = []
    expected: list[object] = []
    rng = np.random.default_rng(data.draw(st.integers(0, 1000)))
    for row in rows:
        named = dict(row) if rng.random() < 0.7 else {"customer": data.draw(customers), "id": 1}
        members = named if rng.random() < 0.5 else dict(reversed(named.items()))
        text = json.dumps(members, ensure_ascii=bool(rng.random() < 0.5), indent=[None, 1][int(rng.random() < 0.2)])
        cut = rng.random() < 0.1
        keys.append(text.encode()[: -1 if cut else None])
        same = "key_differs" if named != row else (row["customer"], row["id"], 0)
        expected.append("key_form" if cut else same)
    assert prepared(keys, rows) == expected


@given(
    st.lists(
        st.binary(max_size=30) | st.tuples(st.sampled_from(TEXTS), st.integers(0, 40), st.binary(max_size=3)),
        max_size=8,
    )
)
def test_any_bytes(drawn: list[bytes | tuple[str, int, bytes]]) -> None:
    """No key raises an error, and each is judged as it is alone."""
    keys = [one if isinstance(one, bytes) else damaged(*one) for one in drawn]
    alone = [prepared([key], [ROW])[0] for key in keys]
    assert set(alone) <= {"key_form", "key_differs", UPSERT}
    if keys:
        good = [TEXTS[0].encode()] * 3
        assert prepared([*good, *keys], [ROW] * (3 + len(keys))) == [UPSERT] * 3 + alone


def damaged(text: str, at: int, by: bytes) -> bytes:
    key = text.encode()
    return key[:at] + by + key[at + len(by) :]
