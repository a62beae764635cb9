"""The project's Python as source: its packages, what each may import, and what each module imports.

Imports inside functions count as lazy, those under ``if TYPE_CHECKING`` not at all for the rules about loading.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True, slots=True)
class Rule:
    """``folder`` holds the package; ``ours`` are the other packages of the project that it may import.

    ``never`` must not be imported at all, ``lazily`` only inside functions.
    """

    folder: str
    ours: frozenset[str]
    never: frozenset[str] = field(default=frozenset())
    lazily: frozenset[str] = field(default=frozenset())


CORE = frozenset({"lancewal_core"})
KAFKA = "confluent_kafka"
SPARK = "pyspark"
SERVICES = frozenset({"lancewal_ingest", "lancewal_flusher", "lancewal_reader"})
PARTS = SERVICES | {"lancewal_tables", "lancewal_audit", "lancewal_demo"}
RULES = {
    # What is public is found here, and loaded when it is used: any part may be missing.
    "lancewal": Rule("api", CORE | PARTS, never=frozenset({KAFKA, SPARK}), lazily=PARTS),
    "lancewal_core": Rule("core", frozenset(), never=frozenset({KAFKA, SPARK})),
    # Clients, topics, records: what is asked of Kafka is asked here, but for ingest's group member and its dead letters.
    "lancewal_kafka": Rule("kafka", CORE, never=frozenset({SPARK})),
    "lancewal_ingest": Rule("ingest", CORE | {"lancewal_kafka"}, never=frozenset({SPARK})),
    # Merging on Spark is a choice: the flusher runs where it is not installed, nor a client of Kafka.  Its sight of when
    # rows become visible is that of strong reads.
    "lancewal_flusher": Rule(
        "flusher",
        CORE | {"lancewal_kafka", "lancewal_reader"},
        never=frozenset({KAFKA}),
        lazily=frozenset({SPARK, "lancewal_kafka", "lancewal_reader"}),
    ),
    # A token may be made from a topic's ends; nothing else of a reader asks brokers.
    "lancewal_reader": Rule(
        "reader", CORE | {"lancewal_kafka"}, never=frozenset({KAFKA}), lazily=frozenset({"lancewal_kafka"})
    ),
    "pyspark_lancewal": Rule("reader", CORE | {"lancewal_reader"}, never=frozenset({KAFKA, "lance"})),
    # Only some commands ask brokers.  A named snapshot is a read that is kept: the reader makes its plan.
    "lancewal_tables": Rule(
        "tables",
        # The default of a column is a record's value, by the rules of ingest.
        CORE | {"lancewal_kafka", "lancewal_flusher", "lancewal_reader", "lancewal_ingest"},
        never=frozenset({KAFKA}),
        lazily=frozenset({SPARK, "lancewal_kafka", "lancewal_reader", "lancewal_ingest"}),
    ),
    # Verifying and repairing compare what the other parts make of the same records.
    "lancewal_audit": Rule(
        "audit", CORE | {"lancewal_kafka", "lancewal_ingest", "lancewal_reader"}, never=frozenset({SPARK, KAFKA})
    ),
    # The demonstration runs the services as processes and reads with the library, as a user does.
    "lancewal_demo": Rule("demo", CORE | {"lancewal_reader"}, lazily=frozenset({KAFKA, SPARK})),
}


@dataclass(frozen=True, slots=True)
class Import:
    """One imported module; ``lazy``: inside a function; ``typing``: under ``if TYPE_CHECKING``."""

    module: str
    line: int
    lazy: bool
    typing: bool

    @property
    def top(self) -> str:
        return self.module.partition(".")[0]


def imports(source: str, package: str) -> Iterator[Import]:
    """All imports of a module in ``package``; ``from a import b`` gives both ``a`` and ``a.b``."""
    pending: list[tuple[ast.AST, bool, bool]] = [(ast.parse(source), False, False)]
    while pending:
        node, lazy, typing = pending.pop()
        match node:
            case ast.Import(names=names):
                yield from (Import(name.name, node.lineno, lazy, typing) for name in names)
            case ast.ImportFrom(module=module, names=names, level=level):
                parents = package.split(".")[: len(package.split(".")) - level + 1] if level else []
                base = ".".join([*parents, *([module] if module else [])])
                yield Import(base, node.lineno, lazy, typing)
                yield from (Import(f"{base}.{name.name}", node.lineno, lazy, typing) for name in names)
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.Lambda():
                pending += [(child, True, typing) for child in ast.iter_child_nodes(node)]
            case ast.If(test=ast.Name(id="TYPE_CHECKING") | ast.Attribute(attr="TYPE_CHECKING"), body=body):
                pending += [(child, lazy, True) for child in body]
                pending += [(child, lazy, typing) for child in node.orelse]
            case _:
                pending += [(child, lazy, typing) for child in ast.iter_child_nodes(node)]


def modules(package: str) -> dict[str, Path]:
    """Dotted name -> file, for each module of a package; empty if the package is not there."""
    folder = ROOT / RULES[package].folder
    found = {}
    for file in sorted((folder / package).rglob("*.py")):
        parts = file.relative_to(folder).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = file
    return found


def imports_of(module: str, file: Path) -> list[Import]:
    package = module if file.name == "__init__.py" else module.rpartition(".")[0]
    return list(imports(file.read_text(), package))
