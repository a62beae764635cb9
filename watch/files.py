"""The files that are generated from alerts and dashboards: each file's path in the project, and its text."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from watch.alerts.pages import index_text
from watch.alerts.rules import chart_text, chart_values, plain_text
from watch.dashboards.board import text
from watch.dashboards.table import BOARDS

ROOT = Path(__file__).resolve().parents[1]
CHART = ROOT / "helm" / "lancewal"
RUNBOOKS = ROOT / "docs" / "runbooks"
_RULES = re.compile(r"(?<=\n  rules:\n)(    Lancewal\w+: .*\n)+")
_DURATION = "^([0-9]+(ms|s|m|h|d))+$"


def made() -> Iterator[tuple[Path, str]]:
    yield CHART / "alerts.json", chart_text()
    yield ROOT / "compose" / "prometheus-rules.yml", plain_text()
    for board in BOARDS:
        yield CHART / "dashboards" / f"{board.uid}.json", text(board)
    yield RUNBOOKS / "README.md", index_text(RUNBOOKS)
    yield CHART / "values.yaml", _RULES.sub("".join(_value_lines()), (CHART / "values.yaml").read_text())
    yield CHART / "values.schema.json", _schema((CHART / "values.schema.json").read_text())


def _value_lines() -> Iterator[str]:
    for name, values in chart_values().items():
        shown = ", ".join(f"{key}: {json.dumps(value).strip(chr(34))}" for key, value in values.items())
        yield f"    {name}: {{{shown}}}\n"


def _schema(text: str) -> str:
    schema = json.loads(text)
    schema["properties"]["alerts"]["properties"]["rules"] = {
        "type": "object",
        "additionalProperties": False,
        "properties": {
            name: {
                "type": "object",
                "additionalProperties": False,
                "properties": {key: _type(key, value) for key, value in values.items()},
            }
            for name, values in chart_values().items()
        },
    }
    return json.dumps(schema, indent=2) + "\n"


def _type(key: str, value: object) -> dict[str, Any]:
    if isinstance(value, bool):
        return {"type": "boolean"}
    if key == "severity":
        return {"type": "string", "minLength": 1}
    return {"type": "string", "pattern": _DURATION} if isinstance(value, str) else {"type": "number", "minimum": 0}
