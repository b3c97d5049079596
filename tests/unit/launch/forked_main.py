"""A command line in a process of its own that is forked: what is imported here is not once more.

A program that must start as a user starts it, or finds other modules, is for own_output.run.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

FORK = multiprocessing.get_context("fork")


def run(
    main: Callable[[], int],
    arguments: Sequence[str],
    *,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    timeout: float = 60,
) -> subprocess.CompletedProcess[str]:
    """Calls main() with these arguments; returns its status and the output, children included."""
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
