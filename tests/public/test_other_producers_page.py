"""The page about topics that others write: its settings are settings, and its record is the row that it promises."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import get_args

from lancewal_core.names.ids import Position, Region, TopicId
from lancewal_core.record_keys.key_choices import KeyFormat, Partitioner
from lancewal_core.settings.declared import check_declared
from lancewal_core.settings.load import Settings, load_settings
from lancewal_core.settings.sections import JSON_FORMS
from lancewal_ingest.append.prepare import Consumed, Preparer
from lancewal_kafka.records import Records
from lancewal_kafka.topic import TopicState
from lancewal_tables.define.create import declared_rows
from lancewal_tables.define.register import first_contract
from lancewal_tables.define.topic import FittingTopic

PAGE = (Path(__file__).resolve().parents[2] / "docs/how-to/topics-that-others-write.md").read_text()


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", PAGE, re.M | re.S)


def settings_of(block: str, folder: Path) -> Settings:
    file = folder / "lancewal.yaml"
    file.write_text(block)
    return load_settings(file, {})


def test_every_block_of_settings_is_one(tmp_path: Path) -> None:
    found = [settings_of(block, tmp_path) for block in blocks("yaml")]
    for settings in found:
        check_declared(settings.table)
    assert len(found) >= 3


def test_the_record_of_the_example_is_its_row(tmp_path: Path) -> None:
    settings = settings_of(blocks("yaml")[0], tmp_path)
    rows = declared_rows(settings)
    topic = FittingTopic(TopicState("orders", "id", 5, compacted=False), [0] * 5, [])
    contract = first_contract("/t", None, rows, settings.table, topic)
    numbered = [one.model_copy(update={"field_ids": (place,)}) for place, one in enumerate(contract.columns)]
    contract = contract.model_copy(update={"columns": tuple(numbered)})
    partition = contract.partition_of(b"42")
    headers: list[tuple[str, bytes | None]] = [("traceparent", b"00-4bf9")]
    records = Records([9], [1_772_357_400_300], [b"42"], [blocks("json")[0].strip().encode()], [headers])
    consumed = Consumed(Region("orders", TopicId("id"), partition), Position(9), Position(10), records)
    entry, letters, stop = Preparer(contract).prepare(consumed)
    assert (letters, stop) == ((), None)
    assert entry is not None
    assert entry.rows.select(rows.columns.names).to_pylist() == [
        {
            "order_id": "42", "at": datetime(2026, 3, 1, 9, 30, 0, 250_000, UTC),
            "paid": datetime(2026, 3, 1, 9, 30, 0, 250_000, UTC), "total": Decimal("12.50"), "customer": "7", "gift": False,
            "sent_at": datetime(2026, 3, 1, 9, 30, 0, 300_000, UTC), "trace": "00-4bf9",
        }
    ]  # fmt: skip


def test_the_table_names_values_that_settings_take() -> None:
    rows = [line.strip("| ").split(" | ") for line in PAGE.splitlines() if line.startswith("| ")]
    table = [row for row in rows if len(row) == 4 and not row[0].startswith("producer")]
    assert len(table) >= 6
    formats, partitioners = {*get_args(KeyFormat)}, {*get_args(Partitioner)}
    for _, keys, partitioner, forms in table:
        assert formats & {*re.findall(r"`([a-z-]+)`", keys)}
        assert partitioner.strip("`") in partitioners
        assert set(re.findall(r"`([a-z]+_[a-z]+|utc|text)`", forms)) <= {*JSON_FORMS}
    assert {p.strip("`") for _, _, p, _ in table} == partitioners - {"none"}
