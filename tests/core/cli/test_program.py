"""The program as a user meets it: its own process, with commands brought by entry points of an installation."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tomllib
from dataclasses import dataclass
from pathlib import Path

import pytest

from lancewal_core.cli.config import check
from lancewal_core.errors import InvalidSchema, InvalidSettings, LancewalError
from tests.deploy.test_errors_page import BRANCHES

ROOT = Path(__file__).resolve().parents[3]
PACKAGES = ("api", "core", "kafka", "ingest", "flusher", "reader", "tables", "demo")

COMMANDS = '''
import sys
import typer
from lancewal_core import errors
from lancewal_core.errors import InvalidSchema, KafkaUnavailable

app = typer.Typer(help="A group.")

@app.command()
def fine() -> None:
    """Says so."""
    typer.echo("fine")

@app.command()
def person() -> None:
    raise InvalidSchema("column 'x' is declared twice")

@app.command()
def later() -> None:
    raise KafkaUnavailable("Kafka at 127.0.0.1:1 does not answer")

@app.command()
def fails(branch: str) -> None:
    raise getattr(errors, branch)("no luck")

@app.command()
def broken() -> None:
    raise RuntimeError("a bug")

@app.command()
def panics() -> None:
    class PanicException(BaseException): ...
    raise PanicException("assertion failed: a bug of a library")

@app.command()
def logs() -> None:
    import logging, structlog
    structlog.get_logger().info("generation_sealed", topic="t")
    structlog.get_logger().debug("detail")
    logging.getLogger("library").warning("careful %s", 1)

read = typer.Typer()

@read.callback(invoke_without_command=True)
def read_root(uri: str) -> None:
    typer.echo(f"read {uri}")

def plain(uri: str, limit: int = 3) -> None:
    """A plain function."""
    typer.echo(f"plain {uri} {limit}")
'''


@dataclass(frozen=True, slots=True)
class Installation:
    """A folder with the package metadata that pip would have written."""

    folder: Path

    def write(self, entries: dict[str, str], requires: list[str]) -> None:
        info = self.folder / "lancewal-1.2.3.dist-info"
        info.mkdir()
        lines = [
            "Metadata-Version: 2.4",
            "Name: lancewal",
            "Version: 1.2.3",
            *(f"Requires-Dist: {r}" for r in requires),
        ]
        (info / "METADATA").write_text("\n".join(lines) + "\n")
        named = "".join(f"{name} = {value}\n" for name, value in entries.items())
        (info / "entry_points.txt").write_text(f"[lancewal.commands]\n{named}")

    def run(self, *arguments: str, environ: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
        path = os.pathsep.join([str(self.folder), *(str(ROOT / package) for package in PACKAGES)])
        kept = {name: value for name, value in os.environ.items() if not name.startswith("LANCEWAL_")}
        return subprocess.run(
            [sys.executable, "-c", "from lancewal_core.cli.program import main; main()", *arguments],
            env={**kept, "PYTHONPATH": path, "COLUMNS": "120", **(environ or {})},
            capture_output=True,
            text=True,
            timeout=240,
            check=False,
        )


@pytest.fixture
def installation(tmp_path: Path) -> Installation:
    (tmp_path / "lancewal_sample.py").write_text(COMMANDS)
    (tmp_path / "lancewal_crashing.py").write_text("raise ImportError('libfoo.so is missing')")
    found = Installation(tmp_path)
    found.write(
        {
            "sample": "lancewal_sample:app",
            "read": "lancewal_sample:read",
            "plain": "lancewal_sample:plain",
            "crashing": "lancewal_crashing:app",
            "absent": "lancewal_absent.commands:app",
        },
        ["typer>=0.1", "not-installed-a==1.0; extra == 'absent'", 'not-installed-b; extra == "other"'],
    )
    return found


def test_a_group_and_its_command(installation: Installation) -> None:
    done = installation.run("sample", "fine")
    assert (done.returncode, done.stdout, done.stderr) == (0, "fine\n", "")


def test_a_typer_that_is_one_command_and_a_plain_function(installation: Installation) -> None:
    assert installation.run("read", "s3://b/t").stdout == "read s3://b/t\n"
    assert installation.run("plain", "x", "--limit", "5").stdout == "plain x 5\n"


@pytest.mark.parametrize(
    ("command", "code", "line"),
    [
        ("person", 2, "lancewal: invalid_schema: column 'x' is declared twice\n"),
        ("later", 3, "lancewal: kafka_unavailable: Kafka at 127.0.0.1:1 does not answer\n"),
    ],
)
def test_an_error_on_purpose_is_one_line(installation: Installation, command: str, code: int, line: str) -> None:
    done = installation.run("sample", command)
    assert (done.returncode, done.stdout, done.stderr) == (code, "", line)


@pytest.mark.parametrize(("branch", "code"), BRANCHES.items())
def test_a_branch_has_its_exit_code(installation: Installation, branch: type[LancewalError], code: int) -> None:
    done = installation.run("sample", "fails", branch.__name__)
    assert (done.returncode, done.stderr) == (code, f"lancewal: {branch.kind}: no luck\n")


@pytest.mark.parametrize("command", ["broken", "panics"])
def test_a_bug_shows_its_traceback(installation: Installation, command: str) -> None:
    done = installation.run("sample", command)
    assert done.returncode == 5
    assert "Traceback" in done.stderr
    assert "a bug" in done.stderr


def test_a_command_without_its_extra_is_not_listed_and_says_what_to_install(installation: Installation) -> None:
    listed = installation.run("--help")
    assert listed.returncode == 0, listed.stderr
    for name in ("config", "plain", "read", "sample"):
        assert name in listed.stdout
    assert "absent" not in listed.stdout
    named = installation.run("absent", "anything")
    assert named.returncode == 2
    assert named.stderr == (
        "lancewal: extra_missing: the command 'absent' needs not-installed-a: install lancewal[absent]\n"
    )


def test_a_package_that_cannot_be_imported_breaks_no_other_command_and_is_not_hidden(
    installation: Installation,
) -> None:
    assert installation.run("sample", "fine").returncode == 0
    listed = installation.run("--help")
    assert (listed.returncode, "sample" in listed.stdout) == (0, True)
    assert listed.stderr == "lancewal: the command 'crashing' cannot be loaded: libfoo.so is missing\n"
    done = installation.run("crashing")
    assert done.returncode == 5
    assert "libfoo.so is missing" in done.stderr


def test_unknown_commands_and_options_are_usage_errors(installation: Installation) -> None:
    assert installation.run("nothing").returncode == 2
    assert installation.run("sample", "fine", "--no").returncode == 2


def test_version(installation: Installation) -> None:
    assert installation.run("--version").stdout == "lancewal 1.2.3\n"


def test_logs_are_json_lines_on_stderr(installation: Installation) -> None:
    done = installation.run("sample", "logs")
    lines = [json.loads(line) for line in done.stderr.splitlines()]
    assert done.stdout == ""
    ours, of_a_library = lines
    assert (ours["event"], ours["level"], ours["topic"]) == ("generation_sealed", "info", "t")
    assert (of_a_library["message"], of_a_library["level"]) == ("careful 1", "warning")
    assert (of_a_library["logger"], "event" in of_a_library) == ("library", False)
    assert all(line["timestamp"].endswith("Z") for line in lines)
    debug = installation.run("--log-level", "debug", "sample", "logs")
    assert [json.loads(line).get("event") for line in debug.stderr.splitlines()] == [
        "generation_sealed",
        "detail",
        None,
    ]
    assert installation.run("--log-level", "error", "sample", "logs").stderr == ""


def test_failpoints_are_configured_once_and_refused_outside_tests(installation: Installation) -> None:
    done = installation.run("sample", "fine", environ={"LANCEWAL_FAILPOINT": "wal.put:before=kill"})
    assert done.returncode == 2
    assert done.stderr.startswith("lancewal: invalid_settings: LANCEWAL_FAILPOINT is refused")


def test_config_check_reports_every_problem(installation: Installation, tmp_path: Path) -> None:
    file = tmp_path / "lancewal.yaml"
    file.write_text("ingest: {linger: 5}\ntable: {topic: 3}\n")
    done = installation.run("config", "check", "--config", str(file), environ={"LANCEWAL_PORT": "tcp://10.0.0.1:1"})
    assert done.returncode == 2
    assert done.stderr.startswith("lancewal: invalid_settings: 3 problems:\n")
    for text in (f"{file}:1: ingest.linger", f"{file}:2: table.topic", "LANCEWAL_PORT", "enableServiceLinks"):
        assert text in done.stderr
    file.write_text("ingest: {linger_ms: 5}\n")
    good = installation.run("config", "check", environ={"LANCEWAL_CONFIG": str(file)})
    assert (good.returncode, good.stdout) == (0, "The settings are valid.\n")


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (None, "there are no settings. No settings file was named"),
        ("kafka:\n", "there are no settings. The settings file is empty"),
        ("table: {primary_key: [id], region_key: [id, city]}", "column 'city' is not in table.primary_key ['id']"),
        (
            "table: {columns: {id: int64, city: string}, primary_key: [id], region_key: [city]}",
            "'city' is not in the primary",
        ),
        ("table: {columns: {id: int64}, primary_key: [name]}", "'name' is not among table.columns"),
        (
            "table: {columns: {id: int64}, primary_key: [id], region_key: [id], format: {key: bytes}}",
            "format.key is bytes",
        ),
        (
            "table: {columns: {id: int64}, primary_key: [id], region_key: []}",
            "table.region_key is empty: name the columns",
        ),
        ("table: {region_key: []}", "table.region_key is empty: name the columns"),
        (
            "table: {columns: {id: int64}, primary_key: [id], ttl_column: at, ttl_s: 1d}",
            "table.ttl_column: column 'at'",
        ),
    ],
)
def test_config_check_finds_what_needs_neither_store_nor_kafka(tmp_path: Path, content: str | None, says: str) -> None:
    file = tmp_path / "lancewal.yaml"
    file.write_text(content or "")
    with pytest.MonkeyPatch.context() as patch:
        for name in [name for name in os.environ if name.startswith("LANCEWAL_")]:
            patch.delenv(name)
        with pytest.raises((InvalidSchema, InvalidSettings), match=re.escape(says)):
            check(None if content is None else file)


@pytest.mark.parametrize(
    "table",
    [
        "{columns: {id: int64}, primary_key: [id]}",  # the contract may have it by now
        "{columns: {id: int64}, primary_key: [id], region_key: [], format: {key: bytes}}",
        "{region_key: [], format: {key: bytes}}",
    ],
)
def test_config_check_takes_a_region_key_that_may_be_left_out(tmp_path: Path, table: str) -> None:
    file = tmp_path / "lancewal.yaml"
    file.write_text(f"table: {table}")
    with pytest.MonkeyPatch.context() as patch:
        for name in [name for name in os.environ if name.startswith("LANCEWAL_")]:
            patch.delenv(name)
        check(file)


def test_config_show_masks_secrets_and_can_be_read_again(installation: Installation, tmp_path: Path) -> None:
    file = tmp_path / "lancewal.yaml"
    file.write_text(
        "storage: {options: {aws_secret_access_key: hush, aws_region: r}}\ntable: {columns: {b: int8, a: bool}}\n"
    )
    shown = installation.run("config", "show", "-c", str(file)).stdout
    assert "hush" not in shown
    assert json.loads(installation.run("config", "show", "-c", str(file), "-o", "json").stdout)["storage"] == {
        "options": {"aws_secret_access_key": "***", "aws_region": "r"}
    }
    file.write_text(shown)
    assert installation.run("config", "show", "-c", str(file)).stdout == shown


def test_the_project_s_entry_points_name_things_of_their_extras() -> None:
    """``install lancewal[x]`` is derived from the package's name: each must be an extra.  Tables are the flusher's."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    entries = project["entry-points"]["lancewal.commands"]
    for name, value in entries.items():
        extra = value.partition(".")[0].partition(":")[0].removeprefix("lancewal_").replace("tables", "flusher")
        assert extra in project["optional-dependencies"], name


def test_a_command_starts_without_the_heavy_libraries(installation: Installation) -> None:
    script = (
        "import sys\nfrom lancewal_core.cli.program import run\n"
        "assert run(['config', 'show']) == 0\n"
        "print([m for m in ('lance', 'pyarrow', 'confluent_kafka', 'pyspark', 'obstore') if m in sys.modules])"
    )
    path = os.pathsep.join([str(installation.folder), str(ROOT / "core"), str(ROOT / "flusher")])
    done = subprocess.run(
        [sys.executable, "-c", script],
        env={"PYTHONPATH": path, "PATH": os.environ["PATH"]},
        capture_output=True,
        text=True,
        timeout=240,
        check=True,
    )
    assert done.stdout.splitlines()[-1] == "[]"
