"""Wheel and sdist, built once: they hold every package, and what each extra requires suffices in an empty environment.

An environment here is a folder with the wheel's files and links to the distributions that the extra requires, and to those
that these require.  A Python without site-packages sees nothing else.
"""

from __future__ import annotations

import compileall
import configparser
import json
import os
import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement

ROOT = Path(__file__).resolve().parents[2]
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())
PACKAGES: list[str] = PROJECT["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]
VERSION: str = PROJECT["project"]["version"]
COMMANDS: dict[str, str] = PROJECT["project"]["entry-points"]["lancewal.commands"]

BROUGHT: dict[str, tuple[str, ...]] = {
    "": ("lancewal", "lancewal_core"),
    "ingest": ("lancewal_kafka", "lancewal_ingest"),
    "flusher": ("lancewal_kafka", "lancewal_flusher", "lancewal_tables"),
    "reader": ("lancewal_reader",),
    "kafka": ("lancewal_kafka",),
    "audit": ("lancewal_kafka", "lancewal_audit"),
    "demo": ("lancewal_kafka", "lancewal_demo"),
    "reader,spark": ("lancewal_reader", "pyspark_lancewal"),
    "flusher,spark": ("lancewal_flusher",),
    "postgres": ("lancewal_core",),
    "registry": ("lancewal_core",),
}
"""Extras -> packages whose modules they let be imported.  ``all`` is no more than all of them."""
OF_EXTRAS = {"spark": ("spark", "pyspark_lancewal"), "postgres": ("postgres",)}
"""Beginnings of the names of rooms and modules that need an extra.  Names may also end with an underscore and the extra."""
PROGRAM = """
import importlib, json, sys
sys.path.insert(0, sys.argv[1])
for name in json.loads(sys.argv[2]):
    importlib.import_module(name)
from lancewal_core.cli import program
outside = [name for name, module in sys.modules.items() if "site-packages" in (getattr(module, "__file__", None) or "")]
assert outside == [], outside
codes = {" ".join(command): program.run(command) for command in json.loads(sys.argv[3])}
assert set(codes.values()) == {0}, codes
"""


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with wheel and sdist of the files that git knows, and others of the packages."""
    folder = tmp_path_factory.mktemp("built")
    run([sys.executable, "-m", "hatchling", "build", "-d", folder], ROOT)
    return folder


def run(command: Sequence[str | Path], folder: Path, environment: Mapping[str, str] | None = None) -> str:
    done = subprocess.run(command, cwd=folder, env=environment, text=True, capture_output=True, check=False)
    assert done.returncode == 0, f"{command[:4]}\n{done.stdout[-3000:]}{done.stderr[-3000:]}"
    return done.stdout


def files_of(package: str) -> Iterator[str]:
    """Files of a package that git knows, as the wheel names them."""
    listed = run(["git", "ls-files", package], ROOT).split()
    yield from (name.partition("/")[2] for name in listed if (ROOT / name).exists())


def wheel(built: Path) -> zipfile.ZipFile:
    return zipfile.ZipFile(built / f"lancewal-{VERSION}-py3-none-any.whl")


def test_the_wheel_has_every_file_of_every_package(built: Path) -> None:
    with wheel(built) as archive:
        found = {name for name in archive.namelist() if not name.startswith(f"lancewal-{VERSION}.dist-info/")}
    assert sorted(PACKAGES) == sorted(
        str(file.parent.relative_to(ROOT)) for file in ROOT.glob("*/*lancewal*/__init__.py")
    )
    wanted = {file for package in PACKAGES for file in files_of(package)}
    assert {
        "lancewal/py.typed",
        "lancewal_core/cli/estimate/counted.json",
        "lancewal_demo/stack/kafka-jars.lock",
    } <= wanted
    assert wanted - found == set()
    assert {name.partition("/")[0] for name in found} == {package.rpartition("/")[2] for package in PACKAGES}


def test_the_wheel_names_its_program_commands_and_extras(built: Path) -> None:
    with wheel(built) as archive:
        points = configparser.ConfigParser()
        points.optionxform = str  # type: ignore[assignment,method-assign]  # names keep their case
        points.read_string(archive.read(f"lancewal-{VERSION}.dist-info/entry_points.txt").decode())
        about = archive.read(f"lancewal-{VERSION}.dist-info/METADATA").decode()
    assert dict(points["console_scripts"]) == PROJECT["project"]["scripts"]
    assert dict(points["lancewal.commands"]) == COMMANDS
    extras = {line.removeprefix("Provides-Extra: ") for line in about.splitlines() if line.startswith("Provides-Extra")}
    assert extras == PROJECT["project"]["optional-dependencies"].keys()
    assert {name for names in BROUGHT for name in names.split(",") if name} == extras - {"all", "dev"}


def test_the_sdist_makes_the_same_wheel(built: Path, tmp_path: Path) -> None:
    with tarfile.open(built / f"lancewal-{VERSION}.tar.gz") as archive:
        archive.extractall(tmp_path, filter="data")
    source = tmp_path / f"lancewal-{VERSION}"
    run([sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", tmp_path / "again"], source)
    with wheel(built) as first, wheel(tmp_path / "again") as second:
        assert {info.filename: info.CRC for info in first.infolist()} == {
            info.filename: info.CRC for info in second.infolist()
        }


@pytest.fixture(scope="module")
def installed(built: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel's files, compiled once."""
    folder = tmp_path_factory.mktemp("installed")
    with wheel(built) as archive:
        archive.extractall(folder)
    assert compileall.compile_dir(folder, quiet=1)
    return folder


@pytest.mark.parametrize("extras", BROUGHT)
def test_an_extra_brings_what_its_packages_import(extras: str, installed: Path, tmp_path: Path) -> None:
    environment = tmp_path / "environment"
    shutil.copytree(installed, environment)
    for name in required(extras):
        link(metadata.distribution(name), environment)
    packages = BROUGHT[extras]
    commands = [[name, "--help"] for name, value in COMMANDS.items() if value.partition(".")[0] in packages]
    modules = [name for package in packages for name in modules_of(environment / package, extras.split(","))]
    variables = {name: value for name, value in os.environ.items() if not name.startswith(("LANCEWAL_", "PYTHON"))}
    asked = (json.dumps(modules), json.dumps([["--version"], *commands]))
    program: list[str | Path] = [sys.executable, "-I", "-S", "-W", "ignore", "-c", PROGRAM, environment, *asked]
    said = run(program, tmp_path, variables)
    assert said.splitlines()[0] == f"lancewal {VERSION}"


def modules_of(folder: Path, extras: Sequence[str]) -> list[str]:
    """Names of all modules of a package that need no other than these extras of ``OF_EXTRAS``."""
    files = [file.relative_to(folder.parent).with_suffix("") for file in sorted(folder.rglob("*.py"))]
    names = [file.parent if file.name == "__init__" else file for file in files if file.name != "__main__"]
    missing = OF_EXTRAS.keys() - set(extras)
    beginnings = tuple(beginning for extra in missing for beginning in OF_EXTRAS[extra])
    endings = tuple(f"_{extra}" for extra in missing)
    return [
        ".".join(name.parts)
        for name in names
        if not any(part.startswith(beginnings) or part.endswith(endings) for part in name.parts)
    ]


def required(extras: str) -> set[str]:
    """Names of the distributions that lancewal with these extras requires, and of those that they require."""
    project = PROJECT["project"]
    of_extras = [project["optional-dependencies"][extra] for extra in extras.split(",") if extra]
    own = [text for texts in (project["dependencies"], *of_extras) for text in texts]
    wanted = [(requirement, more) for requirement in map(Requirement, own) for more in ("", *requirement.extras)]
    found: set[tuple[str, str]] = set()
    while wanted:
        requirement, extra = wanted.pop()
        if (requirement.name, extra) in found:
            continue
        found.add((requirement.name, extra))
        for text in metadata.distribution(requirement.name).requires or ():
            inner = Requirement(text)
            if inner.marker is None or inner.marker.evaluate({"extra": extra}):
                wanted += [(inner, more) for more in ("", *inner.extras)]
    return {name for name, _ in found}


def link(distribution: metadata.Distribution, environment: Path) -> None:
    """Link the folders and modules of a distribution, and what it says of itself, into an environment."""
    for top in {file.parts[0] for file in distribution.files or () if file.parts[0] not in ("..", "__pycache__")}:
        place = environment / top
        if not place.exists():
            place.symlink_to(Path(str(distribution.locate_file(top))))
