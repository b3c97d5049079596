"""Programs that tests run: what they print, and whether their processes have ended.

`run` starts a program as a user does; `run_forked` calls a command's main() in a process that is
forked, where what is imported here is not imported once more.

A machine may add notices of its own to every program's output (a start-up file of Python, a library
that cannot be preloaded). Tests that know every line of a program's output do not count those.
"""

from __future__ import annotations

import contextlib
import functools
import multiprocessing
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from patience import patience

FORK = multiprocessing.get_context("fork")
LIMIT_S = patience(20.0)


@functools.cache
def notices() -> frozenset[str]:
    """The lines that a Python which does nothing writes here; on most machines there are none."""
    done = subprocess.run(
        [sys.executable, "-c", ""], text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    return frozenset(filter(None, done.stdout.splitlines()))


def own(text: str, known: frozenset[str] | None = None) -> str:
    """The text without the lines of `known`, by default this machine's notices."""
    known = notices() if known is None else known
    return "".join(line for line in text.splitlines(True) if line.rstrip("\r\n") not in known)


def run(command: list[str], **options: Any) -> subprocess.CompletedProcess[str]:
    """As subprocess.run with text; what was captured is the program's own."""
    done = subprocess.run(command, text=True, **options)
    return subprocess.CompletedProcess(
        done.args,
        done.returncode,
        None if done.stdout is None else own(done.stdout),
        None if done.stderr is None else own(done.stderr),
    )


def run_example(
    name: str, folder: Path, *arguments: str, ranks: int = 0, **env: str
) -> subprocess.CompletedProcess[str]:
    """Runs a script of examples/, under torchrun where `ranks` is given, in a folder of its own."""
    script = Path(__file__).parents[1] / "examples" / name
    launcher = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(ranks)]
    own_env = {"PYTHONDONTWRITEBYTECODE": "1"} | ({"OMP_NUM_THREADS": "1"} if ranks else {})
    return run(
        [sys.executable, *(launcher if ranks else []), str(script), *arguments],
        cwd=folder,
        env={**os.environ, **own_env, **env},
        capture_output=True,
        stdin=subprocess.DEVNULL,
        timeout=patience(100),
    )


def run_forked(
    main: Callable[[], int],
    arguments: Sequence[str],
    *,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    timeout: float = 60,
) -> subprocess.CompletedProcess[str]:
    """Calls main() with these arguments, and what is imported here; its status and whole output."""
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as open_files:
        paths = [Path(folder, name) for name in ("stdout", "stderr")]
        files = [open_files.enter_context(path.open("wb")) for path in paths]

        def call() -> None:
            for number, file in enumerate(files, start=1):
                os.dup2(file.fileno(), number)
            sys.stdout = os.fdopen(1, "w", closefd=False)
            sys.stderr = os.fdopen(2, "w", closefd=False)
            sys.argv[1:] = arguments
            os.environ.update(env or {})
            os.chdir(cwd or os.getcwd())
            raise SystemExit(main())

        process = FORK.Process(target=call)
        process.start()
        process.join(timeout)
        if process.exitcode is None:
            process.kill()
            process.join()
            raise TimeoutError(f"{' '.join(arguments)}: still runs after {timeout} s")
        texts = [path.read_text() for path in paths]
        return subprocess.CompletedProcess(list(arguments), process.exitcode, *texts)


def is_alive(pid: int) -> bool:
    """Whether a process has not ended; of one that has, the parent may not know yet."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8")
    except OSError:
        return False
    return stat.rpartition(")")[2].split()[0] not in "ZX"


def await_gone(*pids: int) -> None:
    """Returns once these processes have ended."""
    deadline = time.monotonic() + LIMIT_S
    while left := [pid for pid in pids if is_alive(pid)]:
        assert time.monotonic() < deadline, f"processes {left} are still there"
        time.sleep(0.02)
