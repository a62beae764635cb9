"""``lancewal ingest run`` for values whose fields have types beside them, as formats with schemas have them.

With ``DIES_AT=before:N`` or ``after:N`` the process kills itself at its N-th commit of columns.
"""

from __future__ import annotations

import itertools
import os
import signal

from lancewal_core.rows.column_types import parse_type
from lancewal_core.rows.schema import RowSchema
from lancewal_core.table.lance.table import LanceTable
from lancewal_core.table.protocol import ColumnsCommit, CommitOutcome
from lancewal_ingest.append import prepare
from lancewal_ingest.commands.ingest import app
from lancewal_ingest.decode.naming import PLAIN, Naming
from lancewal_ingest.decode.value_decoder import ValueDecoder
from tests.support.format_with_schemas import DIES_AT, TYPES, WithSchemas, known_by_name

__all__ = ["app"]


def _dying(where: str) -> None:
    when, _, number = where.partition(":")
    commits, commit = itertools.count(1), LanceTable.change_columns

    def change_columns(table: LanceTable, asked: ColumnsCommit) -> CommitOutcome:
        last = next(commits) == int(number)
        if last and when == "before":
            os.kill(os.getpid(), signal.SIGKILL)
        outcome = commit(table, asked)
        if last:
            os.kill(os.getpid(), signal.SIGKILL)
        return outcome

    LanceTable.change_columns = change_columns  # type: ignore[assignment, method-assign] # of this process


def _become() -> None:
    read = known_by_name({name: parse_type(type_) for name, type_ in TYPES.items()})

    def value_decoder(_: str, rows: RowSchema, naming: Naming = PLAIN, *more: object) -> ValueDecoder:
        return WithSchemas(read, rows, naming)

    vars(prepare)["value_decoder"] = value_decoder
    if where := os.environ.get(DIES_AT):
        _dying(where)


_become()
