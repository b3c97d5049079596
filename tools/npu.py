"""Runs tests/npu, tests/devices and conformance on NPU tensors: `make test-npu`.

Its arguments go to pytest.

The real torch_npu runs on a simulated CANN, which is built here. torch_npu has an environment of
its own, because `import torch` fails beside it where there is no CANN. Where pip cannot have torch
or torch_npu, it says why and ends with status 77.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys

import run_tests
from environment import ROOT, TORCH, Venv, fingerprint, make_torch, requirements, say, torch_of
from launchers import build_wheel, install_launcher

FOLDER = ROOT / "build" / "npu"
SIMULATOR = FOLDER / "simulated-cann"
TORCH_NPU = "torch_npu==2.13.0"
SKIPPED = 77


def install_torch_npu(venv: Venv) -> str:
    """Torch and the torch_npu that goes with it; "installed", or why not."""
    make_torch(venv)
    result = torch_of(venv)
    if result != "installed":
        venv.stamp("torch").unlink()  # the next run tries again
        return f"{TORCH}: {result}"
    if not venv.is_made("torch_npu", TORCH_NPU):
        result = install_launcher(venv, [TORCH_NPU])
        if not result.startswith("installed"):
            return f"{TORCH_NPU}: {result}"
        venv.mark("torch_npu", TORCH_NPU)
    return "installed"


def make_environment() -> tuple[Venv, str]:
    """torch_npu, the package and what the tests need."""
    venv = Venv(FOLDER / "venv")
    venv.create()
    result = install_torch_npu(venv)
    if result == "installed":
        venv.install("test", [*requirements("dependencies"), *requirements("test")])
        key = fingerprint()
        if not venv.is_made("package", key):
            venv.pip("-q", "--no-deps", "--force-reinstall", str(build_wheel(key)))
            venv.mark("package", key)
    return venv, result


def build_simulator() -> None:
    """The libraries of the simulated CANN."""
    say("building the simulated CANN")
    command = ["cmake", "-S", str(ROOT / "tests" / "npu" / "sim"), "-B", str(SIMULATOR)]
    command += ["-GNinja"] if shutil.which("ninja", path=run_tests.ENV["PATH"]) else []
    for step in (command, ["cmake", "--build", str(SIMULATOR), "-j", "2"]):
        subprocess.run(step, env=run_tests.ENV, stdout=subprocess.DEVNULL, check=True)


def main() -> int:
    """Sets everything up, runs the tests, and prints the versions."""
    venv, result = make_environment()
    if result != "installed":
        print(f"collops: tests/npu not run: {result}")
        return SKIPPED
    build_simulator()
    libraries = [str(SIMULATOR), *filter(None, [os.environ.get("LD_LIBRARY_PATH")])]
    run_tests.ENV |= {
        "COLLOPS_SIM_CANN": str(SIMULATOR),
        "LD_LIBRARY_PATH": os.pathsep.join(libraries),
        "TORCH_DEVICE_BACKEND_AUTOLOAD": "0",
    }
    run_tests.REPORTS.mkdir(parents=True, exist_ok=True)
    rooms = ["tests/npu", "tests/devices", "tests/conformance/test_conformance.py"]
    outcome = run_tests.run_python([*rooms, *sys.argv[1:]], venv.python)
    outcome.required_as = "npu"
    print(f"\nSummary\n  {TORCH_NPU} on a simulated CANN; no NPU was used")
    print(outcome.text())
    return run_tests.status_of([outcome])


if __name__ == "__main__":
    raise SystemExit(main())
