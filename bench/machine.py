"""Facts of the machine that a run was made on; nothing that names it."""

from __future__ import annotations

import json
import os
import platform
import subprocess
from pathlib import Path
from typing import Any

_LSCPU = (
    "Architecture",
    "Vendor ID",
    "Model name",
    "CPU family",
    "Model",
    "Stepping",
    "CPU(s)",
    "Thread(s) per core",
    "Core(s) per socket",
    "Socket(s)",
    "NUMA node(s)",
    "L1d cache",
    "L2 cache",
    "L3 cache",
    "Hypervisor vendor",
)
_INSTRUCTIONS = (
    "avx2",
    "avx512f",
    "avx512_bf16",
    "avx512_fp16",
    "amx_bf16",
    "asimd",
    "sve",
    "bf16",
)


def facts() -> dict[str, Any]:
    """What lscpu, the kernel and /proc say."""
    cpu = _lscpu()
    flags = set(cpu.get("Flags", "").split())
    return {
        "lscpu": {name: cpu[name] for name in _LSCPU if name in cpu},
        "instructions": [name for name in _INSTRUCTIONS if name in flags],
        "cores": len(os.sched_getaffinity(0)),
        "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1),
        "kernel": platform.release(),
        "huge_pages": _text("/sys/kernel/mm/transparent_hugepage/enabled"),
    }


def load() -> list[float]:
    """The load averages of 1, 5 and 15 minutes: whether other programs ran."""
    return [round(value, 2) for value in os.getloadavg()]


def first_line(command: list[str], environment: dict[str, str] | None = None) -> str:
    """The first line that a command prints; empty if it cannot run."""
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=30, check=False, env=environment
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return (done.stdout + done.stderr).partition("\n")[0].strip()


def revision(root: Path) -> str:
    """The checkout's commit, with "+" if files differ from it; empty outside a checkout."""
    commit = first_line(["git", "-C", str(root), "rev-parse", "HEAD"])
    if len(commit) != 40:
        return ""
    changed = first_line(["git", "-C", str(root), "status", "--porcelain"])
    return commit + ("+" if changed else "")


def _lscpu() -> dict[str, str]:
    try:
        done = subprocess.run(
            ["lscpu", "--json"],
            stdout=subprocess.PIPE,
            text=True,
            timeout=30,
            check=True,
            env={**os.environ, "LC_ALL": "C"},
        )
    except (OSError, subprocess.SubprocessError):
        return {}
    return dict(_fields(json.loads(done.stdout)["lscpu"]))


def _fields(rows: list[dict[str, Any]]) -> list[tuple[str, str]]:
    """Names and values; newer versions of lscpu nest them."""
    found = []
    for row in rows:
        found.append((row["field"].strip().removesuffix(":"), row.get("data") or ""))
        found += _fields(row.get("children", []))
    return found


def _text(path: str) -> str:
    try:
        return Path(path).read_text().strip()
    except OSError:
        return ""
