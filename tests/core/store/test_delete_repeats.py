"""A deletion whose connection ends without an answer is sent once more: the server here is Azurite (azure), and S3's."""

from __future__ import annotations

import contextlib
import os
import socket
import struct

import pytest

from lancewal_core.errors import StoreUnavailable
from lancewal_core.store.obstore import open_store
from tests.support.forwarding import Forwarding
from tests.support.served import served
from tests.support.small_s3.server import SmallS3
from tests.support.store_addresses import at_real_server


@pytest.mark.parametrize("landed", [False, True])
@pytest.mark.parametrize("kind", ["small-s3", pytest.param("az", marks=pytest.mark.az)])
def test_a_connection_that_ends_is_no_failed_deletion(kind: str, landed: bool, request: pytest.FixtureRequest) -> None:
    with SmallS3() as small:
        if kind == "az":
            uri, options = at_real_server(request, "az", "deletes", f"landed-{landed}")
            endpoint = "azure_storage_endpoint"
        else:
            uri, options, endpoint = "s3://bucket/t", dict(small.options), "aws_endpoint"
        upstream, cut = options[endpoint], [1]

        class Cutting(Forwarding):
            def serve(self, body: bytes) -> None:
                if self.command != "POST" or not cut[0]:
                    self.pass_on(upstream, body)
                    return
                cut[0] -= 1
                if landed:
                    self.answer = lambda *_: None  # type: ignore[method-assign] # lost on its way
                    self.pass_on(upstream, body)
                self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                os.close(self.connection.detach())  # resets the connection
                self.close_connection = True

            def finish(self) -> None:
                with contextlib.suppress(OSError, ValueError):
                    super().finish()

        with served(Cutting) as address:
            path = upstream.partition("://")[2].partition("/")[2]
            options[endpoint] = address + (f"/{path}" if path else "")
            store = open_store(uri, options)
            for key in ("one", "two"):
                store.put_if_absent(key, b"1")
            store.delete(["one", "two"])
            assert [info.key for info in store.list("")] == []
            assert cut == [0]
            cut[0] = 2
            store.put_if_absent("one", b"1")
            with pytest.raises(StoreUnavailable, match="could not delete 'one'"):
                store.delete(["one"])
