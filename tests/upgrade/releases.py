"""Releases of lancewal, each installed in an environment of its own."""

from __future__ import annotations

import re
import subprocess
import sys
import sysconfig
import venv
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
LOCK = "requirements.lock"
BUILD_LOCK = "requirements-build.lock"
PIP = (sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet")


@dataclass(frozen=True, slots=True)
class Release:
    """An installation: its Python, and its program beside it."""

    name: str
    python: Path

    @property
    def program(self) -> Path:
        return self.python.with_name("lancewal")


def this_checkout() -> Release:
    return Release("new", Path(sys.executable))


def newest_release() -> str:
    """The commit of the newest release in the changelog, and HEAD where there is none: see ``docs/releasing.md``."""
    found = re.search(r"^## \[(\d\S*)\]", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert found is not None
    named = git("log", "-1", "--format=%H", f"--grep=^release: {re.escape(found[1])}$")
    return named or "HEAD"


def install(commit: str, folder: Path) -> Release:
    """Build the wheel of a commit and install it below ``folder``, with the packages that its lock names."""
    source, environment = folder / "source", folder / "environment"
    source.mkdir(parents=True)
    archive = subprocess.run(["git", "archive", commit], cwd=ROOT, stdout=subprocess.PIPE, check=True)
    subprocess.run(["tar", "--extract"], cwd=source, input=archive.stdout, check=True)
    wheels = folder / "wheels"
    options = ("--no-deps", "--no-index", "--no-build-isolation")
    subprocess.run([*PIP, "wheel", *options, f"--wheel-dir={wheels}", str(source)], check=True)
    venv.create(environment, symlinks=True)
    python = environment / "bin" / "python"
    pip = [*PIP, f"--python={python}", "install", "--no-deps"]
    if (source / LOCK).read_bytes() == (ROOT / LOCK).read_bytes():
        # The packages are those of this checkout.  What lies in the environment comes before them.
        (site_packages(environment) / "packages.pth").write_text(sysconfig.get_path("purelib") + "\n")
    else:
        subprocess.run([*pip, "--require-hashes", f"--requirement={source / BUILD_LOCK}"], check=True)
        subprocess.run([*pip, "--require-hashes", "--no-build-isolation", f"--requirement={source / LOCK}"], check=True)
    (wheel,) = wheels.glob("lancewal-*.whl")
    subprocess.run([*pip, "--no-index", str(wheel)], check=True)
    where: list[str | Path] = [
        python,
        "-c",
        "from importlib import util; print(util.find_spec('lancewal_core').origin)",
    ]
    loaded = subprocess.run(where, cwd=folder, stdout=subprocess.PIPE, text=True, check=True).stdout
    assert loaded.startswith(str(environment)), f"the environment of {commit} loads {loaded}"
    return Release("old", python)


def site_packages(environment: Path) -> Path:
    variables = {"base": str(environment), "platbase": str(environment)}
    return Path(sysconfig.get_path("purelib", vars=variables))


def git(*arguments: str) -> str:
    return subprocess.run(["git", *arguments], cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True).stdout.strip()
