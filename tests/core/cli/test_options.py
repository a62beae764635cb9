"""The settings of a command: the table and the storage options that its command line names."""

from __future__ import annotations

import io
import sys
from pathlib import Path

import pytest
import yaml

from lancewal_core.cli.options import agree, read_settings
from lancewal_core.errors import InvalidInput, InvalidSettings

TREE = {
    "table": {"uri": "s3://lake/orders", "primary_key": ["id"], "base_paths": "allow"},
    "storage": {"options": {"aws_region": "here", "allow_http": "true"}},
}


@pytest.fixture
def config(tmp_path: Path) -> Path:
    file = tmp_path / "lancewal.yaml"
    file.write_text(yaml.safe_dump(TREE))
    return file


def test_the_table_of_the_settings(config: Path) -> None:
    for named in ("", "s3://lake/orders", "s3://lake/orders/"):
        table = read_settings(config, named).table
        assert (table.uri, table.primary_key, table.base_paths) == ("s3://lake/orders", ("id",), "allow")


def test_of_another_table_the_settings_say_nothing_but_how_it_is_reached(config: Path) -> None:
    settings = read_settings(config, "s3://lake/others/")
    assert (settings.table.uri, settings.table.primary_key, settings.table.base_paths) == (
        "s3://lake/others", (), "allow",
    )  # fmt: skip
    assert settings.storage.options["aws_region"] == "here"


def test_a_table_is_made_by_the_terms_of_the_settings_at_the_address_that_is_named(config: Path) -> None:
    table = read_settings(config, "s3://lake/others", defining=True).table
    assert (table.uri, table.primary_key) == ("s3://lake/others", ("id",))


def test_storage_options_are_laid_over_those_of_the_settings(config: Path) -> None:
    options = read_settings(config, "", ["aws_region=there", "aws_endpoint=http://h:1/?a=b"]).storage.options
    assert dict(options) == {"aws_region": "there", "allow_http": "true", "aws_endpoint": "http://h:1/?a=b"}


@pytest.mark.parametrize("option", ["hush", "=hush"])
def test_a_storage_option_without_its_name_or_value_is_refused_and_not_shown(config: Path, option: str) -> None:
    with pytest.raises(InvalidInput, match="expected NAME=VALUE") as refused:
        read_settings(config, "", [option])
    assert option not in str(refused.value)


def test_an_address_that_is_none_is_refused(config: Path) -> None:
    with pytest.raises(InvalidInput, match="--table: "):
        read_settings(config, "ftp://host/orders")
    with pytest.raises(InvalidSettings) as refused:
        read_settings(config, "s3://KEY:SECRET@lake/orders")
    assert "SECRET" not in str(refused.value)


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_what_is_given_up_for_good_is_asked_on_a_terminal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "stdin", Terminal("y\n"))
    agree(False, "the rows are dropped")
    asked = capsys.readouterr()
    assert (asked.out, "the rows are dropped. This cannot be undone. Continue?" in asked.err) == ("", True)
    for answer in ("n\n", "\n"):
        monkeypatch.setattr(sys, "stdin", Terminal(answer))
        with pytest.raises(InvalidInput, match="nothing was changed"):
            agree(False, "the rows are dropped")


def test_where_nobody_can_be_asked_it_takes_yes(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO("y\n"))
    with pytest.raises(InvalidInput, match=r"With --yes, the rows are dropped\. This cannot be undone"):
        agree(False, "the rows are dropped")
    agree(True, "the rows are dropped")
    assert capsys.readouterr() == ("", "")
