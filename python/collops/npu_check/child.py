"""Runs a part of the check as a separate program: a crash or a hang ends that part alone."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from typing import Any

# Begins the line in which a part prints what it has found; torch_npu prints lines, too.
MARK = "collops-npu-check "
_LAST_LINES = 8
# A process that cannot be ended, as one that waits in a driver, keeps the pipes open.
_PIPES_S = 5.0


def tell(found: dict[str, Any]) -> None:
    """Prints what a part has found, for run_part()."""
    print(MARK + json.dumps(found), flush=True)


def run_part(module: str, arguments: list[str], timeout: float) -> dict[str, Any]:
    """Runs a module of this package; returns what it told, or how it failed as {"problem": ...}.

    Args:
        module: the module's name in this package.
        arguments: its arguments.
        timeout: seconds until it is ended, with every process it has started.
    """
    command = [sys.executable, "-m", f"collops.npu_check.{module}", *arguments]
    # torch loads torch_npu by itself where that is installed; where CANN is missing, torch fails.
    environment = {"TORCH_DEVICE_BACKEND_AUTOLOAD": "0", **os.environ}
    process = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
        env=environment,
        start_new_session=True,
    )
    try:
        out, err = process.communicate(timeout=timeout)
        how = _how(process.returncode)
    except subprocess.TimeoutExpired:
        how = f"did not end within {timeout:g} s; it was ended"
        _end(process)
        out, err = _rest(process)
    except BaseException:
        _end(process)
        raise
    _end(process)  # what it has left behind
    for line in out.splitlines():
        if line.startswith(MARK):
            told: dict[str, Any] = json.loads(line.removeprefix(MARK))
            return told
    last = "\n".join(err.splitlines()[-_LAST_LINES:])
    return {"problem": f"{how}\n{last}".strip()}


def _rest(process: subprocess.Popen[str]) -> tuple[str, str]:
    """What an ended part has printed; the pipes' ends are waited for only so long."""
    try:
        return process.communicate(timeout=_PIPES_S)
    except subprocess.TimeoutExpired as late:
        return _text(late.output), _text(late.stderr)


def _text(data: bytes | str | None) -> str:
    # TimeoutExpired has bytes, also of a pipe of text.
    return data.decode(errors="replace") if isinstance(data, bytes) else data or ""


def _end(process: subprocess.Popen[str]) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)


def _how(status: int) -> str:
    if status < 0:
        try:
            return f"ended by {signal.Signals(-status).name}"
        except ValueError:
            return f"ended by signal {-status}"
    return f"exited with status {status} without a result"
