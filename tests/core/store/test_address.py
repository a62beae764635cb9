"""Where a table lies: Lance and lancewal take one address for one place, or it is refused.  Lance is the oracle."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import lance
import pyarrow as pa
import pytest

from lancewal_core.errors import InvalidSettings
from lancewal_core.open import Address
from lancewal_core.settings.load import load_settings
from lancewal_core.store.address import place_of, whole_address
from lancewal_core.store.obstore import open_store
from lancewal_core.table.lance.table import LanceTable

TAKEN: dict[str, Callable[[str], object]] = {
    "settings": lambda uri: load_settings(None, {"LANCEWAL_TABLE__URI": uri}),
    "store": open_store,
    "Lance": LanceTable,
}


@pytest.mark.parametrize(
    "uri",
    [
        "t",
        "./u/../t",
        "a b",
        "a%20b",
        "a?b#c",
        "u/~/t",
        "~t",
        "t ",
        "a//b/",
        "{}/t",
        "file://{}/t",
        "file:{}/t",
        "FILE://{}/a b",
        "file://localhost{}/t",
    ],
)
def test_a_table_is_where_lance_puts_it(uri: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "u").mkdir()
    uri = uri.format(tmp_path)
    lance.write_dataset(pa.table({"id": [1]}), uri)
    assert (Path(place_of(uri)) / "_versions").is_dir()
    assert open_store(uri).list("_versions/")
    load_settings(None, {"LANCEWAL_TABLE__URI": uri})
    assert LanceTable(uri).newest().version == 1


@pytest.mark.parametrize("how", TAKEN)
@pytest.mark.parametrize(
    ("uri", "says"),
    [
        ("~/t", "write the whole path"),
        ("~", "write the whole path"),
        ("file://t", "expected file:///"),
        ("file://a/t", "expected file:///"),
        ("file:t", "expected file:///"),
        ("file://{}/a%20b", "expected file:///"),
        ("file://{}/a?b", "expected file:///"),
        ("file://{}/a#b", "expected file:///"),
        ("s3://", "names no bucket"),
        ("s3:///t", "names no bucket"),
        ("s3:/bucket/t", "names no bucket"),
        ("ftp://bucket/t", "expected a local path, file:// or s3://, gs://, az://, abfss://"),
        ("gs://", "names no bucket"),
        ("az:///t", "names no container"),
        ("gs://bucket/a%20b/t", "%20"),
        ("az://container/a%2fb", "%2f"),
        ("gs://bucket/a//t", "without"),
        ("abfss://container@account.dfs.core.windows.net/a/../t", "without"),
        ("abfss://container@account.dfs.core.windows.net/a?sig=1", "without"),
        ("s3a://bucket/t", "Lance cannot open s3a://: write s3://bucket/prefix"),
        ("s3n://bucket/t", "write s3://bucket/prefix"),
        ("gcs://bucket/t", "write gs://bucket/prefix"),
        ("azure://container/t", "write az://container/prefix"),
        ("abfs://container/t", "write abfss://container@account.dfs.core.windows.net/prefix"),
        ("wasbs://container/t", "write abfss://container@account.dfs.core.windows.net/prefix"),
        (
            "abfs://container@account.dfs.core.windows.net/t",
            "write abfss://container@account.dfs.core.windows.net/prefix",
        ),
        ("wasbs://container@account.blob.core.windows.net/t", "write abfss://container@account"),
        ("az://container/t#old", "without"),
        ("az://container/t?x=1", "without"),
        ("abfss://", "names no container"),
        ("abfss://KEY:SECRET@account.dfs.core.windows.net/t", "user information"),
        ("abfss://SECRET@account.example.com/t", "user information"),
        ("abfss://container@account.dfs.core.windows.net:80/t", "user information"),
        ("abfss://container@other@account.dfs.core.windows.net/t", "user information"),
        ("az://container@account.dfs.core.windows.net/t", "user information"),
        ("gs://KEY:SECRET@bucket/t", "user information"),
        ("s3://bucket/a%20b/t", "%20"),
        ("s3://bucket/a%2fb", "%2f"),
        ("s3://bucket/t%ff", "%ff"),
        ("s3://bucket/a?b/t", "without"),
        ("s3://bucket/a#b/t", "without"),
        ("s3://bucket/t?versionId=1", "without"),
        ("s3://bucket/a//t", "without"),
        ("s3://bucket//t", "without"),
        ("s3://bucket/./t", "without"),
        ("s3://bucket/a/../t", "without"),
        ("s3://bucket/a/..", "without"),
        ("s3://bucket/t ", "space at its end"),
        ("file://{}/t ", "space at its end"),
        ("s3://bucket/a\ufffeb", "character"),
        ("s3://bucket/a\tb", "character"),
        ("s3://bucket/a\x01b", "character"),
        ("{}/a\tb", "character"),
        ("{}/a\nb", "character"),
        ("{}/a\x7fb", "character"),
        ("{}/a\udcffb", "character"),
        ("file://{}/a\nb", "character"),
    ],
)
def test_one_that_names_no_place_or_two_is_refused(
    uri: str, says: str, how: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InvalidSettings, match=says):
        TAKEN[how](uri.format(tmp_path))
    assert not [*tmp_path.iterdir()]


ACCOUNT = {"azure_storage_account_name": "one"}


@pytest.mark.parametrize(
    ("uri", "options", "place"),
    [
        ("az://lake/t", ACCOUNT, "abfss://lake@one.dfs.core.windows.net/t"),
        ("az://lake/t", {"AZURE_STORAGE_ACCOUNT_NAME": "one"}, "abfss://lake@one.dfs.core.windows.net/t"),
        ("az://lake/t/", {"account_name": "one"}, "abfss://lake@one.dfs.core.windows.net/t"),
        ("abfss://lake/t", ACCOUNT, "abfss://lake@one.dfs.core.windows.net/t"),
        ("abfss://lake@one.dfs.core.windows.net/t", None, "abfss://lake@one.dfs.core.windows.net/t"),
        (
            "az://lake/t",
            {**ACCOUNT, "azure_storage_endpoint": "https://private"},
            "abfss://lake@one.dfs.core.windows.net/t",
        ),
        ("az://lake/t", {"azure_storage_account_name": "two"}, "abfss://lake@two.dfs.core.windows.net/t"),
        ("gs://lake/t", None, "gs://lake/t"),
        ("s3://lake/t", ACCOUNT, "s3://lake/t"),
    ],
)
def test_a_place_has_the_account_and_no_endpoint(
    uri: str, options: Mapping[str, str] | None, place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("AZURE_STORAGE_ACCOUNT_NAME", raising=False)
    assert place_of(Address(uri, options).uri) == place
    variables = {f"LANCEWAL_STORAGE__OPTIONS__{name.upper()}": value for name, value in (options or {}).items()}
    settings = load_settings(None, {"LANCEWAL_TABLE__URI": uri, "LANCEWAL_CATALOG__ROOT": uri, **variables})
    assert place_of(settings.table.uri) == place_of(settings.catalog.root) == place


def test_the_environment_names_the_account(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_NAME", "two")
    monkeypatch.setenv("ACCOUNT_NAME", "of another program")
    assert place_of("az://lake/t") == "abfss://lake@two.dfs.core.windows.net/t"
    assert place_of(Address("az://lake/t", {"account_name": "one"}).uri) == "abfss://lake@one.dfs.core.windows.net/t"
    assert place_of(Address("az://lake/t", ACCOUNT).uri) == "abfss://lake@one.dfs.core.windows.net/t"


def test_without_an_account_opening_names_the_option(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AZURE_STORAGE_ACCOUNT_NAME", raising=False)
    with pytest.raises(InvalidSettings, match=r"name the account: write abfss://.* azure_storage_account_name"):
        open_store("az://lake/t")


def test_options_that_name_another_account_than_the_address_are_refused() -> None:
    with pytest.raises(InvalidSettings, match="names another account than the address"):
        open_store("abfss://lake@one.dfs.core.windows.net/t", {"azure_storage_account_name": "two"})


@pytest.mark.parametrize(
    ("uri", "option", "advice"),
    [
        ("gs://lake/t", "google_storage_token", "set google_bearer_token"),
        ("gs://lake/t", "google_skip_signature", "Google accepts no unsigned puts"),
        ("az://lake/t", "azure_storage_use_emulator", "set azure_storage_endpoint"),
        ("gs://lake/t", "aws_region", "aws_region"),
        ("az://lake/t", "google_service_account", "google_service_account"),
        ("s3://lake/t", "azure_storage_account_name", "azure_storage_account_name"),
    ],
)
def test_an_option_that_lance_and_the_client_read_otherwise_is_refused(uri: str, option: str, advice: str) -> None:
    account = ACCOUNT if uri.startswith("az") else {}
    with pytest.raises(InvalidSettings, match=advice) as refused:
        open_store(uri, {**account, option: "canary"})
    assert "canary" not in str(refused.value)


@pytest.mark.parametrize("odd", ["az://lake/t#old", "az://lake/t?x=1", "az://lake/a//b", "az:///t"])
def test_an_odd_address_stays_odd_with_its_account(odd: str) -> None:
    with pytest.raises(InvalidSettings):
        open_store(whole_address(odd, ACCOUNT), ACCOUNT)
    with pytest.raises(InvalidSettings):
        Address(odd, ACCOUNT).store()


def test_variables_of_the_environment_are_refused_alike(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("AZURE_AUTHORITY_HOST", "https://login.microsoftonline.com")
    key = {"azure_storage_account_key": "a2V5"}
    open_store("az://lake/t", {**ACCOUNT, **key})
    for variable, uri in (("GOOGLE_SKIP_SIGNATURE", "gs://lake/t"), ("AZURE_STORAGE_USE_EMULATOR", "az://lake/t")):
        monkeypatch.setenv(variable, "true")
        with pytest.raises(InvalidSettings, match=variable):
            open_store(uri, {**ACCOUNT, **key} if uri.startswith("az") else {})
        monkeypatch.delenv(variable)
    file = tmp_path / "key.json"
    file.write_text('{"type": "external_account"}')
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(file))
    with pytest.raises(InvalidSettings, match="of the type external_account"):
        open_store("gs://lake/t")


KEYED = {**ACCOUNT, "azure_storage_account_key": "a2V5"}


@pytest.mark.parametrize(
    ("uri", "options", "variable", "meant"),
    [
        ("az://lake/t", KEYED, "TOKEN", "azure_storage_token"),
        ("az://lake/t", KEYED, "ENDPOINT", "azure_storage_endpoint"),
        ("az://lake/t", KEYED, "SKIP_SIGNATURE", "azure_storage_skip_signature"),
        ("az://lake/t", KEYED, "ACCESS_KEY", ""),
        ("az://lake/t", KEYED, "CLIENT_ID", ""),
        ("az://lake/t", KEYED, "ACCOUNT_NAME", ""),
        ("az://lake/t", {**KEYED, "endpoint": "https://one"}, "ENDPOINT", ""),
        ("az://lake/t", {**KEYED, "azure_storage_token": "x"}, "TOKEN", ""),
        ("az://lake/t", ACCOUNT, "ACCESS_KEY", "azure_storage_access_key"),
        ("az://lake/t", ACCOUNT, "sas_token", "azure_storage_sas_token"),
        ("az://lake/t", {**ACCOUNT, "azure_client_id": "us"}, "MSI_ENDPOINT", "azure_storage_msi_endpoint"),
        ("az://lake/t", ACCOUNT, "IDENTITY_ENDPOINT", ""),
        ("gs://lake/t", {}, "BEARER_TOKEN", "google_bearer_token"),
        ("gs://lake/t", {"google_bearer_token": "x"}, "SERVICE_ACCOUNT_KEY", ""),
        ("gs://lake/t", {}, "BASE_URL", "google_base_url"),
        ("s3://lake/t", {"aws_region": "here"}, "TOKEN", ""),
    ],
)
def test_a_variable_that_lance_alone_takes_is_refused_where_it_counts(
    uri: str, options: Mapping[str, str], variable: str, meant: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Lance takes variables without a prefix too: it would send what is meant for another program to the store."""
    monkeypatch.setenv(variable, "canary")
    if not meant:
        open_store(uri, options)
        return
    with pytest.raises(InvalidSettings, match=f"the variable {variable} of the environment, for {meant}:") as refused:
        open_store(uri, options)
    assert "canary" not in str(refused.value)


def test_an_option_and_a_variable_that_differ_are_refused_where_lance_takes_either(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for option, both in (("azure_client_id", False), ("account_key", False), ("azure_storage_account_key", True)):
        monkeypatch.setenv("AZURE_CLIENT_ID", "b3RoZXI=")
        monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_KEY", "b3RoZXI=")
        open_store("az://lake/t", {**ACCOUNT, option: "b3RoZXI="})
        if both:
            open_store("az://lake/t", {**ACCOUNT, option: "a2V5"})
            continue
        with pytest.raises(InvalidSettings, match=f"{option} and the variable AZURE_.* differ") as refused:
            open_store("az://lake/t", {**ACCOUNT, option: "a2V5"})
        assert "a2V5" not in str(refused.value)


def test_a_key_file_of_another_identity_is_refused_by_name(tmp_path: Path) -> None:
    key = tmp_path / "key.json"
    key.write_text('{"type": "external_account", "audience": "canary"}')
    for options in ({"google_service_account": str(key)}, {"google_application_credentials": str(key)}):
        with pytest.raises(InvalidSettings, match="of the type external_account") as refused:
            open_store("gs://lake/t", options)
        assert "canary" not in str(refused.value)
