"""Count data files that neither the newest table version nor a waiting flush names.  Only Lance's clean-up deletes
them.

These files belong to older versions of the table, or to flushes, merges and compactions that were never committed.
Only the clean-up, which reads every version, can tell these apart.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from lancewal_core.errors import Corrupt
from lancewal_core.names import paths
from lancewal_core.region.flushes.manifest import read_flush
from lancewal_core.region.history import History
from lancewal_core.region.state import GenerationState
from lancewal_core.table.protocol import files_of
from lancewal_flusher.context import FlusherContext

UNNAMED_AFTER_MS = 24 * 3600 * 1000
"""Age in milliseconds from which on files are counted.  Younger files may belong to a flush or a merge that is being
written."""


@dataclass(frozen=True, slots=True)
class UnnamedFiles:
    """Number and total size of files in ``data/``, older than a day, that neither the newest version nor an unmerged
    flush refers to.
    """

    files: int
    bytes: int


def find_unnamed(context: FlusherContext, histories: Iterable[History], now_ms: int) -> UnnamedFiles | None:
    """Count the files that neither the newest version nor an unmerged flush refers to.  None if an unmerged flush
    cannot be read, because its files are then unknown.
    """
    listed = list(context.store.list(paths.DATA))  # first: what is adopted meanwhile is named below
    waiting = {
        record.flush
        for history in histories
        for record in history.generations
        if record.state is GenerationState.FLUSHED and record.flush is not None
    }
    try:
        flushes = context.tasks.map(lambda key: read_flush(context.store, key), sorted(waiting))
    except Corrupt:
        return None
    named = set(files_of(text for flush in flushes for text in flush.fragments))
    named |= {name for fragment in context.table.newest().fragments() for name in fragment.files}
    unnamed = [
        info.size
        for info in listed
        if info.key.removeprefix(paths.DATA) not in named and now_ms - info.modified_ms >= UNNAMED_AFTER_MS
    ]
    return UnnamedFiles(len(unnamed), sum(unnamed))
