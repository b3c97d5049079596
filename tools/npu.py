"""Runs tests/npu, tests/devices and conformance on NPU tensors: `make test-npu`.

The real torch_npu runs on a simulated CANN, which is built here: the newest of VERSIONS, or another
(--torch-npu VERSION, or oldest). Other arguments go to pytest. Each torch_npu has an environment of
its own, because `import torch` fails beside it where there is no CANN; its torch is the CPU build,
or, where pip has none of that version, PyPI's. Where pip cannot have torch or torch_npu, this says
why and ends with status 77.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess

import run_tests
import torch_versions
from environment import LIMIT_S, ROOT, Venv, fingerprint, look_for_torch, requirements, say
from launchers import build_wheel

FOLDER = ROOT / "build" / "npu"
SIMULATOR = FOLDER / "simulated-cann"
# The torch_npu wheels that are tested; each runs with the torch of its first three numbers.
VERSIONS = ["2.13.0", "2.10.0.post4", "2.9.0.post2"]
SKIPPED = 77


def install_torch(venv: Venv, version: str) -> str:
    """The torch of a torch_npu; "installed", or why not."""
    number = version.partition(".post")[0]
    torch = f"torch=={number}+cpu"
    if venv.is_made("torch", torch):
        return "installed"
    result = look_for_torch(venv, torch)
    if result != "installed":
        result = torch_versions.install(venv, number, [])
    if result != "installed":
        return f"torch {number}: {result}"
    venv.mark("torch", torch, result)
    return result


def install_torch_npu(venv: Venv, version: str) -> str:
    """Torch and the torch_npu that goes with it; "installed", or why not."""
    result = install_torch(venv, version)
    torch_npu = f"torch_npu=={version}"
    if result != "installed" or venv.is_made("torch_npu", torch_npu):
        return result
    say(f"looking for {torch_npu}")
    # Its metadata ask for torch's CPU build on x86-64.
    result = venv.try_pip("--no-deps", torch_npu, limit_s=LIMIT_S)
    if result != "installed":
        return f"{torch_npu}: {result}"
    venv.mark("torch_npu", torch_npu)
    return result


def make_environment(version: str) -> tuple[Venv, str]:
    """torch_npu, the package and what the tests need."""
    venv = Venv(FOLDER / ("venv" if version == VERSIONS[0] else f"venv-{version}"))
    venv.create()
    result = install_torch_npu(venv, version)
    if result == "installed":
        venv.install("test", ["pyyaml", *requirements("dependencies"), *requirements("test")])
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
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--torch-npu", default=VERSIONS[0], metavar="VERSION", dest="version")
    options, arguments = parser.parse_known_args()
    version = VERSIONS[-1] if options.version == "oldest" else options.version
    venv, result = make_environment(version)
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
    outcome = run_tests.run_python([*rooms, *arguments], venv.python)
    outcome.required_as = "npu-oldest" if options.version == "oldest" else "npu"
    print(f"\nSummary\n  torch_npu {version} on a simulated CANN; no NPU was used")
    print(outcome.text())
    return run_tests.status_of([outcome])


if __name__ == "__main__":
    raise SystemExit(main())
