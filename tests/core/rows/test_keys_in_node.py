"""The page's functions for Node.js give the keys of the vectors: canonical, ``long``, and those that Kafka Connect wrote."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.core.record_keys.test_json_compact import VECTORS as COMPACT
from tests.core.rows.test_java_partitioner import VECTORS

PAGE = Path(__file__).resolve().parents[3] / "docs" / "reference" / "region-keys.md"
NODE = shutil.which("node")
LONGS = ["0", "1", "-1", "42", str(2**63 - 1), str(-(2**63))]

_RUN = """
const given = JSON.parse(require("fs").readFileSync(0, "utf8"));
const value = ([type, text]) =>
  type.includes("int") ? BigInt(text) : type === "binary" ? Buffer.from(text, "hex") : text;
const hex = (keys) => keys.map((key) => key.toString("hex"));
console.log(JSON.stringify({
  canonical: hex(given.canonical.map((items) => regionKey(...items.map(value)))),
  small: hex(given.small.map((items) => regionKey(...items))),
  long: hex(given.long.map((text) => longKey(BigInt(text)))),
  compact: hex(given.compact.map((items) =>
    compactKey(Object.fromEntries(items.map(([name, ...typed]) => [name, value(typed)]))))),
}));
"""


@pytest.mark.skipif(NODE is None, reason="needs node")
def test_the_page_s_functions_give_the_keys_of_the_vectors() -> None:
    assert NODE is not None
    (functions,) = [code for code in blocks() if "function regionKey" in code]
    small: list[dict[str, Any]] = [
        vector for vector in VECTORS if {*vector["types"]} <= {"string", "bool", "int8", "int32", "date32"}
    ]
    given = {
        "canonical": [list(zip(vector["types"], vector["values"], strict=True)) for vector in VECTORS],
        "small": [[int(v) if "int" in t else v for t, v in zip(s["types"], s["values"], strict=True)] for s in small],
        "long": LONGS,
        "compact": [
            [[name, type_, value] for (name, type_), value in zip(vector["types"], vector["values"], strict=True)]
            for vector in COMPACT
        ],
    }
    asked = json.dumps(given, ensure_ascii=False).encode()
    run = subprocess.run([NODE, "-e", functions + _RUN], input=asked, capture_output=True, check=True, timeout=60)
    assert json.loads(run.stdout) == {
        "canonical": [vector["key_hex"] for vector in VECTORS],
        "small": [vector["key_hex"] for vector in small],
        "long": [int(text).to_bytes(8, "big", signed=True).hex() for text in LONGS],
        "compact": [vector["key_hex"] for vector in COMPACT],
    }


@pytest.mark.skipif(NODE is None, reason="needs node")
def test_the_page_s_programs_are_javascript(tmp_path: Path) -> None:
    assert NODE is not None
    (tmp_path / "page.js").write_text("\n".join(blocks()))
    subprocess.run([NODE, "--check", tmp_path / "page.js"], check=True, timeout=60)


def blocks() -> list[str]:
    return re.findall(r"^```js\n(.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL)
