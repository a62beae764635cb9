"""Proof that a table's store keeps *put if absent*.  It is made once for each way to the store, and tested again at
every start of a service.

A *way* is how a process reaches the store: endpoint, bucket and form of address.  A gateway may break the promise
that the store behind it keeps, so each way is proven by itself.  The record of a proof lies in the table's folder,
under a key that is a hash of the way.  So a process that reaches the store by another way finds no record.  The same
holds for a copy of the folder at another place.

Guarantees
 1. A record is put only after the whole test (``store_probe``) has passed on its way.  So a process that dies in
    between leaves no record.  A process that may not delete leaves no record that must be removed.
 2. If a record is found, it is put a second time, which the store must refuse.  If the store accepts that put,
    ``StoreUnsafe`` is raised.
 3. If a record is lost, damaged or of another way, only the whole test is repeated.

Steps
 1. Read the record of this way.
 2. If there is a record, put it again if absent.  If the store refuses, it passes.  Most starts end here.
 3. If there is no record, or another one, do the whole test, then put the record.  The outcome of that put does not
    matter: if it failed, the next start does the whole test again.

Rounds of requests to the store (docs/reference/requests.md), as counted: 2 ("what the store promises, at the start of
an ingest").
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import assert_never
from urllib.parse import urlsplit

from lancewal_core.names import paths
from lancewal_core.process.library_errors import way_on
from lancewal_core.process.tasks import Tasks
from lancewal_core.store.address import local_folder, split_address, whole_address
from lancewal_core.store.json_model import StoredVersion, Version1
from lancewal_core.store.object_store import ObjectStore, PutUnknown, Stored, Taken
from lancewal_core.store.refusal import refusal_of_puts
from lancewal_core.store.schemes import SCHEMES, endpoint_of
from lancewal_core.table.proof.store_probe import check_links, check_store, unsafe

_FOLDER = "file"
_HOSTED = ("aws_virtual_hosted_style_request", "virtual_hosted_style_request")


class StoreWay(StoredVersion):
    """How a process reaches the store: endpoint, bucket and addressing."""

    what = "store proof"
    format: Version1 = 1
    endpoint: str
    """Scheme, host and port of the endpoint; empty: the endpoint of the bucket's region.  ``file``: a local folder."""
    bucket: str
    """S3: name of the bucket.  Other object stores: the address up to the bucket, or up to the container with its
    account.  Local folder: its absolute path."""
    addressing: str
    """Form of the bucket's address: ``path`` or ``virtual-hosted``; empty for a local folder."""

    @staticmethod
    def of(uri: str, options: Mapping[str, str] | None, environment: Mapping[str, str]) -> StoreWay:
        """Return the way to the store at ``uri`` with Lance's storage ``options``.  ``environment`` gives options
        that are not in ``options``.
        """
        folder = local_folder(uri)
        if folder is not None:
            return StoreWay(endpoint=_FOLDER, bucket=str(folder), addressing="")
        said = {name.lower(): value for name, value in (*environment.items(), *(options or {}).items())}
        parts = split_address(whole_address(uri, options, environment))
        endpoint = urlsplit(endpoint_of(SCHEMES[parts.scheme], said))
        host = endpoint.netloc.rpartition("@")[2]  # user information goes nowhere
        hosted = any(said.get(name, "").lower() == "true" for name in _HOSTED)
        return StoreWay(
            endpoint=f"{endpoint.scheme}://{host}" if host else "",
            bucket=parts.netloc if parts.scheme == "s3" else f"{parts.scheme}://{parts.netloc}",
            addressing="virtual-hosted" if hosted else "path",
        )

    @property
    def key(self) -> str:
        return paths.store_proof(hashlib.sha256(self.encode()).hexdigest())


def check_way(way: StoreWay, name: str) -> None:
    """Do the checks that send no request: ``check_links`` for a local folder.  ``name``: a new id."""
    if way.endpoint == _FOLDER:
        check_links(Path(way.bucket), name)


def prove_store(store: ObjectStore, tasks: Tasks, way: StoreWay, uri: str, new_id: Callable[[], str]) -> None:
    """Prove a store by steps 1 to 3 of the module docstring.  Raise the errors of ``check_store`` and
    ``check_links``."""
    check_way(way, new_id())
    record = way.encode()
    # Step 1
    if store.get(way.key) == record:
        # Step 2
        outcome = store.put_if_absent(way.key, record)
        match outcome:
            case Taken():
                return
            case Stored():
                raise unsafe(uri, way.key, "replaced the object that proves it sound")
            case PutUnknown(cause=cause):
                raise refusal_of_puts(cause)(
                    f"the store at {uri} gave no answer to a put: {cause}. {way_on(cause, 'Try again')}", object=way.key
                )
            case _:
                assert_never(outcome)
    # Step 3
    check_store(store, tasks, uri, new_id)
    store.put_if_absent(way.key, record)
