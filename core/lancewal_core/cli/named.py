"""PARTITION and RECORD: the arguments that name the subject of a command, as messages, logs and dead letters print
them.

A partition is ``3`` or ``orders-3``, a record ``orders-3-1841``.  A topic in the name must be the table's.  If it is
another one, the command is about another table than its user means, and does nothing.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Annotated, TypeAlias

import typer

from lancewal_core.errors import InvalidInput

if TYPE_CHECKING:
    from lancewal_core.table.contract import Contract

_PARTITION = re.compile(r"(?:(?P<topic>[a-zA-Z0-9._-]+)-)?(?P<partition>[0-9]{1,9})", re.ASCII)
_RECORD = re.compile(r"(?P<topic>[a-zA-Z0-9._-]+)-(?P<partition>[0-9]{1,9})-(?P<offset>[0-9]{1,18})", re.ASCII)

PartitionArgument: TypeAlias = Annotated[
    str, typer.Argument(metavar="PARTITION", help="The partition: its number, or TOPIC-NUMBER, as messages name it.")
]
RecordArgument: TypeAlias = Annotated[
    str,
    typer.Argument(metavar="RECORD", help="The record: TOPIC-PARTITION-OFFSET, as messages and dead letters name it."),
]


def partition_named(text: str, contract: Contract) -> int:
    """Parse the name of a partition. Raises ``InvalidInput`` if the table has no such partition."""
    found = _PARTITION.fullmatch(text)
    if found is None:
        raise InvalidInput(f"{text[:200]!r} is not a partition: expected its number, or {contract.topic}-NUMBER")
    _check(text, found["topic"], int(found["partition"]), contract)
    return int(found["partition"])


def record_named(text: str, contract: Contract) -> tuple[int, int]:
    """Parse the name of a record, and return its partition and offset. Raises ``InvalidInput`` if the table has no such
    partition.
    """
    found = _RECORD.fullmatch(text)
    if found is None:
        raise InvalidInput(f"{text[:200]!r} is not a record: expected {contract.topic}-PARTITION-OFFSET")
    _check(text, found["topic"], int(found["partition"]), contract)
    return int(found["partition"]), int(found["offset"])


def _check(text: str, topic: str | None, partition: int, contract: Contract) -> None:
    if topic not in (None, contract.topic) or partition >= contract.partitions:
        raise InvalidInput(
            f"{text[:200]!r}: the table has topic {contract.topic} with partitions 0 to {contract.partitions - 1}"
        )
