"""The requests of S3 that obstore and Lance send, answered from memory; signatures are not looked at.

PUT (with If-None-Match: *, If-Match, x-amz-copy-source), GET with ranges, HEAD, DELETE, the listing of version 2, uploads in
parts, and the deletion of several objects.  Each waits ``delay_s`` first, as the way to a far store would.  A GET of
``/-/requests`` gives what it has been asked, and forgets it; ``/-/delay?s=`` changes the delay.
"""

from __future__ import annotations

import json
import re
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import astuple, replace
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Self
from urllib.parse import parse_qsl, unquote, urlsplit
from xml.sax.saxutils import escape, unescape

from tests.support.small_s3.buckets import Buckets, PreconditionFailed, StoredObject
from tests.support.small_s3.requests import StoreRequest

REQUESTS = "/-/requests"
DELAY = "/-/delay"
_ACCESS_KEY = re.compile(r".*Credential=([^/]*)/.*")
_RANGE = re.compile(r"bytes=(\d*)-(\d*)$")
_XML = '<?xml version="1.0" encoding="UTF-8"?>'


class SmallS3:
    """Runs inside ``with``, in threads of this process."""

    def __init__(self, delay_s: float = 0.0, port: int = 0) -> None:
        self.delay_s = delay_s
        self.before: Callable[[], object] = self._wait
        """Called in each request."""
        self.buckets = Buckets()
        self._log: list[StoreRequest] = []
        self._lock = threading.Lock()
        self._server = _Server(("127.0.0.1", port), self)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)

    @property
    def port(self) -> int:
        return int(self._server.server_address[1])

    @property
    def options(self) -> dict[str, str]:
        """Storage options of obstore and Lance."""
        return options_of(self.port)

    def take(self) -> list[StoreRequest]:
        """What has ended since the last call, in the order of the ends."""
        with self._lock:
            taken, self._log = self._log, []
        return taken

    def note(self, request: StoreRequest) -> None:
        with self._lock:
            self._log.append(request)

    def _wait(self) -> None:
        if self.delay_s:
            time.sleep(self.delay_s)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


def options_of(port: int) -> dict[str, str]:
    return {
        "aws_endpoint": f"http://127.0.0.1:{port}",
        "allow_http": "true",
        "aws_region": "us-east-1",
        "aws_access_key_id": "small",
        "aws_secret_access_key": "small",
        "aws_virtual_hosted_style_request": "false",
    }


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 256

    def __init__(self, address: tuple[str, int], s3: SmallS3) -> None:
        super().__init__(address, _Handler)
        self.s3 = s3


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    wbufsize = -1
    server: _Server
    _first = True
    """No request has come on this connection, which has a handler of its own."""

    def do_GET(self) -> None:
        self._answer()

    def do_HEAD(self) -> None:
        self._answer()

    def do_PUT(self) -> None:
        self._answer()

    def do_POST(self) -> None:
        self._answer()

    def do_DELETE(self) -> None:
        self._answer()

    def log_message(self, format: str, *args: object) -> None:
        pass

    def _answer(self) -> None:
        begin = time.monotonic()
        body = self._body()
        parts = urlsplit(self.path)
        query = dict(parse_qsl(parts.query, keep_blank_values=True))
        if parts.path == REQUESTS:
            taken = [astuple(request) for request in self.server.s3.take()]
            self._reply(200, json.dumps(taken).encode())
            return
        if parts.path == DELAY:
            self.server.s3.delay_s = float(query["s"])
            self._reply(200, b"")
            return
        key = unquote(parts.path).lstrip("/")
        listing = self.command == "GET" and "list-type" in query
        self.server.s3.before()
        # Noted before the reply: who has read it finds it noted.
        self._noted = StoreRequest(
            "LIST" if listing else self.command,
            query.get("prefix", "") if listing else key.partition("/")[2],
            begin,
            0,
            0,
            self._first,
            _ACCESS_KEY.sub(r"\1", self.headers.get("Authorization") or ""),
        )
        self._first = False
        try:
            if listing:
                self._list(key.partition("/")[0], query)
            elif self.command in ("GET", "HEAD"):
                self._get(key)
            elif self.command == "PUT":
                self._put(key, query, body)
            elif self.command == "POST":
                self._post(key, query, body)
            else:
                self.server.s3.buckets.delete(key)
                self._end(204)
        except PreconditionFailed:
            self._end(412, _error("PreconditionFailed"))

    def _body(self) -> bytes:
        if self.headers.get("Transfer-Encoding") != "chunked":
            return self.rfile.read(int(self.headers.get("Content-Length") or 0))
        found = b""
        while size := int(self.rfile.readline().partition(b";")[0], 16):
            found += self.rfile.read(size)
            self.rfile.readline()
        self.rfile.readline()
        return found

    def _list(self, bucket: str, query: dict[str, str]) -> None:
        root = f"{bucket}/"
        after = max(query.get("start-after", ""), query.get("continuation-token", ""))
        page = self.server.s3.buckets.list(
            root + query.get("prefix", ""), query.get("delimiter", ""), root + after, int(query.get("max-keys", 1000))
        )
        lines = [_XML, "<ListBucketResult>", f"<Name>{bucket}</Name>"]
        lines.append(f"<KeyCount>{len(page.objects) + len(page.prefixes)}</KeyCount>")
        lines.append(f"<IsTruncated>{str(page.next_after is not None).lower()}</IsTruncated>")
        if page.next_after is not None:
            token = escape(page.next_after.removeprefix(root))
            lines.append(f"<NextContinuationToken>{token}</NextContinuationToken>")
        for key, found in page.objects:
            lines.append(
                f"<Contents><Key>{escape(key.removeprefix(root))}</Key><LastModified>{_iso(found.modified_s)}</LastModified>"
                f"<ETag>{escape(found.etag)}</ETag><Size>{len(found.data)}</Size></Contents>"
            )
        for prefix in page.prefixes:
            lines.append(f"<CommonPrefixes><Prefix>{escape(prefix.removeprefix(root))}</Prefix></CommonPrefixes>")
        self._end(200, "".join([*lines, "</ListBucketResult>"]).encode())

    def _get(self, key: str) -> None:
        found = self.server.s3.buckets.get(key)
        if found is None:
            self._end(404, _error("NoSuchKey"))
            return
        wanted = _RANGE.match(self.headers.get("Range") or "")
        size = len(found.data)
        if wanted is None:
            self._end(200, found.data, found)
            return
        first, last = wanted.groups()
        begin = int(first) if first else max(0, size - int(last))
        end = min(size, int(last) + 1) if first and last else size
        if begin >= size:
            self._end(416, _error("InvalidRange"))
            return
        self._end(206, found.data[begin:end], found, f"bytes {begin}-{end - 1}/{size}")

    def _put(self, key: str, query: dict[str, str], body: bytes) -> None:
        buckets = self.server.s3.buckets
        if "uploadId" in query:
            buckets.put_part(query["uploadId"], int(query["partNumber"]), body)
            self._end(200, b"", StoredObject(body, f'"{query["partNumber"]}"', 0.0))
            return
        source = self.headers.get("x-amz-copy-source")
        if source is not None:
            copied = buckets.get(unquote(source).lstrip("/"))
            if copied is None:
                self._end(404, _error("NoSuchKey"))
                return
            body = copied.data
        stored = buckets.put(key, body, absent=self._absent, match=self.headers.get("If-Match"))
        if source is None:
            self._end(200, b"", stored)
        else:
            told = f"<ETag>{escape(stored.etag)}</ETag><LastModified>{_iso(stored.modified_s)}</LastModified>"
            self._end(200, f"{_XML}<CopyObjectResult>{told}</CopyObjectResult>".encode())

    def _post(self, key: str, query: dict[str, str], body: bytes) -> None:
        buckets = self.server.s3.buckets
        bucket, _, name = key.partition("/")
        if "uploads" in query:
            upload = f"<Bucket>{bucket}</Bucket><Key>{escape(name)}</Key><UploadId>{buckets.begin_upload()}</UploadId>"
            self._end(200, f"{_XML}<InitiateMultipartUploadResult>{upload}</InitiateMultipartUploadResult>".encode())
        elif "uploadId" in query:
            stored = buckets.put(key, buckets.end_upload(query["uploadId"]), absent=self._absent)
            done = f"<Key>{escape(name)}</Key><ETag>{escape(stored.etag)}</ETag>"
            self._end(200, f"{_XML}<CompleteMultipartUploadResult>{done}</CompleteMultipartUploadResult>".encode())
        else:
            keys = re.findall(r"<Key>(.*?)</Key>", body.decode())
            for found in keys:
                buckets.delete(f"{bucket}/{unescape(found)}")
            deleted = "".join(f"<Deleted><Key>{found}</Key></Deleted>" for found in keys)
            self._end(200, f"{_XML}<DeleteResult>{deleted}</DeleteResult>".encode())

    @property
    def _absent(self) -> bool:
        return self.headers.get("If-None-Match") == "*"

    def _end(self, status: int, body: bytes = b"", of: StoredObject | None = None, range_: str = "") -> None:
        headers: list[tuple[str, str]] = []
        if of is not None:
            headers += [("ETag", of.etag), ("Last-Modified", formatdate(of.modified_s, usegmt=True))]
        if range_:
            headers.append(("Content-Range", range_))
        self.server.s3.note(replace(self._noted, end=time.monotonic(), status=status))
        self._reply(status, body, headers)

    def _reply(self, status: int, body: bytes, headers: Sequence[tuple[str, str]] = ()) -> None:
        self.send_response(status)
        for name, value in headers:
            self.send_header(name, value)
        if status != 204:
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)
        self.wfile.flush()


def _error(code: str) -> bytes:
    return f"{_XML}<Error><Code>{code}</Code></Error>".encode()


def _iso(seconds: float) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(seconds)) + f".{int(seconds * 1000) % 1000:03d}Z"
