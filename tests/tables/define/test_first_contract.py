"""The first contract of a table: what settings say of columns, and the format by which older releases refuse it."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from lancewal_core.errors import ContractMismatch, InvalidSchema
from lancewal_core.settings.declared import ColumnSource
from lancewal_core.settings.load import Settings
from lancewal_core.table.checks import check_settings
from lancewal_core.table.contract import Contract, decode_contract, encode_contract
from lancewal_kafka.topic import TopicState
from lancewal_tables.commands.contract_text import contract_text
from lancewal_tables.define.create import declared_rows
from lancewal_tables.define.register import first_contract
from lancewal_tables.define.topic import FittingTopic

TOPIC = FittingTopic(TopicState("orders", "id", 1, compacted=False), [0], [])


def made(columns: dict[str, Any], **table: Any) -> Contract:
    given = {"columns": columns, "primary_key": ["id"], "region_key": ["id"], **table}
    settings = Settings.model_validate({"table": given})
    return first_contract("/tables/t", None, declared_rows(settings), settings.table, TOPIC)


def test_columns_have_the_sources_that_settings_say() -> None:
    contract = made({"id": {"type": "int64", "field": "key"}, "at": {"type": "timestamp[ms, UTC]", "json": "epoch_ms"}})
    assert contract.sources == {"id": ColumnSource(None, "key"), "at": ColumnSource("epoch_ms")}
    assert contract.format == 2


def test_without_sources_the_first_release_takes_the_table() -> None:
    assert made({"id": {"type": "int64"}, "at": "timestamp[ms, UTC]"}).format == 1


@pytest.mark.parametrize(
    "type_",
    [
        "uuid",
        "fixed_size_binary[16]",
        "time32[s]",
        "time64[us]",
        "duration[ms]",
        "large_string",
        "list<large_binary>",
        "map<string, int8>",
        "struct<m: map<string, int8>>",
    ],
)
def test_the_first_release_refuses_a_table_with_a_later_type(type_: str) -> None:
    contract = made({"id": "int64", "c": type_})
    assert (contract.format, contract.columns[1].type) == (2, type_)


def test_columns_of_metadata_come_behind_the_others() -> None:
    metadata = {"place": "kafka.offset", "trace": {"source": "kafka.header.trace", "type": "string"}, "k": "kafka.key"}
    contract = made({"id": "int64", "s": "string"}, metadata_columns=metadata)
    assert contract.rows.columns.names == ["id", "s", "place", "trace", "k"]
    assert [str(type_) for type_ in contract.rows.columns.types[2:]] == ["int64", "string", "binary"]
    assert contract.sources["trace"] == ColumnSource(metadata="kafka.header.trace")
    assert contract.format == 2


@pytest.mark.parametrize(
    ("columns", "named"),
    [
        ({"id": {"type": "int64", "json": "number_text"}}, "'id' has json number_text, and is in the primary key"),
        ({"id": "int64", "at": {"type": "timestamp[ms]", "json": "utc"}}, "'at' has json utc, which is a form of type"),
        (
            {"id": "int64", "n": {"type": "decimal128(3, 1)", "json": "number_text"}},
            "decimals take a number in a string",
        ),
        (
            {"id": "int64", "a": {"type": "int8", "field": "place"}},
            "'a' and 'place' both claim the name 'place' in records",
        ),
        (
            {"id": "int64", "a": {"type": "int8", "field": "id"}},
            "columns 'id' and 'a' both claim the name 'id' in records",
        ),
    ],
)
def test_sources_that_no_record_could_have(columns: dict[str, Any], named: str) -> None:
    with pytest.raises(InvalidSchema, match=named):
        made(columns, metadata_columns={"place": "kafka.offset"})


def test_no_key_comes_from_metadata() -> None:
    with pytest.raises(InvalidSchema, match=r"'place' is filled from kafka.offset, and is in the primary key"):
        made({"id": "int64"}, metadata_columns={"place": "kafka.offset"}, primary_key=["id", "place"])


OF_EVENTS = {"op": "envelope.op", "seen": "envelope.ts_ms", "at": "envelope.source.ts_ms", "lsn": "envelope.source.lsn"}


def test_columns_of_an_envelope_need_one() -> None:
    with_events = {"format": {"envelope": "debezium", "key": "json-compact"}}
    contract = made({"id": "int64"}, metadata_columns=OF_EVENTS, **with_events)
    assert [str(type_) for type_ in contract.rows.columns.types] == [
        "int64", "string", "timestamp[ms, tz=UTC]", "timestamp[ms, tz=UTC]", "int64",
    ]  # fmt: skip
    unwrapped = {"format": {"envelope": "debezium-unwrapped", "key": "json-compact"}}
    for source in OF_EVENTS.values():
        with pytest.raises(InvalidSchema, match=rf"'c' is filled from {source}, .* is none, not debezium"):
            made({"id": "int64"}, metadata_columns={"c": source})
        with pytest.raises(InvalidSchema, match=r"is debezium-unwrapped, not debezium. add.fields in the connector"):
            made({"id": "int64"}, metadata_columns={"c": source}, **unwrapped)


def test_a_topic_of_several_types_has_the_name_of_the_tables_records() -> None:
    settings = {"format": {"value": "avro", "record": "shop.Order"}, "on_other_record": "ignore"}
    contract = made({"id": "int64"}, **settings)
    assert (contract.value_record, contract.on_other_record, contract.format) == ("shop.Order", "ignore", 2)
    assert "records 'shop.Order'" in str(contract_text(contract))
    check_settings(Settings.model_validate({"table": settings}), contract)
    other = {"format": {"value": "avro", "record": "shop.Customer"}}
    with pytest.raises(ContractMismatch, match=r"table\.format\.record"):
        check_settings(Settings.model_validate({"table": other}), contract)


@pytest.mark.parametrize(
    ("table", "says"),
    [
        ({"format": {"record": "shop.Order"}}, "records of the format json have no names"),
        ({"format": {"value": "json-schema", "record": "x"}}, "records of the format json-schema have no names"),
        ({"format": {"value": "avro"}, "on_other_record": "ignore"}, "on_other_record needs format.record"),
        *(
            (
                {"format": {"value": value}, "columns": {"n": {"type": "int64", "json": "number_text"}}},
                f"column 'n' has json, but the schemas of format {value} say the form",
            )
            for value in ("avro", "protobuf", "connect-json")
        ),
        ({"format": {"value": "avro", "record": "x" * 1025}}, "1024"),
    ],
)
def test_a_name_of_records_fits_their_format(table: dict[str, Any], says: str) -> None:
    with pytest.raises(ValidationError, match=says):
        Settings.model_validate({"table": table})


EVENTS = {"format": {"key": "json-compact", "envelope": "debezium"}}


def test_a_table_of_events() -> None:
    contract = made(
        {"id": "int64", "v": {"type": "list<float32>", "toast": "never"}},
        format={**EVENTS["format"], "unavailable_value": "?"},
        snapshot_rows="skip", on_truncate="ignore", on_unavailable_value="ignore",
    )  # fmt: skip
    assert (contract.format, contract.envelope, contract.snapshot_rows) == (2, "debezium", "skip")
    assert (contract.on_truncate, contract.on_unavailable_value, contract.unavailable_value) == (
        "ignore",
        "ignore",
        "?",
    )
    assert [column.toast for column in contract.columns] == [None, "never"]
    assert decode_contract(encode_contract(contract), "here") == contract
    text = contract_text(contract)
    assert "in the envelope debezium, at most" in text
    assert "toast never" in text
    assert made({"id": "int64"}, **EVENTS).format == 2
    check_settings(Settings.model_validate({"table": EVENTS}), contract)
    for other in (
        {"format": {"envelope": "debezium-unwrapped"}}, {"on_truncate": "stop"}, {"on_unavailable_value": "stop"},
        {"format": {"unavailable_value": "!"}}, {"format": {"envelope": "none"}},
    ):  # fmt: skip
        with pytest.raises(ContractMismatch, match=r"envelope|on_truncate|unavailable_value"):
            check_settings(Settings.model_validate({"table": other}), contract)


@pytest.mark.parametrize(
    ("table", "says"),
    [
        (
            {"format": {"key": "bytes", "envelope": "debezium"}, "region_key": []},
            "format.envelope is debezium: a delete names",
        ),
        ({"format": EVENTS["format"], "primary_key": ["id", "no"]}, "all columns of table.primary_key"),
        ({"snapshot_rows": "skip"}, "only the envelope debezium says which rows"),
        ({"snapshot_rows": "skip", "format": {"envelope": "debezium-unwrapped"}}, "only the envelope debezium"),
        ({"on_truncate": "dead-letter"}, "Input should be 'stop' or 'ignore'"),
        ({"on_unavailable_value": "null"}, "'stop', 'dead-letter' or 'ignore'"),
        ({"format": {"envelope": "maxwell"}}, "'none', 'debezium' or 'debezium-unwrapped'"),
        ({"format": {"unavailable_value": ""}}, "at least 1 character"),
        ({"columns": {"id": {"type": "int64", "toast": "always"}, "no": "int64"}}, "toast is 'always': expected never"),
    ],
)
def test_what_no_table_of_events_can_have(table: dict[str, Any], says: str) -> None:
    columns = table.pop("columns", {"id": "int64", "no": "int64"})
    with pytest.raises((ValidationError, InvalidSchema), match=says):
        made(columns, **table)
