"""Record keys of Kafka Connect's JSON: each holds its schema, and another text of the schema is another form."""

from __future__ import annotations

import hashlib
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lancewal_core.record_keys.key_form import KeyForm, key_form_of, key_form_written_out
from lancewal_core.table.contract import Column, Contract
from tests.ingest.decode.test_keys_with_schemas import CONTRACT, DELETE, KEY, ROW, UPSERT, outcome, prepared

DEBEZIUM = (
    b'{"schema":{"type":"struct","fields":[{"type":"int32","optional":false,"field":"tenant"},'
    b'{"type":"int64","optional":false,"field":"id"}],"optional":false,"name":"json_schema.public.all_types.Key"},'
    b'"payload":{"tenant":1,"id":10}}'
)
"""A key of Debezium 3.5.0's connector for PostgreSQL."""


def schema_of(*fields: tuple[str, str], **more: Any) -> dict[str, Any]:
    return {
        "type": "struct",
        "fields": [{"type": type_, "optional": False, "field": field} for field, type_ in fields],
        "optional": False,
        **more,
    }


ID, CUSTOMER = ("id", "int64"), ("customer", "string")
FIRST = schema_of(ID, CUSTOMER, name="t.Key")


def text_of(schema: Any) -> bytes:
    return json.dumps(schema, separators=(",", ":")).encode()


def keyed(schema: Any = FIRST, key: Any = KEY) -> bytes:
    return b'{"schema":%s,"payload":%s}' % (text_of(schema), text_of(key))


def form_of(schema: Any) -> KeyForm:
    return KeyForm("schema-" + hashlib.sha256(text_of(schema)).hexdigest()[:32])


def taking(*schemas: Any) -> Contract:
    return CONTRACT.model_copy(update={"key_format": "connect-json", "key_forms": tuple(map(form_of, schemas))})


def test_a_key_of_a_schema_that_is_taken() -> None:
    others = [
        schema_of(ID, CUSTOMER, name="t.Key", version=2),
        schema_of(ID, CUSTOMER, name="u.Key"),
        schema_of(("id", "int32"), CUSTOMER),
        schema_of(CUSTOMER, ID, name="t.Key"),
        {**FIRST, "optional": True},
    ]
    assert prepared([keyed()] * 2, [ROW, None], taking(FIRST)) == [UPSERT, DELETE]
    for other in others:
        assert prepared([keyed(other)] * 2, [ROW, None], taking(FIRST)) == ["key_form_changed"] * 2
        assert prepared([keyed(other)] * 2, [ROW, None], taking(FIRST, other)) == [UPSERT, DELETE]


def test_the_payload_may_come_first() -> None:
    """The form is the text of the schema, wherever it stands."""
    key = b' {"payload": %s , "schema" :%s}' % (text_of(KEY), text_of(FIRST))
    assert prepared([key, keyed(), key], [ROW, ROW, None], taking(FIRST)) == [UPSERT, UPSERT, DELETE]
    spaced = b'{"schema":%s,"payload":%s}' % (json.dumps(FIRST).encode(), text_of(KEY))
    assert prepared([spaced], [ROW], taking(FIRST)) == ["key_form_changed"]


NO_KEYS: dict[str, bytes | None] = {
    "missing": None,
    "empty": b"",
    "plain": text_of(KEY),
    "a payload alone": b'{"payload":%s}' % text_of(KEY),
    "no payload": b'{"schema":%s,"payload":null}' % text_of(FIRST),
    "no schema": b'{"schema":null,"payload":%s}' % text_of(KEY),
    "a further member": keyed()[:-1] + b',"mallory":1}',
    "a further field": keyed(schema_of(ID, CUSTOMER, ("s", "string")), {**KEY, "s": "secret"}),
    "a part": keyed(schema_of(ID), {"id": 1000}),
    "another type": keyed(schema_of(("id", "string"), CUSTOMER), {**KEY, "id": "1000"}),
    "a number alone": b'{"schema":{"type":"int64","optional":false},"payload":1000}',
    "cut": keyed()[:-1],
    "a frame": b"\0\0\0\0\1\2",
    "two": keyed() * 2,
}


@pytest.mark.parametrize("name", NO_KEYS)
def test_a_key_that_does_not_decode(name: str) -> None:
    assert prepared([NO_KEYS[name]] * 2, [ROW, None], taking(FIRST)) == ["key_form", "key_form"]


def test_a_key_of_another_row() -> None:
    assert prepared([keyed(key={**KEY, "id": 1001})], [ROW], taking(FIRST)) == ["key_differs"]


def test_a_key_of_debezium() -> None:
    columns = (Column(name="tenant", type="int32", field_ids=(0,)), Column(name="id", type="int64", field_ids=(1,)))
    form = key_form_written_out(json.dumps(json.loads(DEBEZIUM)["schema"], separators=(",", ":")).encode())
    contract = taking().model_copy(
        update={
            "key_forms": (form,),
            "columns": columns,
            "primary_key": ("tenant", "id"),
            "region_key": ("tenant", "id"),
        }
    )
    row = {"tenant": 1, "id": 10}
    assert prepared([DEBEZIUM, DEBEZIUM, DEBEZIUM], [row, None, {**row, "id": 11}], contract) == [
        (1, 10, 0),
        (1, 10, 1),
        "key_differs",
    ]


def test_the_stop_names_the_form() -> None:
    entry, _, stop = outcome([keyed(), keyed(schema_of(CUSTOMER, ID))], [ROW] * 2, taking(FIRST), reads_again=False)
    assert entry is not None
    assert entry.next == 1
    assert stop is not None
    assert f"--key-form {form_of(schema_of(CUSTOMER, ID))}`" in str(stop.error)


def test_a_form_as_a_person_names_it() -> None:
    form = form_of(FIRST)
    assert key_form_of(form) == form
    for wrong in (form[:-1], form + "0", "header-" + form, form.upper(), "schema-7"):
        assert key_form_of(wrong) is None


@given(st.lists(st.binary(max_size=20) | st.tuples(st.integers(0, 90), st.binary(max_size=3)), max_size=8))
def test_any_bytes(drawn: list[bytes | tuple[int, bytes]]) -> None:
    """No key raises an error, and each is judged as it is alone."""
    whole = keyed()
    keys = [
        one if isinstance(one, bytes) else whole[: one[0]] + one[1] + whole[one[0] + len(one[1]) :] for one in drawn
    ]
    alone = [prepared([key], [ROW], taking(FIRST))[0] for key in keys]
    assert set(alone) <= {"key_form", "key_differs", "key_form_changed", UPSERT}
    if keys:
        assert prepared([*[whole] * 3, *keys], [ROW] * (3 + len(keys)), taking(FIRST)) == [UPSERT] * 3 + alone
