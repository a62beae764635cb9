"""Settings: what overrides what, that every mistake is named with its place, and that no secret is shown."""

from __future__ import annotations

import functools
import json
import os
import re
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from pydantic import ValidationError

from lancewal_core.errors import InvalidSettings
from lancewal_core.process.library_errors import first_line
from lancewal_core.settings.load import Settings, load_settings, setting_keys, variable
from lancewal_core.settings.secrets import SHOWN
from lancewal_core.settings.sections import FormatSettings
from lancewal_core.settings.sources import ELSEWHERE

SECRET = "hunter2-do-not-show"
REFERENCE = Path(__file__).resolve().parents[3] / "docs" / "reference" / "settings.md"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "lancewal.yaml"


def problems(path: Path | None, environ: dict[str, str]) -> list[str]:
    """All problems, one text each; fails if there are none."""
    with pytest.raises(InvalidSettings) as caught:
        load_settings(path, environ)
    found = caught.value.where["problems"]
    assert isinstance(found, tuple)
    assert all(problem in str(caught.value) for problem in found)
    return list(found)


def test_without_file_and_variables_there_are_only_defaults() -> None:
    assert load_settings(None, {}) == Settings()


def test_the_process_environment_is_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LANCEWAL_TABLE__TOPIC", "elsewhere")
    assert load_settings(None, {}).table.topic == ""


def test_a_variable_overrides_a_secret_file_and_that_the_file(file: Path, tmp_path: Path) -> None:
    file.write_text("table: {topic: file}\nkafka: {group_id: file, bootstrap_servers: 'file:1'}")
    secrets = tmp_path / "secrets"
    secrets.mkdir()
    (secrets / "LANCEWAL_TABLE__TOPIC").write_text("secret")
    (secrets / "lancewal_kafka__group_id").write_text("secret\n")
    (secrets / "ca.crt").write_text("no setting of ours")
    environ = {"LANCEWAL_TABLE__TOPIC": "variable", "LANCEWAL_SECRETS_DIR": str(secrets), "HOME": "/"}
    settings = load_settings(file, environ)
    kafka = settings.kafka
    assert (settings.table.topic, kafka.group_id, kafka.bootstrap_servers) == ("variable", "secret", "file:1")


def test_options_are_overridden_one_by_one_whatever_their_spelling(file: Path) -> None:
    file.write_text(
        "storage: {options: {AWS_REGION: file, aws_endpoint: file}}\n"
        "kafka: {options: {sasl.password: file, socket.keepalive.enable: true}}\n"
    )
    settings = load_settings(
        file, {"LANCEWAL_STORAGE__OPTIONS__AWS_REGION": "x", "LANCEWAL_KAFKA__OPTIONS__SASL_PASSWORD": "y"}
    )
    assert settings.storage.options == {"aws_region": "x", "aws_endpoint": "file"}
    assert settings.kafka.options == {"sasl.password": "y", "socket.keepalive.enable": "true"}


def test_the_file_named_by_the_variable_is_read_unless_another_is_given(file: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.yaml"
    file.write_text("table: {topic: a}")
    other.write_text("table: {topic: b}")
    assert load_settings(None, {"LANCEWAL_CONFIG": str(file)}).table.topic == "a"
    assert load_settings(other, {"LANCEWAL_CONFIG": str(file)}).table.topic == "b"


def test_columns_keep_their_order_and_are_one_value(file: Path) -> None:
    file.write_text("table: {columns: {z: int64, a: 'timestamp[us, UTC]', m: list<string>}}")
    assert list(load_settings(file, {}).table.columns) == ["z", "a", "m"]
    replaced = load_settings(file, {"LANCEWAL_TABLE__COLUMNS": '{"B": "int8", "A": "bool"}'}).table.columns
    assert list(replaced.items()) == [("B", "int8"), ("A", "bool")]


@pytest.mark.parametrize("text", ["a,b", " a , b ", '["a", "b"]'])
def test_names_in_a_variable(text: str) -> None:
    assert load_settings(None, {"LANCEWAL_TABLE__PRIMARY_KEY": text}).table.primary_key == ("a", "b")


@pytest.mark.parametrize(("text", "expected"), [("512MiB", 512 << 20), ("64 MB", 64_000_000), ("1073741824", 1 << 30)])
def test_bytes(text: str, expected: int) -> None:
    environ = {"LANCEWAL_INGEST__MEMORY_BYTES_MAX": text, "LANCEWAL_INGEST__SEAL_BYTES": "1"}
    assert load_settings(None, environ).ingest.memory_bytes_max == expected


def test_start(file: Path) -> None:
    assert load_settings(None, {"LANCEWAL_TABLE__START": "latest"}).table.start == "latest"
    file.write_text("table: {start: 2026-01-31T01:00:00+01:00}")  # unquoted: YAML would make a time of its own of it
    assert load_settings(file, {}).table.start == datetime(2026, 1, 31, tzinfo=UTC)
    for wrong in ("2026-01-31T00:00:00", "yesterday", "1700000000"):
        (problem,) = problems(None, {"LANCEWAL_TABLE__START": wrong})
        assert problem.startswith("variable LANCEWAL_TABLE__START: table.start: expected earliest, latest or a time")


def test_a_type_that_needs_quotes_is_said_so(file: Path) -> None:
    file.write_text("table:\n  columns: {id: int64, fare: decimal128(10, 2)}\n")
    cut, found = problems(file, {})
    assert cut.startswith(f"{file}:2: table.columns.fare: column type 'decimal128(10': expected ',' at character 14")
    assert found.startswith(f"{file}:2: table.columns: '2)' needs a type as text: put a type with a comma")


def test_forms_and_fields_of_columns(file: Path) -> None:
    said = {"type": "timestamp[us, UTC]", "json": "epoch_ms", "field": "ts"}
    file.write_text(f"table: {{columns: {{id: int64, at: {json.dumps(said)}, n: {{type: int8}}}}}}")
    settings = load_settings(file, {})
    assert settings.table.columns == {"id": "int64", "at": said, "n": "int8"}
    assert settings.masked()["table"]["columns"] == {"id": "int64", "at": said, "n": "int8"}
    variable_ = {"LANCEWAL_TABLE__COLUMNS": json.dumps({"at": said})}
    assert load_settings(None, variable_).table.columns == {"at": said}


@pytest.mark.parametrize(
    ("column", "named"),
    [
        ("kafka.lag", "source is 'kafka.lag': expected one of kafka.topic, kafka.partition, kafka.offset"),
        ("kafka.header.", "source is 'kafka.header.'"),
        (
            "envelope.source.txId",
            "envelope.op, envelope.ts_ms, envelope.source.ts_ms, envelope.source.lsn, kafka.header.NAME",
        ),
        ("{source: envelope.op, type: string}", "only kafka.key and headers take a type"),
        ("{source: kafka.offset, type: string}", "only kafka.key and headers take a type"),
        ("{source: kafka.key, type: int64}", "only kafka.key and headers take a type"),
        ("{from: kafka.key}", "expected a source such as kafka.offset"),
        ("7", "expected a source such as kafka.offset"),
    ],
)
def test_what_is_no_metadata_is_named(file: Path, column: str, named: str) -> None:
    file.write_text(f"table:\n  metadata_columns:\n    at: {column}\n")
    (found,) = problems(file, {})
    assert named in found
    assert found.startswith(f"{file}:3: table.metadata_columns.at: ")


def test_metadata_columns(file: Path) -> None:
    said = {
        "at": "kafka.offset",
        "k": {"source": "kafka.key", "type": "string"},
        "h": "kafka.header.a.b",
        "e": "envelope.source.lsn",
    }
    file.write_text(f"table: {{metadata_columns: {json.dumps(said)}}}")
    settings = load_settings(file, {})
    assert settings.table.metadata_columns == said
    assert settings.masked()["table"]["metadata_columns"] == said
    file.write_text("table: {columns: {at: int64}, metadata_columns: {at: kafka.offset}}")
    assert "'at' is in columns and in metadata_columns" in problems(file, {})[0]


@pytest.mark.parametrize(
    ("column", "named"),
    [
        ("{type: int64, jsn: text}", "unknown key 'jsn': a column takes type, json, field, toast"),
        ("{json: epoch_ms}", "type needs a text"),
        (
            "{type: int64, json: millis}",
            "json is 'millis': expected one of epoch_s, epoch_ms, epoch_us, utc, number_text",
        ),
        ("{type: int64, field: ''}", "field needs a text"),
        ("{type: int63}", "column type 'int63'"),
        ("7", "'at' needs a type as text"),
        ("[int64]", "'at' needs a type as text"),
    ],
)
def test_what_is_no_column_is_named(file: Path, column: str, named: str) -> None:
    file.write_text(f"table:\n  columns:\n    id: int64\n    at: {column}\n")
    found = problems(file, {})
    assert named in found[0]
    assert found[0].startswith(f"{file}:{2 if 'needs a type' in named else 4}: table.columns")


def test_each_column_is_named_at_its_own_line(file: Path) -> None:
    file.write_text(
        "table:\n  columns:\n    id: int64\n    a_b: integer\n    ok: bool\n"
        "    ab: varchar(10)\n    AT: 'datetime'\n    x: 'int64ä'\n"
    )
    assert [text.split("; ")[0].split(": expected")[0] for text in problems(file, {})] == [
        f"{file}:4: table.columns.a_b: column type 'integer'",
        f"{file}:6: table.columns.ab: column type 'varchar(10)'",
        f"{file}:7: table.columns.AT: column type 'datetime'",
        f"{file}:8: table.columns.x: column type 'int64\\xe4' has characters that no type has",
    ]


def test_all_problems_come_at_once_each_with_its_place(file: Path) -> None:
    file.write_text(
        "table:\n"
        "  uri: ftp://user:hunter2-do-not-show@host/x\n"
        "  columns: {id: int63}\n"
        "  primary_kye: [id]\n"
        "  patches: true\n"
        "  patches: false\n"
        "kafak: {}\n"
        "metrics: {port: 1}\n"
        "ingest: {linger_ms: true, memory_bytes_max: 1GiBB, foo: 1}\n"
    )
    found = problems(file, {"LANCEWAL_FLUSHER__THREADS": "two", "LANCEWAL_FLUSHER__THREAD": "2"})
    expected = [
        f"{file}:2: table.uri: the address has user information before its bucket or host (it is not shown here)",
        f"{file}:3: table.columns.id: column type 'int63': expected a known type (did you mean int64?) at character 6",
        f"{file}:4: table.primary_kye: is not a setting; did you mean table.primary_key?",
        f"{file}:6: table.patches: is given twice, before at {file}:5",
        f"{file}:7: kafak: is not a setting; did you mean kafka?",
        f"{file}:8: metrics.port: is not a setting",
        f"{file}:9: ingest.linger_ms: expected a number, not a truth value; got True",
        f"{file}:9: ingest.memory_bytes_max: could not interpret byte unit",
        f"{file}:9: ingest.foo: is not a setting",
        "variable LANCEWAL_FLUSHER__THREADS: flusher.threads: Input should be a valid integer",
        "variable LANCEWAL_FLUSHER__THREAD: flusher.thread: is not a setting; did you mean flusher.threads?",
    ]
    for text in expected:
        assert [p for p in found if p.startswith(text)], (text, found)
    assert len(found) == len(expected)
    assert f"{file}:9: ingest.foo: is not a setting" in found  # and nothing else is like it


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("LANCEWAL_KAFKA_BOOTSTRAP_SERVERS", "did you mean LANCEWAL_KAFKA__BOOTSTRAP_SERVERS?"),
        ("LANCEWAL_INGESTT__LINGER_MS", "did you mean LANCEWAL_INGEST__LINGER_MS?"),
        ("LANCEWAL_QWERTZUIOP", ""),
        ("LANCEWAL_SERVICE_HOST", "enableServiceLinks: false"),
        ("LANCEWAL_SERVICE_PORT_METRICS", "enableServiceLinks: false"),
        ("LANCEWAL_PORT", "enableServiceLinks: false"),
        ("LANCEWAL_PORT_9464_TCP_ADDR", "enableServiceLinks: false"),
        ("LANCEWAL_INGEST_PORT_9464_TCP", "enableServiceLinks: false"),
        ("lancewal_ingest_service_host", "enableServiceLinks: false"),
    ],
)
def test_unknown_variables_are_errors(name: str, hint: str) -> None:
    (problem,) = problems(None, {name: "x"})
    assert problem.startswith(f"variable {name}: is not a setting")
    assert hint in problem


def test_a_program_gives_a_path_and_only_the_variables_it_means(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file.write_text("table: {topic: orders}\n")
    monkeypatch.setenv("LANCEWAL_TABLE__TOPIC", "others")
    assert load_settings(str(file)) == load_settings(file)
    assert load_settings(str(file)).table.topic == "orders"
    assert load_settings(None).table.topic == ""


@pytest.mark.parametrize("name", ELSEWHERE)
def test_what_other_programs_call_a_setting_names_ours(file: Path, name: str) -> None:
    assert ELSEWHERE[name] in setting_keys()
    section, _, key = name.partition(".")
    file.write_text(f"{section}: {{{key}: x}}\n" if key else f"{section}: x\n")
    (problem,) = problems(file, {})
    assert problem == f"{file}:1: {name}: is not a setting; did you mean {ELSEWHERE[name]}?"


def test_an_unknown_mapping_of_options_is_named_and_shows_no_value() -> None:
    (problem,) = problems(None, {"LANCEWAL_KAFKA__LIBRDKAFKA__SASL_PASSWORD": "hush-hush"})
    assert "kafka.librdkafka: is not a setting" in problem
    assert "hush" not in problem


def test_variables_that_are_no_settings_are_known() -> None:
    names = ("LANCEWAL_FAILPOINT", "LANCEWAL_TESTING", "LANCEWAL_EVENT_LOG", "LANCEWAL_CONFIG", "LANCEWAL_SECRETS_DIR")
    assert load_settings(None, dict.fromkeys(names, "")) == Settings()


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ("a: [", ":1: not YAML"),
        (
            "a:\n  times: struct<dep: int32>",
            ":2: not YAML: mapping values are not allowed here. A text with a colon has quotes",
        ),
        (
            "a: {times: struct<dep: int32>}",
            ":1: not YAML: expected ',' or '}', but got ':'. A text with a colon has quotes",
        ),
        ("a: \0", ": not YAML: unacceptable character"),
        ('table: {uri: "s3://b/\x07"}', ": not YAML: unacceptable character"),
        ("a: " + "[" * 20_000, ": not YAML: it is nested too deeply"),
        ("{a: " * 20_000, ": not YAML: it is nested too deeply"),
        ("ingest: {linger_ms: " + "9" * 5_000 + "}", ": not YAML: Exceeds the limit"),
        ("- a\n- b\n", "expected sections"),
        ("table: 3", ":1: table: takes `name: value` pairs, each on a line of its own below it; got 3"),
        ("kafka: broker:9092", ":1: kafka: takes `name: value` pairs"),
        ("kafka: {options: security.protocol}", ":1: kafka.options: takes `name: value` pairs"),
        ("table: {columns: [id]}", ":1: table.columns: takes `name: value` pairs"),
        ("table:\n  columns:\n    on: int64\n", ":3: table.columns.on: a key must be a text"),
    ],
)
def test_files_that_are_none(file: Path, content: str, expected: str) -> None:
    file.write_text(content)
    assert any(expected in problem for problem in problems(file, {}))


def test_a_file_or_folder_that_is_missing(tmp_path: Path) -> None:
    assert "cannot be read" in problems(tmp_path / "no.yaml", {})[0]
    assert "LANCEWAL_SECRETS_DIR" in problems(None, {"LANCEWAL_SECRETS_DIR": str(tmp_path / "no")})[0]


def test_a_file_without_end_is_refused() -> None:
    assert "more than 1048576 characters" in problems(Path("/dev/zero"), {})[0]


def test_a_file_may_be_as_large_as_the_limit_and_no_larger(file: Path, tmp_path: Path) -> None:
    file.write_text("#" * (1 << 20))
    load_settings(file, {})
    file.write_text("#" * ((1 << 20) + 1))
    assert "more than 1048576 characters" in problems(file, {})[0]
    (tmp_path / "secrets").mkdir()
    (tmp_path / "secrets" / "LANCEWAL_STORAGE__URI").write_text("x" * ((1 << 20) + 1))
    assert "more than 1048576 characters" in problems(None, {"LANCEWAL_SECRETS_DIR": str(tmp_path / "secrets")})[0]


def test_a_settings_file_may_be_a_pipe(tmp_path: Path) -> None:
    """As a shell's ``<(...)`` is."""
    pipe, end = os.pipe()
    os.write(end, b"tabel: {}\n")
    os.close(end)
    try:
        assert any("tabel" in problem for problem in problems(Path(f"/dev/fd/{pipe}"), {}))
    finally:
        os.close(pipe)


def test_a_section_without_content_is_allowed(file: Path) -> None:
    file.write_text("kafka:\ntable:\n")
    assert load_settings(file, {}).model_dump() == Settings().model_dump()


def test_secret_files_with_unknown_names(tmp_path: Path) -> None:
    (tmp_path / "table__topic").write_text("x")
    (tmp_path / "LANCEWAL_TABLE__TOPICC").write_text("x")
    (tmp_path / "..data").mkdir()
    first, second = problems(None, {"LANCEWAL_SECRETS_DIR": str(tmp_path)})
    assert "did you mean LANCEWAL_TABLE__TOPIC?" in first
    assert second.startswith(f"secret file {tmp_path / 'LANCEWAL_TABLE__TOPICC'}: table.topicc: is not a setting")


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        ({"LANCEWAL_INGEST__SEAL_BYTES": "1GiB"}, "exceeds memory_bytes_max"),
        ({"LANCEWAL_KAFKA__OPTIONS__GROUP_ID": "g"}, "set kafka.group_id"),
        ({"LANCEWAL_KAFKA__OPTIONS__AUTO_OFFSET_RESET": "latest"}, "auto.offset.reset"),
        ({"LANCEWAL_TABLE__TOPIC": "t", "LANCEWAL_TABLE__DEAD_LETTER_TOPIC": "t"}, "letters would come back"),
        ({"LANCEWAL_TABLE__DEAD_LETTER_TOPIC": " d"}, "expected the name of a topic"),
        ({"LANCEWAL_KAFKA__TOPICS": "orders, a b"}, "* stands for any characters"),
        ({"LANCEWAL_KAFKA__TOPICS": "orders[0-9]"}, "* stands for any characters"),
        ({"LANCEWAL_HTTP__INGEST_PORT": "70000"}, "http.ingest_port"),
        ({"LANCEWAL_INGEST__RETRY_INTERVAL_S": "nan"}, "ingest.retry_interval_s"),
        ({"LANCEWAL_TABLE__URI": "/a", "lancewal_table__uri": "/b"}, "given twice"),
    ],
)
def test_contradictions_and_limits(environ: dict[str, str], expected: str) -> None:
    assert expected in problems(None, environ)[0]


def test_need_names_all_that_is_missing() -> None:
    settings = load_settings(None, {"LANCEWAL_TABLE__TOPIC": "t"})
    settings.need("table.topic")
    with pytest.raises(InvalidSettings) as caught:
        settings.need("table.topic", "table.uri", "table.columns")
    assert "table.topic" not in str(caught.value)
    assert "LANCEWAL_TABLE__URI" in str(caught.value)
    assert "LANCEWAL_TABLE__COLUMNS" in str(caught.value)
    with pytest.raises(InvalidSettings, match=r"^table\.uri: is needed here"):
        settings.need("table.uri")
    with pytest.raises(InvalidSettings, match=r"^table: dead_letter_topic is the topic itself"):
        load_settings(None, {"LANCEWAL_TABLE__TOPIC": "t", "LANCEWAL_TABLE__DEAD_LETTER_TOPIC": "t"})


def test_where_settings_were_looked_for_is_said_where_no_file_was_named(file: Path) -> None:
    file.write_text("table: {topic: t}")
    unnamed = "No settings file was named (--config FILE, or LANCEWAL_CONFIG): settings were looked for in variables"
    for path, environ, said in (
        (None, {}, True), (None, {"LANCEWAL_CONFIG": ""}, True), (None, {"LANCEWAL_CONFIG": str(file)}, False),
        (file, {}, False),
    ):  # fmt: skip
        with pytest.raises(InvalidSettings) as caught:
            load_settings(path, environ).need("table.uri")
        assert (unnamed in str(caught.value)) is said
        with pytest.raises(InvalidSettings) as caught:
            load_settings(
                path, {**environ, "LANCEWAL_INGEST__RETRY_INTERVAL_S": "nan", "LANCEWAL_INGEST__LINGER_MS": "x"}
            )
        assert (unnamed in str(caught.value)) is said


@pytest.mark.parametrize(
    ("given_", "host"),
    [
        ("::1", "::1"),
        ("[::1]", "::1"),
        ("::", "::"),
        ("fe80::1%eth0", "fe80::1%eth0"),
        ("0.0.0.0", "0.0.0.0"),
        ("a.b", "a.b"),
    ],
)
def test_the_host_of_metrics_may_be_any_address(given_: str, host: str) -> None:
    assert load_settings(None, {"LANCEWAL_HTTP__HOST": given_}).http.host == host


@pytest.mark.parametrize("given_", ["127.0.0.1:9464", "[::1]:9464", "::1::", "localhost:1"])
def test_the_host_of_metrics_has_no_port(given_: str) -> None:
    assert "the ports are http.ingest_port" in problems(None, {"LANCEWAL_HTTP__HOST": given_})[0]


def test_derived_names() -> None:
    settings = load_settings(None, {})
    assert settings.kafka.group("u") == "lancewal-u"
    assert load_settings(None, {"LANCEWAL_KAFKA__GROUP_ID": "g"}).kafka.group("u") == "g"


def test_the_tree_is_frozen() -> None:
    settings = load_settings(None, {})
    with pytest.raises(ValidationError):
        settings.table.topic = "x"


# -- secrets ---------------------------------------------------------------------------------------------------

SECRETS = {
    "LANCEWAL_STORAGE__OPTIONS__AWS_SECRET_ACCESS_KEY": SECRET,
    "LANCEWAL_STORAGE__OPTIONS__AWS_SESSION_TOKEN": SECRET,
    "LANCEWAL_STORAGE__OPTIONS__AWS_ENDPOINT": f"https://user:{SECRET}@host:9000/?token={SECRET}",
    "LANCEWAL_KAFKA__OPTIONS__SASL_PASSWORD": SECRET,
    "LANCEWAL_KAFKA__OPTIONS__SSL_KEY_PASSWORD": SECRET,
    "LANCEWAL_KAFKA__OPTIONS__SSL_KEY_PEM": SECRET,
    "LANCEWAL_KAFKA__OPTIONS__SASL_OAUTHBEARER_CLIENT_SECRET": SECRET,
    "LANCEWAL_KAFKA__OPTIONS__SASL_OAUTHBEARER_CONFIG": f"principal=x secret={SECRET}",
    "LANCEWAL_CATALOG__PASSWORD": SECRET,
}
PUBLIC = {
    "LANCEWAL_STORAGE__OPTIONS__AWS_ACCESS_KEY_ID": "AKIDSHOWN",
    "LANCEWAL_KAFKA__OPTIONS__SSL_KEY_LOCATION": "/etc/keyshown",
    "LANCEWAL_TABLE__PRIMARY_KEY": "idshown",
}


def test_masked_shows_no_secret_and_all_else() -> None:
    settings = load_settings(None, SECRETS | PUBLIC)
    shown = json.dumps(settings.masked())
    assert SECRET not in shown
    assert SECRET not in repr(settings.storage) + repr(settings.kafka) + repr(settings.catalog)
    for text in ("AKIDSHOWN", "/etc/keyshown", "idshown", "https://***@host:9000/"):
        assert text in shown
    assert settings.storage.options["aws_secret_access_key"] == SECRET


@pytest.mark.parametrize("name", SECRETS)
def test_no_error_shows_a_secret(name: str) -> None:
    """Below an option, where a text is expected, stands a mapping; and every other variable is wrong."""
    environ = {f"{name}__DEEPER": SECRET, "LANCEWAL_TABLE__URI": f"ftp://u:{SECRET}@x", "LANCEWAL_FLUSHER__X": "1"}
    with pytest.raises(InvalidSettings) as caught:
        load_settings(None, environ)
    assert SECRET not in str(caught.value)


@given(name=st.from_regex(r"[a-z]{4,9}(_[a-z]{4,9}){0,2}", fullmatch=True).filter(lambda name: name not in SHOWN))
@example("headers")
@example("cookie")
@example("signature")
@example("conn_string")
@example("azure_storage_connection_string")
@example("google_service_account")
@example("api_token")
def test_an_option_that_is_not_known_to_be_open_is_masked(name: str) -> None:
    masked = load_settings(None, {f"LANCEWAL_STORAGE__OPTIONS__{name.upper()}": SECRET}).masked()
    assert masked["storage"]["options"] == {name: "***"}


@pytest.mark.parametrize("name", ["sasl.pasword", "sasl.kerberos.kinit.cmd", "ssl.key.pasword", "plugin.library.paths"])
def test_an_option_of_kafka_that_is_not_known_to_be_open_is_masked(name: str) -> None:
    variable = f"LANCEWAL_KAFKA__OPTIONS__{name.upper().replace('.', '_')}"
    assert load_settings(None, {variable: SECRET}).masked()["kafka"]["options"] == {name: "***"}


@pytest.mark.parametrize(
    ("section", "name"),
    [
        ("kafka", "security.protocol"),
        ("kafka", "sasl.mechanism"),
        ("kafka", "sasl.username"),
        ("kafka", "client.id"),
        ("kafka", "ssl.ca.location"),
        ("kafka", "fetch.max.bytes"),
        ("kafka", "session.timeout.ms"),
        ("storage", "aws_region"),
        ("storage", "aws_endpoint"),
        ("storage", "allow_http"),
        ("storage", "aws_access_key_id"),
        ("storage", "timeout"),
    ],
)
def test_what_support_asks_for_is_shown(section: str, name: str) -> None:
    variable = f"LANCEWAL_{section.upper()}__OPTIONS__{name.upper().replace('.', '_')}"
    assert load_settings(None, {variable: "shown"}).masked()[section]["options"] == {name: "shown"}


@pytest.mark.parametrize("key", ["LANCEWAL_KAFKA__BOOTSTRAP_SERVERS", "LANCEWAL_HTTP__HOST"])
@pytest.mark.parametrize(
    "value",
    [
        f"user:{SECRET}@host:9092",
        f"host:9092,user:{SECRET}@other:9092",
        f"SASL_SSL://user:{SECRET}@host:9092",
        f"host:9092?sig={SECRET}",
        f"user:a/{SECRET}@host",
    ],
)
def test_no_host_has_user_information_or_a_query(key: str, value: str) -> None:
    with pytest.raises(InvalidSettings, match="user information") as caught:
        load_settings(None, {key: value})
    assert SECRET not in str(caught.value)


@pytest.mark.parametrize(
    "uri", [f"s3://lake/t?sig={SECRET}", f"https://account/t?sv=1&sig={SECRET}", f"s3://l/t?{SECRET}"]
)
def test_no_error_shows_the_query_of_an_address(uri: str) -> None:
    with pytest.raises(InvalidSettings) as caught:
        load_settings(None, {"LANCEWAL_TABLE__URI": uri})
    assert SECRET not in str(caught.value)


def test_a_librarys_words_have_no_secret_of_an_address() -> None:
    said = OSError(
        f"error sending request for url (http://u:{SECRET}@host:9/b/k?X-Amz-Signature={SECRET}&a=1): refused"
    )
    assert first_line(said) == "error sending request for url (http://***@host:9/b/k?***): refused"


# -- the reference page ----------------------------------------------------------------------------------------


def test_the_reference_lists_every_setting_with_its_default_and_no_other() -> None:
    rows = dict(
        re.findall(
            rf"^\| `((?:{'|'.join(Settings.model_fields)})\.[a-z_.]+)` \| `?([^|`]*)`? \|", REFERENCE.read_text(), re.M
        )
    )
    defaults = Settings().masked()
    expected = {}
    for key in setting_keys():
        value = functools.reduce(lambda tree, name: tree[name], key.split("."), defaults)
        expected[key] = "not set" if value in ("", [], {}, None) else json.dumps(value).strip('"')
    assert rows == expected


def test_every_setting_says_why_its_default() -> None:
    for section in (*(field.annotation for field in Settings.model_fields.values()), FormatSettings):
        for key, field in getattr(section, "model_fields", {}).items():
            assert field.description or field.annotation is FormatSettings, f"{section}.{key}"


@pytest.mark.parametrize("key", setting_keys())
def test_every_setting_has_its_variable(key: str) -> None:
    """One level deeper than any setting goes: the error must name the key, so the variable was read as this key."""
    found = problems(None, {f"{variable(key)}__A__B": "x"})
    assert key in found[0]


def test_a_question_ends_its_sentence() -> None:
    with pytest.raises(InvalidSettings) as raised:
        load_settings(None, {"LANCEWAL_TABLE_URI": "x"})
    assert "did you mean LANCEWAL_TABLE__URI? No settings file was named" in str(raised.value)


# -- moving cuts -----------------------------------------------------------------------------------------------


def test_moving_cuts_are_a_list(file: Path) -> None:
    file.write_text(
        "flusher:\n  cuts:\n    - {name: live, tables: 'shop.*', every: 10s}\n"
        "    - {name: b, tables: [a, b*], lagging: leave-out}\n"
    )
    first, second = load_settings(file, {}).flusher.cuts
    assert (first.name, first.tables, first.every, first.lagging) == ("live", ("shop.*",), 10, "hold")
    assert (second.tables, second.every, second.lagging) == (("a", "b*"), 30, "leave-out")
    text = '[{"name": "live", "tables": "a, b"}]'
    (only,) = load_settings(None, {"LANCEWAL_FLUSHER__CUTS": text}).flusher.cuts
    assert only.tables == ("a", "b")


@pytest.mark.parametrize(
    ("cuts", "named"),
    [
        ("[{name: live}]", "flusher.cuts.0.tables: Field required"),
        ("[{tables: a}]", "flusher.cuts.0.name: Field required"),
        (
            "[{name: live, tables: a, evry: 3}]",
            "flusher.cuts.0.evry: is not a setting; did you mean flusher.cuts.0.every?",
        ),
        ("[{name: live, tables: a}, {name: a.b, tables: a}]", "flusher.cuts.1.name: 'a.b' is not the name of a cut"),
        ("[{name: live, tables: a}, {name: live, tables: b}]", "flusher.cuts: two cuts have the name live"),
        ("[{name: live, tables: []}]", "flusher.cuts.0.tables: "),
        ("[{name: live, tables: 'shop/*'}]", "'shop/*' is not a pattern of table names"),
        ("[{name: live, tables: a, every: 0s}]", "flusher.cuts.0.every: Input should be greater than or equal to 1"),
        ("[{name: live, tables: a, every: 0.9}]", "flusher.cuts.0.every: Input should be greater than or equal to 1"),
        ("[{name: live, tables: a, lagging: wait}]", "flusher.cuts.0.lagging: Input should be 'hold' or 'leave-out'"),
        ("{name: live, tables: a}", "flusher.cuts: Input should be a valid tuple"),
        ("live", "flusher.cuts: Input should be a valid tuple"),
        ("[live]", "flusher.cuts.0: takes `name: value` pairs"),
    ],
)
def test_moving_cuts_that_are_none_are_named(file: Path, cuts: str, named: str) -> None:
    file.write_text(f"flusher:\n  cuts: {cuts}\n")
    found = problems(file, {})
    assert any(named in one for one in found), found
    assert found[0].startswith(f"{file}:2: ")
