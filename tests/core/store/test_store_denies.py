"""A store that denies a request (expired credentials, a revoked right): the error is ours, is tried again, and names the
object."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

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
from tests.support.store_addresses import at_server

Place = tuple[str, Mapping[str, str]]


@pytest.fixture(
    params=[
        ("s3", 401, "x"),
        ("s3", 403, "x"),
        ("s3", 403, "AccessDenied"),
        ("s3", 404, "NoSuchBucket"),
        ("s3", 400, "ExpiredToken"),
        ("gs", 401, "x"),
        ("gs", 403, "AccessDenied"),
        ("gs", 404, "NoSuchBucket"),
        ("abfss", 403, "AuthorizationPermissionMismatch"),
        ("abfss", 403, "AuthenticationFailed"),
        ("abfss", 404, "ContainerNotFound"),
    ],
    ids=str,
)
def place(request: pytest.FixtureRequest) -> Iterator[Place]:
    """Address and options of a folder in a store that refuses everything."""
    scheme, status, code = request.param
    with refusing(status, code, "no") as endpoint:
        yield at_server(scheme, endpoint)


@pytest.fixture
def store(place: Place) -> ObjectStore:
    return open_store(*place)


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


@pytest.mark.parametrize(
    "place",
    [
        ("s3", 403, "x"),
        ("s3", 404, "NoSuchBucket"),
        ("gs", 403, "AccessDenied"),
        ("gs", 404, "NoSuchBucket"),
        ("abfss", 403, "AuthorizationFailure"),
        ("abfss", 404, "ContainerNotFound"),
    ],
    indirect=True,
    ids=str,
)
def test_lance_is_refused_alike(place: Place) -> None:
    uri, options = place
    table = LanceTable(uri, dict(options))
    with pytest.raises(StoreRefused, match=uri):
        table.newest()
    with pytest.raises(OSError, match="LanceError") as raised:
        write_fragments(pa.table({"id": [1]}), uri, storage_options=dict(options))
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
