"""Keys in conflict for people: few are shown however many wait, and every type of a key has an order."""

from __future__ import annotations

import datetime as dt
import json
from uuid import UUID

import pyarrow as pa
import pytest

from lancewal_core.errors import InvalidInput
from lancewal_core.keys.conflicts import Conflicts
from lancewal_core.keys.origin import MergedFrom
from lancewal_core.names.ids import Position, Region, TopicId
from lancewal_core.rows.fold import fold
from lancewal_core.rows.schema import RowSchema
from lancewal_tables.status import conflict_list
from lancewal_tables.status.conflict_list import keys_in_conflict, keys_named

P, Q = (Region("orders", TopicId("t"), partition) for partition in (0, 1))


def waiting(type_: pa.DataType, values: list[object]) -> Conflicts:
    """All of these keys wait of partition 0, those at even places of partition 1 too, and partition 0 owns the first."""
    rows = RowSchema(pa.schema([pa.field("id", type_, nullable=False)]), ("id",), ())

    def rows_of(some: list[object]) -> pa.RecordBatch:
        return pa.RecordBatch.from_pylist(
            [{"id": v, "_op": 0, "_present": None, "_offset": at, "_timestamp": 0} for at, v in enumerate(some)],
            rows.wal,
        )

    held = Conflicts.none(rows).with_waiting(P, fold([rows_of(values)], rows), Position(0), Position(9))
    held = held.with_waiting(Q, fold([rows_of(values[::2])], rows), Position(3), Position(7))
    return held.with_owner(MergedFrom(P, Position(3)), pa.table({"id": pa.array(values[:1], type_)}))


def test_only_the_keys_that_are_shown_become_text(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[object] = []
    text = conflict_list._text

    def counted(key: object) -> str:
        made.append(key)
        return text(key)

    monkeypatch.setattr(conflict_list, "_text", counted)
    held = waiting(pa.int64(), [30, 4, *range(1000, 3000)])
    assert keys_named(held, ["[30]", "[2999]", "[30]"])["id"].to_pylist() == [30, 2999]
    assert len(made) < 20
    made.clear()
    shown = keys_in_conflict(held, 3)

    assert [key.key for key in shown] == [[4], [30], [1000]]
    assert [key.owner for key in shown] == [None, P.name, None]
    assert [[w.partition for w in key.waiting] for key in shown] == [[0], [0, 1], [0, 1]]
    assert len(made) < 20


def test_a_limit_of_none_and_one_above_all() -> None:
    held = waiting(pa.int64(), [2, 1])
    assert keys_in_conflict(held, 0) == ()
    assert [key.key for key in keys_in_conflict(held, 9)] == [[1], [2]]


@pytest.mark.parametrize(
    ("type_", "values", "texts"),
    [
        (pa.string(), ["b", "a"], ["a", "b"]),
        (pa.binary(), [b"b", b"a"], ["YQ==", "Yg=="]),
        (pa.bool_(), [True, False], [False, True]),
        (pa.large_string(), ["b", "a"], ["a", "b"]),
        (pa.large_binary(), [b"b", b"a"], ["YQ==", "Yg=="]),
        (pa.binary(1), [b"b", b"a"], ["YQ==", "Yg=="]),
        (pa.uuid(), [UUID(int=2**127), UUID(int=7)], [str(UUID(int=7)), str(UUID(int=2**127))]),
        (pa.time32("ms"), [dt.time(23, 59, 59, 999_000), dt.time(0)], ["00:00:00.000", "23:59:59.999"]),
        (pa.time64("ns"), [dt.time(1), dt.time(0)], ["00:00:00.000000000", "01:00:00.000000000"]),
        (pa.uint64(), [2**63, 7], [7, 2**63]),
        (pa.date32(), [dt.date(2026, 1, 2), dt.date(1900, 1, 1)], ["1900-01-01", "2026-01-02"]),
        (
            pa.timestamp("us"),
            [dt.datetime(2026, 1, 2), dt.datetime(1900, 1, 1)],
            ["1900-01-01 00:00:00.000000", "2026-01-02 00:00:00.000000"],
        ),
        (
            pa.timestamp("ns", "UTC"),
            [1_767_312_000_000_000_001, -1],
            ["1969-12-31 23:59:59.999999999Z", "2026-01-02 00:00:00.000000001Z"],
        ),
        (
            pa.timestamp("s", "UTC"),
            [1_767_312_000, -1],
            ["1969-12-31 23:59:59Z", "2026-01-02 00:00:00Z"],
        ),
    ],
    ids=str,
)
def test_keys_of_every_type_have_an_order_and_are_found_by_what_is_shown(
    type_: pa.DataType, values: list[object], texts: list[object]
) -> None:
    held = waiting(type_, values)
    assert json.dumps([key.key for key in keys_in_conflict(held, 9)]) == json.dumps([[t] for t in texts])
    in_order = dict(zip(texts, sorted(pa.array(values, type_).to_pylist()), strict=True))
    for text in texts:
        found = keys_named(held, [json.dumps([text])])["id"].to_pylist()
        assert found == [in_order[text]]
    assert keys_named(held, [json.dumps([text]) for text in texts]).num_rows == len(values)


@pytest.mark.parametrize(
    "text", ["[3]", "[1.0]", "[true]", '["1"]', "[1, 1]", "[]", "1", "null", "[null]", "[1e400]", "{}", "["]
)
def test_a_text_that_is_not_shown_names_no_key(text: str) -> None:
    with pytest.raises(InvalidInput, match=r"does not wait for a decision|is not JSON"):
        keys_named(waiting(pa.int64(), [2, 1]), ["[1]", text])


@pytest.mark.parametrize("text", ["2026-01-02", "2026-01-02T00:00:00.000000", "2026-01-02 00:00:00", "x", 1])
def test_a_time_has_one_text(text: object) -> None:
    with pytest.raises(InvalidInput, match="does not wait for a decision"):
        keys_named(waiting(pa.timestamp("us"), [dt.datetime(2026, 1, 2)]), [json.dumps([text])])


@pytest.mark.parametrize("year_day", [-719_529, -719_528, -719_163, -719_162, 2_932_896, 2_932_897])
@pytest.mark.parametrize("type_", [pa.date32(), pa.timestamp("s"), pa.timestamp("us", "UTC")], ids=str)
def test_a_time_of_any_year_is_found_by_what_is_shown(type_: pa.DataType, year_day: int) -> None:
    """The days are the last and the first ones of the years -1 to 1, 9999 and 10000."""
    ticks = 1 if pa.types.is_date32(type_) else 86_400 * (1 if type_.unit == "s" else 1_000_000)
    held = waiting(type_, [year_day * ticks, 0])
    shown = next(key.key for key in keys_in_conflict(held, 9) if not str(key.key[0]).startswith("1970"))
    found = keys_named(held, [json.dumps(shown)])["id"]
    assert found.cast(pa.int32() if pa.types.is_date32(type_) else pa.int64()).to_pylist() == [year_day * ticks]
    unit = "days" if pa.types.is_date32(type_) else type_.unit
    assert (shown == [f"{year_day * ticks} {unit} since 1970"]) == (year_day not in range(-719_162, 2_932_897))
