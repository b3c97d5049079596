"""Builds an sdist and wheels into out/wheels, and shows that the wheels run: wheels.py [EXE...].

For each interpreter (all CPythons from 3.10 on PATH, unless some are named): a wheel with the tag
that auditwheel finds for it. It is installed in an empty environment, where the demo and the
conformance tests of the backend shm must pass with no compiler on PATH. Status 77: auditwheel
cannot be installed.
"""

from __future__ import annotations

import argparse
import re
import shlex
import shutil
import subprocess
import sys
import time
from pathlib import Path

import environment

ROOT = environment.ROOT
OUT = ROOT / "out" / "wheels"
BUILD = ROOT / "build" / "wheels"
HERE = environment.Venv(Path(sys.prefix))
NAMES = [f"python3.{minor}" for minor in range(10, 15)]
# Of the test requirements, those of the conformance tests.
TEST_PACKAGES = ("pytest", "ml_dtypes")
CONFORMANCE = ["tests/conformance", "-q", "-p", "no:cacheprovider", "-k", "shm"]
COMPILERS = ("c++", "g++", "clang++", "cc", "gcc", "clang", "cmake")
TOOLS_MISSING = 77
TOOLS_LIMIT_S = 120


def run(*command: str | Path, cwd: Path = ROOT, env: dict[str, str] = HERE.env) -> str:
    """The output of a command; one that fails ends this program with all of it."""
    words = [str(word) for word in command]
    done = subprocess.run(
        words,
        cwd=cwd,
        env=env,
        text=True,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    if done.returncode != 0:
        status = f"status {done.returncode}"
        raise SystemExit(f"{done.stdout}\ncollops: {status}: {shlex.join(words)}")
    return done.stdout


def interpreters() -> list[str]:
    """The CPythons on PATH for which an extension can be compiled."""
    program = (
        "import os, sysconfig as s; print(os.path.exists(s.get_path('include') + '/Python.h'))"
    )
    found = []
    for name in NAMES:
        if shutil.which(name):
            done = subprocess.run([name, "-c", program], text=True, capture_output=True)
            found += [name] if done.stdout.strip() == "True" else []
    return found


def install_tools(packages: list[str]) -> None:
    """Installs what builds and names wheels, beside the package."""
    result = HERE.try_pip(*packages, limit_s=TOOLS_LIMIT_S)
    if result != "installed":
        environment.say(f"{' and '.join(packages)}: {result}")
        raise SystemExit(TOOLS_MISSING)


def build_sdist() -> None:
    """Puts the sdist in out/wheels."""
    program = "import sys; from setuptools.build_meta import build_sdist; build_sdist(sys.argv[1])"
    run(sys.executable, "-c", program, OUT)


def new_venv(python: str) -> Path:
    """An empty environment of an interpreter; returns its own."""
    version = run(python, "-c", "import sys; print('%d.%d' % sys.version_info[:2])").strip()
    folder = BUILD / f"venv-{version}"
    run(python, "-m", "venv", "--clear", folder)
    return folder / "bin" / "python"


def build_wheel(python: Path) -> Path:
    """The wheel for a new environment's interpreter, with auditwheel's tag, in out/wheels."""
    raw = BUILD / "raw"
    shutil.rmtree(raw, ignore_errors=True)
    pip: list[str | Path] = [python, "-m", "pip", "wheel"]
    same = "import sys; print(sys.implementation.cache_tag)"
    if run(python, "-c", same).strip() == sys.implementation.cache_tag:
        # With the tools that have built the package: what they have compiled is not compiled again.
        pip = [sys.executable, "-m", "pip", "wheel", "--no-build-isolation"]
    run(*pip, "--no-deps", "-w", raw, ROOT)
    [wheel] = raw.glob("*.whl")
    tagged = BUILD / "tagged"
    shutil.rmtree(tagged, ignore_errors=True)
    run(sys.executable, "-m", "auditwheel", "repair", "-w", tagged, wheel)
    [path] = tagged.glob("*.whl")
    return path.replace(OUT / path.name)


def check_wheel(python: Path, wheel: Path) -> str:
    """Installs the wheel in the empty environment and runs it without a compiler; what passed."""
    env = {**HERE.env, "PATH": str(python.parent)}
    here = [name for name in COMPILERS if shutil.which(name, path=env["PATH"])]
    if here:
        raise SystemExit(f"collops: {python.parent} is not empty: {', '.join(here)}")
    run(python, "-m", "pip", "install", "-q", wheel, env=env)
    place = run(python, "-c", "import collops.core; print(collops.__file__)", cwd=BUILD, env=env)
    if not Path(place.strip()).is_relative_to(python.parent.parent):
        raise SystemExit(f"collops: another collops is imported there: {place}")
    run(python, "-m", "collops.demo", cwd=BUILD, env=env)
    wanted = environment.requirements("test")
    run(python, "-m", "pip", "install", "-q", *(w for w in wanted if w.startswith(TEST_PACKAGES)))
    report = run(python, "-m", "pytest", *CONFORMANCE, env=env)
    return next(line for line in reversed(report.splitlines()) if " passed" in line)


def said(wheel: Path) -> str:
    """A wheel's name, and what its tag says."""
    tag = re.search(r"manylinux_(\d+)_(\d+)_(\w+)\.whl$", wheel.name)
    runs = f"glibc {tag[1]}.{tag[2]} or newer, {tag[3]}" if tag else "this kind of system only"
    return f"{wheel.name}: {runs}"


def main() -> None:
    """Builds and checks a wheel for each interpreter."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("python", nargs="*", metavar="EXE", help="interpreters (all on PATH)")
    options = parser.parse_args()
    install_tools(environment.requirements("wheel"))
    for folder in (OUT, BUILD):
        folder.mkdir(parents=True, exist_ok=True)
    build_sdist()
    for name in options.python or interpreters():
        begin = time.monotonic()
        python = new_venv(name)
        wheel = build_wheel(python)
        environment.say(f"{said(wheel)}; built after {time.monotonic() - begin:.0f} s")
        passed = check_wheel(python, wheel)
        environment.say(f"ran without a compiler: the demo; conformance: {passed.strip('= ')}")
    environment.say(f"the sdist and the wheels are in {OUT.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
