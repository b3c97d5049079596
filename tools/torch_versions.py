"""Runs tests of collops.torch with each torch that PyPI serves: `make test-torch-versions`.

PyPI's builds are for CUDA and take 5 GB each. One after another gets an environment of its own, and
is removed. The tensors are on the CPU and, for a torch with CUDA 13, by a simulated driver of type
CUDA. Arguments are versions in place of those named here. What pip cannot install, as where
no index can be reached, is not tested: it says why and ends with status 77.
"""

from __future__ import annotations

import os
import shutil
import sys

import gpu
import run_tests
from alone import Again
from environment import ROOT, Venv, fingerprint, requirements, say
from launchers import build_wheel

FOLDER = ROOT / "build" / "torch-versions"
# The oldest that is supported, the oldest with CUDA 13, and the newest there is.
VERSIONS = ["2.9.0", "2.11.0", "newest"]
# Every call of torch.distributed in each of its forms, groups, operators, compiled code, training.
TESTS = [
    "tests/torch/test_group.py",
    "tests/torch/test_run_ranks.py",
    "tests/torch/test_shrink.py",
    "tests/torch/test_reconfigure.py",
    "tests/torch/calls/test_calls.py",
    "tests/torch/calls/test_direct_calls.py",
    "tests/torch/calls/test_documented.py",
    "tests/torch/operators/test_operators.py",
    "tests/torch/operators/test_operator_order.py",
    "tests/torch/async_tp/test_async_tp.py",
    "tests/torch/training/test_training_ddp.py::test_two_ranks",
    "tests/torch/training/test_training_fsdp2.py",
]
# The same on CUDA tensors, and golden's cases of every operator.
GPU_TESTS = [
    "tests/devices/torch",
    "tests/devices/test_golden_run.py::test_samples_of_every_operator_run_or_are_refused_with_the_reason",
]
NEEDS_GB = 12  # pip holds the archives and what they unpack to
LIMIT_S = 600  # for one installation, at most
SKIPPED = 77


def install(venv: Venv, version: str, packages: list[str]) -> str:
    """PyPI's torch and `packages`; "installed", or why not."""
    free_gb = shutil.disk_usage(ROOT).free / 1e9
    if free_gb < NEEDS_GB:
        return f"not installed: it needs {NEEDS_GB} GB of disk, {free_gb:.0f} GB are free"
    venv.create()
    own = Venv(venv.folder)
    # Without this machine's settings, which may name another build or forbid a version.
    own.env |= {
        "PIP_CONFIG_FILE": os.devnull,
        "PIP_CONSTRAINT": "",
        "PIP_FIND_LINKS": "",
        "TMPDIR": str(venv.folder),
    }
    # Three signs: 2.13.0+cpu is not meant.
    torch = "torch" if version == "newest" else f"torch==={version}"
    say(f"looking for {torch}")
    return own.try_pip("--no-cache-dir", "--retries", "1", torch, *packages, limit_s=LIMIT_S)


def run_on_gpus(tests: run_tests.PythonTests, venv: Venv) -> None:
    """The tests on CUDA tensors: torch's own devices, streams and memory, but no kernel of it."""
    simulator = FOLDER / "simulated-gpu"
    [torch] = venv.folder.glob("lib/python*/site-packages/torch")
    if not (torch.parent / "nvidia" / "cu13").exists():
        say("no tests on CUDA tensors: the simulated libraries are those of CUDA 13")
        return
    gpu.build_simulator(simulator, str(torch))
    before = dict(run_tests.ENV)
    run_tests.ENV |= gpu.variables(simulator)
    try:
        tests.begin("pytest-gpu", GPU_TESTS)()
    finally:
        run_tests.ENV.clear()
        run_tests.ENV |= before


def test(version: str) -> run_tests.Outcome | str:
    """Runs the tests with one version; or why it is not installed."""
    shutil.rmtree(FOLDER, ignore_errors=True)
    FOLDER.mkdir(parents=True)
    try:
        venv = Venv(FOLDER / "venv")
        tests = [name for name in requirements("test") if name.startswith(("pytest", "ml_dtypes"))]
        result = install(venv, version, [*requirements("dependencies"), *tests])
        if result != "installed":
            return f"torch {version} {result}"
        venv.pip("-q", "--no-deps", str(build_wheel(fingerprint())))
        runs = run_tests.PythonTests(venv.python)
        runs.begin("pytest", TESTS)()
        run_on_gpus(runs, venv)
        outcome = runs.outcome()
        outcome.name = venv.versions()["torch"]
    finally:
        shutil.rmtree(FOLDER)
    outcome.required_as = "torch-versions"
    if outcome.again:  # in an environment that has to be made anew
        outcome.again = [Again(outcome.name, [sys.executable, __file__, outcome.name])]
    return outcome


def main() -> int:
    """Tests one version after the other, and prints the results."""
    run_tests.REPORTS.mkdir(parents=True, exist_ok=True)
    run_tests.ENV["COLLOPS_TEST_TORCH"] = "1"
    ends = [test(version) for version in sys.argv[1:] or VERSIONS]
    tested = [end for end in ends if isinstance(end, run_tests.Outcome)]
    missing = [end for end in ends if isinstance(end, str)]
    if tested:
        print("\nSummary\n  torch as PyPI serves it, on CPU tensors and on simulated GPUs")
        print("\n".join(outcome.text() for outcome in tested))
    for reason in missing:
        say(reason)
    return run_tests.status_of(tested) or (SKIPPED if missing else 0)


if __name__ == "__main__":
    raise SystemExit(main())
