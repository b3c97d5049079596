"""Builds an sdist and wheels into out/wheels, and shows that the wheels run: wheels.py [EXE...].

For each interpreter (all CPythons from 3.10 on PATH, unless some are named): a wheel with the tag
that auditwheel finds for it. It is installed in an empty environment, where the demo and the
conformance tests of the backend shm must pass with no compiler on PATH. PyPI's ziglang compiles, if
it can be installed, else the system's compiler; --machine aarch64 makes a wheel that cannot run
here. Status 77: auditwheel, or a ziglang that was asked for, cannot be installed.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import re
import shlex
import shutil
import subprocess
import sys
import tarfile
import time
import zipfile
from pathlib import Path

import environment
import gpu
from zig_compiler import GLIBC, ZigCompiler

ROOT = environment.ROOT
OUT = ROOT / "out" / "wheels"
BUILD = ROOT / "build" / "wheels"
HERE = environment.Venv(Path(sys.prefix))
NAMES = [f"python3.{minor}" for minor in range(10, 15)]
# Of the test requirements, those of the conformance tests.
TEST_PACKAGES = ("pytest", "ml_dtypes")
# And that threads end well, which needs the right unwinder.
CONFORMANCE = [
    *("tests/conformance", "tests/unit/communicator/test_daemon_threads.py"),
    *("-q", "-p", "no:cacheprovider", "-k", "shm or daemon_threads"),
]
# Of the package, which is built before: the same for every interpreter and kind of machine.
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


def find_zig(wanted: str) -> Path | None:
    """zig of PyPI's ziglang, installed beside the package; None: the system's compiler is used."""
    if wanted == "system":
        return None
    packages = environment.requirements("wheel-compiler")
    result = HERE.try_pip(*packages, limit_s=TOOLS_LIMIT_S)
    importlib.invalidate_caches()
    spec = importlib.util.find_spec("ziglang")
    if result == "installed" and spec is not None and spec.origin is not None:
        return Path(spec.origin).parent / "zig"
    environment.say(f"{' and '.join(packages)}: {result}")
    if wanted == "zig":
        raise SystemExit(TOOLS_MISSING)
    return None


def build_sdist() -> Path:
    """The sdist, in out/wheels."""
    program = (
        "import sys; from setuptools.build_meta import build_sdist; print(build_sdist(sys.argv[1]))"
    )
    return OUT / run(sys.executable, "-c", program, OUT).splitlines()[-1]


def unpack(sdist: Path, machine: str) -> Path:
    """The sdist's files, which have a build folder of their own for `machine`."""
    folder = BUILD / machine
    with tarfile.open(sdist) as archive:
        archive.extractall(folder)
    return folder / sdist.name.removesuffix(".tar.gz")


def new_venv(python: str) -> Path:
    """An empty environment of an interpreter; returns its own."""
    version = run(python, "-c", "import sys; print('%d.%d' % sys.version_info[:2])").strip()
    folder = BUILD / f"venv-{version}"
    run(python, "-m", "venv", "--clear", folder)
    return folder / "bin" / "python"


def cross_variables(python: Path, machine: str, cmake_arguments: str) -> dict[str, str]:
    """What names another machine's wheel and its extension, which imports by this name only."""
    program = "import sysconfig; print(sysconfig.get_config_var('EXT_SUFFIX'))"
    suffix = run(python, "-c", program).strip().replace(os.uname().machine, machine)
    extension = f"-DPYTHON_MODULE_EXTENSION={suffix} -DPYTHON_MODULE_DEBUG_POSTFIX="
    return {
        "_PYTHON_HOST_PLATFORM": f"linux-{machine}",
        "CMAKE_ARGS": f"{cmake_arguments} {extension}",
    }


def check_names(wheel: Path, machine: str) -> None:
    """Ends this program if a wheel that is not run here has an extension of another name, or lacks
    the GPU kernels that were compiled here."""
    with zipfile.ZipFile(wheel) as files:
        every = files.namelist()
    names = [name for name in every if re.search(r"/_core\..*so$", name)]
    if not names or any(f"-{machine}-" not in name for name in names):
        raise SystemExit(f"collops: {wheel.name}: not the name of an extension there: {names}")
    if gpu.KERNELS.exists() and f"collops/{gpu.KERNELS.name}" not in every:
        raise SystemExit(f"collops: {wheel.name}: no GPU kernels")


def build_wheel(python: Path, sources: Path, variables: dict[str, str]) -> Path:
    """The wheel for a new environment's interpreter, with auditwheel's tag, in out/wheels."""
    raw = BUILD / "raw"
    shutil.rmtree(raw, ignore_errors=True)
    pip: list[str | Path] = [python, "-m", "pip", "wheel"]
    same = "import sys; print(sys.implementation.cache_tag)"
    if run(python, "-c", same).strip() == sys.implementation.cache_tag:
        # With the tools that have built the package: what they have compiled is not compiled again.
        pip = [sys.executable, "-m", "pip", "wheel", "--no-build-isolation"]
    run(*pip, "--no-deps", "-w", raw, sources, env={**HERE.env, **variables})
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
    parser.add_argument("--compiler", choices=["zig", "system"], help="zig if it can be installed")
    parser.add_argument("--machine", choices=["x86_64", "aarch64"], default=os.uname().machine)
    options = parser.parse_args()
    is_cross = options.machine != os.uname().machine
    if is_cross and options.compiler == "system":
        parser.error(f"--machine {options.machine}: only zig compiles for another machine")
    install_tools(environment.requirements("wheel"))
    for folder in (OUT, BUILD):
        folder.mkdir(parents=True, exist_ok=True)
    sdist = build_sdist()
    sources, cmake_arguments = ROOT, HERE.env.get("CMAKE_ARGS", "")
    if zig := find_zig("zig" if is_cross else options.compiler or "if it can be installed"):
        sources = unpack(sdist, options.machine)
        cmake_arguments += f" {ZigCompiler(zig, options.machine, BUILD).cmake_arguments()}"
        gpu.compile_kernels()
        if gpu.KERNELS.exists():
            file = shlex.quote(f"-DCOLLOPS_GPU_KERNELS_FILE={gpu.KERNELS}")
            cmake_arguments += f" -DCOLLOPS_GPU_KERNELS=ON {file}"
    variables = {"CMAKE_ARGS": cmake_arguments}
    environment.say(f"compiler: {f'zig, for glibc {GLIBC}' if zig else 'that of the system'}")
    for name in options.python or interpreters():
        begin = time.monotonic()
        python = new_venv(name)
        if is_cross:
            variables = cross_variables(python, options.machine, cmake_arguments)
        wheel = build_wheel(python, sources, variables)
        environment.say(f"{said(wheel)}; built after {time.monotonic() - begin:.0f} s")
        if is_cross:
            check_names(wheel, options.machine)
            environment.say(f"not run: this machine is {os.uname().machine}")
            continue
        passed = check_wheel(python, wheel)
        environment.say(f"ran without a compiler: the demo; conformance: {passed.strip('= ')}")
    environment.say(f"the sdist and the wheels are in {OUT.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
