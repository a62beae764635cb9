"""The first key form of a table: ingest takes it from the first good record, before any entry that needs it.

A *key form* identifies the schema of a record key, and says whether the key or a header tells it
(``record_keys.key_form``).  The contract of a table whose keys have schemas begins without a form
(``Contract.key_forms``).

Guarantees
 1. An entry with a row whose key has a form names a version of the contract that lists the form.
 2. If members meet different forms first, one of them writes the version with its form.  The others follow this
    version, and stop their partitions before records of another form.
 3. Ingest adds no further form.  A person does, by ``lancewal table alter --key-form``.
 4. Ingest takes a form only from a record that has no other reason to stop its partition.  Therefore the record's key
    can be decoded, is the key of its row, and belongs in its partition.  No record before it stops the partition.

Steps
 1. Put the next version of the contract with the form, if the version by which the records were decoded is the newest.
    If the process dies after this step, the partition's next owner finds the form in the contract.
 2. Return the newest version, by which the records are decoded again.
"""

from __future__ import annotations

from lancewal_core.record_keys.key_form import KeyForm
from lancewal_core.table.contract import Contract, change_contract
from lancewal_ingest.append.newer_contract import contract_to_take_up
from lancewal_ingest.context import IngestContext


def with_first_form(context: IngestContext, contract: Contract, form: KeyForm) -> Contract | None:
    """Add the first key form to the contract, and return the newest version (module steps).  None if ``contract`` lists
    a form already, or if the newest version has changes that a running process cannot follow.
    """
    if contract.key_forms:
        return None
    new = contract.model_copy(update={"version": contract.version + 1, "format": 2, "key_forms": (form,)})
    # Step 1
    change_contract(context.store, context.clock, contract, lambda newest: new if newest == contract else None)
    # Step 2
    return contract_to_take_up(context.store, contract, context.group)
