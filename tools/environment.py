"""Sets up a virtual environment: environment.py VENV PART..., with the parts named in PARTS.

Every part writes a stamp with its sources, and is made again only when they have changed.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import os
import re
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

try:
    import tomllib
except ModuleNotFoundError:  # Python 3.10, where pip has its own
    from pip._vendor import tomli as tomllib

ROOT = Path(__file__).resolve().parent.parent
# The sources of the installed package.
SOURCES = ["setup.py", "pyproject.toml", "MANIFEST.in", "CMakeLists.txt"]
SOURCE_FOLDERS = ["cmake", "ops", "bindings", "python", "golden", "examples"]
TORCH = "torch==2.13.0+cpu"
TORCH_INDEX = "https://download.pytorch.org/whl/cpu"
LIMIT_S = 300  # for what may be missing


def requirements(name: str) -> list[str]:
    """The packages of an extra, of the package ("dependencies") or of its build ("requires")."""
    toml = tomllib.loads((ROOT / "pyproject.toml").read_text())
    project = toml["project"]
    return list({**toml["build-system"], **project, **project["optional-dependencies"]}[name])


def source_files() -> Iterator[Path]:
    """The source files of the installed package, in a fixed order."""
    for name in SOURCES:
        yield ROOT / name
    for folder in SOURCE_FOLDERS:
        for path in sorted((ROOT / folder).rglob("*")):
            made = path.suffix in {".pyc", ".so", ".fatbin"} or ".egg-info" in str(path)
            made = made or path.parent.name == "include"  # of an editable installation
            if path.is_file() and not made:
                yield path


def fingerprint() -> str:
    """A hash that changes when a source file is edited, added or removed."""
    digest = hashlib.sha256()
    for path in source_files():
        if path.exists():
            digest.update(f"{path.relative_to(ROOT)} ".encode() + path.read_bytes() + b"\0")
    return digest.hexdigest()


class Venv:
    """One virtual environment and its stamps."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder.absolute()
        self.python = self.folder / "bin" / "python"
        self.env = {
            **os.environ,
            "PATH": f"{self.python.parent}{os.pathsep}{os.environ['PATH']}",
            "PIP_DISABLE_PIP_VERSION_CHECK": "1",
            "PIP_USER": "0",  # a user's configuration may ask for --user, which fails here
        }
        if os.environ.get("CI"):
            self.env["CMAKE_ARGS"] = "-DCOLLOPS_WERROR=ON"

    def create(self) -> None:
        """Makes the environment, unless it exists with this interpreter's version."""
        program = f"import sys; sys.exit(sys.version_info[:2] != {sys.version_info[:2]})"
        if self.python.exists():
            asked = [self.python, "-c", program]
            if subprocess.run(asked, capture_output=True).returncode == 0:
                return
        say(f"creating {self.folder}")
        subprocess.run([sys.executable, "-m", "venv", "--clear", self.folder], check=True)

    def stamp(self, part: str) -> Path:
        """The stamp of `part`, which has the hash of its sources."""
        return self.folder / "stamps" / part

    def is_made(self, part: str, key: str) -> bool:
        """Whether `part` was made from the sources with the hash `key`."""
        stamp = self.stamp(part)
        return stamp.exists() and stamp.read_text().splitlines()[:1] == [key]

    def mark(self, part: str, key: str, result: str = "") -> None:
        """Writes the stamp of `part` with `key` and the result."""
        self.stamp(part).parent.mkdir(exist_ok=True)
        self.stamp(part).write_text(f"{key}\n{result}")

    def install(self, part: str, packages: list[str]) -> None:
        """Installs packages from the index, once."""
        key = " ".join(packages)
        if not self.is_made(part, key):
            say(f"installing {key}")
            self.pip("-q", *packages)
            self.mark(part, key)

    def versions(self) -> dict[str, str]:
        """The installed versions by name, from the metadata: pip prints other lines, too."""
        folders = [str(path) for path in self.folder.glob("lib/python*/site-packages")]
        found = importlib.metadata.distributions(path=folders)
        return {package.metadata["Name"]: package.version for package in found}

    def pip(self, *arguments: str) -> None:
        """Runs pip install, which prints its errors itself."""
        command = [str(self.python), "-m", "pip", "install", *arguments]
        if subprocess.run(command, env=self.env, cwd=ROOT).returncode != 0:
            raise SystemExit(f"collops: failed: {shlex.join(command)}")

    def pip_build(self, *arguments: str) -> None:
        """Runs pip install of sources, and shows how far the compiler is."""
        command = [str(self.python), "-m", "pip", "install", "-v", *arguments]
        progress, printed = Progress(), []
        with subprocess.Popen(
            command,
            env=self.env,
            cwd=ROOT,
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        ) as pip:
            for line in pip.stdout or ():
                printed.append(line)
                progress.show(line.strip())
        if pip.returncode != 0:
            print("".join(printed), end="", file=sys.stderr)
            raise SystemExit(f"collops: failed: {shlex.join(command)}")

    def try_pip(self, *arguments: str, limit_s: float) -> str:
        """One attempt at pip install; returns "installed", or "not installed" with the reason."""
        try:
            done = subprocess.run(
                [str(self.python), "-m", "pip", "install", "-q", *arguments],
                env=self.env,
                cwd=ROOT,
                timeout=limit_s,
                text=True,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
            )
        except subprocess.TimeoutExpired:
            return f"not installed: still downloading after {limit_s} s"
        if done.returncode == 0:
            return "installed"
        return f"not installed: {last_error(done.stdout)}"

    def look_for(self, part: str, packages: list[str], beside: str = "") -> None:
        """Installs packages if it can, once, and once more with another `beside`."""
        key = " ".join(packages) + beside
        if not self.is_made(part, key):
            say(f"looking for {' '.join(packages)}")
            self.mark(part, key, self.try_pip(*packages, limit_s=LIMIT_S))


class Progress:
    """Shows what matters in a build's output: its own words, and every tenth of its steps."""

    def __init__(self) -> None:
        self._begin = time.monotonic()
        self._tenths = 0

    def show(self, line: str) -> None:
        """Takes one line of output."""
        if line.startswith("collops: "):
            say(line.removeprefix("collops: "))
        step = re.match(r"\[(\d+)/(\d+)\] ", line)
        if step and (tenths := 10 * int(step[1]) // int(step[2])) > self._tenths:
            self._tenths = tenths
            seconds = time.monotonic() - self._begin
            left = seconds * (int(step[2]) / int(step[1]) - 1)
            rest = f", about {_rounded(left)} left" if step[1] != step[2] else ""
            say(f"{step[1]} of {step[2]} steps after {seconds:.0f} s{rest}")


def _rounded(seconds: float) -> str:
    """A time that is an estimate: in tens of seconds, or in minutes."""
    if seconds < 100:
        return f"{max(10, 10 * round(seconds / 10))} s"
    return f"{round(seconds / 60)} minutes"


def last_error(text: str) -> str:
    """The last error in pip's output; notices may follow it."""
    errors = [line for line in text.splitlines() if line.startswith("ERROR")]
    return errors[-1] if errors else "pip failed"


def make_package(venv: Venv) -> None:
    """The package with its core, built without isolation: the second build compiles little."""
    venv.install("build", [*requirements("requires"), *requirements("dependencies")])
    if os.environ.get("CI"):  # which compiles the GPU kernels wherever it runs
        make_nvcc(venv)
    key = fingerprint()
    if venv.is_made("package", key):
        return
    say("building and installing collops")
    venv.pip_build("--no-build-isolation", "--no-deps", "--force-reinstall", ".")
    venv.mark("package", key)


def look_for_torch(venv: Venv, torch: str) -> str:
    """One attempt at a build of torch; "installed", or "not installed" with the reason."""
    say(f"looking for {torch}")
    # From the indexes in this machine's pip configuration, then from one more, which may be out of
    # reach. The version names the CPU build, so that no index installs another build.
    result = venv.try_pip(torch, limit_s=LIMIT_S)
    if result != "installed":
        more = ["--extra-index-url", TORCH_INDEX, "--retries", "0", "--timeout", "10"]
        result = venv.try_pip(*more, torch, limit_s=LIMIT_S)
    return result


def make_torch(venv: Venv) -> None:
    """PyTorch's CPU build if it can be installed; else tests that need it skip."""
    required = "torch" in os.environ.get("CI_REQUIRE", "").split(",")
    if venv.is_made("torch", TORCH) and not (required and torch_of(venv) != "installed"):
        return
    result = look_for_torch(venv, TORCH)
    venv.mark("torch", TORCH, result)
    if required and result != "installed":
        raise SystemExit(f"collops: CI_REQUIRE asks for {TORCH}: {result}")


def make_nvcc(venv: Venv) -> None:
    """An nvcc, if this machine has none and it can be installed; else no GPU kernels are built."""
    own = Path(os.environ.get("CUDA_HOME", "/usr/local/cuda")) / "bin" / "nvcc"
    if not shutil.which("nvcc") and not own.exists():
        venv.look_for("gpu", requirements("gpu-build"))


def make_training(venv: Venv) -> None:
    """DeepSpeed and Accelerate, if they and torch can be installed; else their tests skip."""
    make_torch(venv)
    if torch_of(venv) == "installed":  # else pip would install a build of torch for GPUs
        venv.look_for("training", requirements("torch-training"), f" with {TORCH}")


def make_docs(venv: Venv) -> str:
    """What builds the site of docs/; returns "installed", or "not installed" with the reason."""
    packages = [*requirements("docs"), *requirements("dependencies")]
    key = " ".join(packages)
    if not venv.is_made("docs", f"{key}: installed"):
        say(f"looking for {key}")
        result = venv.try_pip(*packages, limit_s=LIMIT_S)
        if result != "installed":  # looked for again next time
            return result
        venv.mark("docs", f"{key}: installed")
    return "installed"


def torch_of(venv: Venv) -> str:
    """The result of the last attempt at torch: "installed", or "not installed" with the reason."""
    return venv.stamp("torch").read_text().splitlines()[1]


def say(text: str) -> None:
    """One line of progress."""
    print(f"collops: {text}", flush=True)


PARTS = {
    "package": make_package,
    "test": lambda venv: venv.install("test", requirements("test")),
    "check": lambda venv: venv.install("check", requirements("dev")),
    "torch": make_torch,
    # Tests that need it skip where it cannot be installed.
    "ucx": lambda venv: venv.look_for("ucx", requirements("multihost")),
    "gpu": make_nvcc,
    "training": make_training,
    "docs": make_docs,
}


def main() -> None:
    """Makes the parts that the command line names."""
    venv = Venv(Path(sys.argv[1]))
    venv.create()
    for part in sys.argv[2:]:
        PARTS[part](venv)


if __name__ == "__main__":
    main()
