"""Runs every check of `make check`, all of them even if one fails, and lists the results.

With --fix, lets the formatters rewrite the sources instead.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BIN = Path(sys.executable).parent
TYPING = ROOT / "build" / "typing"
CPP_FOLDERS = [
    "bench",
    "ops",
    "bindings",
    "tests/cpp",
    "tests/devices",
    "tests/gpu",
    "tests/npu",
]
CHECK_TESTS = ["tests/unit/house"]


def run(*command: str | Path) -> bool:
    """Runs a command in the checkout, which prints its findings."""
    return subprocess.run([str(part) for part in command], cwd=ROOT).returncode == 0


def cpp_files() -> list[Path]:
    """The C++ sources and headers."""
    return [
        path
        for folder in CPP_FOLDERS
        for path in sorted((ROOT / folder).rglob("*"))
        if path.suffix in {".cpp", ".h"}
    ]


def check_cpp_format() -> bool:
    """clang-format would change nothing."""
    return run(BIN / "clang-format", "--dry-run", "-Werror", *cpp_files())


def check_lint() -> bool:
    """Ruff finds nothing."""
    return run(BIN / "ruff", "check", "--no-cache", ".")


def check_python_format() -> bool:
    """Ruff would format nothing anew."""
    return run(BIN / "ruff", "format", "--no-cache", "--check", ".")


def lay_out_package() -> None:
    """Links the sources as in the installed package: golden and examples inside collops."""
    package = TYPING / "collops"
    package.mkdir(parents=True, exist_ok=True)
    for old in package.iterdir():
        old.unlink()
    for source in (ROOT / "python" / "collops").iterdir():
        if source.suffix != ".so" and source.name != "__pycache__":
            (package / source.name).symlink_to(source)
    for folder in ("golden", "examples"):
        (package / folder).symlink_to(ROOT / folder)


def check_types() -> bool:
    """Mypy, strictly, over the package as installed."""
    lay_out_package()
    command = [sys.executable, "-m", "mypy", "-p", "collops", "--config-file"]
    done = subprocess.run(
        [*command, str(ROOT / "pyproject.toml")],
        cwd=TYPING,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    # Messages name the links; these become the names of the files.
    text = re.sub(r"^collops/(golden|examples)/", r"\1/", done.stdout, flags=re.MULTILINE)
    print(re.sub(r"^collops/", "python/collops/", text, flags=re.MULTILINE), end="")
    return done.returncode == 0


def check_types_of_callers() -> bool:
    """Mypy, strictly, over calls as a user writes them, with the types of torch's stubs."""
    lay_out_package()
    callers = ROOT / "tests" / "unit" / "typing"
    found = {**os.environ, "MYPYPATH": f"{callers / 'stubs'}{os.pathsep}{TYPING}"}
    command = [sys.executable, "-m", "mypy", "--config-file", str(callers / "mypy.ini")]
    return subprocess.run([*command, callers / "sample.py"], cwd=TYPING, env=found).returncode == 0


def check_structure() -> bool:
    """Layers and docstrings, which are tests that read the sources."""
    return run(sys.executable, "-m", "pytest", "-q", *CHECK_TESTS)


CHECKS = {
    "C++ format": check_cpp_format,
    "Python lint": check_lint,
    "Python format": check_python_format,
    "Python types": check_types,
    "types of callers": check_types_of_callers,
    "layers, docstrings": check_structure,
}


def fix() -> int:
    """Lets the formatters rewrite the sources."""
    done = [
        run(BIN / "clang-format", "-i", *cpp_files()),
        run(BIN / "ruff", "format", "."),
        run(BIN / "ruff", "check", "--fix", "."),
    ]
    return 0 if all(done) else 1


def main() -> int:
    """Runs the checks in order."""
    if sys.argv[1:] == ["--fix"]:
        return fix()
    results = {name: check() for name, check in CHECKS.items()}
    print("\nSummary")
    for name, good in results.items():
        print(f"  {name:<20} {'ok' if good else 'FAILED'}")
    return 0 if all(results.values()) else 1


if __name__ == "__main__":
    raise SystemExit(main())
