"""docker-compose.yml: services, what waits for what, and the settings that lancewal reads in each container."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest
import yaml

from lancewal_core.catalog.postgres.parameters import parameters
from lancewal_core.catalog.postgres_catalog import PostgresCatalog
from lancewal_core.errors import InvalidSettings
from lancewal_core.settings.load import Settings, load_settings
from tests.support.postgres import DATABASE, PASSWORD, PostgresServer
from watch.dashboards.board import PUBLIC_RUNBOOKS
from watch.dashboards.table import BOARDS

ROOT = Path(__file__).resolve().parents[2]
COMPOSE: dict[str, Any] = yaml.safe_load((ROOT / "docker-compose.yml").read_text())
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]
LANCEWAL = sorted(name for name, service in SERVICES.items() if service["image"].startswith("lancewal:"))
JOBS = {"credentials", "topics", "table", "catalog", "grants", "accounts-topics", "connector", "accounts-table"}
CATALOG = dict(line.split("=", 1) for line in (ROOT / "compose" / "catalog.env").read_text().splitlines()[1:])
"""Variables with which the profile `catalog` is started."""
WITH_CATALOG = {"postgres", "catalog", "grants"}
WITH_CDC = {
    *("shop", "connect", "connector", "accounts-topics", "accounts-table", "accounts-ingest", "accounts-flusher"),
}
CONNECTOR: dict[str, str] = json.loads((ROOT / "compose" / "cdc" / "connector.json").read_text())

TOP = {"name", "services", "configs", "volumes"}
KEYS = {
    "image", "build", "pull_policy", "init", "read_only", "tmpfs", "cap_drop", "security_opt", "volumes", "environment",
    "ports", "healthcheck", "stop_grace_period", "entrypoint", "command", "depends_on", "configs", "user", "restart",
    "deploy", "profiles", "networks",
}  # fmt: skip
"""Of the keys that Compose knows, those that are used here: a misspelt key would silently do nothing."""
HEALTH_KEYS = {"test", "interval", "timeout", "retries", "start_period", "start_interval", "disable"}
STORE_KEYS = {"LANCEWAL_STORAGE__OPTIONS__AWS_ACCESS_KEY_ID", "LANCEWAL_STORAGE__OPTIONS__AWS_SECRET_ACCESS_KEY"}
PASSWORDS = {"LANCEWAL_CATALOG__PASSWORD", "CATALOG_OWNER_PASSWORD"}
SHOP_PASSWORDS = {"SHOP_OWNER_PASSWORD", "SHOP_CONNECTOR_PASSWORD"}
SECRET_FILES = STORE_KEYS | PASSWORDS | SHOP_PASSWORDS
_VARIABLE = re.compile(r"\$\{([A-Z_0-9]+):-([^}]*)\}")


def filled(text: str, given: Mapping[str, str] = MappingProxyType({})) -> str:
    """The text as Compose reads it, with the variables ``given``."""
    return _VARIABLE.sub(lambda found: given.get(found[1]) or found[2], text)


def has_health(service: Mapping[str, Any]) -> bool:
    """Ours have the image's check unless it is switched off."""
    check = service.get("healthcheck", {})
    return not check.get("disable") and ("test" in check or service["image"].startswith("lancewal:"))


def settings_of(name: str, folder: Path, given: Mapping[str, str] = MappingProxyType({})) -> Settings:
    """What ``load_settings`` makes of the service's variables and of the files that the job ``credentials`` writes.

    ``given`` are the variables of Compose."""
    raw = SERVICES[name]["environment"]
    assert all(isinstance(value, str) for value in raw.values()), "a truth value or number must be quoted"
    environ = {key: filled(text, given) for key, text in raw.items()}
    assert environ["LANCEWAL_SECRETS_DIR"] == "/run/lancewal/secrets"
    environ["LANCEWAL_SECRETS_DIR"] = str(folder)
    for file in SECRET_FILES:
        (folder / file).write_text("made-up\n")
    return load_settings(None, environ)


# -- Compose ---------------------------------------------------------------------------------------------------


def test_keys_are_known() -> None:
    assert {key for key in COMPOSE if not key.startswith("x-")} == TOP
    for name, service in SERVICES.items():
        assert service.keys() <= KEYS, name
        assert service.get("healthcheck", {}).keys() <= HEALTH_KEYS, name
        assert service.get("deploy", {}).keys() <= {"replicas", "resources"}, name


def test_volumes_and_configs_are_declared() -> None:
    mounted = {volume.split(":")[0] for service in SERVICES.values() for volume in service.get("volumes", [])}
    folders = {place for place in mounted if place.startswith("./")}
    assert mounted - folders == COMPOSE["volumes"].keys()
    assert all((ROOT / folder).is_dir() for folder in folders)
    used = {config["source"] for service in SERVICES.values() for config in service.get("configs", [])}
    assert used == COMPOSE["configs"].keys()
    for config in COMPOSE["configs"].values():
        assert "content" in config or (ROOT / config["file"]).is_file()


def test_prometheus_loads_the_alerts() -> None:
    loaded = {config["target"]: COMPOSE["configs"][config["source"]] for config in SERVICES["prometheus"]["configs"]}
    settings = yaml.safe_load(loaded["/etc/prometheus/prometheus.yml"]["content"])
    (rules,) = settings["rule_files"]
    assert loaded[rules] == {"file": "compose/prometheus-rules.yml"}
    jobs = {job["job_name"] for job in settings["scrape_configs"]}
    assert jobs == set(re.findall(r'job="([\w-]+)"', (ROOT / "compose" / "prometheus-rules.yml").read_text()))


def test_grafana_finds_prometheus_the_dashboards_and_the_runbooks() -> None:
    grafana = SERVICES["grafana"]
    provisioned = {
        c["target"]: yaml.safe_load((ROOT / COMPOSE["configs"][c["source"]]["file"]).read_text())
        for c in grafana["configs"]
    }
    (source,) = provisioned["/etc/grafana/provisioning/datasources/lancewal.yml"]["datasources"]
    assert (source["type"], source["url"]) == ("prometheus", "http://prometheus:9090")
    (provider,) = provisioned["/etc/grafana/provisioning/dashboards/lancewal.yml"]["providers"]
    mounted = {place: Path(folder) for folder, place, _ in (volume.split(":") for volume in grafana["volumes"])}
    boards = ROOT / mounted[provider["options"]["path"]]
    assert {file.stem for file in boards.iterdir()} == {board.uid for board in BOARDS}
    home = grafana["environment"]["GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH"]
    assert home == f"{provider['options']['path']}/{BOARDS[0].uid}.json"
    pages = ROOT / mounted[f"/usr/share/grafana{PUBLIC_RUNBOOKS}"]
    assert (pages / "LancewalRowsLate.md").is_file()


def test_images_have_a_version() -> None:
    for service in SERVICES.values():
        name, _, tag = filled(service["image"]).partition(":")
        assert re.fullmatch(r"v?\d+\.\d+(\.\d+)?", tag), service["image"]
        assert name.count("/") <= 1, "a registry's host is the machine's setting"


def test_our_image_is_this_version() -> None:
    version = re.search(r'^version = "(.+)"$', (ROOT / "pyproject.toml").read_text(), re.MULTILINE)
    assert version is not None
    assert {SERVICES[name]["image"] for name in LANCEWAL} == {f"lancewal:{version[1]}"}


def test_what_is_waited_for_can_happen() -> None:
    for name, service in SERVICES.items():
        for other, how in service.get("depends_on", {}).items():
            where = f"{name} waits for {other}"
            away = not set(SERVICES[other].get("profiles", [])) <= set(service.get("profiles", []))
            assert how.get("required", True) is not away, where
            match how["condition"]:
                case "service_healthy":
                    assert has_health(SERVICES[other]), where
                    assert other not in JOBS, where
                case "service_completed_successfully":
                    assert other in JOBS, where
                case unknown:
                    pytest.fail(f"{where}: {unknown}")


def test_nothing_waits_for_itself() -> None:
    pending = {name: set(service.get("depends_on", {})) for name, service in SERVICES.items()}
    while ready := {name for name, others in pending.items() if not others & pending.keys()}:
        pending = {name: others for name, others in pending.items() if name not in ready}
    assert pending == {}


def test_jobs_end_and_services_come_back() -> None:
    for name, service in SERVICES.items():
        if name in JOBS:
            assert service["restart"] == "no"
            assert name not in LANCEWAL or service["healthcheck"] == {"disable": True}
    for name in ("ingest", "flusher"):
        assert SERVICES[name]["restart"] == SERVICES[f"accounts-{name}"]["restart"] == "unless-stopped"


def test_ports_are_open_to_this_machine_only() -> None:
    published = [port for service in SERVICES.values() for port in service.get("ports", [])]
    assert published
    for port in published:
        assert re.fullmatch(r"127\.0\.0\.1:\$\{[A-Z0-9]+_PORT:-\d+\}:\d+", port)


def test_ingest_can_be_scaled() -> None:
    assert SERVICES["ingest"]["deploy"]["replicas"] == 2
    assert not SERVICES["ingest"].keys() & {"ports", "container_name", "hostname"}


def test_our_containers_write_nowhere_but_in_tmp() -> None:
    for name in LANCEWAL:
        service = SERVICES[name]
        assert (service["read_only"], service["cap_drop"], service["tmpfs"]) == (True, ["ALL"], ["/tmp"]), name
        if name != "credentials":
            assert all(volume.endswith(":ro") for volume in service["volumes"]), name
            assert "user" not in service, name


# -- lancewal --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name", ["catalog", "table", "ingest", "flusher", "accounts-table", "accounts-ingest", "accounts-flusher"]
)
def test_every_variable_is_a_setting(name: str, tmp_path: Path) -> None:
    settings = settings_of(name, tmp_path, CATALOG if name in WITH_CATALOG else {})
    settings.need("table.uri", "kafka.bootstrap_servers", "storage.options")
    assert settings.storage.options["aws_secret_access_key"] == "made-up"
    assert settings.storage.options["allow_http"] == "true"
    assert settings.http.host == "0.0.0.0"


def test_a_misspelt_variable_would_be_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(SERVICES["ingest"]["environment"], "LANCEWAL_INGEST__LINGER", "5")
    with pytest.raises(InvalidSettings, match="LANCEWAL_INGEST__LINGER"):
        settings_of("ingest", tmp_path)


def test_all_containers_mean_the_same_table(tmp_path: Path) -> None:
    found = [settings_of(name, tmp_path) for name in ("table", "ingest", "flusher")]
    assert len({settings.table.uri for settings in found}) == 1
    assert len({json.dumps(settings.storage.options) for settings in found}) == 1


def test_the_table_can_be_made(tmp_path: Path) -> None:
    """Columns, keys and topic are a row schema that lancewal accepts."""
    from lancewal_tables.define.create import declared_rows

    settings = settings_of("table", tmp_path)
    rows = declared_rows(settings)
    assert rows.region_key == ("city",)
    topic = settings.table.topic
    (script,) = SERVICES["topics"]["command"]
    assert "for topic in $$TOPICS; do" in script
    assert SERVICES["topics"]["environment"]["TOPICS"].split() == [topic, f"{topic}.dead-letters"]


def test_addresses_lead_to_services(tmp_path: Path) -> None:
    settings = settings_of("ingest", tmp_path)
    listeners = SERVICES["kafka"]["environment"]["KAFKA_ADVERTISED_LISTENERS"]
    assert f"PLAINTEXT://{settings.kafka.bootstrap_servers}," in listeners
    assert settings.storage.options["aws_endpoint"] == f"http://s3{SERVICES['s3']['environment']['VGW_PORT']}"
    assert settings.storage.options["aws_region"] == SERVICES["s3"]["environment"]["VGW_REGION"]
    (script,) = SERVICES["s3"]["command"]
    assert settings.table.uri.startswith("s3://lancewal/")
    assert "mkdir -p /data/lancewal\n" in script
    scraped = yaml.safe_load(COMPOSE["configs"]["prometheus"]["content"])["scrape_configs"]
    targets = {(name, found["port"]) for job in scraped for found in job["dns_sd_configs"] for name in found["names"]}
    assert targets == {("ingest", settings.http.ingest_port), ("flusher", settings.http.flusher_port)}


def test_the_credentials_that_are_made_are_those_that_are_read(tmp_path: Path) -> None:
    (program,) = SERVICES["credentials"]["command"]
    in_folder = program.replace('"/secrets"', repr(str(tmp_path)))
    exec(in_folder, {})
    made = {file.name: file.read_text() for file in tmp_path.iterdir()}
    assert made.keys() == SECRET_FILES
    assert all(len(value) >= 20 for value in made.values())
    exec(in_folder, {})
    assert {file.name: file.read_text() for file in tmp_path.iterdir()} == made, "a second run must keep them"
    (script,) = SERVICES["s3"]["command"]
    assert set(re.findall(r"cat /secrets/(\w+)", script)) == STORE_KEYS
    read = json.dumps([SERVICES[name] for name in sorted(WITH_CATALOG)])
    assert set(re.findall(r"\w*/secrets/(\w+PASSWORD)", read)) == PASSWORDS


# -- the profile `catalog` -------------------------------------------------------------------------------------


def test_without_the_profile_there_is_no_catalog(tmp_path: Path) -> None:
    assert {name for name, service in SERVICES.items() if "profiles" in service} == WITH_CATALOG | WITH_CDC
    assert all(SERVICES[name]["profiles"] == ["catalog"] for name in WITH_CATALOG)
    assert all(SERVICES[name]["profiles"] == ["cdc"] for name in WITH_CDC)
    for name in ("table", "ingest", "flusher"):
        assert not settings_of(name, tmp_path).catalog.is_set


def test_with_the_profile_the_services_know_the_table_by_its_name(tmp_path: Path) -> None:
    text = (ROOT / "docker-compose.yml").read_text()
    assert CATALOG.keys() <= set(re.findall(r"\$\{(\w+):-", text))
    for name in ("table", "ingest", "flusher"):
        settings = settings_of(name, tmp_path, CATALOG)
        assert (settings.table.uri, settings.catalog.kind, settings.catalog.password) == (
            "trips",
            "postgres",
            "made-up",
        )
        assert settings.catalog.root.startswith("s3://lancewal/")
        assert "sslmode" not in parameters(settings.catalog.url, "")
    owner = settings_of("catalog", tmp_path, CATALOG).catalog
    assert owner.url == CATALOG["CATALOG_URL"].replace("lancewal@", "catalog_owner@")
    assert owner.url.endswith("?host=/run/postgresql")
    for name in (*LANCEWAL, "grants", "postgres"):
        sockets = [
            volume for volume in SERVICES[name]["volumes"] if volume.startswith("postgres-socket:/run/postgresql")
        ]
        assert len(sockets) == (name != "credentials"), name


@pytest.mark.parametrize(("uri", "options"), [("trips", ["--name", "trips"]), ("s3://lancewal/trips", [])])
def test_a_table_without_a_slash_is_made_by_name(uri: str, options: list[str], tmp_path: Path) -> None:
    program = tmp_path / "lancewal"
    program.write_text('#!/bin/sh\n[ "$2" != show ] && echo "$@"\n')
    program.chmod(0o755)
    table = SERVICES["table"]
    (script,) = table["command"]
    environ = {"PATH": f"{tmp_path}:/usr/bin:/bin", "LANCEWAL_TABLE__URI": uri}
    command = [*table["entrypoint"], script.replace("$$", "$")]
    done = subprocess.run(command, env=environ, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["table", "create", *options]


def test_the_services_role_is_made_with_the_rights_of_the_page(postgres: PostgresServer, tmp_path: Path) -> None:
    """The script runs twice, on a real server, with the rights of the schema's owner."""
    url = postgres.database()
    postgres.run("DROP ROLE IF EXISTS lancewal")
    for name, text in (("CATALOG_OWNER_PASSWORD", PASSWORD), ("LANCEWAL_CATALOG__PASSWORD", "its own")):
        (tmp_path / name).write_text(text)
    (script,) = SERVICES["grants"]["command"]
    page = (ROOT / "docs" / "how-to" / "catalog-in-postgresql.md").read_text()
    rights = [line for line in page.splitlines() if line.startswith(("GRANT ", "ALTER ROLE "))]
    assert len(rights) == 4
    assert [line for line in script.splitlines() if line.startswith(("GRANT ", "ALTER ROLE "))] == rights
    here = script.replace("$$", "$").replace("/secrets/", f"{tmp_path}/")
    here = here.replace("exec psql", f"exec {postgres.program('psql')}")
    where = {"PGHOST": "127.0.0.1", "PGPORT": str(postgres.port), "PGUSER": "postgres", "PGDATABASE": DATABASE}
    for _ in range(2):
        subprocess.run([*SERVICES["grants"]["entrypoint"], here], env={"PATH": "/usr/bin:/bin", **where}, check=True)
    try:
        assert PostgresCatalog(url.replace("postgres@", "lancewal@"), "its own").tables() == {}
    finally:
        postgres.drop_role("lancewal")


# -- the profile `cdc` -----------------------------------------------------------------------------------------


def test_the_table_follows_the_topic_of_the_connector(tmp_path: Path) -> None:
    from lancewal_tables.define.create import declared_rows

    settings = settings_of("accounts-table", tmp_path)
    assert declared_rows(settings).region_key == ("id",)
    topic = f"{CONNECTOR['topic.prefix']}.{CONNECTOR['table.include.list']}"
    topics = [topic, f"{topic}.dead-letters"]
    assert settings.table.topic == topic
    assert SERVICES["accounts-topics"]["environment"]["TOPICS"].split() == topics
    (script,) = SERVICES["topics"]["command"]
    assert f"--partitions {CONNECTOR['topic.creation.default.partitions']} " in script
    for name in ("ingest", "flusher"):
        service, other = SERVICES[f"accounts-{name}"], settings_of(f"accounts-{name}", tmp_path)
        assert (other.table.uri, list(other.kafka.topics)) == (settings.table.uri, topics)
        assert other.storage == settings.storage == settings_of(name, tmp_path).storage
        assert service["networks"] == {"default": {"aliases": [name]}}, "Prometheus asks for the addresses of this name"


def test_the_pages_have_the_same_table_and_settings(tmp_path: Path) -> None:
    """The table of the page about PostgreSQL is that of the profile, and its list of settings is the connector's."""
    how_to = ROOT / "docs" / "how-to"
    page, of_mysql = ((how_to / name).read_text() for name in ("from-postgresql.md", "from-mysql.md"))
    (table,) = re.findall(r"```yaml\n(# accounts.yaml\n.*?)```", page, re.S)
    file = tmp_path / "accounts.yaml"
    file.write_text(table)
    shown, made = load_settings(file).table, settings_of("accounts-table", tmp_path).table
    assert shown.model_dump(exclude={"uri"}) == made.model_dump(exclude={"uri"})
    rows = re.findall(r"^\| ((?:`[\w.]+`,? ?)+) \| ((?:`\w+`,? ?)+) \|", page, re.M)
    said = {
        name: value for row in rows for name, value in zip(*(re.findall(r"`(.*?)`", cell) for cell in row), strict=True)
    }
    assert len(said) > 5
    assert said.items() <= CONNECTOR.items()
    (settings,) = re.findall(r"```json\n(\{.*?\n\})\n```", of_mysql, re.S)
    exact = {name for name in CONNECTOR if "handling.mode" in name or "precision" in name or "converter" in name}
    there = json.loads(settings)
    of_types = {"interval.handling.mode", "hstore.handling.mode"}
    assert {name: there[name] for name in exact - of_types} == {name: CONNECTOR[name] for name in exact - of_types}
    for script in re.findall(r"```sql\n(.*?)```", page, re.S)[:1]:
        made_by = (ROOT / "compose" / "cdc" / "shop.sql").read_text()
        assert [line for line in script.splitlines() if line not in made_by and "CREATE ROLE" not in line] == []


def test_the_connector_finds_database_password_and_brokers() -> None:
    shop, connect = SERVICES["shop"], SERVICES["connect"]
    assert CONNECTOR["database.hostname"] == "shop"
    assert CONNECTOR["database.dbname"] == shop["environment"]["POSTGRES_DB"]
    assert shop["command"] == ["postgres", "-c", "wal_level=logical"]
    assert (
        connect["environment"]["BOOTSTRAP_SERVERS"]
        == SERVICES["ingest"]["environment"]["LANCEWAL_KAFKA__BOOTSTRAP_SERVERS"]
    )
    named = re.fullmatch(r"\$\{dir:/secrets:(\w+)\}", CONNECTOR["database.password"])
    assert named is not None
    assert {named[1], Path(shop["environment"]["POSTGRES_PASSWORD_FILE"]).name} == SHOP_PASSWORDS
    assert connect["environment"]["CONNECT_CONFIG_PROVIDERS"] == "dir"
    assert "secrets:/secrets:ro" in connect["volumes"]
    (job,) = SERVICES["connector"]["command"]
    (mounted,) = SERVICES["connector"]["configs"]
    assert COMPOSE["configs"][mounted["source"]] == {"file": "compose/cdc/connector.json"}
    assert f'"{mounted["target"]}"' in job
    compile(job, "connector", "exec")


def test_the_database_has_the_columns_of_the_table_and_rights_for_the_connector(
    postgres: PostgresServer, tmp_path: Path
) -> None:
    """The script runs on a real server, and the connector's role reads and writes."""
    settings = settings_of("accounts-table", tmp_path)
    (tmp_path / "SHOP_CONNECTOR_PASSWORD").write_text(PASSWORD)
    script = (ROOT / "compose" / "cdc" / "shop.sql").read_text().replace("/secrets/", f"{tmp_path}/")
    database, role = CONNECTOR["database.dbname"], CONNECTOR["database.user"]
    postgres.run(f"CREATE DATABASE {database}")
    where = {"PGHOST": "127.0.0.1", "PGPORT": str(postgres.port), "PGUSER": "postgres", "PGPASSWORD": PASSWORD}
    command = [str(postgres.program("psql")), "--no-psqlrc", "--quiet", "--set", "ON_ERROR_STOP=1", database]
    try:
        subprocess.run(command, input=script, text=True, env={"PATH": "/usr/bin:/bin", **where}, check=True)
        found = postgres.run(
            "SELECT attname FROM pg_attribute WHERE attrelid = 'accounts'::regclass AND attnum > 0 ORDER BY attnum",
            database,
        )
        assert [name for (name,) in found] == list(settings.table.columns)
        published = postgres.run("SELECT * FROM pg_publication_tables ORDER BY 3", database)
        names = [f"{schema}.{table}" for _, schema, table, *_ in published]
        signals = CONNECTOR["signal.data.collection"]
        assert names == [CONNECTOR["table.include.list"], signals]
        assert published[0][0] == CONNECTOR["publication.name"]
        postgres.run(f"INSERT INTO {signals} VALUES ('one', 'log', '')", database, role)
        assert postgres.run("SELECT count(*) FROM accounts", database, role) == [(2,)]
    finally:
        postgres.run(f"DROP DATABASE {database}")
        postgres.run(f"DROP ROLE IF EXISTS {role}")


@pytest.mark.parametrize("service", ["ingest", "flusher"])
def test_compose_waits_longer_than_draining_takes(service: str, tmp_path: Path) -> None:
    grace_s = float(SERVICES[service]["stop_grace_period"].removesuffix("s"))
    assert grace_s >= getattr(settings_of(service, tmp_path), service).drain_timeout_s + 15


def test_memory_fits_the_rows_and_as_much_again(tmp_path: Path) -> None:
    limit = SERVICES["ingest"]["deploy"]["resources"]["limits"]["memory"]
    assert int(limit.removesuffix("M")) * 10**6 >= 2 * settings_of("ingest", tmp_path).ingest.memory_bytes_max
