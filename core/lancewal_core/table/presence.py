"""Checks that a table is still at its place.  A service stops with an error of its own if the table was deleted
(``TableMissing``), or if another table was made at its place (``TableReplaced``).

Version 1 of the contract shows both.  Nobody changes it, and only the deletion of the table removes it.
"""

from __future__ import annotations

from contextlib import suppress

from lancewal_core.errors import Corrupt, LancewalError, StoreInconsistent, TableMissing, TableReplaced
from lancewal_core.names import paths
from lancewal_core.store.object_store import ObjectStore
from lancewal_core.store.versioned import FIRST_VERSION
from lancewal_core.table.contract import Contract, decode_contract


def check_present(store: ObjectStore, contract: Contract) -> None:
    """Raise ``TableMissing`` if the table was deleted, and ``TableReplaced`` if another one was made at its place
    since.

    This costs one request while the table is there.  If no error is raised, objects that were listed before this call
    are the table's own, since a deleted version 1 never comes back.  A damaged version 1 counts as present: code that
    reads the contract reports the damage.  Raise ``StoreInconsistent`` if a listing shows version 1, but the store
    does not give it.
    """
    key, ours = paths.contract_version(FIRST_VERSION, None), contract.making
    data = store.get(key)
    if data is not None:
        try:
            making = decode_contract(data, key).making
        except Corrupt:
            return
        if making != ours:
            raise TableReplaced(
                f"another table was made at {contract.place or 'the place of this table'}: {key} does not belong to the "
                "table that this process works on. Start the process again to work on the new table",
                object=key,
            )
        return
    if ours is None and store.get(paths.contract_version(contract.version, None)) is not None:
        return  # a contract without a making whose version 1 was deleted, while later versions are there
    if any(info.key == key for info in store.list(paths.contract_prefix(None))):
        raise StoreInconsistent(f"the store lists {key!r}, but has no such object when it is read", object=key)
    raise TableMissing(
        f"the table at {contract.place or 'this address'} was deleted while this process worked on it: {key} is gone. Nothing "
        "more is written. Bring the table's objects back, from a backup or the store's own versions. If it lies elsewhere "
        "now, set table.uri to that address and run `lancewal table moved`. With a catalog, run `lancewal catalog register` "
        "then",
        object=key,
    )


class Presence:
    """Memory of a process of whether its table was deleted or replaced.  ``look`` asks the store, and ``check``
    raises the error that ``look`` found.  Threads may share this.

    Once ``look`` has found an error, ``check`` always raises one, whatever lies at the table's place later."""

    def __init__(self, store: ObjectStore, contract: Contract) -> None:
        self._store, self._contract = store, contract
        self._gone: TableMissing | TableReplaced | None = None

    def look(self) -> None:
        """Ask the store whether the table is still there, and keep the answer for ``check``.

        This costs one request while the table is there.  Only errors of the store are raised."""
        try:
            check_present(self._store, self._contract)
        except (TableMissing, TableReplaced) as error:
            self._gone = error

    @property
    def gone(self) -> bool:
        """Whether ``check`` raises an error."""
        return self._gone is not None

    def look_again(self) -> None:
        """Do as ``look`` does, but raise no error of lancewal.  For use after an error that ends the work.

        That error may come from a table that is being deleted: its remains look like damage, or like another table."""
        with suppress(LancewalError):
            self.look()

    def check(self) -> None:
        """Raise the ``TableMissing`` or ``TableReplaced`` that ``look`` has found, if any."""
        if self._gone is not None:
            raise self._gone
