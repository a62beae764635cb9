"""``table alter --key-form``: schemas of keys that a table takes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from lancewal_core.cli import program as cli
from lancewal_core.errors import InvalidInput
from lancewal_core.names.ids import SchemaKey
from lancewal_core.record_keys.key_form import KEY_FORMS_MAX
from lancewal_core.settings.load import Settings
from lancewal_core.settings.sections import TableSettings
from lancewal_core.table.contract import put_next, read_contract
from lancewal_core.wal.writer_schemas import WriterSchema, WriterSchemas
from lancewal_tables.commands.contract_text import contract_text
from lancewal_tables.define.alter import alter_terms
from tests.support.pipeline import SMALL, Pipeline


def test_forms_are_added(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pipeline = Pipeline(tmp_path, SMALL, partitions=1)
    keyed = pipeline.contract.model_copy(update={"version": 2, "format": 2, "key_format": "avro"})
    put_next(pipeline.store, pipeline.clock, pipeline.contract, keyed)
    file = tmp_path / "lancewal.yaml"
    file.write_text(f"table: {{uri: {pipeline.uri}}}\n")
    alter = ("table", "alter", "-c", str(file), "--key-form")
    try:
        assert "schemas: that of the first record" in contract_text(read_contract(pipeline.store, pipeline.uri))
        for form in ("7", "header-7"):
            assert cli.run((*alter, form)) == 0
        assert cli.run((*alter, "id-7")) == 2
        assert "already has these terms" in capsys.readouterr().err
        contract = read_contract(pipeline.store, pipeline.uri)
        assert (contract.key_forms, contract.version, contract.format) == (("id-7", "header-id-7"), 4, 2)
        assert cli.run((*alter, "8", "--dry-run", "-o", "json")) == 0
        shown = json.loads(capsys.readouterr().out)
        assert shown["after"]["key_forms"] == ["id-7", "header-id-7", "id-8"]
        assert read_contract(pipeline.store, pipeline.uri) == contract
        assert "schemas: id-7, header-id-7" in contract_text(contract)
        settings = Settings(table=TableSettings(uri=pipeline.uri))
        full = tuple(f"id-{n}" for n in range(1, KEY_FORMS_MAX + 1))
        with pytest.raises(InvalidInput, match=r"key_forms.*at most 1000.*Nothing was changed"):
            alter_terms(settings, {"key_forms": full})
    finally:
        pipeline.close()


def test_a_schema_that_no_record_has_named_is_a_warning(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pipeline = Pipeline(tmp_path, SMALL, partitions=1)
    keyed = pipeline.contract.model_copy(update={"version": 2, "format": 2, "key_format": "avro"})
    put_next(pipeline.store, pipeline.clock, pipeline.contract, keyed)
    guid = "8d3c3b4e-0f5a-4c0e-9d0b-6f1e2a3b4c5d"
    try:
        schemas = WriterSchemas(pipeline.store, keyed.making)
        for named in ("id-7", f"guid-{guid}"):
            schemas.put_first(SchemaKey(named), WriterSchema("avro", '"long"'), pipeline.clock, lambda: "a")
        forms = {
            "7": "", "header-7.2": "", f"header-{guid.upper()}": "", f"schema-{'0' * 32}": "",
            "70": "id-70", "header-70.1": "id-70", guid.replace("8", "9"): f"guid-{guid.replace('8', '9')}",
        }  # fmt: skip
        for more in (("--dry-run",), ()):
            for form, missing in forms.items():
                assert cli.run(("table", "alter", "-t", pipeline.uri, "--key-form", form, *more)) == 0
                said = capsys.readouterr().err
                assert [line.split(": ")[:2] for line in said.splitlines()] == (
                    [["warning", f"no record that ingest has read names schema {missing}"]] if missing else []
                )
        assert len(read_contract(pipeline.store, pipeline.uri).key_forms) == len(forms)
    finally:
        pipeline.close()


def test_keys_without_schemas_have_no_form(tmp_path: Path) -> None:
    pipeline = Pipeline(tmp_path, SMALL, partitions=1)
    try:
        with pytest.raises(InvalidInput, match=r"keys is canonical, and such keys name no schema. Nothing was changed"):
            alter_terms(Settings(table=TableSettings(uri=pipeline.uri)), {"key_forms": ("id-7",), "format": 2})
    finally:
        pipeline.close()
