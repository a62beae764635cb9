"""The work of a compaction on one group of fragments, as a pure value: rewrite their live rows.

A task pickles: a thread or a Spark executor runs it with nothing but the table.  Running it twice is harmless.  The
task reads one version of the table, which never changes.  It writes data files of new names, which only a commit
makes effective.  No version names files written in vain; Lance's clean-up removes them
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
