"""Tests whether a store keeps the promise that the protocol is built on, before anything depends on it
(``store_proof``).

The promise is *put if absent*.  If several writers put one key at the same time, exactly one of them makes the
object.  The object stays as that writer made it.  A store that ignores the condition, or checks first and writes
later, loses rows without an error.

Guarantees
 1. ``StoreUnsafe`` is raised if the store let two writers make one object, replaced an object, or does not show what
    it stored.  A store that breaks the promise only sometimes may pass.  So the test finds stores that do not keep
    the promise, but does not prove that a store always keeps it.
 2. If the store accepts no object at all, the error has the store's own message.  ``StoreRefused``: the store denies
    access.  ``StoreNotWritable``: something else lies in place of a folder.  ``StoreUnavailable``: another reason,
    which may pass.
 3. ``StoreUnsafe`` is raised if a local folder lies on a file system without hard links, since no put can make an
    object there.
 4. If this process may delete objects, none is left.  Otherwise the objects of the test stay, each under a key of its
    own.

Steps
 1. Several rounds, each with a key of its own: ``WRITERS`` threads put different bytes at once.  At most one may win.
 2. Read the object.  It must have the bytes of the writer that won.  If no writer got an answer, it must have the
    bytes of one of them.
 3. Put the key once more with other bytes.  The store must refuse, and the object must stay as it is.
 4. Delete the objects of the test.
"""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Callable
from pathlib import Path

from lancewal_core.errors import StoreUnavailable, StoreUnsafe
from lancewal_core.names import paths
from lancewal_core.process.library_errors import way_on
from lancewal_core.process.tasks import Tasks
from lancewal_core.store.folder import opened_folder
from lancewal_core.store.object_store import ObjectStore, PutOutcome, PutUnknown, Stored
from lancewal_core.store.refusal import refusal_of_puts

WRITERS = 8
ROUNDS = 4
"""Number of rounds.  A store that breaks the promise in every second round passes one in sixteen tests.  Each round
takes the time of four requests."""
_LATE = b"late"
_NO_LINKS = frozenset({errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK})
"""Error numbers of ``link`` on a file system without hard links."""


def _race(store: ObjectStore, tasks: Tasks, uri: str, key: str) -> PutUnknown | None:
    """Do steps 1 to 3 of the module docstring with one key.  Return the reason why no object was stored; None if one
    was."""
    contents = [b"probe %d" % writer for writer in range(WRITERS)]
    # Step 1
    outcomes = tasks.map(lambda data: store.put_if_absent(key, data), contents)
    winners = [data for data, outcome in zip(contents, outcomes, strict=True) if outcome == Stored()]
    if len(winners) > 1:
        raise unsafe(uri, key, f"let {len(winners)} of {WRITERS} writers create the same object")
    # Step 2
    found = store.get(key)
    if found is None:
        if winners:
            raise unsafe(uri, key, "does not show an object that it has just stored")
        return next((outcome for outcome in outcomes if isinstance(outcome, PutUnknown)), PutUnknown("refused"))
    if found not in (winners or contents):
        raise unsafe(uri, key, "shows other bytes than those of the writer whose put it confirmed")
    # Step 3
    late: PutOutcome = store.put_if_absent(key, _LATE)
    if late == Stored() or store.get(key) != found:
        raise unsafe(uri, key, "replaced an object that was there")
    return None


def unsafe(uri: str, key: str, what: str) -> StoreUnsafe:
    """Return the error for the store at ``uri``, which broke the promise with the object ``key``; ``what`` says how."""
    return StoreUnsafe(
        f"the store at {uri} {what}: it does not honour conditional PUT (If-None-Match: *). Without it two "
        "owners could write the same segment, and acknowledged rows would be lost. Use a store that honours it, or switch "
        "it on there. A proxy or gateway on the way may be the cause too",
        object=key,
    )


def check_links(folder: Path, name: str) -> None:
    """Raise ``StoreUnsafe`` if the file system of ``folder`` has no hard links (guarantee 3).

    ``name``: a new id, for the file that is made.  Other faults are passed over, since they show when objects are
    put."""
    *folders, whole = paths.probe(name).split("/")
    linked = f"{whole}-link"
    try:
        with opened_folder(folder, folders, make=True) as parent:
            os.close(os.open(whole, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666, dir_fd=parent))
            try:
                os.link(whole, linked, src_dir_fd=parent, dst_dir_fd=parent, follow_symlinks=False)
            finally:
                for made in (linked, whole):
                    with contextlib.suppress(OSError):
                        os.unlink(made, dir_fd=parent)
    except (OSError, StoreUnavailable) as error:
        if not isinstance(error, OSError) or error.errno not in _NO_LINKS:
            return
        raise StoreUnsafe(
            f"the file system of {folder} has no hard links ({error.strerror}): without them no object can be made that "
            "nobody replaces. SMB, exFAT and many FUSE volumes are such file systems. Put the table on a local disk with "
            "ext4, XFS or Btrfs, or on an S3 store",
            object=paths.probe(name),
        ) from error


def check_store(
    store: ObjectStore, tasks: Tasks, uri: str, new_id: Callable[[], str], rounds: int | None = None
) -> None:
    """Test a store by steps 1 to 4 of the module docstring, whose guarantees name the errors.

    ``StoreUnavailable`` is also raised if the store accepts objects and then does not return them.  ``rounds``: their
    number; None: ``ROUNDS``."""
    keys = [paths.probe(new_id()) for _ in range(rounds or ROUNDS)]
    try:
        silent = [_race(store, tasks, uri, key) for key in keys]
    finally:
        # Step 4
        with contextlib.suppress(StoreUnavailable):  # ingest deletes nothing else, and may not be allowed to
            store.delete(keys)
    causes = [reason.cause for reason in silent if reason is not None]
    if len(causes) == len(keys):
        check = f"Check storage.options, the credentials, and their right to put objects under {paths.ROOT}"
        raise refusal_of_puts(causes[0])(
            f"the store at {uri} took no object: {causes[0]}. {way_on(causes[0], check)}",
            object=keys[0],
        )
