"""Values that PostgreSQL leaves out of its log, since they did not change: the table keeps what it has, or says so."""

from __future__ import annotations

import base64
import json
from dataclasses import replace
from typing import Any

import pytest

from lancewal_core.errors import BadRecord
from lancewal_core.rows.fold import fold
from lancewal_core.rows.schema import Op
from tests.support.debezium import Row, Sample, contract_of, samples, table_after, taken

P = "__debezium_unavailable_value"
DOCS = {
    "id": "int32", "title": "string", "body": "string", "blob": "binary", "tags": "list<string>", "meta": "string",
    "n": "int32",
}  # fmt: skip
TOASTY = {
    "id": "int32", "n": "int32", "c_text": "string", "c_varchar": "large_string", "c_char": "string", "c_citext": "string",
    "c_bytea": "binary", "c_json": "string", "c_jsonb": "string", "c_xml": "string", "c_hstore": "string",
    "c_numeric": "string", "c_ai": "list<int32>", "c_al": "list<int64>", "c_as": "list<int16>", "c_af": "list<float64>",
    "c_ar": "list<float32>", "c_anum": "list<string>", "c_anumps": "list<binary>", "c_at": "list<string>",
    "c_avc": "list<large_string>", "c_ab": "list<bool>", "c_ad": "list<int32>", "c_ats": "list<int64>",
    "c_atstz": "list<string>", "c_auid": "list<string>", "c_abytea": "list<binary>", "c_ajsonb": "list<string>",
    "c_ainet": "list<string>", "c_aen": "list<string>", "c_tsv": "string", "c_vb": "binary",
}  # fmt: skip
RECOGNISED = {
    "c_text", "c_varchar", "c_char", "c_citext", "c_bytea", "c_json", "c_jsonb", "c_xml", "c_hstore", "c_ai", "c_al", "c_at",
    "c_avc", "c_ad", "c_auid", "c_abytea", "c_ajsonb", "c_tsv",
}  # fmt: skip
"""Columns whose placeholder is known.  Of others a null comes."""
UNCLEAR = {"c_as", "c_af", "c_ar", "c_anum", "c_anumps", "c_ab", "c_ats", "c_atstz", "c_ainet", "c_aen"}
"""Arrays of which a null comes, that may be a NULL."""


def never(contract: Any, *names: str) -> Any:
    """The contract, in which these columns are never unavailable."""
    columns = tuple(c.model_copy(update={"toast": "never"}) if c.name in names else c for c in contract.columns)
    return contract.model_copy(update={"columns": columns})


def is_placeholder(value: object) -> bool:
    return value in (P, base64.b64encode(P.encode()).decode(), [P])


def with_kept(records: list[Sample]) -> dict[str, Row]:
    """The rows that must be there: what is unavailable keeps its former value."""
    rows: dict[str, Row] = {}
    for record in records:
        key = (record.key or b"").decode()
        event = json.loads(record.value or b"null")
        if event is None or event["op"] == "d":
            rows.pop(key, None)
            continue
        before = rows.get(key, {})
        rows[key] = {n: before.get(n) if is_placeholder(v) else v for n, v in event["after"].items()}
    for row in rows.values():
        row["blob"] = None if row["blob"] is None else base64.b64decode(row["blob"])
    return rows


def docs(*steps: str) -> list[Sample]:
    return [one for one in samples("postgres_json", "docs") if one.step in steps]


def test_an_update_keeps_what_did_not_change() -> None:
    records = docs("snapshot", "toast-unchanged", "toast-changed-one")
    found = table_after(contract_of(DOCS), records)
    assert found == with_kept(records)
    (row,) = found.values()
    assert (row["n"], row["tags"], len(row["body"]), len(row["blob"])) == (3, ["short"], 8400, 2160)


def test_a_column_that_the_event_does_not_have_is_null_as_in_any_update() -> None:
    """Whether a row of the table has a column must not depend on another value of the event."""
    records = docs("snapshot", "toast-unchanged")
    more = table_after(contract_of({**DOCS, "gone": "int64"}), records)
    assert more == {key: {**row, "gone": None} for key, row in with_kept(records).items()}


@pytest.mark.parametrize("policy", ["stop", "dead-letter", "ignore"])
def test_the_row_of_a_changed_key_has_no_former_values(policy: str) -> None:
    records = docs("snapshot", "toast-unchanged-key-change")
    contract = contract_of(DOCS, on_unavailable_value=policy)
    found = taken(contract, records)[0].outcome
    if policy == "ignore":
        row = table_after(contract, records)['{"id":2}']
        assert (row["body"], row["blob"], row["meta"], row["tags"], row["n"]) == (None, None, None, ["short"], 3)
        return
    assert found.entry is not None
    if policy == "stop":
        assert isinstance(found.stop.error if found.stop else None, BadRecord)
        assert found.entry.next == 5
        assert "REPLICA IDENTITY FULL" in str(found.stop and found.stop.error)
        assert "column 'body'" in str(found.stop and found.stop.error)
    else:
        assert [(letter.offset, letter.kind) for letter in found.letters] == [(5, "unavailable_value")]


@pytest.mark.parametrize("kept", [True, False])
def test_a_table_without_patches_keeps_nothing(kept: bool) -> None:
    records = docs("snapshot", "toast-unchanged")
    contract = contract_of(DOCS, patches=kept, on_unavailable_value="dead-letter")
    letters = [letter.kind for one in taken(contract, records) for letter in one.outcome.letters]
    assert letters == ([] if kept else ["unavailable_value"])
    nulls = contract.model_copy(update={"on_unavailable_value": "ignore"})
    (row,) = table_after(nulls, records).values()
    assert (row["body"] is None, row["n"]) == (not kept, 2)


def test_all_shapes_of_the_placeholder() -> None:
    (record,) = samples("postgres_toast", "toasty")
    contract = never(contract_of(TOASTY), *UNCLEAR)
    (found,) = [one for one in taken(contract, [record]) if one.outcome.entry and one.outcome.entry.row_count]
    rows = found.outcome.entry.rows if found.outcome.entry else None
    assert rows is not None
    assert rows.column("_op").to_pylist() == [int(Op.PATCH)]
    bits = int.from_bytes(rows.column("_present")[0].as_py(), "little")
    absent = {name for place, name in enumerate(TOASTY) if not bits >> place & 1}
    assert absent == RECOGNISED
    assert {name: cells for name, (cells,) in rows.select(list(TOASTY)).to_pydict().items() if cells is not None} == {
        "id": 1, "n": 2,
    }  # fmt: skip
    assert {name.path: count for name, count in found.other_names.items()} == dict.fromkeys(RECOGNISED, 1)
    assert {name.use for name in found.other_names} == {"unavailable"}


def test_a_null_of_an_array_without_the_old_row_is_not_clear() -> None:
    (record,) = samples("postgres_toast", "toasty")
    for column in UNCLEAR:
        contract = never(contract_of(TOASTY, on_unavailable_value="dead-letter"), *UNCLEAR - {column})
        (letter,) = [letter for one in taken(contract, [record]) for letter in one.outcome.letters]
        assert (letter.kind, f"column '{column}'" in letter.message) == ("unavailable_value", True)
        assert "toast: never" in letter.message
    event = json.loads(record.value or b"")
    whole = replace(record, value=json.dumps({**event, "before": event["after"]}).encode())
    nulls = [one.outcome.entry for one in taken(contract_of(TOASTY), [whole]) if one.outcome.entry]
    assert sum(entry.row_count for entry in nulls) == 1


def test_vectors() -> None:
    """An update of another column reads as if the vector was deleted.  With the old row it has its value."""
    columns = {"id": "int32", "n": "int32", "v": "fixed_size_list<float32>[3]", "emb": "fixed_size_list<float32>[520]"}
    ignores = {"on_unknown_column": "ignore", "partitioner": "none"}
    records = [one for one in samples("postgres_toast", "vectors") if one.partition == 3 and one.offset < 2]
    contract = contract_of(columns, **ignores, on_unavailable_value="dead-letter")
    assert [letter.kind for one in taken(contract, records) for letter in one.outcome.letters] == ["unavailable_value"]
    (row,) = table_after(never(contract, "emb"), records).values()
    assert (row["emb"], row["n"]) == (None, 2)
    (full,) = samples("postgres_toast", "vectors_full")
    of_full = contract_of({"id": "int32", "n": "int32", "emb": "list<float64>"}, **ignores)
    (row,) = table_after(of_full, [full]).values()
    assert (row["n"], set(row["emb"])) == (2, {0.5})


def test_the_text_of_the_placeholder_may_be_a_text() -> None:
    records = docs("toast-literal-that-looks-unavailable")
    (stopped,) = [one.outcome.stop for one in taken(contract_of(DOCS), records) if one.outcome.stop]
    assert isinstance(stopped.error, BadRecord)
    (row,) = table_after(never(contract_of(DOCS), "body"), records).values()
    assert row["body"] == P


def test_another_placeholder() -> None:
    (first, record, *_) = docs("snapshot", "toast-unchanged")
    other, codes = "é?", "é?".encode()
    event = json.loads(record.value or b"")
    event["after"] |= {"body": other, "blob": base64.b64encode(codes).decode(), "tags": [other], "meta": P}
    renamed = replace(record, value=json.dumps(event).encode())
    found = table_after(contract_of(DOCS, unavailable_value=other), [first, renamed])
    (row,) = found.values()
    assert (len(row["body"]), len(row["blob"]), len(row["tags"]), row["meta"]) == (8400, 2160, 220, P)


def after_an_update(contract: Any, former: object, placeholder: object) -> object:
    """The cell ``c`` of a row that was created with a value, and then updated by the placeholder."""
    events = [
        {"before": None, "after": {"id": 1, "c": cell}, "source": {"db": "x"}, "op": op}
        for op, cell in (("c", former), ("u", placeholder))
    ]
    texts = [json.dumps(one, separators=(",", ":"), ensure_ascii=False).encode() for one in events]
    (row,) = table_after(contract, [Sample("t", 0, n, "", b'{"id":1}', text) for n, text in enumerate(texts)]).values()
    return row["c"]


def test_bytes_have_a_sign_in_arrays_of_integers() -> None:
    """Java's bytes go from -128 to 127."""
    other = "é?"
    codes = [byte - 256 if byte > 127 else byte for byte in other.encode()]
    contract = contract_of({"id": "int32", "c": "list<int64>"}, unavailable_value=other, partitioner="none")
    assert after_an_update(contract, [1], codes) == [1]
    assert after_an_update(contract, [1], [*other.encode()]) == [*other.encode()]


@pytest.mark.parametrize("sent", [P, base64.b64encode(P.encode()).decode(), [P], {P: P}, [*P.encode()]], ids=str)
def test_columns_of_raw_json(sent: object) -> None:
    assert after_an_update(with_json("raw"), [1, "x"], sent) == '[1,"x"]'


def with_json(form: str) -> Any:
    """A contract whose column ``c`` holds JSON."""
    contract = contract_of({"id": "int32", "c": "string"}, partitioner="none")
    columns = (contract.columns[0], contract.columns[1].model_copy(update={"json_form": form}))
    return contract.model_copy(update={"columns": columns})


def test_columns_of_json_in_texts() -> None:
    """The placeholder is no JSON.  A text that is none is refused all the same."""
    contract = with_json("json_text")
    assert after_an_update(contract, '{"a":1}', P) == '{"a":1}'
    event = {"before": None, "source": {"db": "x"}, "op": "u"}
    texts = [json.dumps({**event, "after": {"id": 1, "c": c}}).encode() for c in ("{}", P, f"{P} ", "{}", P)]
    dead = contract.model_copy(update={"on_bad_record": "dead-letter"})
    records = [Sample("t", 0, n, "", b'{"id":1}', text) for n, text in enumerate(texts)]
    assert [(one.offset, one.kind) for x in taken(dead, records) for one in x.outcome.letters] == [(2, "type")]
    (plain,) = [x.outcome.letters for x in taken(never(dead, "c"), records[1:2]) if x.outcome.letters]
    assert [one.kind for one in plain] == ["type"]


@pytest.mark.parametrize("moved", [False, True])
def test_unwrapped_rows(moved: bool) -> None:
    """A row of a changed key is known by its header."""
    after = {"id": 1, "title": "x", "body": P, "blob": None, "tags": [P], "meta": None, "n": 2}
    key = b'{"id":1}'
    rows = [
        Sample("docs", 0, 0, "", key, json.dumps({**after, "body": "b", "tags": ["t"]}).encode()),
        Sample(
            "docs", 0, 1, "", key, json.dumps(after).encode(), (("__debezium.oldkey", b'{"id":9}'),) if moved else ()
        ),
    ]
    contract = contract_of(DOCS, envelope="debezium-unwrapped", on_unavailable_value="dead-letter", partitioner="none")
    letters = [letter.kind for one in taken(contract, rows) for letter in one.outcome.letters]
    assert letters == (["unavailable_value"] if moved else [])
    if not moved:
        (row,) = table_after(contract, rows).values()
        assert (row["body"], row["tags"], row["n"]) == ("b", ["t"], 2)


def test_a_row_that_is_nowhere_gets_nulls() -> None:
    records = docs("toast-unchanged")
    entries = [one.outcome.entry for one in taken(contract_of(DOCS), records)]
    folded = fold([entry.rows for entry in entries if entry is not None], contract_of(DOCS).rows)
    (row,) = folded.partials.to_pylist()
    assert (folded.rows.num_rows, row["n"], row["body"]) == (0, 2, None)
