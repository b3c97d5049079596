"""Runs tests/gpu, tests/devices and conformance on CUDA tensors: `make test-gpu`.

Its arguments go to pytest.

The simulated libcuda, NCCL and cuBLASLt are built here; the environment is that of `make test`. No
GPU is used, also where there is one.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
from pathlib import Path

import gpu_headers
import run_tests
from environment import ROOT, say
from patience import patience

SIMULATOR = ROOT / "build" / "simulated-gpu"
# What nvcc makes of the kernels, for wheels; tests/gpu looks into it.
KERNELS = ROOT / "build" / "gpu-kernels" / "collops_kernels.fatbin"
# How a fatbin begins, which is all that the simulated driver looks at.
STAND_IN = (0xBA55ED50).to_bytes(4, "little") + bytes(60)


def build_simulator(folder: Path = SIMULATOR, torch: str | None = None) -> None:
    """The simulated libraries; for the torch in that folder, or for that of this environment."""
    say("building the simulated GPUs")
    command = ["cmake", "-S", str(ROOT / "tests" / "gpu" / "sim"), "-B", str(folder)]
    command += ["-GNinja"] if shutil.which("ninja", path=run_tests.ENV["PATH"]) else []
    command += [f"-DTORCH_FOLDER={torch_folder() if torch is None else torch}"]
    for step in (command, ["cmake", "--build", str(folder), "-j", "2"]):
        subprocess.run(step, env=run_tests.ENV, stdout=subprocess.DEVNULL, check=True)


def compile_kernels() -> None:
    """By nvcc, where there is one; nothing here runs them."""
    say("compiling the GPU kernels")
    options = ["-DCOLLOPS_GPU_KERNELS=ON", "-DBUILD_TESTING=OFF", "-DCMAKE_BUILD_TYPE=Release"]
    configure = ["cmake", "-S", str(ROOT), "-B", str(KERNELS.parent), *options]
    if subprocess.run(configure, env=run_tests.ENV, stdout=subprocess.DEVNULL).returncode == 0:
        build = ["cmake", "--build", str(KERNELS.parent), "--target", "collops_kernels"]
        subprocess.run(build, env=run_tests.ENV, stdout=subprocess.DEVNULL)


def torch_folder() -> str:
    """The folder of torch, which gets devices of type CUDA here; empty if there is none."""
    spec = importlib.util.find_spec("torch")
    folders = list(spec.submodule_search_locations or []) if spec is not None else []
    return folders[0] if folders else ""


def kernels(simulator: Path) -> dict[str, str]:
    """The variable that names a stand-in for the kernels, where nvcc has not compiled them."""
    spec = importlib.util.find_spec("collops")
    folders = list(spec.submodule_search_locations or []) if spec is not None else []
    if any((Path(folder) / "collops_kernels.fatbin").exists() for folder in folders):
        return {}
    path = simulator / "collops_kernels.fatbin"
    path.write_bytes(STAND_IN)
    return {"COLLOPS_KERNELS": str(path)}


def variables(simulator: Path = SIMULATOR) -> dict[str, str]:
    """What tests need to find the simulated libraries in a folder."""
    libraries = [str(simulator), *filter(None, [os.environ.get("LD_LIBRARY_PATH")])]
    return {
        "COLLOPS_SIM_GPU": str(simulator),
        "COLLOPS_SIM_TIMEOUT_S": f"{patience(60):g}",
        "LD_LIBRARY_PATH": os.pathsep.join(libraries),
        **kernels(simulator),
    }


def main() -> int:
    """Builds the libraries, runs the tests, and prints the summary."""
    build_simulator()
    compile_kernels()
    run_tests.ENV |= variables()
    if os.environ.get("CI"):  # a download of 900 MB
        run_tests.ENV["GPU_HEADERS"] = os.pathsep.join(gpu_headers.include_folders())
    run_tests.REPORTS.mkdir(parents=True, exist_ok=True)
    # Two processes: behind the other device tests in one, a backward in forked ranks finds no
    # device. Which of them causes it is not known.
    devices = [str(file.relative_to(ROOT)) for file in (ROOT / "tests/devices").glob("test_*.py")]
    first = ["tests/gpu", *sorted(devices)]
    second = ["tests/devices/torch", "tests/conformance/test_conformance.py"]
    if sys.argv[1:]:
        outcome = run_tests.run_python([*first, *second, *sys.argv[1:]])
    else:  # ranks mostly wait for each other
        outcome = run_tests.run_python_halves(first, second)
    outcome.required_as = "gpu"
    print("\nSummary\n  simulated GPUs; no GPU was used")
    print(outcome.text())
    return run_tests.status_of([outcome])


if __name__ == "__main__":
    raise SystemExit(main())
