"""Builds the site of docs/ into out/docs (`make docs`), or serves it (`make docs-serve`).

A warning fails the build. Where mkdocs cannot be installed, it says why and ends with status 77.
"""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

from environment import Venv, make_docs
from run_checks import ROOT, TYPING, lay_out_package

SITE = ROOT / "tools" / "site"
SKIPPED = 77
COMMANDS = {"build": ["build", "--strict"], "serve": ["serve"]}


def main() -> int:
    """Runs mkdocs over the sources laid out as in the installed package, which is not needed."""
    reason = make_docs(Venv(Path(sys.prefix)))
    if importlib.util.find_spec("mkdocs") is None:
        print(f"collops: the site of docs/ not built: {reason}")
        return SKIPPED
    word, *arguments = sys.argv[1:] or ["build"]
    lay_out_package()
    # The theme prints a notice about its successor otherwise.
    paths = os.pathsep.join([str(TYPING), str(SITE)])
    env = {**os.environ, "PYTHONPATH": paths, "NO_MKDOCS_2_WARNING": "1"}
    command = [sys.executable, "-m", "mkdocs", *COMMANDS[word], *arguments]
    return subprocess.run(command, cwd=ROOT, env=env).returncode


if __name__ == "__main__":
    raise SystemExit(main())
