"""Changes of columns as texts of the command line."""

from __future__ import annotations

import json
import shlex
from typing import Any

import pyarrow as pa
import pytest

from lancewal_core.errors import InvalidInput
from lancewal_core.rows.column_types import parse_type
from lancewal_core.settings.declared import ColumnSource
from lancewal_core.table.columns.changes import Added, Dropped, Renamed, Widened, option
from lancewal_tables.define.column_changes import (
    parse_added,
    parse_adopted,
    parse_dropped,
    parse_forgotten,
    parse_renamed,
    parse_widened,
)


@pytest.mark.parametrize(
    ("text", "parsed"),
    [
        ("note: string", Added(("note",), pa.string())),
        (" note :string", Added(("note",), pa.string())),
        ('note: string = "none"', Added(("note",), pa.string(), '"none"')),
        ("n: int64=0", Added(("n",), pa.int64(), "0")),
        ('s: string = "a = b: c"', Added(("s",), pa.string(), '"a = b: c"')),
        ("address.city: struct<a: int32, b: list<date32>>",
         Added(("address", "city"), parse_type("struct<a: int32, b: list<date32>>"))),
        ('at: {type: "timestamp[us, UTC]", json: epoch_ms, field: ts} = 1000',
         Added(("at",), pa.timestamp("us", "UTC"), "1000", ColumnSource("epoch_ms", "ts"))),
        ("k: {source: kafka.key, type: string}", Added(("k",), pa.string(), None, ColumnSource(metadata="kafka.key"))),
        ("p: {source: kafka.partition}", Added(("p",), pa.int32(), None, ColumnSource(metadata="kafka.partition"))),
        ("n: {type: int64}", Added(("n",), pa.int64())),
    ],
)  # fmt: skip
def test_what_adds_is_parsed(text: str, parsed: Added) -> None:
    assert parse_added(text) == parsed


@pytest.mark.parametrize(
    ("parse", "text", "named"),
    [
        (parse_added, "note", "expected NAME: TYPE"),
        (parse_added, ": string", "expected NAME: TYPE"),
        (parse_added, "note:", "expected NAME: TYPE"),
        (parse_added, "note: text", "did you mean string"),
        (
            parse_added,
            "note: string = none",
            "its default 'none' is not a value of its type: expected one JSON value. A string needs quotes: \"none\"",
        ),
        (
            parse_added,
            "n: {type: struct<a: int64>}",
            'A text with a colon has quotes, such as the type "struct<dep: int32',
        ),
        (parse_added, "note: string =", "is not a value of its type"),
        (parse_added, "n: {type: int64, form: text}", "a column takes type, json, field, toast"),
        (parse_added, "n: {source: kafka.lag}", "expected one of kafka.topic"),
        (parse_added, "n: {json: text}", "type needs a text"),
        (parse_added, "n: {type: string", "expected ',' or '}'"),
        (parse_widened, "fare", "expected NAME: TYPE"),
        (parse_widened, "fare: double", "did you mean float64"),
        (parse_renamed, "fare", "expected OLD=NEW"),
        (parse_renamed, '"fare=x"', "expected OLD=NEW"),
        (parse_renamed, '"fare"x=y', "after the closing quote"),
        (parse_renamed, '"a\\x"=y', "is written as in JSON"),
        (parse_renamed, "=x", "expected OLD=NEW"),
        (parse_renamed, "fare=", "expected OLD=NEW"),
        (parse_renamed, "address.zip=address.code", "Give the last part alone"),
    ],
)
def test_what_is_no_change_is_named(parse: Any, text: str, named: str) -> None:
    with pytest.raises(InvalidInput, match=named) as error:
        parse(text)
    assert repr(text) in str(error.value)


NAMES = ["a=b", "a:b", " a", "a ", 'a"b', '"a"', "a\\b", "a = b: c", "a b", "it's", "a\nb", "*", "ü", "plain"]


@pytest.mark.parametrize("name", NAMES)
def test_each_name_that_a_table_may_have_can_be_named(name: str) -> None:
    quoted = json.dumps(name)
    assert parse_dropped(f" {quoted} ").path == parse_forgotten(quoted).path == parse_adopted(quoted).path == (name,)
    assert parse_renamed(f"{quoted}=c") == Renamed((name,), "c")
    assert parse_renamed(f"c = {quoted}") == Renamed(("c",), name)
    assert parse_renamed(f"{quoted}.zip=code") == Renamed((name, "zip"), "code")
    assert parse_widened(f"{quoted}: int64") == Widened((name,), pa.int64())
    assert parse_added(f'{quoted}: string = "x=y"') == Added((name,), pa.string(), '"x=y"')
    assert parse_dropped(f"s.{quoted}").path == parse_adopted(f" s . {quoted} ").path == ("s", name)
    assert parse_renamed(f's."x.y".{quoted}=c') == Renamed(("s", "x.y", name), "c")
    assert parse_added(f"s.{quoted}: int8 = 7") == Added(("s", name), pa.int8(), "7")


@pytest.mark.parametrize("path", [*[(name,) for name in NAMES], *[(name, "zip", name) for name in NAMES], ("s", "a.b")])
def test_a_command_that_a_message_names_names_the_column(path: tuple[str, ...]) -> None:
    """Through the shell, as a person pastes it."""
    (pasted,) = shlex.split(shlex.quote(option(path)))
    assert parse_adopted(pasted).path == parse_dropped(pasted).path == path
    assert parse_renamed(f"{option(path)}={option((path[0],))}") == Renamed(path, path[0])
    assert parse_added(f"{option(path)}: int8") == Added(path, pa.int8())


def test_a_usual_name_has_no_quotes_in_a_command() -> None:
    assert option(("address", "zip code")) == "address.zip code"


def test_acts_by_their_texts() -> None:
    assert parse_widened("fare: float64") == Widened(("fare",), pa.float64())
    assert parse_renamed(" a.b = c ") == Renamed(("a", "b"), "c")
    assert parse_dropped("address.zip") == Dropped(("address", "zip"))
