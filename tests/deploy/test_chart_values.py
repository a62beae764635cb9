"""The chart's schema and files, without helm: as strict as the settings themselves, and in step with them."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from lancewal_core.settings.load import Settings, setting_keys
from lancewal_core.settings.secrets import is_secret
from tests.deploy.helm_program import CHART, ROOT

SCHEMA: dict[str, Any] = json.loads((CHART / "values.schema.json").read_text())
VALUES: dict[str, Any] = yaml.safe_load((CHART / "values.yaml").read_text())
OPEN = {
    "properties/global",
    "tolerations/items",
    "properties/affinity",
    "metricsFrom/items",
    "spread/items",
    "$defs/container",
    "$defs/volume",
    "$defs/mount",
}
"""Kubernetes' own types, which Kubernetes checks."""


def schemas(at: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], dict[str, Any]]]:
    if isinstance(at, dict):
        yield path, at
        for key, inner in at.items():
            yield from schemas(inner, (*path, key))
    elif isinstance(at, list):
        for index, inner in enumerate(at):
            yield from schemas(inner, (*path, str(index)))


def test_every_object_of_the_schema_is_closed() -> None:
    loose = [
        "/".join(path)
        for path, schema in schemas(SCHEMA)
        if schema.get("type") == "object" and schema.get("additionalProperties", True) is True
    ]
    assert [path for path in loose if "/".join(path.split("/")[-2:]) not in OPEN] == []


def test_every_setting_has_its_place() -> None:
    """A new setting must be added to values.schema.json; the columns stand in tableCreate, in order."""

    def known(schema: dict[str, Any], at: str) -> Iterator[str]:
        for key, inner in schema["properties"].items():
            yield from known(inner, f"{at}{key}.") if "properties" in inner else [at + key]

    assert set(known(SCHEMA["properties"]["settings"], "")) == set(setting_keys()) - {"table.columns"}


def test_the_schema_has_every_choice_of_a_setting() -> None:
    def choices(schema: dict[str, Any], whole: dict[str, Any], at: str = "") -> Iterator[tuple[str, frozenset[str]]]:
        if "$ref" in schema:
            schema = whole["$defs"][schema["$ref"].rpartition("/")[2]]
        if "enum" in schema:
            yield at, frozenset(schema["enum"])
        for key, inner in schema.get("properties", {}).items():
            yield from choices(inner, whole, f"{at}.{key}".lstrip("."))

    declared = Settings.model_json_schema()
    expected, found = dict(choices(declared, declared)), dict(choices(SCHEMA["properties"]["settings"], SCHEMA))
    assert len(found) > 10
    assert found == {at: names for at, names in expected.items() if at in found}


@pytest.mark.parametrize(
    "option",
    ["sasl.password", "ssl.key.password", "ssl.key.pem", "aws_secret_access_key", "aws_session_token",
     "sasl.oauthbearer.client.secret", "azure_storage_account_key", "google_service_account_key",
     "headers", "cookie", "signature", "conn_string", "azure_storage_connection_string", "google_service_account",
     "sasl.pasword",
     "security.protocol", "ssl.ca.location", "ssl.key.location", "aws_access_key_id", "aws_region", "allow_http",
     "sasl.oauthbearer.token.endpoint.url"],
)  # fmt: skip
def test_the_schema_keeps_out_what_lancewal_calls_a_secret(option: str) -> None:
    _, rule = SCHEMA["$defs"]["options"]["propertyNames"]["allOf"]
    allowed, forbidden = rule["anyOf"][0]["pattern"], rule["anyOf"][1]["not"]["pattern"]
    passes = bool(re.search(allowed, option)) or not re.search(forbidden, option)
    assert passes is not is_secret(("storage", "options", option))


@pytest.mark.parametrize(
    ("quantity", "right"),
    [("1", True), ("1500m", True), ("0.5", True), ("512Mi", True), ("2G", True), ("128974848", True), ("1k", True),
     ("1Gx", False), ("1 Gi", False), ("1gi", False), ("512MiB", False), ("-1", False), ("", False), ("1K", False)],
)  # fmt: skip
def test_quantities(quantity: str, right: bool) -> None:
    assert bool(re.search(SCHEMA["$defs"]["quantity"]["pattern"], quantity)) is right


def test_every_value_is_in_the_schema_and_every_simple_one_has_a_default() -> None:
    def keys(values: dict[str, Any], schema: dict[str, Any], path: str) -> Iterator[tuple[str, bool, bool]]:
        for name in values.keys() | schema["properties"].keys():
            inner = schema["properties"].get(name)
            yield f"{path}{name}", name in values, inner is not None
            if inner and inner.get("type") == "object" and "properties" in inner and name != "settings":
                yield from keys(values.get(name, {}), inner, f"{path}{name}.")

    found = list(keys(VALUES, SCHEMA, ""))
    assert [name for name, _, in_schema in found if not in_schema] == []
    assert [name for name, in_values, _ in found if not in_values] == ["global"]


def test_chart_and_program_have_one_version() -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert (chart["version"], chart["appVersion"]) == (project["version"], project["version"])


# -- templates -------------------------------------------------------------------------------------------------

TEMPLATES = sorted((CHART / "templates").iterdir())
OPENING = re.compile(r"^(if|range|with|define|block)\b")


def actions(text: str) -> list[str]:
    return [match.strip() for match in re.findall(r"\{\{-?(.*?)-?\}\}", text, re.DOTALL)]


def unbalanced(text: str) -> str:
    """What is wrong with a template's blocks; empty if nothing is."""
    if text.count("{{") != text.count("}}"):
        return "an action is not closed"
    depth = 0
    for action in actions(text):
        depth += 1 if OPENING.match(action) else -1 if action == "end" else 0
        if depth < 0:
            return "an end too many"
    return "" if depth == 0 else f"{depth} ends are missing"


@pytest.mark.parametrize("file", TEMPLATES, ids=lambda file: file.name)
def test_blocks_are_closed(file: Path) -> None:
    assert unbalanced(file.read_text()) == ""


@pytest.mark.parametrize("text", ["{{ if .a }}", "{{ end }}", "{{ .a }", "{{- with .a -}}{{ range .b }}{{ end }}"])
def test_open_blocks_are_seen(text: str) -> None:
    assert unbalanced(text) != ""


def test_what_is_included_is_defined_and_the_other_way_round() -> None:
    text = "".join(file.read_text() for file in TEMPLATES)
    defined = re.findall(r'define "([^"]+)"', text)
    assert len(defined) == len(set(defined))
    assert set(defined) == set(re.findall(r'include "([^"]+)"', text))


def test_every_value_is_used_and_every_used_value_is_there() -> None:
    text = "".join(file.read_text() for file in TEMPLATES)
    used = {name.split(".")[0] for name in re.findall(r"\.Values\.([A-Za-z.]+)", text)}
    assert used == VALUES.keys()
