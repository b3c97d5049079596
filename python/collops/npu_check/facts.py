"""What this machine has of CANN and torch_npu; a program, because loading them may crash."""

from __future__ import annotations

import ctypes
import json
import os
import re
from importlib import import_module, metadata
from pathlib import Path
from typing import Any

# Begins the line in which a part prints what it has found; torch_npu prints lines, too.
MARK = "collops-npu-check "
LIBRARIES = ("libascendcl.so", "libhccl.so", "libopapi.so")
DRIVER = Path("/usr/local/Ascend/driver/version.info")
# Below ASCEND_HOME_PATH or ASCEND_TOOLKIT_HOME; the first has several names by release.
_CANN_FILES = ("version.cfg", "version.info", "ascend_toolkit_install.info", "*/*.info")
PACKAGES = ("collops", "torch", "torch_npu", "numpy")
# Only tests/npu/sim has it.
_SIMULATION = "SimHoldStream"
_HIDDEN = re.compile("KEY|TOKEN|SECRET|PASSW")


def tell(found: dict[str, Any]) -> None:
    """Prints what a part of the check has found."""
    print(MARK + json.dumps(found), flush=True)


def main() -> None:
    """Tells the facts."""
    loaded = {name: load(name) for name in LIBRARIES}
    tell(
        {
            "libraries": {name: text for name, (_, text) in loaded.items()},
            "missing": [name for name, (library, _) in loaded.items() if library is None],
            "simulated": hasattr(loaded["libascendcl.so"][0], _SIMULATION),
            "driver": version_text(DRIVER) or f"{DRIVER}: not found",
            "cann": cann_version(),
            "packages": {name: package_version(name) for name in PACKAGES},
            "variables": variables(),
            **devices(),
        }
    )


def load(name: str) -> tuple[ctypes.CDLL | None, str]:
    """A library with its path, or None with the loader's reason."""
    try:
        library = ctypes.CDLL(name)
    except OSError as problem:
        return None, str(problem)
    return library, path_of(name)


def path_of(name: str) -> str:
    """Where a loaded library was found."""
    for line in Path("/proc/self/maps").read_text().splitlines():
        path = line.partition("/")[2]
        if Path(path).name.startswith(name):
            return f"/{path}"
    return "loaded, its path is not known"


def version_text(path: Path) -> str:
    """The lines of a version file that have a version; empty if there is no such file."""
    try:
        lines = path.read_text(errors="replace").splitlines()
    except OSError:
        return ""
    said = [line.strip() for line in lines if re.search(r"version", line, re.IGNORECASE)]
    return "; ".join(said[:4] or [line.strip() for line in lines[:1]])


def cann_version() -> str:
    """The version of the CANN toolkit, from the files that its variables lead to."""
    for variable in ("ASCEND_HOME_PATH", "ASCEND_TOOLKIT_HOME"):
        home = os.environ.get(variable, "")
        if not home:
            continue
        for pattern in _CANN_FILES:
            for path in sorted(Path(home).glob(pattern)):
                text = version_text(path)
                if text:
                    return f"{path}: {text}"
        return f"{variable}={home}: no version file"
    return "ASCEND_HOME_PATH and ASCEND_TOOLKIT_HOME are not set"


def package_version(name: str) -> str:
    """A package's version, or that it is not installed."""
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return "not installed"


def variables() -> dict[str, str]:
    """Every HCCL_ and ASCEND_ variable, and those of collops."""
    return {
        name: "set, not shown" if _HIDDEN.search(name) else value
        for name, value in sorted(os.environ.items())
        if name.startswith(("HCCL_", "ASCEND_", "COLLOPS_"))
    }


def devices() -> dict[str, Any]:
    """The number of NPUs and their SoC, by torch_npu; or why it cannot say."""
    try:
        module = import_module("torch_npu")
        npu = import_module("torch").npu
        count = int(npu.device_count())
        soc = str(npu.get_device_name(0)) if count else ""
    except Exception as problem:
        return {"devices": 0, "soc": "", "torch_npu": f"{type(problem).__name__}: {problem}"}
    return {"devices": count, "soc": soc, "torch_npu": f"imported, {module.__version__}"}


if __name__ == "__main__":
    main()
