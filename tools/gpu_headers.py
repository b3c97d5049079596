"""Headers of NCCL and cuBLASLt from PyPI's wheels, against which a test compares declarations."""

from __future__ import annotations

import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

from environment import ROOT, last_error, say

FOLDER = ROOT / "build" / "gpu-headers"
# The oldest NCCL that the backend takes and a recent one; of cuBLASLt, which changes less, a recent
# one.
WHEELS = ["nvidia-nccl-cu13==2.27.7", "nvidia-nccl-cu13==2.30.7", "nvidia-cublas==13.10.0.20"]
LIMIT_S = 200


def download(wheel: str) -> Path | None:
    """The folder of the wheel's headers; None, with pip's reason printed, if it cannot be had."""
    folder = FOLDER / wheel.replace("==", "-")
    if folder.is_dir():
        return folder
    say(f"downloading the headers of {wheel}")
    partial = FOLDER / "partial"
    shutil.rmtree(partial, ignore_errors=True)
    command = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "-d", str(partial)]
    try:
        done = subprocess.run(
            [*command, "--only-binary", ":all:", wheel],
            capture_output=True,
            text=True,
            timeout=LIMIT_S,
        )
    except subprocess.TimeoutExpired:
        say(f"no headers of {wheel}: still downloading after {LIMIT_S} s")
        return None
    if done.returncode != 0:
        say(f"no headers of {wheel}: {last_error(done.stderr)}")
        return None
    for path in list(partial.glob("*.whl")):
        with zipfile.ZipFile(path) as archive:
            archive.extractall(partial, [n for n in archive.namelist() if n.endswith(".h")])
        path.unlink()
    partial.rename(folder)
    return folder


def include_folders() -> list[str]:
    """The folders with headers of all wheels that can be had."""
    folders = [folder for wheel in WHEELS if (folder := download(wheel)) is not None]
    return [str(place) for folder in folders for place in sorted(folder.glob("nvidia/*/include"))]
