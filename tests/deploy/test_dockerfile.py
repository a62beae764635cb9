"""Dockerfile: pinned, hashed, not root, and the locks hold all that it installs."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
import threading
import tomllib
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
TEXT = (ROOT / "Dockerfile").read_text()


def instructions() -> list[tuple[str, str]]:
    """(name, arguments), comments left out and continued lines joined."""
    lines = [line for line in TEXT.splitlines() if not line.lstrip().startswith("#")]
    joined = re.sub(r"\\\n\s*", "", "\n".join(lines))
    return [(name, rest) for name, _, rest in (line.partition(" ") for line in joined.splitlines()) if name]


def all_of(name: str) -> list[str]:
    return [rest for found, rest in instructions() if found == name]


def last_stage() -> list[tuple[str, str]]:
    found = instructions()
    return found[max(index for index, (name, _) in enumerate(found) if name == "FROM") :]


def test_the_base_has_a_version_and_no_registry() -> None:
    assert {rest.split()[0] for rest in all_of("FROM")} == {"${PYTHON_IMAGE}"}
    (argument,) = all_of("ARG")
    assert re.fullmatch(r"PYTHON_IMAGE=python:3\.\d+-slim-[a-z]+", argument)


def test_the_base_is_the_python_of_the_tests() -> None:
    version = re.search(r"python:(3\.\d+)", TEXT)
    assert version is not None
    mypy = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["mypy"]
    assert version[1] == mypy["python_version"]


def test_the_user_is_a_number_and_not_root() -> None:
    (user,) = [rest for name, rest in last_stage() if name == "USER"]
    assert re.fullmatch(r"[1-9]\d*:[1-9]\d*", user)
    after = [name for name, _ in last_stage()[[name for name, _ in last_stage()].index("USER") :]]
    assert "RUN" not in after
    assert "COPY" not in after


def test_the_chart_and_the_image_have_one_user() -> None:
    (user,) = [rest for name, rest in last_stage() if name == "USER"]
    pod = (ROOT / "helm" / "lancewal" / "templates" / "_pod.tpl").read_text()
    found = dict(re.findall(r"(runAsUser|runAsGroup): (\d+)", pod))
    assert f"{found['runAsUser']}:{found['runAsGroup']}" == user


def test_nothing_is_installed_that_no_hash_has_checked() -> None:
    """Each pip command either checks hashes or sees no index."""
    commands = [part.strip() for rest in all_of("RUN") for part in rest.split("&&")]
    pips = [command for command in commands if re.match(r"pip\b.*\b(install|download|wheel)\b", command)]
    assert len(pips) == 4
    for command in pips:
        assert "--require-hashes" in command or "--no-index" in command, command
    assert not [command for command in commands if re.match(r"(apt|apt-get|curl|wget)\b", command)]
    assert "ADD" not in dict(instructions())


def test_what_is_left_out_of_the_lock_is_needed_by_no_service() -> None:
    """Follows the lock's own ``# via`` notes from the requirements of the two services."""
    left_out = set(re.search(r"keep = !/\^\(([^)]*)\)==/", TEXT)[1].split("|"))  # type: ignore[index] # fails if absent
    lock = (ROOT / "requirements.lock").read_text()
    names: set[str] = set()
    needed_by: dict[str, set[str]] = {}
    for block in re.split(r"\n(?=[a-z0-9])", lock):
        name = block.partition("==")[0]
        names.add(name)
        for via in re.findall(r"^\s+#\s+(?:via )?([A-Za-z0-9._-]+)", block, re.MULTILINE):
            needed_by.setdefault(via, set()).add(name)
    assert left_out <= names, "nothing to leave out"
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    direct = [*project["dependencies"], *extras["ingest"], *extras["flusher"], *extras["postgres"]]
    needed = {re.match(r"[A-Za-z0-9._-]+", requirement)[0] for requirement in direct}  # type: ignore[index] # a name
    while more := {name for parent in needed for name in needed_by.get(parent, set())} - needed:
        needed |= more
    assert {"pyarrow", "confluent-kafka", "lance-namespace"} <= needed, "the notes were not read"
    assert needed <= names
    assert needed & left_out == set()


def test_the_installed_extras_are_the_services() -> None:
    assert "'lancewal[ingest,flusher,postgres]'" in TEXT


def test_all_that_is_copied_is_in_the_context() -> None:
    ignore = (ROOT / ".dockerignore").read_text().split("\n")
    assert "*" in ignore
    allowed = {line[1:] for line in ignore if line.startswith("!")}
    copied = {source for rest in all_of("COPY") if "--from" not in rest for source in rest.split()[:-1]}
    assert copied == allowed
    assert all((ROOT / name).exists() for name in copied)


def test_every_package_of_the_wheel_is_copied() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    packages = project["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]
    copied = {source for rest in all_of("COPY") for source in rest.split()[:-1]}
    assert {package.partition("/")[0] for package in packages} <= copied


def test_the_image_sets_no_setting() -> None:
    """A variable would override the settings file, and nobody would see why."""
    assert "LANCEWAL_" not in "".join(all_of("ENV"))


def test_the_entry_is_a_program_and_no_shell() -> None:
    assert dict(last_stage())["ENTRYPOINT"] == '["lancewal"]'


@pytest.mark.parametrize(("status", "healthy"), [(200, True), (503, False)])
def test_the_health_check_says_what_readyz_says(status: int, healthy: bool) -> None:
    asked: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path)
            self.send_response(status)
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:
            """Quiet."""

    (check,) = all_of("HEALTHCHECK")
    command = shlex.split(check.partition("CMD ")[2].strip("[]").replace('", "', '" "'))
    assert command[:2] == ["python", "-c"]
    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        try:
            environment = {
                "LANCEWAL_HTTP__FLUSHER_PORT": str(server.server_address[1]),
                "LANCEWAL_HTTP__INGEST_PORT": "1",
            }
            done = subprocess.run([sys.executable, *command[1:]], env=environment, capture_output=True, check=False)
        finally:
            server.shutdown()
            thread.join()
    assert (done.returncode == 0) is healthy, done.stderr
    assert asked == ["/readyz"]
