"""The versions of what is installed, and lines on them and the command for reports to others."""

from __future__ import annotations

import importlib.util
import os
import platform
import shlex
import sys
from importlib import metadata
from pathlib import Path

from collops.core import core, usable_cores
from collops.errors import Error

# Packages whose versions are named where they are installed.
PACKAGES = ("numpy", "torch", "ml_dtypes", "matplotlib", "torch_npu")
# Where Ascend's installers put what they install.
ASCEND = Path("/usr/local/Ascend")


def version(name: str) -> str:
    """A package's version, or that it is not installed."""
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return "not installed"


def is_installed(module: str) -> bool:
    """Whether a module can be imported here; it is not imported."""
    try:
        return importlib.util.find_spec(module) is not None
    except (ImportError, ValueError):  # what hides a module from this program may say so
        return False


def cann_advice() -> str:
    """What to do where Ascend's software is installed and its libraries are not found, or ""."""
    if not ASCEND.is_dir():
        return ""
    # By the version: cann from 8.5 on. nnal has ATB alone.
    names = ("cann", "ascend-toolkit", "nnae")
    scripts = [path / "set_env.sh" for path in (*map(ASCEND.joinpath, names), *ASCEND.iterdir())]
    found = [path for path in scripts if path.is_file() and path.parent.name != "nnal"]
    if found:
        return f"CANN is installed, but not in this shell's environment: source {found[0]}"
    return f"{ASCEND} has no CANN with a set_env.sh: install the toolkit and its kernels"


def system() -> str:
    """The operating system's name and release, and the kind of machine."""
    return f"{platform.system()} {platform.release()} {platform.machine()}"


def cores() -> str:
    """How many cores this process may use, and the cgroup whose CPU quota limits them, if any."""
    count, cgroup = usable_cores()
    quota = f" (CPU quota of {cgroup})" if cgroup else ""
    return f"{count} of {os.cpu_count()}{quota}"


def installation_line() -> str:
    """One line for the text of an issue: versions, system, cores and kernels."""
    packages = ((name, version(name)) for name in PACKAGES)
    named = [f"{name} {found}" for name, found in packages if found != "not installed"]
    parts = [f"collops {version('collops')}", f"Python {platform.python_version()}", *named]
    parts += [system(), f"{cores()} cores", _kernels()]
    return ", ".join(parts)


def command_line() -> str:
    """The command of this process as it was typed, so that it can be run again."""
    return shlex.join(["collops", *sys.argv[1:]])


def _kernels() -> str:
    try:
        return f"kernels {core().kernels()[0]}"
    except Error as error:
        return f"no kernels: {error}"
