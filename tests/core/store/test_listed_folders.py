"""Azure with a hierarchical namespace: its listings of blobs show folders too, also those that are empty.

The server is Azurite (azure), whose listings a proxy completes as Microsoft documents them for such accounts: each
folder on the way to a blob is an entry of the type ``directory`` with no bytes, and so are folders that are left over.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import lance
import pyarrow as pa
import pytest

from lancewal_core.store.obstore import open_store
from lancewal_core.table.lance.table import LanceTable
from lancewal_demo.stack.clouds import AzureServer
from tests.support.forwarding import Forwarding
from tests.support.served import served

_BLOB = re.compile(rb"<Blob>.*?</Blob>", re.DOTALL)
_NAME = re.compile(rb"<Name>(.*?)</Name>")
_FOLDER = (
    b"<Blob><Name>%b</Name><Properties><Last-Modified>Mon, 30 Nov 2026 12:00:00 GMT</Last-Modified><Etag>0x1</Etag>"
    b"<ResourceType>directory</ResourceType><Content-Length>0</Content-Length><Content-Type>text/plain</Content-Type>"
    b"</Properties></Blob>"
)


def with_folders(listing: bytes, left: bytes) -> tuple[bytes, int]:
    """The listing with an entry for each folder, in the order of names; and how many folders there are."""
    blobs = _BLOB.findall(listing)
    names = [found[1] for blob in blobs if (found := _NAME.search(blob))]
    folders = {name[: found.start()] for name in (*names, left) for found in re.finditer(rb"/", name)}
    entries = sorted([*zip(names, blobs, strict=True), *((name, _FOLDER % name) for name in folders)])
    start, end = listing.index(b"<Blobs>") + 7, listing.index(b"</Blobs>")
    return listing[:start] + b"".join(entry for _, entry in entries) + listing[end:], len(folders)


@pytest.fixture
def hierarchical(azure: AzureServer, tmp_path: Path) -> Iterator[tuple[str, list[int]]]:
    """The endpoint of the proxy, and how many folders each listing showed."""
    shown: list[int] = []

    class Proxy(Forwarding):
        def serve(self, body: bytes) -> None:
            def changed(answer: bytes) -> bytes:
                if "comp=list" not in self.path or "delimiter" in self.path or b"<Blobs>" not in answer:
                    return answer
                listing, folders = with_folders(answer, f"{tmp_path.name}/left/over/".encode())
                shown.append(folders)
                return listing

            self.pass_on(azure.endpoint, body, changed=changed)

    with served(Proxy) as address:
        yield f"{address}/{azure.account}", shown


def test_folders_are_no_objects(azure: AzureServer, hierarchical: tuple[str, list[int]], tmp_path: Path) -> None:
    endpoint, shown = hierarchical
    options = {**azure.options, "azure_storage_endpoint": endpoint}
    uri = f"az://{azure.container('folders')}/{tmp_path.name}"
    store = open_store(uri, options)
    for key in ("a/b/one", "a/b-two", "a/c/d/three"):
        store.put_if_absent(key, b"1")
    assert [info.key for info in store.list("a/")] == ["a/b-two", "a/b/one", "a/c/d/three"]
    assert [info.key for info in store.list("a/", after="a/b/one", limit=1)] == ["a/c/d/three"]
    assert list(store.list("left/")) == []
    store.delete(["a/b/one"])
    assert list(store.list("a/b/")) == []
    assert store.get("a/b/one") is None
    for mode in ("create", "append", "append"):
        lance.write_dataset(pa.table({"id": [1]}), f"{uri}/t", mode=mode, storage_options=options)
    assert LanceTable(f"{uri}/t", options).newest().version == 3
    assert lance.dataset(f"{uri}/t", storage_options=options).to_table().num_rows == 3
    assert [version["version"] for version in lance.dataset(f"{uri}/t", storage_options=options).versions()] == [
        1,
        2,
        3,
    ]
    assert max(shown) > 3
