"""``ObjectStore`` over the stores of ``schemes``, and over local folders of files to load, by obstore.

A table in a local folder has a store of its own (``folder``); ``open_store`` knows which.

The same ``uri`` and ``options`` serve Lance: ``options`` are Lance's storage options (``aws_endpoint``,
``azure_storage_account_key``, ``google_service_account``, ``allow_http``, ...; all values are strings).

Stores differ in details, which end here:

1. A missing bucket or container answers as a missing object does.  The code in the answer's body tells them apart.
2. Azure lists entity tags without the quotes that its other answers have.  All tags have quotes here.
3. Stores refuse a range after an object's end in different words.  If an error's text mentions a range, the object's
   size decides whether the range was after the end.
4. A gateway may ignore the key after which a listing should begin.  Keys up to that one are left out here as well.
5. Google takes about one write of a key each second, and answers others with 429.  Such a request has done nothing.
   So it is sent again after a pause (``_PAUSES_S``), also the put of a page's version, which others cannot have seen.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from functools import cached_property, partial
from typing import Any, TypeAlias, TypeVar
from urllib.parse import SplitResult

import obstore.store
from obstore.exceptions import (
    AlreadyExistsError,
    GenericError,
    InvalidPathError,
    JoinError,
    NotFoundError,
    PermissionDeniedError,
    PreconditionError,
    UnauthenticatedError,
)
from obstore.store import LocalStore

from lancewal_core.errors import InvalidSettings, ObjectCorrupt, StoreUnavailable, TableMissing
from lancewal_core.names import paths
from lancewal_core.process.clock import SystemClock, ms_since_1970
from lancewal_core.process.library_errors import UNSENT, first_line
from lancewal_core.process.tasks import use_threads
from lancewal_core.store.address import (
    files_address,
    holder_and_account,
    local_folder,
    no_table_advice,
    table_address,
)
from lancewal_core.store.folder import FolderStore
from lancewal_core.store.object_kinds import check_size, check_written
from lancewal_core.store.object_store import ANSWER_OBJECTS, ObjectInfo, PutOutcome, PutUnknown, Stored, Taken, no_key
from lancewal_core.store.refusal import is_throttled, refusal, what_to_set
from lancewal_core.store.schemes import SCHEMES, Scheme, wrong_options

T = TypeVar("T")
_CLIENT_OPTIONS = {"allow_http": "allow_http", "aws_allow_http": "allow_http", "timeout": "timeout",
                   "connect_timeout": "connect_timeout", "aws_timeout": "timeout",
                   "aws_connect_timeout": "connect_timeout"}  # fmt: skip
_LANCE_ONLY = {"download_retry_count", "client_max_retries", "client_retry_timeout"}
# Denied counts as well: credentials expire, are renewed behind our back, and rights are given back.
_NO_ANSWER = (GenericError, PermissionDeniedError, UnauthenticatedError, JoinError, OSError)
_NO_KEY = (ValueError, TypeError)
"""Errors of obstore for a text that its parser of paths refuses, so that it cannot be a key."""
_OF_A_RANGE = re.compile(r"range|\b416\b", re.IGNORECASE)
"""Words in each refusal of a range that begins after an object's end."""
# WAL puts repeat by themselves (same bytes, same key), so the client gives up early and reports.
_RETRY: Any = {
    "max_retries": 2,
    "retry_timeout": timedelta(seconds=10),
    "backoff": {"init_backoff": timedelta(milliseconds=50), "max_backoff": timedelta(seconds=1), "base": 2},
}


_PAUSES_S = (0.25, 0.5, 1.0, 2.0)
"""Pauses after answers of 429, in seconds.  Google takes no further write of a key for about a second; the sum is
several times as long."""
_ONCE: Any = {**_RETRY, "max_retries": 0}
"""Options of the client that puts versions of pages.  This client repeats no request.

A machine may sleep for days between two tries.  The second try could then store the same object again, at a number
that was used and deleted meanwhile (``page_chain``).
"""


class ObstoreStore:
    """An object store rooted at a folder."""

    def __init__(
        self, store: Any, name: str, scheme: Scheme | None = None, once: Callable[[], Any] | None = None
    ) -> None:
        """``name`` is the store's address in messages.  ``scheme``: None for a local folder.  ``once`` makes a client
        without retries, when one is first needed.  None: ``store`` itself has no retries."""
        self._client = store
        self._name = name
        self._scheme = scheme
        self._make_once = once or (lambda: store)
        self.on_throttled: Callable[[str], object] = lambda key: None
        """Called with the key each time that a request is sent again after an answer of 429."""

    @property
    def _store(self) -> Any:
        use_threads()
        return self._client

    @cached_property
    def _once(self) -> Any:
        return self._make_once()

    def get(self, key: str) -> bytes | None:
        def read() -> bytes:
            found = obstore.get(self._store, key)
            check_size(key, found.meta["size"])
            return found.bytes().to_bytes()

        return self._asked("read", key, read)

    def get_range(self, key: str, start: int, end: int) -> bytes | None:
        def read() -> bytes | None:
            try:
                return obstore.get_range(self._store, key, start=start, end=end).to_bytes()
            except (NotFoundError, FileNotFoundError):
                raise
            except _NO_ANSWER as error:
                if _OF_A_RANGE.search(str(error)):
                    size = self.size(key)
                    if size is None or start >= size:
                        return None if size is None else b""
                raise

        return self._asked("read", key, read)

    def size(self, key: str) -> int | None:
        """Return the size of an object in bytes; None if there is no such object."""

        def look() -> int | None:
            try:
                return int(obstore.head(self._store, key)["size"])
            except (NotFoundError, FileNotFoundError) as error:
                # This answer has no body, which could say that it is the bucket that is not there.
                if self.get_range(key, 0, 1) is None:
                    return None
                raise self._unavailable("look at", key, error) from error

        return self._asked("look at", key, look)

    def put_if_absent(self, key: str, data: bytes) -> PutOutcome:
        check_written(key, len(data))
        use_threads()
        store = self._once if paths.parse_page_version(key) is not None else self._store
        try:
            put = self._unless_throttled(key, lambda: obstore.put(store, key, data, mode="create"))
        except (AlreadyExistsError, FileExistsError, PreconditionError):
            return Taken()
        except _NO_KEY as error:
            raise no_key(key) from error
        except _NO_ANSWER as error:
            return PutUnknown(f"{type(error).__name__} while writing {key!r} to {self._name}: {self._told(error)}")
        return Stored(_quoted(put["e_tag"]))

    def list(self, prefix: str, limit: int | None = None, after: str | None = None) -> Sequence[ObjectInfo]:
        found: list[ObjectInfo] = []
        try:
            for page in obstore.list(self._store, prefix, offset=after, chunk_size=ANSWER_OBJECTS):
                for item in page:
                    if after is None or item["path"] > after:
                        modified_ms = ms_since_1970(item["last_modified"])
                        found.append(ObjectInfo(item["path"], item["size"], modified_ms, _quoted(item["e_tag"])))
                if limit is not None and len(found) >= limit and self._scheme is not None:
                    break  # a store lists in key order, a local folder in none
        except (NotFoundError, FileNotFoundError):
            return []
        except InvalidPathError as error:
            raise ObjectCorrupt(
                f"could not list {prefix!r} at {self._name}: a name there cannot be the key of an object. "
                f"Remove or rename it: {first_line(error)}",
                object=prefix,
            ) from error
        except _NO_ANSWER as error:
            raise self._unavailable("list", prefix, error) from error
        return found

    def delete(self, keys: Sequence[str]) -> None:
        for key in keys:
            self._asked("delete", key, partial(self._delete, key))

    def _delete(self, key: str) -> None:
        """Delete an object, once more if the connection ended.  S3 and Azure delete by POST, which the client does not
        repeat: a server that closes an idle connection would otherwise look like a fault."""
        try:
            obstore.delete(self._store, key)
        except GenericError as error:
            if UNSENT not in str(error):
                raise
            obstore.delete(self._store, key)

    def _asked(self, act: str, key: str, ask: Callable[[], T | None]) -> T | None:
        """Return the answer of ``ask``, or None if there is no such object; raise the store's errors as lancewal's.

        A missing bucket says nothing about the object: ``StoreUnavailable``."""
        try:
            return self._unless_throttled(key, ask)
        except (NotFoundError, FileNotFoundError) as error:
            said = str(error)
            if self._scheme is not None and any(f"<Code>{code}</Code>" in said for code in self._scheme.missing):
                raise self._unavailable(act, key, error) from error
            return None
        except _NO_KEY as error:
            raise no_key(key) from error
        except _NO_ANSWER as error:
            raise self._unavailable(act, key, error) from error

    def _unless_throttled(self, key: str, ask: Callable[[], T]) -> T:
        """Return the answer of ``ask``, which is called again after a pause while the store answers 429."""
        for pause_s in _PAUSES_S:
            try:
                return ask()
            except _NO_ANSWER as error:
                if not is_throttled(str(error)):
                    raise
            self.on_throttled(key)
            SystemClock().sleep(pause_s)
        return ask()

    def _unavailable(self, act: str, key: str, error: BaseException) -> StoreUnavailable:
        said = f"{type(error).__name__}: {error}"
        return refusal(said)(
            f"could not {act} {key!r} at {self._name}: {type(error).__name__}: {self._told(error)}", object=key
        )

    def _told(self, error: BaseException) -> str:
        """Return the message of the store or its client, and what a person must set."""
        return f"{first_line(error)}{what_to_set(str(error), self._scheme)}"


TableStore: TypeAlias = ObstoreStore | FolderStore
"""Store that ``open_store`` opens."""


def open_store(uri: str, options: Mapping[str, str] | None = None) -> TableStore:
    """Return the store rooted at ``uri``: a local path, ``file://...``, or an address of ``schemes``.

    Raises ``TableMissing`` if a local folder does not exist.  Raises ``InvalidSettings`` for an address that
    ``table_address`` refuses, or for options that are not accepted.
    """
    parts = table_address(uri)
    path = local_folder(uri)
    if path is None:
        return _opened(uri, parts, options)
    if not path.is_dir():
        raise TableMissing(f"there is no table at {path}: the folder does not exist. {no_table_advice(uri)}")
    return FolderStore(path)


def open_files(uri: str, options: Mapping[str, str] | None = None) -> ObstoreStore:
    """Return the store rooted at a folder of files to load (``files_address``).  Links in the folder are followed.
    Errors are those of ``open_store``."""
    parts = files_address(uri)
    path = local_folder(uri)
    if path is None:
        return _opened(uri, parts, options)
    if not path.is_dir():
        raise TableMissing(f"there is no folder {path}: correct the address of the files to load")
    return ObstoreStore(LocalStore(path), str(path))


def _quoted(tag: str | None) -> str | None:
    return tag if tag is None or tag.endswith('"') else f'"{tag}"'


def _opened(uri: str, parts: SplitResult, options: Mapping[str, str] | None) -> ObstoreStore:
    scheme = SCHEMES[parts.scheme]
    client: Any = {}
    config: Any = {}
    # A client that is given options of this kind reads none of them from the environment.
    around = {name: value for name, value in scheme.of_environment(os.environ).items() if name in _CLIENT_OPTIONS}
    for key, value in {**around, **(options or {})}.items():
        name = key.lower()
        if name in _CLIENT_OPTIONS:
            client[_CLIENT_OPTIONS[name]] = value.lower() == "true" if "allow_http" in name else value
        elif name not in _LANCE_ONLY:
            config[name] = value
    holder, account = holder_and_account(parts)
    if wrong := wrong_options(scheme, config, account):
        raise InvalidSettings(f"store options for {uri!r} are not accepted: {wrong}")
    if account:
        config = {name: value for name, value in config.items() if name not in scheme.accounts}
        config[scheme.accounts[0]] = account
    prefix = parts.path.strip("/") or None

    def opened(retry: Any) -> Any:
        made = getattr(obstore.store, scheme.client)
        return made(holder, prefix=prefix, config=config, client_options=client or None, retry_config=retry)

    try:
        store = opened(_RETRY)
    except Exception as error:
        advice = what_to_set(str(error), scheme)
        raise InvalidSettings(f"store options for {uri!r} are not accepted: {first_line(error)}{advice}") from error
    return ObstoreStore(store, f"{parts.scheme}://{parts.netloc}{parts.path}", scheme, lambda: opened(_ONCE))
