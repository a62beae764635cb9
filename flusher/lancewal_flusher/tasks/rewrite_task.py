"""The work of a compaction on one group of fragments, as a pure value: rewrite their live rows.

A task can be pickled.  A thread or a Spark executor needs only the task and the table to run it.  Running a task
twice is harmless.  It reads one version of the table, which never changes.  It writes data files with new names,
which have no effect before a commit.  If a task's files are never committed, Lance's clean-up removes them
(``garbage.unnamed_data_files``).
"""

from __future__ import annotations

from dataclasses import dataclass

from lancewal_core.names.ids import TableVersion
from lancewal_core.process.failpoints import point
from lancewal_core.table.protocol import RewriteBounds, StoredTable


@dataclass(frozen=True, slots=True)
class RewriteTask:
    """Fragments of ``version`` to rewrite into one or a few fragments."""

    version: TableVersion
    fragment_ids: tuple[int, ...]
    bounds: RewriteBounds


Rewritten = tuple[str, ...]
"""Fragments that a task has written, as JSON; empty if no row was left."""


def run_rewrite(table: StoredTable, task: RewriteTask) -> Rewritten:
    """Rewrite the live rows of the task's fragments.  Raises ``VersionGone``, ``RewriteFailed``."""
    with point("fragment.write", fragments=len(task.fragment_ids)):
        return table.rewrite(task.version, task.fragment_ids, task.bounds)
