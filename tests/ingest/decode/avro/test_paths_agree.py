"""Values that a producer wrote become their cells, and both readers agree on any bytes."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from lancewal_ingest.decode.avro.decoder import AvroPayloads
from tests.ingest.decode.avro.cases import Drawn, decoder, record, types, written
from tests.ingest.decode.framed.outcomes import by_one, decoded, outcomes, texts
from tests.support.fuzzing import damaged, fuzz

PASSED_OVER = {
    "type": "record",
    "name": "Tree",
    "fields": [
        {"name": "value", "type": ["null", "string", {"type": "map", "values": "long"}]},
        {"name": "more", "type": {"type": "array", "items": "Tree"}},
        {"name": "next", "type": ["null", "Tree"]},
        {"name": "flag", "type": "boolean"},
        {"name": "nothing", "type": {"type": "array", "items": "null"}},
    ],
}
LEAF: dict[str, Any] = {"value": None, "more": [], "next": None, "flag": True, "nothing": []}
trees = st.recursive(
    st.just(LEAF),
    lambda inner: st.fixed_dictionaries(
        {
            "value": st.none()
            | st.text(max_size=3)
            | st.dictionaries(st.text(max_size=2), st.integers(-3, 3), max_size=3),
            "more": st.lists(inner, max_size=2),
            "next": st.none() | inner,
            "flag": st.booleans(),
            "nothing": st.lists(st.none(), max_size=2),
        }
    ),
    max_leaves=6,
)


@st.composite
def tables(draw: st.DrawFn) -> tuple[list[Drawn], list[list[tuple[Any, Any]]]]:
    """The types of some columns, and rows of what is written and its cell."""
    drawn = draw(st.lists(types(), min_size=1, max_size=4))
    return drawn, draw(st.lists(st.tuples(*[one.pairs for one in drawn]).map(list), min_size=1, max_size=8))


def made(drawn: list[Drawn], rows: list[list[tuple[Any, Any]]]) -> tuple[AvroPayloads, list[bytes], pa.Schema]:
    names = [f"c{number}" for number in range(len(drawn))]
    avro = record([("id", "long"), *((name, one.avro) for name, one in zip(names, drawn, strict=True))])
    columns = pa.schema([("id", pa.int64()), *((name, one.column) for name, one in zip(names, drawn, strict=True))])
    values = [
        {"id": place, **{name: value for name, (value, _) in zip(names, row, strict=True)}}
        for place, row in enumerate(rows)
    ]
    return decoder(avro, columns), written(avro, values), columns


@fuzz(250)
@given(tables())
def test_what_a_producer_has_written_is_what_the_columns_hold(
    table: tuple[list[Drawn], list[list[tuple[Any, Any]]]],
) -> None:
    drawn, rows = table
    of, datums, columns = made(drawn, rows)
    found = decoded(of, datums)
    assert found.refused == []
    expected = [pa.array(range(len(rows)), pa.int64())]
    expected += [pa.array([row[number][1] for row in rows], one.column) for number, one in enumerate(drawn)]
    cells = [texts(array) for array in expected]
    for part in found.parts:
        for field, column, right in zip(columns, part.columns, cells, strict=True):
            assert column.type == field.type
            assert texts(column) == [right[place] for place in part.indexes], field.name
    assert by_one(of, datums) == outcomes(found)


@fuzz(150)
@given(st.data(), tables())
def test_both_readers_agree_on_any_bytes(
    data: st.DataObject, table: tuple[list[Drawn], list[list[tuple[Any, Any]]]]
) -> None:
    of, datums, _ = made(*table)
    values = data.draw(st.lists(damaged(datums) | st.binary(max_size=30), min_size=1, max_size=12))
    together = outcomes(decoded(of, values))
    assert together == by_one(of, values)
    assert outcomes(decoded(of, values[::-1])) == {len(values) - 1 - place: text for place, text in together.items()}


@fuzz(120)
@given(st.data(), st.lists(trees, min_size=1, max_size=5))
def test_both_readers_agree_on_what_is_passed_over(data: st.DataObject, values: list[Any]) -> None:
    from tests.ingest.decode.avro.test_mapping import IGNORING

    avro = record([("id", "long"), ("tree", PASSED_OVER), ("s", "string")])
    columns = pa.schema([("id", pa.int64()), ("s", pa.string())])
    of = decoder(avro, columns, IGNORING)
    datums = written(avro, [{"id": place, "tree": tree, "s": "x"} for place, tree in enumerate(values)])
    found = decoded(of, datums)
    assert outcomes(found) == by_one(of, datums)
    assert sorted(cell for part in found.parts for cell in part.columns[0].to_pylist()) == list(range(len(datums)))
    bad = data.draw(st.lists(damaged(datums), min_size=1, max_size=8))
    assert outcomes(decoded(of, bad)) == by_one(of, bad)
