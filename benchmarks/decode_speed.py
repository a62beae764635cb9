"""Compare the decoder's speed with a bare pass of Arrow's JSON reader over the same bytes.

``bare`` is ``read_json(b"\\n".join(values))`` with its defaults (threads, inferred schema). ``bare 1`` is the same with
one thread, which is what a busy ingest process has.  ``strict`` and ``lenient`` decode the same rows, of which the second
have half of the columns in lenient forms.  The program prints the best and the median of ``ROUNDS`` runs, in
milliseconds of CPU time of all threads, and the decoder's speed relative to each bare pass.

``keys`` compares the formats of record keys in the same way: the same rows, prepared as ingest does, and their routing
alone.  ``json`` keys are written as Python's ``json.dumps`` writes them, and are compared with their rows.
"""

from __future__ import annotations

import json
import random
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime

import numpy as np
import pyarrow as pa
import pyarrow.json as pj

from lancewal_core.names.ids import Position, SchemaKey
from lancewal_core.record_keys.key_choices import KeyFormat
from lancewal_core.record_keys.key_form import KeyForm, key_form_written_out
from lancewal_core.record_keys.key_format import encode_region_key
from lancewal_core.rows.column_types import format_type
from lancewal_core.rows.schema import RowSchema
from lancewal_core.settings.sections import JsonForm
from lancewal_core.table.contract import Column, Contract
from lancewal_core.wal.writer_schemas import StoredSchema, WriterSchema, stored_schema
from lancewal_ingest.append.prepare import Consumed, Preparer
from lancewal_ingest.append.routing import Routing
from lancewal_ingest.decode.decoder import Decoder
from lancewal_ingest.decode.json.decoder import JsonDecoder
from lancewal_ingest.decode.naming import Naming
from lancewal_kafka.records import Records

MESSAGES, ROUNDS = 10_000, 60
KEY_FORMATS: tuple[KeyFormat, ...] = ("bytes", "canonical", "long", "json-compact", "json", "connect-json", "avro")
AVRO_KEY = '{"type": "record", "name": "Key", "fields": [{"name": "id", "type": "long"}]}'
CONNECT_KEY = (
    b'{"type":"struct","fields":[{"type":"int64","optional":false,"field":"id"}],"optional":false,"name":"t.Key"}'
)
COLUMNS = pa.schema(
    [
        ("id", pa.int64()),
        ("region", pa.string()),
        ("a", pa.int64()),
        ("b", pa.float64()),
        ("name", pa.string()),
        ("ts", pa.int64()),
        ("pad", pa.string()),
    ]
)


def upserts(seed: int) -> Records:
    """Good rows of about 150 bytes, no headers."""
    rng = random.Random(seed)
    rows = [
        {
            "id": rng.randrange(1 << 40),
            "region": f"eu-{rng.randrange(50)}",
            "a": rng.randrange(1000),
            "b": rng.random(),
            "name": f"user-{number}",
            "ts": 1_700_000_000_000 + number,
            "pad": "x" * 40,
        }
        for number in range(MESSAGES)
    ]
    return _records([_compact(row) for row in rows], [None] * MESSAGES)


TYPES: dict[str, tuple[pa.DataType, JsonForm | None]] = {
    "id": (pa.int64(), None),
    "region": (pa.string(), None),
    "a": (pa.int64(), "number_text"),
    "b": (pa.float64(), None),
    "name": (pa.string(), None),
    "at": (pa.timestamp("us", tz="UTC"), "epoch_ms"),
    "local": (pa.timestamp("us", tz="UTC"), "utc"),
    "code": (pa.string(), "text"),
    "pad": (pa.string(), None),
    "ok": (pa.bool_(), "bool_text"),
}
"""Columns of ``forms``, half of which are lenient."""


def forms(seed: int, *, lenient: bool) -> Records:
    """The rows of ``upserts`` with more types, written strictly or in the lenient forms."""
    rng = random.Random(seed)
    rows = []
    for number in range(MESSAGES):
        millis, code, ok = 1_700_000_000_000 + number, rng.randrange(10**6), rng.random() < 0.5
        text = datetime.fromtimestamp(millis / 1000, UTC).isoformat(timespec="milliseconds").removesuffix("+00:00")
        a = rng.randrange(1000)
        rows.append(
            {
                "id": rng.randrange(1 << 40), "region": f"eu-{rng.randrange(50)}", "a": str(a) if lenient else a,
                "b": rng.random(), "name": f"user-{number}", "at": millis if lenient else f"{text}Z",
                "local": text if lenient else f"{text}Z", "code": code if lenient else str(code), "pad": "x" * 40,
                "ok": str(ok).lower() if lenient else ok,
            }
        )  # fmt: skip
    return _records([_compact(row) for row in rows], [None] * MESSAGES)


def mixed(seed: int) -> Records:
    """70 % upserts, 25 % patches, a fifth of them with an explicit null, 5 % deletes."""
    rng = random.Random(seed)
    values, headers = [], []
    for value in upserts(seed).values:
        row = json.loads(value or b"")
        op = rng.choices(["upsert", "patch", "delete"], [70, 25, 5])[0]
        if op == "patch":
            row = {name: row[name] for name in ("id", "region", *rng.sample(["a", "b", "name", "ts"], 2))}
            if rng.random() < 0.2:
                row["name"] = None
        if op == "delete":
            row = {name: row[name] for name in ("id", "region")}
        values.append(_compact(row))
        headers.append(None if op == "upsert" else [("lancewal.op", op.encode())])
    return _records(values, headers)


def with_bad(records: Records, every: int) -> Records:
    """``records`` with a value that is no JSON at each ``every``-th place."""
    values = [b'{"id":' if number % every == 0 else value for number, value in enumerate(records.values)]
    return Records(records.offsets, records.timestamps, records.keys, values, records.headers)


def _compact(row: object) -> bytes:
    return json.dumps(row, separators=(",", ":")).encode()


def _records(values: list[bytes], headers: list[list[tuple[str, bytes]] | None]) -> Records:
    keys: list[bytes | None] = [b"eu-%d" % (number % 50) for number in range(len(values))]
    times = [1_700_000_000_000 + number for number in range(len(values))]
    return Records(list(range(len(values))), times, keys, list(values), list(headers))  # type: ignore[arg-type]  # lists are invariant


def _keyed(key_format: KeyFormat, records: Records) -> tuple[Contract, Records]:
    """The contract of a topic keyed by ``id``, and its records."""
    ids = [json.loads(value or b"")["id"] for value in records.values]
    match key_format:
        case "json":
            keys = [json.dumps({"id": number}).encode() for number in ids]
        case "json-compact":
            keys = [encode_region_key({"id": number}, form=key_format) for number in ids]
        case "connect-json":
            keys = [b'{"schema":%s,"payload":{"id":%d}}' % (CONNECT_KEY, number) for number in ids]
        case "avro":
            keys = [b"\0\0\0\0\1" + _zigzag(number) for number in ids]
        case "bytes":
            keys = [encode_region_key(number) for number in ids]
        case _:
            keys = [encode_region_key(number, form=key_format) for number in ids]
    columns = [Column(name=f.name, type=format_type(f.type), field_ids=(n,)) for n, f in enumerate(COLUMNS)]
    contract = Contract(
        table_uuid="u", topic="t", topic_id="i", partitions=1, primary_key=("id",), start=(0,), columns=tuple(columns),
        region_key=() if key_format == "bytes" else ("id",), key_format=key_format,
        key_forms=(KeyForm("id-1"), key_form_written_out(CONNECT_KEY)),
    )  # fmt: skip
    return contract, Records(records.offsets, records.timestamps, list(keys), records.values, records.headers)


def _zigzag(number: int) -> bytes:
    """Return an integer as Avro writes it."""
    rest, written = number << 1, bytearray()
    while rest > 0x7F:
        written.append(rest & 0x7F | 0x80)
        rest >>= 7
    return bytes([*written, rest])


class _KeySchema:
    """The one schema of Avro keys."""

    asked_first = False
    _versions = (stored_schema(WriterSchema("avro", AVRO_KEY), "w"),)

    def known(self, key: SchemaKey) -> Sequence[StoredSchema]:
        return self._versions

    def read(self, key: SchemaKey, at_least: int = 1) -> Sequence[StoredSchema]:
        return self._versions


def _key_formats(records: Records) -> None:
    """Print the speed of each key format relative to ``bytes``, as a whole, and relative to ``canonical``, of routing."""
    prepare: dict[str, Callable[[], object]] = {}
    route: dict[str, Callable[[], object]] = {}
    for key_format in KEY_FORMATS:
        contract, keyed = _keyed(key_format, records)
        consumed = Consumed(contract.regions[0], Position(0), Position(len(keyed)), keyed)
        preparer, routing = Preparer(contract, schemas=_KeySchema()), Routing(contract)
        decoded = Decoder(
            contract.rows, JsonDecoder(contract.rows), patches=True, record_bytes_max=1 << 20, keys=None
        ).decode(keyed)
        lies = np.zeros(len(keyed), np.int32)
        found = preparer.prepare(consumed)
        assert found.entry is not None
        assert found.entry.rows.num_rows == len(keyed)
        prepare[key_format] = lambda p=preparer, c=consumed: p.prepare(c)  # type: ignore[misc]  # bound now
        route[key_format] = lambda r=routing, k=keyed, d=decoded, n=lies: r.partitions(k, d, n)  # type: ignore[misc]  # bound now
    for name, cases, against in (("prepare", prepare, "bytes"), ("routing", route, "canonical")):
        times = _timed(cases)
        print(f"keys, {name}: {len(records)} rows, speed relative to {against}")
        for case, took in times.items():
            best, median = min(took), statistics.median(took)
            speed = f"{min(times[against]) / best:.2f} {statistics.median(times[against]) / median:.2f}"
            print(f"  {case:12} best {best:6.2f} ms, median {median:6.2f} ms, speed {speed}")


def _timed(cases: Mapping[str, Callable[[], object]]) -> dict[str, list[float]]:
    """Return the CPU times of each case in milliseconds, round by round, one case after the other in each."""
    times: dict[str, list[float]] = {case: [] for case in cases}
    for _ in range(ROUNDS):
        for case, run in cases.items():
            start = time.process_time()
            run()
            times[case].append((time.process_time() - start) * 1e3)
    return times


def _bare(values: list[bytes]) -> None:
    pj.read_json(pa.BufferReader(b"\n".join(values)))


def _bare_one(values: list[bytes]) -> None:
    options = pj.ReadOptions(use_threads=False, block_size=1 << 26)
    pj.read_json(pa.BufferReader(b"\n".join(values)), read_options=options)


def main() -> None:
    rows = RowSchema(COLUMNS, ("id", "region"), ("region",))
    for name, records in (
        ("upserts", upserts(1)),
        ("mixed", mixed(2)),
        ("one bad record", with_bad(upserts(3), MESSAGES)),
        ("1 % bad records", with_bad(upserts(4), 100)),
    ):
        values_decoder = JsonDecoder(rows)
        decoder = Decoder(rows, values_decoder, patches=True, record_bytes_max=1 << 20, keys=None)
        values = [value for value in records.values if value is not None]
        cases: dict[str, Callable[[], object]] = {"decode": lambda d=decoder, r=records: d.decode(r)}  # type: ignore[misc]  # bound now
        if "bad" not in name:
            cases["bare"] = lambda v=values: _bare(v)  # type: ignore[misc]  # bound now
            cases["bare 1"] = lambda v=values: _bare_one(v)  # type: ignore[misc]  # bound now
        times = _timed(cases)
        size = sum(map(len, values)) // len(values)
        print(f"{name}: {len(values)} values of {size} bytes, {values_decoder.single_records // ROUNDS} one by one")
        _show(times, "decode")
    _compare_forms()
    _key_formats(upserts(5))


def _compare_forms() -> None:
    rows = RowSchema(pa.schema([(name, type_) for name, (type_, _) in TYPES.items()]), ("id", "region"), ("region",))
    lenient = {name: form for name, (_, form) in TYPES.items() if form is not None}
    decoders = {"strict": JsonDecoder(rows), "lenient": JsonDecoder(rows, Naming(forms=lenient))}
    cases: dict[str, Callable[[], object]] = {}
    for case, values in decoders.items():
        decoder = Decoder(rows, values, patches=True, record_bytes_max=1 << 20, keys=None)
        given = forms(5, lenient=case == "lenient")
        cases[case] = lambda d=decoder, r=given: d.decode(r)  # type: ignore[misc]  # bound now
    times = _timed(cases)
    print(f"{len(lenient)} of {len(TYPES)} columns lenient: {decoders['lenient'].single_records} values one by one")
    _show(times, "strict")


def _show(times: Mapping[str, Sequence[float]], one: str) -> None:
    """Print the times of each case, and how many times as long as the case ``one`` they are."""
    for case, took in times.items():
        best, median = min(took), statistics.median(took)
        shares = f"{best / min(times[one]):.2f} {median / statistics.median(times[one]):.2f}"
        print(f"  {case:8} best {best:6.2f} ms, median {median:6.2f} ms, share {shares}")


if __name__ == "__main__":
    main()
