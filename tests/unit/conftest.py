"""What several rooms of these tests share."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
# Where the core was built for the package.
BUILD = ROOT / "build" / f"cmake-{sys.implementation.cache_tag}"


@pytest.fixture(scope="session")
def core_prefix(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in which collops is installed for C++."""
    if shutil.which("cmake") is None or not (BUILD / "ops" / "libcollops.a").exists():
        pytest.skip(f"the core is not built in {BUILD} (make test does that)")
    prefix = tmp_path_factory.mktemp("prefix")
    command = ["cmake", "--install", BUILD, "--prefix", prefix, "--component", "Unspecified"]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    assert done.returncode == 0, done.stdout
    return prefix
