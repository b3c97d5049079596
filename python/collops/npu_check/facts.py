"""What this machine has of CANN and torch_npu; a program, because loading them may crash."""

from __future__ import annotations

import ctypes
import json
import os
import re
import socket
from importlib import import_module, metadata
from pathlib import Path
from typing import Any

# Begins the line in which a part prints what it has found; torch_npu prints lines, too.
MARK = "collops-npu-check "
LIBRARIES = ("libhccl.so", "libascendcl.so")
# Operators, by the version of CANN in the first or cut over the others.
OPERATORS = ("libopapi.so", "libopapi_nn.so", "libopapi_math.so")
DRIVER = Path("/usr/local/Ascend/driver/version.info")
# Below ASCEND_HOME_PATH or ASCEND_TOOLKIT_HOME; the first has several names by release.
_CANN_FILES = ("version.cfg", "version.info", "ascend_toolkit_install.info", "*/*.info")
# HCCL's defaults.
FIRST_PORT, NUM_PORTS, BUFFER_MB = 60000, 16, 200
# Of all ranks, of those that gather and of those that scatter.
MOST_COMMUNICATORS = 3
PACKAGES = ("collops", "torch", "torch_npu", "numpy")
# Only tests/npu/sim has it.
_SIMULATION = "SimHoldStream"
_HIDDEN = re.compile("KEY|TOKEN|SECRET|PASSW")


def tell(found: dict[str, Any]) -> None:
    """Prints what a part of the check has found."""
    print(MARK + json.dumps(found), flush=True)


def main() -> None:
    """Tells the facts."""
    loaded = {name: load(name) for name in (*LIBRARIES, *OPERATORS)}
    found = devices()
    tell(
        {
            "libraries": {name: text for name, (_, text) in loaded.items()},
            "missing": [name for name in LIBRARIES if loaded[name][0] is None],
            "simulated": hasattr(loaded["libascendcl.so"][0], _SIMULATION),
            "driver": version_text(DRIVER) or f"{DRIVER}: not found",
            "cann": cann_version(),
            "packages": {name: package_version(name) for name in PACKAGES},
            "variables": variables(),
            "resources": [*numbers(found["devices"]), *ports(), *memory(found["free"])],
            **found,
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
        free = [int(size) for size in npu.mem_get_info(0)] if count else []
    except Exception as problem:
        said = f"{type(problem).__name__}: {problem}"
        return {"devices": 0, "soc": "", "free": [], "torch_npu": said}
    said = f"imported, {module.__version__}"
    return {"devices": count, "soc": soc, "free": free, "torch_npu": said}


Rows = list[tuple[str, str]]


def numbers(count: int) -> Rows:
    """Which NPU of the machine each of torch's is; rank tables have the machine's numbers."""
    name = "ASCEND_RT_VISIBLE_DEVICES"
    visible = os.environ.get(name, "")
    if not visible:
        return [("physical ids", f"those of torch; {name} is not set")]
    physical = [one.strip() for one in visible.split(",")]
    pairs = zip(range(count), physical, strict=False)
    said = ", ".join(f"npu:{logical} is {number}" for logical, number in pairs)
    return [("physical ids", f"{said or 'not known'} ({name}={visible})")]


def ports() -> Rows:
    """The ports of HCCL on the host, which of them are taken, and those on the NPUs."""
    name, base = "HCCL_IF_BASE_PORT", os.environ.get("HCCL_IF_BASE_PORT", "")
    begin = int(base) if base.isdecimal() else FIRST_PORT
    chosen = os.environ.get("HCCL_HOST_SOCKET_PORT_RANGE", "")
    if chosen:
        rows = [("host ports", f"HCCL_HOST_SOCKET_PORT_RANGE={chosen}")]
    else:
        taken = [port for port in range(begin, min(begin + NUM_PORTS, 1 << 16)) if is_taken(port)]
        busy = f"taken: {', '.join(map(str, taken))}; choose others by {name}" if taken else "free"
        where = f"{name}={base}" if base else f"{name} is not set"
        rows = [("host ports", f"{begin} to {begin + NUM_PORTS - 1} ({where}): {busy}")]
    on_npus = "HCCL_NPU_SOCKET_PORT_RANGE"
    chosen = os.environ.get(on_npus, "")
    said = f"{on_npus}={chosen}" if chosen else f"16666: one process for each NPU, or set {on_npus}"
    return [*rows, ("NPU ports", said)]


def is_taken(port: int) -> bool:
    """Whether nobody else can listen on a port of this host."""
    with socket.socket() as probe:
        try:
            probe.bind(("", port))
        except OSError:
            return True
    return False


def memory(free: list[int]) -> Rows:
    """What HCCL's buffers take of an NPU, and what is free."""
    ours = "COLLOPS_HCCL_BUFFER_MB"
    name = ours if os.environ.get(ours) else "HCCL_BUFFSIZE"
    size = os.environ.get(name, "")
    one = 2 * (int(size) if size.isdecimal() else BUFFER_MB)
    rows = [
        (
            "HCCL's buffers",
            f"2 x {name} = {one} MB of an NPU for each communicator; {MOST_COMMUNICATORS} "
            f"for LinearParallel on a grid: {MOST_COMMUNICATORS * one} MB",
        )
    ]
    if free:
        rows.append(("free memory", f"{free[0] >> 20} of {free[1] >> 20} MB of npu:0"))
    return rows


if __name__ == "__main__":
    main()
