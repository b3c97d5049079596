"""Compiles for arm64 and runs tests under an emulator; status 77 where the tools are missing."""

from __future__ import annotations

from run_tests import run

if __name__ == "__main__":
    raise SystemExit(run("sh", "tools/cross_arm64.sh"))
