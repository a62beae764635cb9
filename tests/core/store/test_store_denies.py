"""A store that denies a request (expired credentials, a revoked right): the error is ours, is tried again, and names the
object."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pyarrow as pa
import pytest
from lance.fragment import write_fragments

from lancewal_core.errors import ASKS_FOR_A_PERSON, StoreRefused, StoreUnavailable
from lancewal_core.store.object_store import ObjectStore, PutUnknown, Unknown, put_new, put_once
from lancewal_core.store.obstore import open_store
from lancewal_core.store.refusal import refusal
from lancewal_core.table.lance.errors import write_error
from lancewal_core.table.lance.table import LanceTable
from tests.core.store.test_refusal import refusing
from tests.support.small_s3.server import options_of

URI = "s3://bucket/table"


@pytest.fixture(
    params=[(401, "x"), (403, "x"), (403, "AccessDenied"), (404, "NoSuchBucket"), (400, "ExpiredToken")], ids=str
)
def options(request: pytest.FixtureRequest) -> Iterator[dict[str, str]]:
    status, code = request.param
    with refusing(status, code, "no") as endpoint:
        yield {**options_of(0), "aws_endpoint": endpoint}


@pytest.fixture
def store(options: dict[str, str]) -> ObjectStore:
    return open_store(URI, options)


@pytest.mark.parametrize(
    "act",
    [
        lambda store: store.get("some/object"),
        lambda store: store.get_range("some/object", 0, 1),
        lambda store: store.list("some/object/"),
        lambda store: store.delete(["some/object"]),
        lambda store: put_new(store, "some/object", b"1"),
    ],
)
def test_it_is_refused(store: ObjectStore, act: Callable[[ObjectStore], object]) -> None:
    with pytest.raises(StoreRefused, match="some/object") as raised:
        act(store)
    assert (raised.value.kind, raised.value.exit_code) == ("store_refused", ASKS_FOR_A_PERSON)
    assert isinstance(raised.value, StoreUnavailable)  # services try again


def test_a_put_has_no_verdict(store: ObjectStore) -> None:
    assert isinstance(store.put_if_absent("some/object", b"1"), PutUnknown)
    assert isinstance(put_once(store, "some/object", b"1"), Unknown)


@pytest.mark.parametrize("options", [(403, "x"), (404, "NoSuchBucket")], indirect=True, ids=str)
def test_lance_is_refused_alike(options: dict[str, str]) -> None:
    table = LanceTable(URI, options)
    with pytest.raises(StoreRefused, match=URI):
        table.newest()
    with pytest.raises(OSError, match="LanceError") as raised:
        write_fragments(pa.table({"id": [1]}), URI, storage_options=options)
    assert isinstance(write_error(raised.value, "writing"), StoreRefused)


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("Unable to open file /t/x: Permission denied (os error 13)", StoreRefused),
        ("Unable to create file /t/x: Read-only file system (os error 30)", StoreRefused),
        ("PermissionError: Operation not permitted", StoreRefused),
        ("OSError: Read-only file system", StoreRefused),
        ("OSError: No space left on device", StoreUnavailable),
        ("No space left on device (os error 28)", StoreUnavailable),
        ("Server returned non-2xx status code: 503 Service Unavailable: <Code>SlowDown</Code>", StoreUnavailable),
        ("Error performing GET http://127.0.0.1:1403/403 - error sending request", StoreUnavailable),
        ("operation timed out", StoreUnavailable),
    ],
)
def test_what_is_a_refusal(text: str, error: type[StoreUnavailable]) -> None:
    assert refusal(text) is error
