"""``lancewal table create`` against a real broker: what it makes, what it refuses, and that it continues after a crash."""

from __future__ import annotations

import errno
import json
import os
import threading
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import lance
import pyarrow as pa
import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from typer.testing import CliRunner

from lancewal_core.cli.options import NOTHING_CHANGED
from lancewal_core.errors import (
    ContractMismatch,
    InvalidSchema,
    InvalidSettings,
    KafkaUnavailable,
    LancewalError,
    StoreNotWritable,
    StoreRefused,
    StoreUnsafe,
    TableExists,
    TopicMissing,
    TopicUnsuitable,
)
from lancewal_core.names import paths
from lancewal_core.names.ids import TableVersion
from lancewal_core.rows.schema import RowSchema
from lancewal_core.rows.ttl import Ttl
from lancewal_core.settings.load import Settings
from lancewal_core.settings.sections import KafkaSettings, StorageSettings, TableSettings
from lancewal_core.store.obstore import open_store
from lancewal_core.table import contract as contracts
from lancewal_core.table.checks import check_settings
from lancewal_core.table.contract import Contract, read_contract
from lancewal_core.table.lance.table import LanceTable
from lancewal_core.table.watermarks import NOTHING_MERGED, Watermarks
from lancewal_demo.stack.ports import free_ports
from lancewal_kafka.topic import TopicInspector
from lancewal_tables.commands.table import app
from lancewal_tables.define import register as register_module
from lancewal_tables.define.alter import alter_terms
from lancewal_tables.define.create import create_table
from lancewal_tables.define.topic import names_alike, unpacks_unseen
from tests.flusher.table_settings import COLUMNS, content, make_topic, table_settings

if TYPE_CHECKING:
    from lancewal_demo.stack import KafkaBroker, S3Server

pytestmark = pytest.mark.kafka


@pytest.fixture
def topic(kafka: KafkaBroker, topic_name: str) -> str:
    make_topic(kafka.bootstrap_servers, topic_name)
    return topic_name


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "table"


@pytest.fixture
def settings(kafka: KafkaBroker, topic: str, folder: Path) -> Settings:
    return table_settings(folder, kafka.bootstrap_servers, topic)


def test_what_is_made(settings: Settings, kafka: KafkaBroker, topic: str, folder: Path) -> None:
    looked = create_table(settings, look_only=True)
    assert content(folder) is None
    contract = create_table(settings)
    drawn = {"table_uuid": contract.table_uuid, "making": contract.making, "columns": contract.columns}
    assert looked.model_copy(update=drawn) == contract
    store = open_store(str(folder))
    assert read_contract(store, str(folder)) == contract
    dataset = lance.dataset(str(folder))
    assert dataset.count_rows() == 0
    assert dataset.config() == {"lancewal.table_uuid": contract.table_uuid}
    assert dataset.schema.equals(
        pa.schema(
            [
                pa.field("region", pa.string(), nullable=False),
                pa.field("id", pa.int64(), nullable=False),
                pa.field("place", pa.struct([("lat", pa.float64()), ("tags", pa.list_(pa.string()))])),
                pa.field("vector", pa.list_(pa.float32(), 4)),
                pa.field("at", pa.timestamp("us", tz="UTC")),
            ]
        )
    )
    assert dataset.schema.equals(contract.rows.table)
    described = AdminClient({"bootstrap.servers": kafka.bootstrap_servers}).list_topics(topic, timeout=60)
    assert contract.partitions == len(described.topics[topic].partitions) == 3
    assert contract.start == (-1, -1, -1)
    assert contract.patches
    assert {c.name: c.type for c in contract.columns} == COLUMNS
    # place: itself, lat, tags, the list's item
    assert [c.field_ids for c in contract.columns] == [(0,), (1,), (2, 3, 4, 5), (6,), (7,)]
    assert Watermarks(store, LanceTable(str(folder)), contract.making).at(dataset.version) == NOTHING_MERGED
    assert store.get(paths.merge_record(TableVersion(dataset.version), contract.making)) is not None


def produce(servers: str, topic: str, partition: int, times_ms: list[int]) -> None:
    producer = Producer({"bootstrap.servers": servers})
    for time_ms in times_ms:
        producer.produce(topic, b"{}", partition=partition, timestamp=time_ms)
    assert producer.flush(30) == 0


def test_rows_that_expire(kafka: KafkaBroker, topic: str, folder: Path) -> None:
    terms = {"ttl_column": "at", "ttl_s": 3600}
    with pytest.raises(InvalidSchema, match="allows patches"):
        create_table(table_settings(folder, kafka.bootstrap_servers, topic, **terms))
    with pytest.raises(InvalidSchema, match="'vector' has type"):
        create_table(
            table_settings(folder, kafka.bootstrap_servers, topic, patches=False, ttl_s=1, ttl_column="vector")
        )
    assert content(folder) is None
    contract = create_table(table_settings(folder, kafka.bootstrap_servers, topic, patches=False, **terms))
    assert contract.ttl == Ttl("at", 3600)


def test_start_positions(kafka: KafkaBroker, topic: str, tmp_path: Path) -> None:
    produce(kafka.bootstrap_servers, topic, 0, [1_000_000, 2_000_000, 3_000_000])
    produce(kafka.bootstrap_servers, topic, 2, [1_000_000])

    def start(value: Any) -> tuple[int, ...]:
        folder = tmp_path / str(value).replace(":", "")
        return create_table(table_settings(folder, kafka.bootstrap_servers, topic, start=value)).start

    assert start("earliest") == (-1, -1, -1)
    assert start("latest") == (3, 0, 1)
    # The first record at or after the time; behind all records where there is none.
    assert start(datetime.fromtimestamp(2000, UTC)) == (1, 0, 1)
    assert start(datetime.fromtimestamp(500, UTC)) == (0, 0, 0)
    # Kafka would take the millisecond -1 for the end.
    assert start(datetime(1969, 12, 31, 23, 59, 59, 999_000, UTC)) == (0, 0, 0)


def test_an_open_transaction_is_taken_whole_from_latest(kafka: KafkaBroker, topic: str, folder: Path) -> None:
    produce(kafka.bootstrap_servers, topic, 1, [1_000_000])
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers, "transactional.id": topic})
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce(topic, b"{}", partition=1)
    assert producer.flush(30) == 0
    try:
        started = create_table(table_settings(folder, kafka.bootstrap_servers, topic, start="latest")).start
    finally:
        producer.abort_transaction(30)
    assert started == (0, 1, 0)


# -- refusals, which change nothing ----------------------------------------------------------------------------


def refused(settings: Settings, folder: Path, error: type[LancewalError], *texts: str) -> None:
    before = content(folder)
    with pytest.raises(error) as caught:
        create_table(
            settings,
            TopicInspector(settings.kafka.client(), timeout_s=2.0) if settings.kafka.bootstrap_servers else None,
        )
    for text in texts:
        assert text in str(caught.value)
    assert content(folder) == before


@pytest.mark.parametrize(
    ("table", "error", "texts"),
    [
        ({"columns": {}}, InvalidSettings, ["table.columns", "LANCEWAL_TABLE__COLUMNS"]),
        ({"primary_key": ("region", "nr")}, InvalidSchema, ["'nr'", "not among table.columns"]),
        ({"primary_key": ("region", "place")}, InvalidSchema, ["'place'", "struct"]),
        ({"region_key": ("at",)}, InvalidSchema, ["'at'", "not in the primary key"]),
        ({"primary_key": ("region", "at"), "region_key": ("at",)}, InvalidSchema, ["'at'", "timestamp"]),
        ({"columns": {"region": "string", "id": "int64", "_Op": "int8"}}, InvalidSchema, ["'_Op'", "reserved"]),
    ],
)
def test_columns_and_keys(
    kafka: KafkaBroker, topic: str, folder: Path, table: dict[str, Any], error: type[LancewalError], texts: list[str]
) -> None:
    refused(table_settings(folder, kafka.bootstrap_servers, topic, **table), folder, error, *texts)


def test_the_topic_is_missing(kafka: KafkaBroker, topic_name: str, folder: Path) -> None:
    settings = table_settings(folder, kafka.bootstrap_servers, topic_name)
    refused(settings, folder, TopicMissing, topic_name, kafka.bootstrap_servers, "create it")


def test_the_brokers_are_down(folder: Path, unused_port: int) -> None:
    servers = f"127.0.0.1:{unused_port}"
    refused(table_settings(folder, servers, "t"), folder, KafkaUnavailable, servers, "kafka.bootstrap_servers")


@pytest.fixture
def unused_port() -> int:
    (port,) = free_ports(1)
    return port


def test_a_file_system_without_hard_links(settings: Settings, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def link(*_: object, **__: object) -> None:
        raise OSError(errno.EPERM, os.strerror(errno.EPERM))

    monkeypatch.setattr(os, "link", link)
    folder.mkdir()
    refused(settings, folder, StoreUnsafe, str(folder), "has no hard links", "ext4, XFS or Btrfs")


def test_librdkafka_does_not_know_an_option(settings: Settings, folder: Path) -> None:
    kafka = KafkaSettings(bootstrap_servers="127.0.0.1:1", options={"sasl.passwort": "x"})
    refused(settings.model_copy(update={"kafka": kafka}), folder, InvalidSettings, "kafka.options", "sasl.passwort")


@pytest.mark.parametrize("policy", ["compact", "compact,delete"])
def test_compacted_topics(kafka: KafkaBroker, topic_name: str, folder: Path, policy: str) -> None:
    make_topic(kafka.bootstrap_servers, topic_name, config={"cleanup.policy": policy})
    servers = kafka.bootstrap_servers
    partial = table_settings(folder, servers, topic_name, patches=False)
    refused(partial, folder, TopicUnsuitable, "compacted", "['region']", "['region', 'id']", "cleanup.policy=delete")
    whole = {"region_key": ("id", "region")}
    patching = table_settings(folder, servers, topic_name, **whole)
    refused(patching, folder, TopicUnsuitable, "compacted", "table.patches: false")
    contract = create_table(table_settings(folder, servers, topic_name, patches=False, **whole))
    assert not contract.patches


@pytest.mark.parametrize(("compression", "warned"), [("producer", True), ("zstd", True), ("uncompressed", False)])
def test_what_batches_unpack_to_is_not_limited(
    kafka: KafkaBroker, topic_name: str, tmp_path: Path, compression: str, warned: bool
) -> None:
    make_topic(kafka.bootstrap_servers, topic_name, config={"compression.type": compression})
    inspector = TopicInspector({"bootstrap.servers": kafka.bootstrap_servers})
    said = unpacks_unseen(inspector.describe(topic_name))
    assert (said is not None) == warned
    assert said is None or f"compression.type={compression}" in said


def test_names_that_differ_in_case_alone() -> None:
    columns = pa.schema([("id", pa.int64()), ("status", pa.string()), ("Status", pa.string())])
    said = names_alike(RowSchema(columns, ("id",), ("id",)))
    assert said is not None
    assert "'status' and 'Status' differ only in upper and lower case" in said
    assert names_alike(RowSchema(columns.remove(1), ("id",), ("id",))) is None


@pytest.mark.parametrize("named", ["", "letters"])
def test_a_dead_letter_topic_that_is_missing(kafka: KafkaBroker, topic: str, tmp_path: Path, named: str) -> None:
    letters = f"{topic}-{named}" if named else f"{topic}.dead-letters"
    servers, terms = kafka.bootstrap_servers, {"dead_letter_topic": letters if named else ""}
    said: dict[str, list[str]] = {"looked": [], "missing": [], "there": []}
    create_table(table_settings(tmp_path / "a", servers, topic, **terms), warn=said["looked"].append, look_only=True)
    create_table(table_settings(tmp_path / "a", servers, topic, **terms), warn=said["missing"].append)
    make_topic(servers, letters)
    create_table(table_settings(tmp_path / "b", servers, topic, **terms), warn=said["there"].append)
    of_letters = {act: [text for text in texts if repr(letters) in text] for act, texts in said.items()}
    assert {act: len(texts) for act, texts in of_letters.items()} == {"looked": 1, "missing": 1, "there": 0}
    at_create, altered = of_letters["missing"][0], list[str]()

    def alter(settings: Settings, **changes: object) -> list[str]:
        altered.clear()
        alter_terms(settings, changes, warn=altered.append)
        return altered

    settings = table_settings(tmp_path / "b", servers, topic)
    unsaid = settings.model_copy(update={"table": TableSettings(uri=settings.table.uri)})
    assert alter(unsaid, dead_letter_topic=f"{letters}-2") == [at_create.replace(letters, f"{letters}-2")]
    assert alter(unsaid, on_misrouted="dead-letter") == [at_create.replace(letters, f"{letters}-2")]
    assert alter(unsaid, history_window_s=9 * 86400) == []
    assert alter(unsaid, dead_letter_topic=letters) == []
    assert "--dead-letter-topic" in of_letters["missing"][0]


def test_keys_of_another_system(kafka: KafkaBroker, topic_name: str, folder: Path) -> None:
    servers, encoding = kafka.bootstrap_servers, {"format": {"key": "bytes"}}
    make_topic(servers, topic_name, config={"cleanup.policy": "compact"})
    compacted = table_settings(folder, servers, topic_name, patches=False, region_key=(), **encoding)
    refused(compacted, folder, TopicUnsuitable, "compacted", "bytes", "cleanup.policy=delete")
    for terms in ({"partitioner": "none"}, {"format": {"key": "json"}}):
        part = table_settings(folder, servers, topic_name, patches=False, **terms)
        refused(part, folder, TopicUnsuitable, "compacted", "['region']", "make table.region_key the primary key")
        whole = {"region_key": ("region", "id"), **terms}
        patching = table_settings(folder, servers, topic_name, **whole)
        refused(patching, folder, TopicUnsuitable, "compacted", "table.patches: false")
        said: list[str] = []
        uri = folder / str(next(iter(terms)))
        create_table(table_settings(uri, servers, topic_name, patches=False, **whole), warn=said.append)
        (warning,) = [text for text in said if "retention_lost" in text]
        assert "`lancewal offset accept-loss TOPIC-PARTITION`" in warning
    make_topic(servers, f"{topic_name}-plain")
    both = table_settings(folder, servers, f"{topic_name}-plain", **encoding)
    refused(both, folder, InvalidSchema, "['region']", "bytes", "Leave table.region_key out")
    settings = table_settings(
        folder, servers, f"{topic_name}-plain", region_key=(), on_unknown_column="ignore", columns_max=9, **encoding
    )
    contract = create_table(settings)
    assert (contract.region_key, contract.rows_tell_partition) == ((), False)
    assert (contract.on_unknown_column, contract.columns_max, contract.format) == ("ignore", 9, 2)
    check_settings(settings, contract)
    with pytest.raises(ContractMismatch, match=r"format\.key.*'canonical'.*'bytes'"):
        check_settings(table_settings(folder, servers, "", region_key=(), format={"key": "canonical"}), contract)


def test_the_store_is_not_writable(kafka: KafkaBroker, topic: str, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    settings = table_settings(tmp_path / "file" / "table", kafka.bootstrap_servers, topic)
    refused(settings, tmp_path, StoreNotWritable, str(tmp_path / "file" / "table"), "permissions")


def test_the_table_exists(settings: Settings, folder: Path) -> None:
    contract = create_table(settings)
    refused(settings, folder, TableExists, contract.topic, "table show")


@pytest.mark.parametrize(
    ("schema", "rows", "text"),
    [(None, 1, "with rows"), (pa.schema([("x", pa.int64())]), 0, "with other columns")],
)
def test_a_plain_lance_table_is_there(
    settings: Settings, folder: Path, schema: pa.Schema | None, rows: int, text: str
) -> None:
    there = pa.table({"region": ["a"]}) if schema is None else schema.empty_table()
    assert there.num_rows == rows
    lance.write_dataset(there, str(folder))
    refused(settings, folder, TableExists, text, "table attach")


# -- crashes and races -----------------------------------------------------------------------------------------


class Crash(BaseException):
    """Ends the process at a step."""


def crash(*_: object, **__: object) -> None:
    raise Crash


@pytest.mark.parametrize("step", ["register", "checkpoint", "contract", "identity", "last"])
def test_the_same_command_continues_after_a_crash(
    settings: Settings, folder: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    record, times = Watermarks.record, iter([1])

    def crash_the_second_time(*arguments: Any) -> None:
        if next(times, None) is None:
            raise Crash
        record(*arguments)

    with monkeypatch.context() as patch:
        match step:
            case "register":  # behind step 1 of create
                patch.setattr("lancewal_tables.define.create.register", crash)
            case "checkpoint":  # before the checkpoint is put
                patch.setattr(Watermarks, "record", crash)
            case "contract":  # before the contract is put
                patch.setattr(register_module, "put_once", crash)
            case "identity":  # behind it
                patch.setattr(lance.LanceDataset, "update_config", crash)
            case "last":  # before the checkpoint of the version with the uuid
                patch.setattr(Watermarks, "record", crash_the_second_time)
        with pytest.raises(Crash):
            create_table(settings)
    store = open_store(str(folder))
    if step == "last":
        refused(settings, folder, TableExists, "already a lancewal table")
        contract = read_contract(store, str(folder))
    else:
        put = read_contract(store, str(folder)).table_uuid if step == "identity" else None
        contract = create_table(settings)
        assert put in (None, contract.table_uuid)
    assert lance.dataset(str(folder)).config() == {"lancewal.table_uuid": contract.table_uuid}
    assert Watermarks(store, LanceTable(str(folder)), contract.making).at(2) == NOTHING_MERGED


def test_other_commits_to_the_config_do_not_end_the_uuid(
    settings: Settings, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What somebody else, or a clone's original, has named is replaced, also where their commit comes in between."""
    update, late = lance.LanceDataset.update_config, ["theirs", "theirs again"]

    def too_late(dataset: lance.LanceDataset, config: dict[str, str | None]) -> None:
        if late:
            update(lance.dataset(str(folder)), {"lancewal.table_uuid": late.pop()})
        update(dataset, config)

    monkeypatch.setattr(lance.LanceDataset, "update_config", too_late)
    contract = create_table(settings)
    assert not late
    assert lance.dataset(str(folder)).config() == {"lancewal.table_uuid": contract.table_uuid}


def test_of_two_at_once_one_contract_stands(settings: Settings, folder: Path) -> None:
    other = settings.model_copy(update={"table": settings.table.model_copy(update={"grace_s": 601})})
    barrier = threading.Barrier(2)
    outcomes: list[Contract | LancewalError] = []

    def create(which: Settings) -> None:
        inspector = TopicInspector(which.kafka.client())
        barrier.wait()
        try:
            outcomes.append(create_table(which, inspector))
        except LancewalError as error:
            outcomes.append(error)

    threads = [threading.Thread(target=create, args=(which,)) for which in (settings, other)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    made = [o for o in outcomes if isinstance(o, Contract)]
    lost = [o for o in outcomes if not isinstance(o, Contract)]
    assert len(made) == 1, outcomes
    assert isinstance(lost[0], TableExists)
    stored = read_contract(open_store(str(folder)), str(folder))
    assert stored == made[0]
    assert lance.dataset(str(folder)).config()["lancewal.table_uuid"] == stored.table_uuid


# -- the command -----------------------------------------------------------------------------------------------


def test_the_command_and_show(kafka: KafkaBroker, topic: str, tmp_path: Path) -> None:
    folder, file = tmp_path / "table", tmp_path / "lancewal.yaml"
    file.write_text(
        f"table: {{uri: {folder}, topic: {topic}, columns: {{region: string, id: int64, name: string}}, "
        f"primary_key: [region, id], region_key: [region]}}\nkafka: {{bootstrap_servers: '{kafka.bootstrap_servers}'}}\n"
    )
    looked = [CliRunner().invoke(app, ["create", "-c", str(file), "--dry-run", *form]) for form in ([], ["-o", "json"])]
    assert content(folder) is None
    assert "compression.type=producer" in looked[0].stderr
    assert looked[0].stdout.splitlines()[-1] == NOTHING_CHANGED
    created = CliRunner().invoke(app, ["create", "--config", str(file), "--output", "json"])
    assert created.exit_code == 0, created.output
    assert "warning: " in created.stderr
    assert "compression.type=producer" in created.stderr
    stored = read_contract(open_store(str(folder)), str(folder))
    assert contracts.decode_contract(created.stdout.encode(), "stdout") == stored
    would_be, made = json.loads(looked[1].stdout), json.loads(created.stdout)
    assert (made.pop("table_uuid"), made.pop("making")) == (stored.table_uuid, stored.making)
    assert all(column.pop("field_ids") for column in made["columns"])
    assert would_be == made
    again = CliRunner().invoke(app, ["create", "-c", str(file), "--dry-run"])
    assert isinstance(again.exception, TableExists)
    for arguments in (["show", "-c", str(file)], ["show", "-t", str(folder)]):
        shown = CliRunner().invoke(app, arguments).stdout
        for text in (topic, stored.topic_id, "3 partitions", "region, id", "earliest", stored.table_uuid, "name "):
            assert text in shown


# -- an S3 store -----------------------------------------------------------------------------------------------


def s3_options(s3: S3Server) -> dict[str, str]:
    return {name.lower(): value for name, value in s3.environment.items()}


@pytest.mark.s3
def test_a_table_on_s3_and_a_bucket_that_is_missing(kafka: KafkaBroker, topic: str, s3: S3Server, folder: Path) -> None:
    on_disk = table_settings(folder, kafka.bootstrap_servers, topic)

    def on_s3(uri: str) -> Settings:
        table = on_disk.table.model_copy(update={"uri": uri})
        return on_disk.model_copy(update={"table": table, "storage": StorageSettings(options=s3_options(s3))})

    uri = f"s3://{s3.bucket('create')}/folder/table"
    contract = create_table(on_s3(uri))
    assert read_contract(open_store(uri, s3_options(s3)), uri) == contract
    with pytest.raises(TableExists):
        create_table(on_s3(uri))
    with pytest.raises(StoreRefused, match="no-such-bucket"):
        create_table(on_s3("s3://no-such-bucket/table"))
