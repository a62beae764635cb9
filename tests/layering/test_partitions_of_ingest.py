"""Ingest knows a partition as a ``Region``: the numbers of two topics meet in one process.

No annotation of the package names a partition as an ``int``: no parameter, field or variable called so, no function whose
name says that it returns one, and no mapping or set by number outside decoding, where records have places.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

import pytest

from tests.layering.source import modules

ALLOWED = {
    # Kafka's client, and how many partitions it is told of.
    "lancewal_ingest.kafka.consumer",
    # Command lines and their output.
    "lancewal_ingest.commands.dead_letter",
    "lancewal_ingest.commands.offset",
    "lancewal_ingest.commands.topic_sample",
    "lancewal_ingest.commands.proposals.connector_topic",
    "lancewal_ingest.commands.proposals.sampled_records",
}
PLACES = ("lancewal_ingest.decode", "lancewal_ingest.envelopes", "lancewal_ingest.kafka.letter_reader")
"""By the place of a record in a batch, or by its number among letters."""
NAMED = re.compile(r"(^|_)partitions?$")
INT = re.compile(r"\bint\b")
BY_NUMBER = re.compile(
    r"\b([dD]ict|Mapping|MutableMapping|Counter|defaultdict)\[int\b|\b([sS]et|frozenset|Container|Collection|Iterable)\[int\b"
    r"|Callable\[\[int\b"
)


def numbered(source: str, *, by_place: bool = False) -> Iterator[int]:
    """Lines at which a partition is a number."""
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.arg(arg=name, annotation=ast.expr() as annotation):
                pass
            case ast.AnnAssign(target=ast.Name(id=name) | ast.Attribute(attr=name), annotation=annotation):
                pass
            case ast.FunctionDef(name=name, returns=ast.expr() as annotation):
                pass
            case ast.Assign(value=ast.Subscript() as annotation):  # an alias of a type, perhaps
                name = ""
            case _:
                continue
        written = ast.unparse(annotation)
        if (NAMED.search(name) and INT.search(written)) or (not by_place and BY_NUMBER.search(written)):
            yield node.lineno


def test_a_partition_is_a_region() -> None:
    found = [
        f"{module}:{line}"
        for module, file in modules("lancewal_ingest").items()
        if module not in ALLOWED
        for line in numbered(file.read_text(encoding="utf-8"), by_place=module.startswith(PLACES))
    ]
    assert found == [], "a Region has the topic too"


def test_what_is_allowed_is_needed() -> None:
    files = modules("lancewal_ingest")
    assert {name for name in ALLOWED if not any(numbered(files[name].read_text(encoding="utf-8")))} == set()


@pytest.mark.parametrize(
    ("source", "lines"),
    [
        ("def stop(partition: int) -> None: ...", [1]),
        ("def pause(partitions: Sequence[int]) -> None: ...", [1]),
        ("def first_partition() -> int | None: ...", [1]),
        (
            "class A:\n    partition: int\n    def __init__(self) -> None:\n        self.open: dict[int, str] = {}",
            [2, 4],
        ),
        ("def durable() -> Mapping[int, Position]: ...", [1]),
        ("Ask = Callable[[Collection[int]], Offsets]", [1]),
        ("def pause(offsets: Callable[[int], Offsets]) -> None: ...", [1]),
        ("def stop(region: Region, rows: int) -> dict[Region, int]: ...", []),
        ("def decode(offsets: Sequence[int]) -> list[int]: ...", []),
    ],
)
def test_what_is_found(source: str, lines: list[int]) -> None:
    assert sorted(set(numbered(source))) == lines


def test_places_of_records_are_numbers() -> None:
    assert not any(numbered("rejected: dict[int, Rejected] = {}", by_place=True))
    assert any(numbered("def decode(partition: int) -> None: ...", by_place=True))
