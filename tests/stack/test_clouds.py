"""The servers for other clouds' stores do what the tests of the product lean on: conditional puts, races, ranges, pages of
listings, uploads in parts, errors in the words of each cloud, and restarts."""

from __future__ import annotations

import json
import random
import threading
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from email.message import Message
from pathlib import Path
from typing import Any

import obstore
import pytest
from obstore.exceptions import AlreadyExistsError, BaseError, PreconditionError
from obstore.store import AzureStore, GCSStore

from lancewal_demo.stack.clouds import AzureServer, GcsServer
from lancewal_demo.stack.clouds.azurite import LOCK
from lancewal_demo.stack.clouds.gcs_front import SOURCE
from lancewal_demo.stack.ports import listens

ONCE: Any = {"max_retries": 0, "retry_timeout": timedelta(seconds=10)}
HTTP: Any = {"allow_http": True, "timeout": "60s", "pool_max_idle_per_host": "0"}
"""No connection is kept: Azurite closes one that is idle for 5 s, and the client does not repeat a POST, such as a delete."""

Store = AzureStore | GCSStore


def config(server: AzureServer | GcsServer) -> Any:
    """Return the options without the one that obstore takes as a setting of its HTTP client."""
    return {name: value for name, value in server.options.items() if name not in HTTP}


def open_azure(server: AzureServer, container: str) -> AzureStore:
    return AzureStore(container, config=config(server), client_options=HTTP, retry_config=ONCE)


def open_gcs(server: GcsServer, bucket: str) -> GCSStore:
    return GCSStore(bucket, config=config(server), client_options=HTTP, retry_config=ONCE)


@pytest.fixture(params=[pytest.param("azure", marks=pytest.mark.az), pytest.param("gcs", marks=pytest.mark.gs)])
def make(request: pytest.FixtureRequest) -> Callable[[str], Store]:
    """Open a store at a container or bucket of that name, which is made."""
    server = request.getfixturevalue(request.param)
    if isinstance(server, AzureServer):
        return lambda name: open_azure(server, server.container(name))
    return lambda name: open_gcs(server, server.bucket(name))


def content(store: Store, key: str) -> bytes:
    return obstore.get(store, key).bytes().to_bytes()


def listed(store: Store, prefix: str = "", **how: Any) -> list[str]:
    return [item["path"] for page in obstore.list(store, prefix, **how) for item in page]


def test_a_put_that_creates_never_replaces(make: Callable[[str], Store]) -> None:
    store = make("create")
    for key, data in (
        ("folder/object", b"first"),
        ("empty", b""),
        ("odd key+%20&=;ü", b"odd"),
        ("large", bytes(12 << 20)),
    ):
        obstore.put(store, key, data, mode="create", use_multipart=False)
        with pytest.raises(AlreadyExistsError):
            obstore.put(store, key, b"second", mode="create", use_multipart=False)
        assert content(store, key) == data
        assert obstore.head(store, key)["size"] == len(data)
    assert listed(store) == sorted(["folder/object", "empty", "odd key+%20&=;ü", "large"])


def test_a_swap_needs_the_object_that_it_replaces(make: Callable[[str], Store]) -> None:
    store = make("swap")
    first: Any = {name: value for name, value in obstore.put(store, "a", b"1", mode="create").items() if value}
    second: Any = {name: value for name, value in obstore.put(store, "a", b"2", mode=first).items() if value}
    with pytest.raises(PreconditionError):
        obstore.put(store, "a", b"3", mode=first)
    with pytest.raises(PreconditionError):
        obstore.put(store, "missing", b"3", mode=second)
    assert content(store, "a") == b"2"


@pytest.mark.parametrize("swap", [False, True])
def test_of_racing_puts_exactly_one_wins(make: Callable[[str], Store], swap: bool) -> None:
    store = make("race")
    with ThreadPoolExecutor(8) as threads:
        for turn in range(10):
            key = f"{swap}/{turn}"
            mode: Any = "create"
            if swap:
                put: Any = obstore.put(store, key, b"0", mode="create")
                mode = {name: value for name, value in put.items() if value}
            together = threading.Barrier(8)

            def write(
                writer: int, key: str = key, mode: Any = mode, together: threading.Barrier = together
            ) -> bytes | None:
                data = b"writer %d" % writer
                together.wait()
                try:
                    obstore.put(store, key, data, mode=mode)
                except (AlreadyExistsError, PreconditionError):
                    return None
                return data

            winners = [data for data in threads.map(write, range(8)) if data is not None]
            assert winners == [content(store, key)]


def test_listings_have_pages_in_the_order_of_keys(make: Callable[[str], Store]) -> None:
    store = make("pages")
    keys = [f"v/{number:04d}" for number in range(1205)]
    shuffled = random.Random(3).sample(keys, len(keys))
    with ThreadPoolExecutor(8) as threads:
        list(threads.map(lambda key: obstore.put(store, key, key.encode(), mode="create"), [*shuffled, "u", "w/1"]))
    assert listed(store, "v/") == keys
    assert listed(store, "v/", offset=keys[1100]) == keys[1101:]
    assert listed(store, "v/", offset="v/0003a") == keys[4:]
    assert listed(store, "v/", offset="u") == keys
    assert listed(store, "v/", offset=keys[-1]) == []
    assert obstore.list_with_delimiter(store)["common_prefixes"] == ["v", "w"]
    sizes = {item["path"]: item["size"] for page in obstore.list(store) for item in page}
    assert sizes == {key: len(key) for key in (*keys, "u", "w/1")}


def test_ranges(make: Callable[[str], Store]) -> None:
    store = make("ranges")
    obstore.put(store, "a", b"0123456789", mode="create")
    for start, end in ((0, 10), (2, 5), (8, 10), (8, 100)):
        assert obstore.get_range(store, "a", start=start, end=end).to_bytes() == b"0123456789"[start:end]
    with pytest.raises(BaseError):
        obstore.get_range(store, "a", start=100, end=112)


def test_deletes(make: Callable[[str], Store]) -> None:
    store = make("many-deletes")
    keys = [f"{number:03d}" for number in range(300)]
    with ThreadPoolExecutor(8) as threads:
        list(threads.map(lambda key: obstore.put(store, key, b"-", mode="create"), keys))
    obstore.delete(store, keys[:299])
    assert listed(store) == keys[299:]
    with pytest.raises(FileNotFoundError):
        obstore.delete(store, keys[0])
    with pytest.raises(FileNotFoundError):
        obstore.get(store, keys[0])
    obstore.put(store, keys[0], b"again", mode="create")
    assert content(store, keys[0]) == b"again"


def test_an_upload_in_parts(make: Callable[[str], Store]) -> None:
    store = make("parts")
    data = random.Random(5).randbytes(23 << 20)
    obstore.put(store, "large", data, use_multipart=True, chunk_size=5 << 20, max_concurrency=3)
    assert content(store, "large") == data
    assert listed(store) == ["large"]


def test_a_missing_container_or_bucket_is_named(azure: AzureServer, gcs: GcsServer) -> None:
    for store, code in (
        (open_azure(azure, "missing"), "ContainerNotFound"),
        (open_gcs(gcs, "missing"), "NoSuchBucket"),
    ):
        with pytest.raises(FileNotFoundError, match=code):
            obstore.get(store, "a")
        with pytest.raises(FileNotFoundError, match=code):
            obstore.put(store, "a", b"", mode="create")
        with pytest.raises(BaseError, match=code):
            listed(store)


def test_the_environment_is_enough_to_find_the_servers(
    azure: AzureServer, gcs: GcsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in {**azure.environment, **gcs.environment}.items():
        monkeypatch.setenv(name, value)
    found: list[Store] = [
        AzureStore(azure.container("environment")),
        GCSStore(gcs.bucket("environment")),
    ]
    for store in found:
        obstore.put(store, "a", b"content")
        assert content(store, "a") == b"content"


@pytest.mark.az
def test_a_container_s_name_is_checked(azure: AzureServer) -> None:
    assert azure.container("again") == azure.container("again")
    with pytest.raises(ValueError, match="OutOfRangeInput"):
        azure.container("ab")


@pytest.mark.az
def test_a_stopped_azure_server_comes_back_with_its_blobs_on_its_port(tmp_path: Path) -> None:
    with AzureServer(tmp_path) as server:
        store = open_azure(server, server.container("kept"))
        tag = obstore.put(store, "a", b"content", mode="create")["e_tag"]
        server.restart()
        assert content(store, "a") == b"content"
        assert obstore.head(store, "a")["e_tag"] == tag
        server.kill()
        assert not listens(int(server.endpoint.split(":")[2].split("/")[0]))
        server.restart()
        assert content(store, "a") == b"content"


# -- Google's words --------------------------------------------------------------------------------------------


def ask(
    server: GcsServer, method: str, path: str, headers: dict[str, str] | None = None, body: bytes | None = None
) -> tuple[int, str, Message]:
    """Return status, body and headers of an answer."""
    request = urllib.request.Request(f"{server.endpoint}/{path}", data=body, headers=headers or {}, method=method)
    try:
        with urllib.request.urlopen(request, timeout=60) as done:
            return done.status, done.read().decode(), done.headers
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode(), error.headers


IF_MATCH = "x-goog-if-generation-match"


@pytest.mark.gs
def test_refusals_have_google_s_codes(gcs: GcsServer) -> None:
    bucket = gcs.bucket("refusals")
    assert ask(gcs, "PUT", f"{bucket}/a", body=b"0123456789")[0] == 200
    assert ask(gcs, "PUT", f"{bucket}/empty", body=b"")[0] == 200
    cases: list[tuple[str, str, dict[str, str], bytes | None, int, str]] = [
        ("GET", f"{bucket}/b", {}, None, 404, "NoSuchKey"),
        ("DELETE", f"{bucket}/b", {}, None, 404, "NoSuchKey"),
        ("GET", "absent-bucket/a", {}, None, 404, "NoSuchBucket"),
        ("PUT", "absent-bucket/a", {}, b"x", 404, "NoSuchBucket"),
        ("GET", "absent-bucket?list-type=2", {}, None, 404, "NoSuchBucket"),
        ("GET", "..%2Frefusals?list-type=2", {}, None, 404, "NoSuchBucket"),
        ("PUT", f"{bucket}/a", {IF_MATCH: "0"}, b"x", 412, "PreconditionFailed"),
        ("PUT", f"{bucket}/b", {IF_MATCH: "7"}, b"x", 412, "PreconditionFailed"),
        ("GET", f"{bucket}/a", {IF_MATCH: "7"}, None, 412, "PreconditionFailed"),
        ("DELETE", f"{bucket}/a", {IF_MATCH: "7"}, None, 412, "PreconditionFailed"),
        ("PUT", f"{bucket}/b", {IF_MATCH: "new"}, b"x", 400, "InvalidArgument"),
        ("GET", f"{bucket}?list-type=2&max-keys=0", {}, None, 400, "InvalidArgument"),
        ("GET", f"{bucket}?list-type=2&continuation-token=no", {}, None, 400, "InvalidArgument"),
        ("GET", f"{bucket}/a", {"Range": "bytes=10-11"}, None, 416, "InvalidRange"),
        ("GET", f"{bucket}/empty", {"Range": "bytes=0-3"}, None, 416, "InvalidRange"),
        ("PUT", f"{bucket}/b", {"x-goog-copy-source": f"{bucket}/a"}, b"", 501, "NotImplemented"),
        ("PUT", f"{bucket}/b", {"If-None-Match": "*"}, b"x", 501, "NotImplemented"),
        ("PUT", f"{bucket}/b?acl", {}, b"x", 501, "NotImplemented"),
        ("PUT", f"{bucket}/..%2Fb", {}, b"x", 501, "NotImplemented"),
        ("DELETE", bucket, {}, None, 501, "NotImplemented"),
    ]
    for method, path, headers, body, status, code in cases:
        told = ask(gcs, method, path, headers, body)
        assert (told[0], f"<Code>{code}</Code>" in told[1]) == (status, True), (method, path, headers, told)
    assert ask(gcs, "GET", f"{bucket}/a")[1] == "0123456789"
    assert "<KeyCount>2</KeyCount>" in ask(gcs, "GET", f"{bucket}?list-type=2")[1]
    status, text, answered = ask(gcs, "GET", f"{bucket}/a", {"Range": "bytes=-3"})
    assert (status, text, answered["Content-Range"]) == (206, "789", "bytes 7-9/10")
    assert ask(gcs, "GET", f"{bucket}/a", {IF_MATCH: answered["X-Goog-Generation"]})[0] == 200


@pytest.mark.gs
def test_uploads_in_parts_are_refused_in_google_s_words(gcs: GcsServer) -> None:
    bucket = gcs.bucket("part-refusals")

    def begin() -> str:
        return ask(gcs, "POST", f"{bucket}/a?uploads", body=b"")[1].partition("<UploadId>")[2].partition("<")[0]

    def complete(upload: str, parts: list[tuple[int, str]], headers: dict[str, str] | None = None) -> tuple[int, str]:
        text = "".join(f"<Part><PartNumber>{number}</PartNumber><ETag>{tag}</ETag></Part>" for number, tag in parts)
        body = f"<CompleteMultipartUpload>{text}</CompleteMultipartUpload>".encode()
        status, answer, _ = ask(gcs, "POST", f"{bucket}/a?uploadId={upload}", headers, body)
        return status, answer.partition("<Code>")[2].partition("<")[0]

    upload = begin()
    part = f"{bucket}/a?uploadId={upload}&partNumber="
    replaced = ask(gcs, "PUT", f"{part}1", body=b"old")[2]["ETag"]
    first = ask(gcs, "PUT", f"{part}1", body=b"1")[2]["ETag"]
    second = ask(gcs, "PUT", f"{part}2", body=b"2")[2]["ETag"]
    assert ask(gcs, "PUT", f"{part}0", body=b"2")[0] == 400
    assert complete(upload, []) == (400, "MalformedCompleteMultipartUploadRequest")
    assert complete(upload, [(1, replaced)]) == (400, "InvalidPart")
    assert complete(upload, [(2, second), (1, first)])[0] == 400
    assert complete(upload, [(1, first), (2, second)]) == (400, "EntityTooSmall")
    assert complete("0" * 32, [(1, first)]) == (404, "NoSuchUpload")
    assert ask(gcs, "GET", f"{bucket}/a")[0] == 404
    assert complete(upload, [(2, second)], {IF_MATCH: "0"}) == (200, "")
    assert ask(gcs, "GET", f"{bucket}/a")[1] == "2"
    assert complete(upload, [(2, second)]) == (404, "NoSuchUpload")
    other = begin()
    tag = ask(gcs, "PUT", f"{bucket}/a?uploadId={other}&partNumber=1", body=b"late")[2]["ETag"]
    assert complete(other, [(1, tag)], {IF_MATCH: "0"}) == (412, "PreconditionFailed")
    assert ask(gcs, "DELETE", f"{bucket}/a?uploadId={other}")[0] == 204
    assert complete(other, [(1, tag)]) == (404, "NoSuchUpload")


@pytest.fixture(scope="module")
def limited(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GcsServer]:
    """A server whose keys take one write an hour."""
    with GcsServer(tmp_path_factory.mktemp("limited"), key_interval_s=3600) as server:
        yield server


@pytest.mark.gs
def test_a_key_takes_no_more_writes_than_its_limit(limited: GcsServer) -> None:
    bucket = limited.bucket("limited")
    assert ask(limited, "PUT", f"{bucket}/a", body=b"1")[0] == 200
    for method, body in (("PUT", b"2"), ("DELETE", None)):
        status, text, _ = ask(limited, method, f"{bucket}/a", body=body)
        assert (status, "<Code>SlowDown</Code>" in text) == (429, True)
        assert f"The object {bucket}/a exceeded the rate limit for object mutation operations" in text
    assert ask(limited, "GET", f"{bucket}/a")[1] == "1"
    assert ask(limited, "PUT", f"{bucket}/b", body=b"1")[0] == 200


@pytest.mark.gs
def test_a_killed_gcs_server_comes_back_with_its_objects_on_its_port(tmp_path: Path) -> None:
    with GcsServer(tmp_path) as server:
        store = open_gcs(server, server.bucket("kept"))
        put = obstore.put(store, "folder/a", b"content", mode="create")
        port = int(server.endpoint.rsplit(":", 1)[1])
        server.kill()
        assert not listens(port)
        unfinished = tmp_path / "buckets" / "kept" / "folder" / ".a123"
        unfinished.write_bytes(b"half")  # as a write leaves it that was killed before its answer
        server.restart()
        assert listed(store) == ["folder/a"]
        assert not unfinished.exists()
        kept = obstore.get(store, "folder/a")
        assert (kept.bytes().to_bytes(), kept.meta["version"]) == (b"content", put["version"])
        with pytest.raises(AlreadyExistsError):
            obstore.put(store, "folder/a", b"late", mode="create")


# -- locks -----------------------------------------------------------------------------------------------------


def test_each_package_of_azurite_is_pinned_by_its_hash() -> None:
    packages = json.loads(LOCK.read_text())["packages"]
    ours = {name for name, package in packages.items() if "version" not in package}
    links = {name for name in ours if packages[name].get("link")}
    assert ours - links == {"", "node_modules/azurite/nothing"}
    assert [name for name in packages.keys() - ours if not packages[name]["integrity"].startswith("sha512-")] == []
    assert packages["node_modules/azurite"]["version"] == "3.37.0"


def test_each_module_of_the_front_is_pinned_by_its_hash() -> None:
    sums = {tuple(line.split()[:2]) for line in (SOURCE / "go.sum").read_text().splitlines()}
    required = [line.split()[:2] for line in (SOURCE / "go.mod").read_text().splitlines() if line.startswith("\t")]
    assert len(required) > 20
    assert [module for module, version in required if (module, f"{version}/go.mod") not in sums] == []
