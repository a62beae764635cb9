"""A store is checked once for each way to it; each start sees it refuse one put, and notices one that has stopped to."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path

import pytest

from lancewal_core.errors import StoreRefused, StoreUnavailable, StoreUnsafe
from lancewal_core.process.clock import SystemClock
from lancewal_core.process.tasks import ThreadTasks
from lancewal_core.store.object_store import PutOutcome, PutUnknown, Stored
from lancewal_core.store.obstore import open_store
from lancewal_core.table.proof.store_probe import ROUNDS, WRITERS
from lancewal_core.table.proof.store_proof import StoreWay, prove_store
from tests.support.store_addresses import REAL, at_real_server
from tests.twins.memory_store import MemoryStore

WAY = StoreWay(endpoint="https://store", bucket="bucket", addressing="path")


class Watched(MemoryStore):
    """Counts puts; ``careless`` ignores the condition."""

    def __init__(self) -> None:
        super().__init__(SystemClock())
        self.asked: list[str] = []
        self.careless = False
        self.answer: PutUnknown | None = None

    def get(self, key: str) -> bytes | None:
        self.asked.append(f"GET {key}")
        return super().get(key)

    def put_if_absent(self, key: str, data: bytes) -> PutOutcome:
        self.asked.append(f"PUT {key}")
        if self.answer is not None:
            return self.answer
        if self.careless:
            self.bucket.delete(key)
            super().put_if_absent(key, data)
            return Stored()
        return super().put_if_absent(key, data)


@pytest.fixture
def prove() -> Iterator[Callable[..., None]]:
    names = count()
    tasks = ThreadTasks()
    yield lambda store, way=WAY: prove_store(store, tasks, way, "the-store", lambda: f"{next(names):032x}")
    tasks.close()


@pytest.fixture
def no_links(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """``link`` fails from then on, as on SMB."""

    def fail(code: int) -> None:
        def link(*_: object, **__: object) -> None:
            raise OSError(code, os.strerror(code))

        monkeypatch.setattr(os, "link", link)

    return fail


def test_the_whole_check_is_made_once_and_each_start_behind_it_asks_two_things(prove: Callable[..., None]) -> None:
    store = Watched()
    prove(store)
    assert sum(asked.startswith("PUT _lancewal/probe/") for asked in store.asked) == ROUNDS * (WRITERS + 1)
    assert store.asked[-1] == f"PUT {WAY.key}"
    for _ in range(2):
        store.asked.clear()
        prove(store)
        assert store.asked == [f"GET {WAY.key}", f"PUT {WAY.key}"]
    assert [info.key for info in store.list("")] == [WAY.key]


@pytest.mark.parametrize(
    "other",
    [
        WAY.model_copy(update={"endpoint": "http://gateway:9000"}),
        WAY.model_copy(update={"bucket": "other"}),
        WAY.model_copy(update={"addressing": "virtual-hosted"}),
    ],
    ids=lambda way: f"{way.endpoint} {way.bucket} {way.addressing}",
)
def test_another_way_to_the_store_is_proven_by_itself(prove: Callable[..., None], other: StoreWay) -> None:
    store = Watched()
    prove(store)
    store.careless = True  # as a gateway is
    with pytest.raises(StoreUnsafe, match="create the same object"):
        prove(store, other)
    assert store.bucket.get(other.key) is None


def test_a_store_that_has_forgotten_the_condition_is_refused_by_one_put(prove: Callable[..., None]) -> None:
    store = Watched()
    prove(store)
    store.careless = True
    store.asked.clear()
    with pytest.raises(StoreUnsafe, match="the-store replaced the object") as raised:
        prove(store)
    assert len(store.asked) == 2
    assert raised.value.where["object"] == WAY.key


def test_a_store_that_fails_the_check_leaves_no_proof(prove: Callable[..., None]) -> None:
    store = Watched()
    store.careless = True
    for _ in range(2):
        with pytest.raises(StoreUnsafe, match="create the same object"):
            prove(store)
    assert list(store.list("")) == []


def test_a_damaged_proof_costs_the_whole_check(prove: Callable[..., None]) -> None:
    store = Watched()
    store.put_if_absent(WAY.key, b"{}")
    store.asked.clear()
    prove(store)
    assert len(store.asked) > ROUNDS * WRITERS


@pytest.mark.parametrize(
    ("cause", "error"),
    [("403 Forbidden: AccessDenied", StoreRefused), ("503 Service Unavailable", StoreUnavailable)],
)
def test_no_answer_is_none(prove: Callable[..., None], cause: str, error: type[Exception]) -> None:
    store = Watched()
    prove(store)
    store.answer = PutUnknown(cause)
    with pytest.raises(error, match=cause):
        prove(store)


def test_a_folder_is_proven(prove: Callable[..., None], tmp_path: Path) -> None:
    store = open_store(str(tmp_path))
    way = StoreWay.of(str(tmp_path), None, {})
    for _ in range(2):
        prove(store, way)
    assert [info.key for info in store.list("_lancewal/")] == [way.key]


@pytest.mark.parametrize("kind", REAL)  # s3, azure, gcs
def test_a_real_server_is_proven(
    kind: str, request: pytest.FixtureRequest, prove: Callable[..., None], tmp_path: Path
) -> None:
    address, options = at_real_server(request, kind, "proof", tmp_path.name)
    store, way = open_store(address, options), StoreWay.of(address, options, {})
    for _ in range(2):
        prove(store, way)
    assert [info.key for info in store.list("_lancewal/")] == [way.key]


def test_what_a_process_sees_comes_from_options_before_the_environment() -> None:
    environment = {"AWS_ENDPOINT_URL": "http://elsewhere:9000", "AWS_VIRTUAL_HOSTED_STYLE_REQUEST": "true"}
    seen = StoreWay.of("s3://bucket/a/table", None, environment)
    assert seen == StoreWay(endpoint="http://elsewhere:9000", bucket="bucket", addressing="virtual-hosted")
    options = {"AWS_Endpoint": "https://key:secret@store:443/x", "aws_virtual_hosted_style_request": "false"}
    assert StoreWay.of("s3://bucket/t", options, environment).addressing == "path"
    plain = StoreWay.of("s3://bucket/t", options, {})
    assert plain == StoreWay(endpoint="https://store:443", bucket="bucket", addressing="path")
    assert StoreWay.of("s3://bucket/b", None, {}) == StoreWay(endpoint="", bucket="bucket", addressing="path")
    assert StoreWay.of("file:///a/b", {}, environment) == StoreWay(endpoint="file", bucket="/a/b", addressing="")


def test_a_folder_that_is_copied_to_another_account_takes_no_proof_along() -> None:
    def way(uri: str, **options: str) -> StoreWay:
        return StoreWay.of(uri, options, {})

    one = way("az://lake/t", azure_storage_account_name="one")
    assert one == StoreWay(endpoint="", bucket="abfss://lake@one.dfs.core.windows.net", addressing="path")
    assert way("abfss://lake@one.dfs.core.windows.net/t") == one
    others = [
        way("az://lake/t", azure_storage_account_name="two"),
        way("az://lake/t", azure_storage_account_name="one", azure_storage_endpoint="https://private"),
        way("gs://lake/t"),
        way("gs://lake/t", google_base_url="https://private"),
        way("gs://lake/t", google_service_account_key='{"gcs_base_url": "https://other"}'),
        way("s3://lake/t"),
    ]
    assert len({one.key, *(other.key for other in others)}) == 7
    assert StoreWay.of("az://lake/t", None, {"AZURE_STORAGE_ACCOUNT_NAME": "one"}) == one


@pytest.mark.parametrize("code", [errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK])
def test_a_folder_without_hard_links_is_named_at_every_start(
    tmp_path: Path, prove: Callable[..., None], no_links: Callable[[int], None], code: int
) -> None:
    """The second start finds the proof, and asks for a link all the same: another file system may be mounted there."""
    way = StoreWay.of(str(tmp_path), None, {})
    prove(open_store(str(tmp_path)), way)
    before = sorted(tmp_path.rglob("*"))
    no_links(code)
    for _ in range(2):
        with pytest.raises(
            StoreUnsafe, match=r"has no hard links \(.*\): .*Put the table on a local disk with ext4, XFS or"
        ):
            prove(open_store(str(tmp_path)), way)
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize("code", [errno.EIO, errno.ENOSPC, errno.EACCES])
def test_another_error_of_a_link_says_nothing_of_the_file_system(
    tmp_path: Path, prove: Callable[..., None], no_links: Callable[[int], None], code: int
) -> None:
    """The puts, which need links too, say what it is."""
    no_links(code)
    error = StoreRefused if code == errno.EACCES else StoreUnavailable
    with pytest.raises(error, match=f"took no object: .*{os.strerror(code)}"):
        prove(open_store(str(tmp_path)), StoreWay.of(str(tmp_path), None, {}))


def test_a_store_elsewhere_is_asked_for_no_link(prove: Callable[..., None], no_links: Callable[[int], None]) -> None:
    no_links(errno.EPERM)
    prove(Watched())
