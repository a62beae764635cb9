"""Credentials that end: tokens of identities, SAS tokens and key files, as obstore and Lance take them.

The servers: Azurite, which checks the time of a token, for azure; the GCS server behind a gate that checks it, for gcs.
"""

from __future__ import annotations

import base64
import json
import math
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import lance
import pyarrow as pa
import pytest

from lancewal_core.errors import LancewalError, StoreRefused
from lancewal_core.settings.secrets import is_secret
from lancewal_core.store.object_store import PutUnknown, Stored
from lancewal_core.store.obstore import open_store
from lancewal_core.table.lance.errors import write_error
from lancewal_core.table.lance.table import LanceTable
from lancewal_demo.stack import KafkaBroker
from lancewal_demo.stack.clouds import AzureServer, GcsServer
from tests.support.azure_sas import sas_token
from tests.support.certificates import Certificates
from tests.support.token_server import TokenServer, claims
from tests.support.whole_path import until
from tests.whole_path.world import make_world

LIFE_S = 1.5
IMDS = "/metadata/identity/oauth2/token"
GCE = "/computeMetadata/v1/instance/service-accounts/default/token"
FORMS = (
    *(
        pytest.param(form, marks=[pytest.mark.az, pytest.mark.timeout(120)])
        for form in ("managed", "identity-endpoint", "workload", "secret")
    ),
    pytest.param("metadata", marks=[pytest.mark.gs, pytest.mark.timeout(120)]),
)


@dataclass(slots=True)
class Identity:
    """A store that takes tokens alone, and options that lead to tokens."""

    tokens: TokenServer
    uri: str
    options: Mapping[str, str]
    path: str
    asks: Mapping[str, str]
    federated: Path


@pytest.fixture(scope="module")
def azure_tls(tls: Certificates, tmp_path_factory: pytest.TempPathFactory) -> Iterator[AzureServer]:
    from tests.conftest import _if_it_can_be_had

    certificate, key = tls.server
    server = AzureServer(tmp_path_factory.mktemp("azure-tls"), certificate=certificate, key=key)
    with _if_it_can_be_had(server) as running:
        yield running


@pytest.fixture
def identity(
    request: pytest.FixtureRequest, tls: Certificates, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Identity]:
    form = request.param
    federated = tmp_path / "federated"
    federated.write_text("first")
    if form == "metadata":
        gcs: GcsServer = request.getfixturevalue("gcs")
        with TokenServer(LIFE_S, upstream=gcs.endpoint) as tokens:
            for variable in ("GCE_METADATA_HOST", "GCE_METADATA_IP"):  # the second is asked when the first gives none
                monkeypatch.setenv(variable, tokens.host)
            options = {"google_base_url": tokens.endpoint, "allow_http": "true"}
            uri = f"gs://{gcs.bucket('identities')}/{tmp_path.name}"
            yield Identity(tokens, uri, options, GCE, {}, federated)
        return
    azure: AzureServer = request.getfixturevalue("azure_tls")
    monkeypatch.delenv("SSL_CERT_DIR", raising=False)
    monkeypatch.setenv("SSL_CERT_FILE", str(tls.ca))
    with TokenServer(LIFE_S) as tokens:
        directory = {
            "azure_client_id": "us",
            "azure_tenant_id": "tenant",
            "azure_authority_host": tokens.endpoint,
            "allow_http": "true",
        }
        machine = {"resource": "https://storage.azure.com", "client_id": "us"}
        scope = {"scope": "https://storage.azure.com/.default", "client_id": "us"}
        options, path, asks = {
            "managed": ({"azure_msi_endpoint": tokens.endpoint + IMDS, "azure_client_id": "us"}, IMDS, machine),
            "identity-endpoint": (
                {"azure_identity_endpoint": tokens.endpoint + "/msi/token", "azure_client_id": "us"},
                "/msi/token",
                machine,
            ),
            "workload": (
                {**directory, "azure_federated_token_file": str(federated)},
                "/tenant/oauth2/v2.0/token",
                {**scope, "client_assertion": "first"},
            ),
            "secret": (
                {**directory, "azure_client_secret": "canary"},
                "/tenant/oauth2/v2.0/token",
                {**scope, "client_secret": "canary"},
            ),
        }[form]
        uri = f"abfss://{azure.container('identities')}@{azure.account}.dfs.core.windows.net/{tmp_path.name}"
        yield Identity(tokens, uri, {"azure_storage_endpoint": azure.endpoint, **options}, path, asks, federated)


def write(at: Identity, mode: str = "append") -> lance.LanceDataset:
    return lance.write_dataset(pa.table({"id": [1]}), at.uri, mode=mode, storage_options=dict(at.options))


def all_are_over(tokens: TokenServer) -> bool:
    return bool(tokens.handed) and time.time() > tokens.handed[-1].until


@pytest.mark.parametrize("identity", FORMS, indirect=True)
def test_both_libraries_renew_their_tokens(identity: Identity) -> None:
    """Clients stay the same, and do everything once more after the token with which they began is over."""
    tokens, store = identity.tokens, open_store(identity.uri, identity.options)
    opened = write(identity, "create")
    table = LanceTable(identity.uri, dict(identity.options))
    for turn in range(2):
        handed = len(tokens.handed)
        assert isinstance(store.put_if_absent(f"own/{turn}", b"%d" % turn), Stored)
        assert [info.key for info in store.list("own/")] == [f"own/{turn}"]
        assert store.get(f"own/{turn}") == b"%d" % turn
        assert store.get_range(f"own/{turn}", 0, 9) == b"%d" % turn
        store.delete([f"own/{turn}", "own/missing"])
        assert store.size(f"own/{turn}") is None
        write(identity)
        assert table.newest().version == 2 + turn
        assert opened.to_table().num_rows == 1
        until(lambda: all_are_over(tokens))
        assert len(tokens.handed) > handed
    assert lance.dataset(identity.uri, storage_options=dict(identity.options)).count_rows() == 3
    asked = tokens.handed[0]
    assert (asked.path, dict(asked.asked).items() >= identity.asks.items()) == (identity.path, True)
    machine = {IMDS: ("metadata", "true"), GCE: ("metadata-flavor", "Google")}.get(identity.path)
    assert machine is None or asked.headers[machine[0]] == machine[1]


@pytest.mark.parametrize("identity", FORMS[2:3], indirect=True)
def test_the_token_of_a_workload_is_read_again(identity: Identity) -> None:
    """Kubernetes replaces the file within the hour."""
    store = open_store(identity.uri, identity.options)
    write(identity, "create")
    assert store.get("missing") is None
    until(lambda: all_are_over(identity.tokens))
    identity.federated.write_text("second")
    handed = len(identity.tokens.handed)
    assert store.get("missing") is None
    assert {found.asked["client_assertion"] for found in identity.tokens.handed[handed:]} == {"second"}


@pytest.mark.parametrize("identity", [FORMS[3], FORMS[-1]], indirect=True)
def test_a_token_that_ends_sooner_than_was_said_names_the_clock(identity: Identity) -> None:
    """The client goes on with a token that is over, as with a slow clock."""
    identity.tokens.said_s = 3_600.0
    store = open_store(identity.uri, identity.options)
    write(identity, "create")
    table = LanceTable(identity.uri, dict(identity.options))
    assert table.newest().version == 1
    assert store.get("missing") is None
    until(lambda: all_are_over(identity.tokens))
    said = [refused(lambda: store.get("missing")), refused(table.newest)]
    outcome = store.put_if_absent("a", b"1")
    assert isinstance(outcome, PutUnknown)
    for text in (*said, outcome.cause):
        assert "set this machine's clock" in text
        assert "try again" not in text
        assert "canary" not in text


@pytest.mark.parametrize("identity", [FORMS[0], *FORMS[3:]], indirect=True)
def test_an_identity_that_gets_no_token_is_named(identity: Identity) -> None:
    identity.tokens.status = 400
    store = open_store(identity.uri, identity.options)
    with pytest.raises((OSError, ValueError), match="LanceError") as raised:
        write(identity, "create")
    error = write_error(raised.value, "writing")
    assert isinstance(error, StoreRefused), error
    for text in (refused(lambda: store.get("a")), str(error)):
        assert "no token could be obtained: " in text
        assert "canary" not in text
    assert ("azure_client_id" in text) == identity.uri.startswith("abfss")


def refused(act: Callable[[], object]) -> str:
    with pytest.raises(StoreRefused) as raised:
        act()
    return str(raised.value)


@pytest.mark.kafka
@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("identity", [FORMS[0], FORMS[-1]], indirect=True)
def test_services_run_on_while_their_tokens_end(
    identity: Identity, kafka: KafkaBroker, topic_name: str, tmp_path: Path, seed: int
) -> None:
    """Ingest, flusher, commands and readers: no request of theirs is refused, and every row comes through once."""
    world = make_world(kafka, topic_name, tmp_path, seed, uri=f"{identity.uri}/one", options=dict(identity.options))
    services = [world.lancewal.start("ingest", "run"), world.lancewal.start("flusher", "run")]
    for _ in range(4):
        over = time.time() + LIFE_S
        world.feed.produce(50)
        world.wait_caught_up()
        world.check_strong()
        until(lambda over=over: time.time() > over)  # type: ignore[misc]
    world.wait_caught_up("eventual")
    world.check_merged()
    world.finish(services)
    logs = "".join(service.log for service in services)
    assert "store_refused" not in logs
    assert "store_unavailable" not in logs


@pytest.mark.az
def test_a_sas_token_ends_by_name(azure: AzureServer, tmp_path: Path) -> None:
    """With the rights of the container that trust.md lists for a flusher, until seconds from now."""
    container, ends = azure.container("sas"), math.ceil(time.time()) + 3
    token = sas_token(container, "rcwdl", ends)
    options = {
        "azure_storage_endpoint": azure.endpoint,
        "azure_storage_sas_token": token,
        "allow_http": "true",
    }
    uri = f"abfss://{container}@{azure.account}.dfs.core.windows.net/{tmp_path.name}"
    store = open_store(uri, options)
    assert isinstance(store.put_if_absent("own/a", b"1"), Stored)
    assert [info.key for info in store.list("own/")] == ["own/a"]
    store.delete(["own/a"])
    assert store.get("own/a") is None
    lance.write_dataset(pa.table({"id": [1]}), uri, storage_options=options)
    table = LanceTable(uri, options)
    assert table.newest().version == 1
    until(lambda: time.time() > ends + 1)
    signature = token.partition("sig=")[2]
    for text in (refused(lambda: store.get("own/a")), refused(table.newest)):
        assert "azure_storage_sas_token" in text
        assert "try again" not in text
        assert signature not in text


@pytest.mark.gs
def test_a_key_file_of_google_signs_for_both_libraries(gcs: GcsServer, tmp_path: Path) -> None:
    """Each library makes tokens by itself: signed by the key, for the account, for an hour."""
    key, account = tmp_path / "key.pem", {"client_email": "us@project", "private_key_id": "one"}
    subprocess.run(["openssl", "genrsa", "-out", key, "2048"], check=True, capture_output=True)
    file = tmp_path / "account.json"
    content = json.dumps({"type": "service_account", "private_key": key.read_text(), **account})
    file.write_text(content)
    with TokenServer(LIFE_S, upstream=gcs.endpoint) as gate:
        for number, given in enumerate(
            (
                {"google_service_account": str(file)},
                {"google_service_account_key": content},
                {"google_application_credentials": str(file)},
            )
        ):
            options = {"google_base_url": gate.endpoint, "allow_http": "true", **given}
            uri = f"gs://{gcs.bucket('identities')}/{tmp_path.name}/{number}"
            gate.bearers.clear()
            assert isinstance(open_store(uri, options).put_if_absent("own", b"1"), Stored)
            by_obstore = set(gate.bearers)
            lance.write_dataset(pa.table({"id": [1]}), uri, storage_options=options)
            assert by_obstore < gate.bearers | {""}
            for token in gate.bearers:
                said = claims(token)
                assert (said["iss"], said["kid"], said["exp"] - said["iat"]) == ("us@project", "one", 3_600)
                assert is_signed(token, key, tmp_path)


def is_signed(token: str, key: Path, folder: Path) -> bool:
    text, _, signature = token.rpartition(".")
    (folder / "text").write_text(text)
    (folder / "signature").write_bytes(base64.urlsafe_b64decode(signature + "=="))
    checked: list[str | Path] = [
        "openssl",
        "dgst",
        "-sha256",
        "-prverify",
        key,
        "-signature",
        folder / "signature",
        folder / "text",
    ]
    return subprocess.run(checked, capture_output=True, check=False).returncode == 0


@pytest.mark.parametrize(
    ("shown", "options"),
    [
        (
            False,
            "azure_client_secret azure_storage_account_key azure_storage_sas_token azure_storage_sas_key azure_storage_token "
            "bearer_token google_bearer_token google_service_account_key google_service_account azure_encryption_key",
        ),
        (
            True,
            "azure_client_id azure_tenant_id azure_federated_token_file azure_authority_host azure_msi_endpoint "
            "azure_identity_endpoint azure_object_id google_application_credentials google_base_url",
        ),
    ],
)
def test_settings_show_what_names_an_identity_and_no_secret_of_it(shown: bool, options: str) -> None:
    for option in options.split():
        assert is_secret(("storage", "options", option)) is not shown, option


@pytest.mark.parametrize("text", ['"canary"', "canary", "[1]", '{"private_key": "canary'])
def test_a_key_that_is_no_key_file_is_not_shown(text: str, tmp_path: Path) -> None:
    file = tmp_path / "key.json"
    file.write_text(text)
    for options in ({"google_service_account_key": text}, {"google_service_account": str(file)}):
        with pytest.raises(LancewalError, match="not the content of a key file") as raised:
            open_store("gs://lake/t", options)
        assert "canary" not in str(raised.value)
