"""Whether a table is still at its place: services stop by name if it was deleted, or if another one was made there.

Version 1 of the contract tells both.  Nobody changes it, and only the deletion of the table removes it.
"""

from __future__ import annotations

from contextlib import suppress

from lancewal_core.errors import Corrupt, LancewalError, StoreInconsistent, TableMissing, TableReplaced
from lancewal_core.names import paths
from lancewal_core.store.object_store import ObjectStore
from lancewal_core.store.versioned import FIRST_VERSION
from lancewal_core.table.contract import Contract, decode_contract


def check_present(store: ObjectStore, contract: Contract) -> None:
    """Raise ``TableMissing`` if the table was deleted, and ``TableReplaced`` if another one was made at its place since.

    This costs one request while the table is there.  Objects that were listed before are the table's own, since version 1
    of its contract never comes back.  A damaged version 1 counts as there: whoever reads the contract names the damage.
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
        raise StoreInconsistent(f"the store lists {key}, and gives no such object", object=key)
    raise TableMissing(
        f"the table at {contract.place or 'this address'} was deleted while this process worked on it: {key} is gone. Nothing "
        "more is written. Bring the table's objects back, from a backup or the store's own versions. If it lies elsewhere "
        "now, register it there (`lancewal catalog register`)",
        object=key,
    )


class Presence:
    """Whether a table is at its place: ``look`` asks the store, and ``check`` raises what it found.  Threads may share this.

    A deleted table stays deleted for this process, whatever lies at its place later."""

    def __init__(self, store: ObjectStore, contract: Contract) -> None:
        self._store, self._contract = store, contract
        self._gone: TableMissing | TableReplaced | None = None

    def look(self) -> None:
        """Ask the store, with one request, whether the table still exists.  Errors of the store are raised."""
        try:
            check_present(self._store, self._contract)
        except (TableMissing, TableReplaced) as error:
            self._gone = error

    @property
    def gone(self) -> bool:
        """Whether ``check`` raises an error."""
        return self._gone is not None

    def look_again(self) -> None:
        """Look as ``look`` does, after an error that ends the work.  Errors of the store are passed over.

        While a folder is being deleted, what is left of it looks like damage, or like another table."""
        with suppress(LancewalError):
            self.look()

    def check(self) -> None:
        """Raise ``TableMissing`` or ``TableReplaced`` if ``look`` has met that."""
        if self._gone is not None:
            raise self._gone
