"""Sets up a virtual environment: environment.py VENV PART..., with the parts named in PARTS.

Every part leaves a stamp with what it was made from, and is made again only when that changed.
"""

from __future__ import annotations

import ast
import hashlib
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
# What the installed package is made from.
SOURCES = ["setup.py", "pyproject.toml", "MANIFEST.in", "CMakeLists.txt"]
SOURCE_FOLDERS = ["cmake", "ops", "bindings", "python", "golden", "examples"]
TORCH = "torch==2.13.0+cpu"
TORCH_INDEX = "https://download.pytorch.org/whl/cpu"
TORCH_LIMIT_S = 300


def requirements(name: str) -> list[str]:
    """The array `name` of pyproject.toml, read as Python: 3.10 has no reader for TOML."""
    match = re.search(
        rf"^{name} = (\[.*?\])$", (ROOT / "pyproject.toml").read_text(), re.MULTILINE | re.DOTALL
    )
    if match is None:
        raise SystemExit(f"collops: pyproject.toml has no array {name}")
    return list(ast.literal_eval(match[1]))


def build_requirements() -> list[str]:
    """What a build needs, without the tools that this machine has already."""
    return [
        item
        for item in requirements("requires")
        if not (item.startswith("cmake") and has_cmake((3, 22)))
        and not (item.startswith("ninja") and shutil.which("ninja"))
    ]


def has_cmake(least: tuple[int, int]) -> bool:
    """Whether the cmake on PATH is new enough."""
    if shutil.which("cmake") is None:
        return False
    text = subprocess.run(["cmake", "--version"], capture_output=True, text=True).stdout
    found = re.search(r"version (\d+)\.(\d+)", text)
    return found is not None and (int(found[1]), int(found[2])) >= least


def source_files() -> Iterator[Path]:
    """The files that the installed package is made from, in a fixed order."""
    for name in SOURCES:
        yield ROOT / name
    for folder in SOURCE_FOLDERS:
        for path in sorted((ROOT / folder).rglob("*")):
            made = path.suffix in {".pyc", ".so"} or ".egg-info" in str(path)
            if path.is_file() and not made:
                yield path


def fingerprint() -> str:
    """Changes when a source file is edited, added or removed."""
    digest = hashlib.sha256()
    for path in source_files():
        if path.exists():
            digest.update(f"{path.relative_to(ROOT)} ".encode() + path.read_bytes() + b"\0")
    return digest.hexdigest()


class Venv:
    """One virtual environment and its stamps."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.python = folder / "bin" / "python"
        self.env = {
            **os.environ,
            "PATH": f"{(folder / 'bin').absolute()}{os.pathsep}{os.environ['PATH']}",
            "PIP_DISABLE_PIP_VERSION_CHECK": "1",
        }

    def create(self) -> None:
        """Makes the environment, unless it is there and of this interpreter's version."""
        version = "import sys; print(sys.version_info[:2])"
        if self.python.exists():
            found = subprocess.run([self.python, "-c", version], capture_output=True, text=True)
            if found.stdout.strip() == str(sys.version_info[:2]):
                return
        say(f"creating {self.folder}")
        subprocess.run([sys.executable, "-m", "venv", "--clear", self.folder], check=True)

    def stamp(self, part: str) -> Path:
        """The file that says what `part` was made from."""
        return self.folder / "stamps" / part

    def is_made(self, part: str, key: str) -> bool:
        """Whether `part` was made from what `key` says."""
        stamp = self.stamp(part)
        return stamp.exists() and stamp.read_text().splitlines()[:1] == [key]

    def mark(self, part: str, key: str, result: str = "") -> None:
        """Remembers that `part` was made from `key`, and how it went."""
        self.stamp(part).parent.mkdir(exist_ok=True)
        self.stamp(part).write_text(f"{key}\n{result}")

    def install(self, part: str, packages: list[str]) -> None:
        """Installs packages from the index, once."""
        key = " ".join(packages)
        if not self.is_made(part, key):
            say(f"installing {key}")
            self.pip("-q", *packages)
            self.mark(part, key)

    def pip(self, *arguments: str) -> None:
        """Runs pip install; its own messages say what went wrong."""
        command = [str(self.python), "-m", "pip", "install", *arguments]
        if subprocess.run(command, env=self.env, cwd=ROOT).returncode != 0:
            raise SystemExit(f"collops: failed: {' '.join(command)}")


def make_package(venv: Venv) -> None:
    """The package with its core, built without isolation: the second build compiles little."""
    venv.install("build", [*build_requirements(), *requirements("dependencies")])
    key = fingerprint()
    if venv.is_made("package", key):
        return
    say("building and installing collops")
    if os.environ.get("CI"):
        venv.env["CMAKE_ARGS"] = "-DCOLLOPS_WERROR=ON"
    venv.pip("-q", "--no-build-isolation", "--no-deps", "--force-reinstall", ".")
    venv.mark("package", key)


def make_torch(venv: Venv) -> None:
    """PyTorch's CPU build where it can be had; tests that need it skip where it cannot."""
    if venv.is_made("torch", TORCH):
        return
    say(f"looking for {TORCH}")
    result = ""
    for index in ([], ["--extra-index-url", TORCH_INDEX]):
        result = try_torch(venv, index)
        if result == "installed":
            break
    venv.mark("torch", TORCH, result)


def try_torch(venv: Venv, index: list[str]) -> str:
    """One attempt that gives up soon; returns "installed" or pip's last error."""
    command = [str(venv.python), "-m", "pip", "install", "-q", "--retries", "0", "--timeout", "10"]
    try:
        done = subprocess.run(
            [*command, *index, TORCH],
            env=venv.env,
            timeout=TORCH_LIMIT_S,
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
    except subprocess.TimeoutExpired:
        return f"not installed: still downloading after {TORCH_LIMIT_S} s"
    if done.returncode == 0:
        return "installed"
    errors = [line for line in done.stdout.splitlines() if line.startswith("ERROR")]
    return f"not installed: {errors[-1] if errors else 'pip failed'}"


def say(text: str) -> None:
    """One line of progress."""
    print(f"collops: {text}", flush=True)


PARTS = {
    "package": make_package,
    "test": lambda venv: venv.install("test", requirements("test")),
    "check": lambda venv: venv.install("check", requirements("dev")),
    "torch": make_torch,
}


def main() -> None:
    """Makes the parts that the command line names."""
    venv = Venv(Path(sys.argv[1]))
    venv.create()
    for part in sys.argv[2:]:
        PARTS[part](venv)


if __name__ == "__main__":
    main()
