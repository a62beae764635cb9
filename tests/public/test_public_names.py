"""What users import: the package ``lancewal``, whole, quick to import, and nothing else in the documentation."""

from __future__ import annotations

import ast
import importlib
import inspect
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import lancewal
import lancewal.namespace
import lancewal.sandbox
import lancewal.spark
from lancewal_core import errors

ROOT = Path(__file__).resolve().parents[2]
PUBLIC = ("lancewal", "lancewal.errors", "lancewal.namespace", "lancewal.sandbox", "lancewal.spark")
DECLARED = {
    "lancewal": {
        *("At", "LeftOut", "Receipt", "Rows", "Table", "encode_region_key", "errors", "left_out_of", "load_files"),
        *("load_settings", "open_table", "partition_of", "receipt_of", "sandbox", "SearchCoverage"),
        *("Subscription", "Subscriptions", "Catalog", "CutTables", "TableEntry", "open_catalog"),
        *("SearchRows", "Snapshot", "spark", "Token", "Match", "Phrase", "Boolean", "Boost", "RRF"),
    },
    "lancewal.namespace": {"PostgresNamespace"},
    "lancewal.sandbox": {"ConnectWorker", "KafkaBroker", "RegistryServer"},
    "lancewal.spark": {"count", "load_dataframe", "receipt_of", "session", "view"},
}
#: Pages for who changes lancewal, not for who uses it.
INSIDE = {"docs/decisions", "docs/simulation.md", "docs/protocol.md", "docs/format.md"}


@pytest.mark.parametrize("name", PUBLIC)
def test_every_public_name_is_there(name: str) -> None:
    module = importlib.import_module(name)
    found = {public: getattr(module, public) for public in module.__all__}
    assert all(inspect.isclass(v) or inspect.isfunction(v) or inspect.ismodule(v) for v in found.values()), found
    assert [public for public, value in found.items() if not (value.__doc__ or "").strip()] == []


def test_the_declared_names_are_all() -> None:
    """What type checkers see, what is loaded and what is listed are the same names."""
    for module in ("lancewal", "lancewal.namespace", "lancewal.sandbox", "lancewal.spark"):
        imported = importlib.import_module(module)
        tree = ast.parse(Path(str(imported.__file__)).read_text())
        seen = {
            name.asname or name.name
            for block in tree.body
            if isinstance(block, ast.If)
            for node in ast.walk(block)
            if isinstance(node, ast.ImportFrom)
            for name in node.names
        }
        assert seen == set(imported.__all__) == set(dir(imported)) == DECLARED[module]


@pytest.mark.parametrize("module", ["lancewal", "lancewal.spark", "lancewal.errors"])
def test_a_name_that_is_not_there_is_an_attribute_error(module: str) -> None:
    with pytest.raises(AttributeError, match=f"'{module}' has no attribute 'nothing'$"):
        getattr(importlib.import_module(module), "nothing")  # noqa: B009


def test_every_error_is_public() -> None:
    tree = {n for n, v in vars(errors).items() if inspect.isclass(v) and issubclass(v, errors.LancewalError)}
    assert set(lancewal.errors.__all__) == tree


def test_importing_it_loads_nothing_else() -> None:
    """Not a part, not Arrow, not Lance: these take a second, and a session of Spark comes before Lance."""
    program = (
        "import sys; before = set(sys.modules)\n"
        "import lancewal, lancewal.namespace, lancewal.spark, lancewal.sandbox\n"
        "print(*sorted({name.partition('.')[0] for name in set(sys.modules) - before} - set(sys.stdlib_module_names)))"
    )
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["lancewal"]


def pages() -> list[Path]:
    found = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
    return [page for page in found if not any(str(page.relative_to(ROOT)).startswith(inside) for inside in INSIDE)]


def programs(markdown: str) -> list[str]:
    return re.findall(r"^```python\n(.*?)^```", markdown, re.M | re.S)


def private_imports(markdown: str) -> Iterator[str]:
    """Imports in the Python of a page that are not of public names."""
    for code in programs(markdown):
        for node in ast.walk(ast.parse(code)):
            match node:
                case ast.Import(names=names):
                    yield from (n.name for n in names if n.name.startswith("lancewal") and n.name not in PUBLIC)
                case ast.ImportFrom(module=str(module), names=names) if module.startswith("lancewal"):
                    public = importlib.import_module(module).__all__ if module in PUBLIC else ()
                    yield from (f"{module}.{n.name}" for n in names if n.name not in public)
                case ast.Attribute(value=ast.Name(id="lancewal"), attr=name) if name not in lancewal.__all__:
                    yield f"lancewal.{name}"


def test_documentation_imports_public_names_only() -> None:
    texts = {page.relative_to(ROOT): page.read_text() for page in pages()}
    assert [f"{page}: {name}" for page, text in texts.items() for name in private_imports(text)] == []
    assert sum("lancewal" in code for text in texts.values() for code in programs(text)) >= 5


@pytest.mark.parametrize(
    "code",
    [
        "from lancewal_reader import open_table",
        "import lancewal_core.errors",
        "from lancewal import LancewalTable",
        "from lancewal._lazy import names_of",
        "import lancewal\nlancewal.nothing()",
    ],
)
def test_what_is_private_is_seen(code: str) -> None:
    assert list(private_imports(f"text\n\n```python\n{code}\n```\n"))


def test_what_is_public_passes() -> None:
    code = "import lancewal.spark\nfrom lancewal import open_table\nfrom lancewal.errors import Retry\nlancewal.spark"
    assert list(private_imports(f"```python\n{code}\n```\n")) == []
