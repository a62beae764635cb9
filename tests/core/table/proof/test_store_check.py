"""``lancewal store check``: a store that breaks one promise is told by it, and nothing is left behind."""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from uuid import uuid4

import pytest

from lancewal_core.cli.program import run
from lancewal_core.errors import StoreRefused
from lancewal_core.process.tasks import ThreadTasks
from lancewal_core.store.object_store import ObjectInfo, ObjectStore, PutOutcome, Stored
from lancewal_core.store.obstore import ObstoreStore, TableStore, open_store
from lancewal_core.table.proof import store_check, store_probe
from lancewal_core.table.proof.store_check import check_promises
from lancewal_demo.stack.clouds import GcsServer
from tests.core.store.test_refusal import refusing
from tests.support.store_addresses import REAL, at_real_server, at_server, inside

LOST_RACE = 17
"""Number of the key that several writers make."""


class Faulty:
    """A store over a folder, all of whose answers are right but one."""

    def __init__(self, store: TableStore, fault: str) -> None:
        self._store, self._fault = store, fault
        self._put: dict[str, None] = {}

    def get(self, key: str) -> bytes | None:
        found = self._store.get(key)
        return b"other" if found and self._fault == "content" else found

    def get_range(self, key: str, start: int, end: int) -> bytes | None:
        found = self._store.get_range(key, start, end)
        return None if found == b"" and self._fault == "ranges" else found

    def size(self, key: str) -> int | None:
        return self._store.size(key)

    def put_if_absent(self, key: str, data: bytes) -> PutOutcome:
        outcome = self._store.put_if_absent(key, data)
        self._put.setdefault(key)
        lost = self._fault == "a race" and [*self._put].index(key) == LOST_RACE
        return Stored() if lost or self._fault == "winners" else outcome

    def list(self, prefix: str, limit: int | None = None, after: str | None = None) -> Sequence[ObjectInfo]:
        found = self._store.list(prefix, limit, None if self._fault == "after" else after)
        if self._fault == "tags":
            found = [replace(info, etag=(info.etag or "").strip('"') + "x") for info in found]
        return found[:1000] if self._fault == "pages" else found

    def delete(self, keys: Sequence[str]) -> None:
        if self._fault == "deletes" and not self._store.list("missing"):
            return
        self._store.delete(keys)


def kept(store: ObjectStore, folder: Path) -> list[str]:
    """The promises that were broken, each by the words that name it."""
    promises = check_promises(store, str(folder), {}, ThreadTasks(), lambda: uuid4().hex)
    assert len(promises) == 8
    print(promises)
    return [f"{promise.text}: {promise.fault}" for promise in promises if promise.fault is not None]


def test_a_folder_keeps_all_promises(tmp_path: Path) -> None:
    assert kept(open_store(str(tmp_path)), tmp_path) == []
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]


@pytest.mark.parametrize(
    ("fault", "told"),
    [
        ("winners", "one of several writers makes an object"),
        ("a race", "one of several writers makes an object, and it stays: store_unsafe"),
        ("content", "an object reads back as it was put"),
        ("ranges", "a range ends where the object ends"),
        ("pages", "a listing has all keys, in order, and can begin after any of them: it has 1000 of 1010 keys"),
        (
            "after",
            "a listing has all keys, in order, and can begin after any of them: a listing after the sixth key has 1010 keys",
        ),
        ("tags", "an entity tag is the same"),
        ("deletes", "all objects of this check can be deleted"),
    ],
)
def test_a_broken_promise_is_told(fault: str, told: str, tmp_path: Path) -> None:
    assert any(line.startswith(told) for line in kept(Faulty(open_store(str(tmp_path)), fault), tmp_path))


@pytest.mark.parametrize("kind", ["folder", *REAL])  # s3, azure, gcs
def test_the_command_leaves_nothing_behind(
    kind: str, request: pytest.FixtureRequest, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    address, options = (str(folder), {}) if kind == "folder" else at_real_server(request, kind, "checked", "deep")
    config = tmp_path / "lancewal.yaml"
    config.write_text(json.dumps({"storage": {"options": options}}))
    assert run(["store", "check", address, "--config", str(config), "-o", "json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert [promise["fault"] for promise in report["promises"]] == [None] * 8
    assert open_store(address, options).list("") == []
    assert [*folder.iterdir()] == []


@pytest.mark.gs
def test_a_limit_of_writes_of_a_key_breaks_no_promise(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Google answers 429 to a write of a key that comes soon after another one, also of Lance."""
    for module, name, fewer in ((store_check, "RACES", 1), (store_probe, "WRITERS", 3), (store_check, "LISTED", 20)):
        monkeypatch.setattr(module, name, fewer)  # to save time
    with GcsServer(tmp_path, key_interval_s=0.4) as gcs:
        uri, options = inside(gcs, "limited", "one")
        store, said = open_store(uri, options), list[str]()
        assert isinstance(store, ObstoreStore)
        store.on_throttled = said.append
        with closing(ThreadTasks()) as tasks:
            promises = check_promises(store, uri, options, tasks, lambda: uuid4().hex)
        assert [promise.fault for promise in promises] == [None] * 8
        assert "content/empty" in said
        assert store.list("") == []


@pytest.mark.parametrize(
    ("scheme", "code"), [("s3", "NoSuchBucket"), ("gs", "AccessDenied"), ("abfss", "ContainerNotFound")]
)
def test_a_store_that_takes_nothing_ends_the_check_by_its_own_words(scheme: str, code: str) -> None:
    with refusing(404 if code != "AccessDenied" else 403, code, "no") as endpoint:
        uri, options = at_server(scheme, endpoint)
        with pytest.raises(StoreRefused, match=code):
            check_promises(open_store(uri, options), uri, options, ThreadTasks(), lambda: uuid4().hex)


def test_a_folder_that_is_not_there_is_to_be_made(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["store", "check", str(tmp_path / "nowhere")]) == 2
    assert "nowhere is not a folder of this machine: make it first" in capsys.readouterr().err
