"""Holds the backend hccl against the oldest torch_npu for Python 3.10: `make test-npu-oldest`.

The wheel is downloaded, not installed. A compiler compares its headers with what the backend
declares (tests/npu/declarations says what came later), and every function of CANN that its
libraries need must be in the simulated CANN. If pip also has the CPU build of the wheel's torch,
and there is a Python of the wheel's version, the wheel is imported on the simulated CANN, and
copies a tensor to the device and back. Where pip cannot have the wheel, this says why and ends with
status 77.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

from cann_declarations import Backend, Wheel, compare, read_lines
from environment import ROOT, TORCH_INDEX, Venv, last_error, say
from npu import SIMULATOR, SKIPPED, build_simulator

FOLDER = ROOT / "build" / "npu-oldest"
# The first version that the tests of the backend were written for; 2.1.0 to 2.1.0.post6 are older.
OLDEST = "2.1.0.post8"
PYTHON = "3.10"
LIMIT_S = 200
_OF_CANN = re.compile(r"^(acl|Hccl|rt[A-Z]|Msprof)\w*$")
# It copies to the device and back through the wheel's own libraries.
_PROGRAM = """
import torch, torch_npu
x = torch.arange(8, dtype=torch.int32)
assert torch.npu.device_count() > 0
assert torch.equal(x.npu().cpu(), x)
print(torch.__version__, torch_npu.__version__)
"""


def download(version: str, python: str) -> tuple[Path | None, str]:
    """The unpacked wheel of torch_npu, or None with pip's reason."""
    folder = FOLDER / f"{version}-{python}"
    unpacked = folder / "unpacked"
    if not unpacked.is_dir():
        say(f"downloading torch_npu {version} for Python {python}")
        command = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "-d", str(folder)]
        command += ["--python-version", python, "--only-binary", ":all:"]
        try:
            done = subprocess.run(
                [*command, f"torch_npu=={version}"], capture_output=True, text=True, timeout=LIMIT_S
            )
        except subprocess.TimeoutExpired:
            return None, f"still downloading after {LIMIT_S} s"
        if done.returncode != 0:
            return None, first_error(done.stderr)
        [wheel] = folder.glob("torch_npu-*.whl")
        partial = folder / "partial"
        shutil.rmtree(partial, ignore_errors=True)
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(partial)
        partial.rename(unpacked)
        wheel.unlink()
    return unpacked, ""


def first_error(text: str) -> str:
    """The first error of pip: those after it speak of all errors."""
    errors = [line for line in text.splitlines() if line.startswith("ERROR")]
    return errors[0] if errors else last_error(text)


def symbols(libraries: list[Path], which: str) -> set[str]:
    """The names that libraries define (``--defined-only``) or need (``--undefined-only``)."""
    command = ["nm", "-D", which, *map(str, libraries)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    words = (line.split() for line in done.stdout.splitlines())
    return {each[-1].partition("@")[0] for each in words if each}


def not_simulated(unpacked: Path) -> tuple[list[str], list[str]]:
    """Functions of CANN that the wheel needs and the simulation lacks: unlisted; listed in vain."""
    needed = symbols(sorted(unpacked.rglob("*.so")), "--undefined-only")
    there = symbols(sorted(SIMULATOR.glob("*.so")), "--defined-only")
    missing = {name for name in needed if _OF_CANN.match(name)} - there
    listed = {name for [name] in read_lines("not_simulated.txt")}
    return sorted(missing - listed), sorted(listed & there)


def problems_of(unpacked: Path, version: str) -> list[str]:
    """What is wrong, without torch: declarations, then functions of the simulation."""
    wheel = Wheel(unpacked / "torch_npu" / "include" / "third_party", version)
    with tempfile.TemporaryDirectory() as folder:
        found = compare(Backend.read(), wheel, Path(folder))
    print(f"  declarations  {len(found.lines)} compared with the headers of {version}")
    if found.left_out:
        print(f"                {len(found.left_out)} came later (oldest_wheels.txt)")
    unlisted, vain = not_simulated(unpacked)
    print(f"  functions     {len(unlisted)} that its libraries need are not in the simulated CANN")
    problems = found.problems + [f"the simulated CANN has no {name}" for name in unlisted]
    return problems + [f"not_simulated.txt: remove {name}, which is simulated" for name in vain]


def torch_of(unpacked: Path) -> str:
    """The torch that the wheel asks for, as its CPU build."""
    [metadata] = unpacked.glob("*.dist-info/METADATA")
    match = re.search(
        r"^Requires-Dist: torch ?\(?(==[0-9.]*[0-9])", metadata.read_text(), re.MULTILINE
    )
    assert match is not None, metadata
    return f"torch{match[1]}+cpu"


def run_with_torch(unpacked: Path, version: str, python: str) -> tuple[str, str]:
    """Imports the wheel on the simulated CANN: what was run or why nothing was, and a problem."""
    torch = torch_of(unpacked)
    interpreter = shutil.which(f"python{python}")
    if interpreter is None:
        return f"not run: no python{python} here", ""
    asked = [interpreter, "-c", "import sys; print(*sys.version_info[:2], sep='.')"]
    done = subprocess.run(asked, capture_output=True, text=True)
    if done.stdout.strip() != python:
        return f"not run: {interpreter} does not run", ""
    venv = Venv(FOLDER / f"venv-{version}")
    if not venv.python.exists():
        subprocess.run([interpreter, "-m", "venv", str(venv.folder)], check=True)
    for index in ([], ["--index-url", TORCH_INDEX, "--retries", "0", "--timeout", "10"]):
        command = [str(venv.python), "-m", "pip", "install", "-q", *index, torch]
        try:
            done = subprocess.run(
                command, capture_output=True, text=True, env=venv.env, timeout=LIMIT_S
            )
        except subprocess.TimeoutExpired:
            continue
        if done.returncode == 0:
            break
    else:
        return f"not run: no {torch}: {first_error(done.stderr)}", ""
    # numpy 2 is newer than the oldest torch.
    venv.install("rest", ["numpy<2" if python == "3.10" else "numpy", "pyyaml"])
    venv.install("torch_npu", [f"torch_npu=={version}"])
    environment = {
        **venv.env,
        "LD_LIBRARY_PATH": str(SIMULATOR),
        "TORCH_DEVICE_BACKEND_AUTOLOAD": "0",
    }
    done = subprocess.run(
        [str(venv.python), "-c", _PROGRAM],
        capture_output=True,
        text=True,
        env=environment,
        timeout=100,
    )
    if done.returncode != 0:
        return f"failed with {torch}", "import torch_npu failed:\n" + done.stderr[-2000:]
    return f"copied to the simulated device and back: {done.stdout.split(chr(10))[-2]}", ""


def main() -> int:
    """Checks one wheel, and prints what was compared and what was not run."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--torch-npu", default=OLDEST, metavar="VERSION", help=f"({OLDEST})")
    parser.add_argument("--python", default=PYTHON, metavar="X.Y", help=f"the wheel's ({PYTHON})")
    options = parser.parse_args()
    os.environ.pop("PIP_USER", None)
    unpacked, reason = download(options.torch_npu, options.python)
    if unpacked is None:
        print(f"collops: torch_npu {options.torch_npu} not compared: {reason}")
        return SKIPPED
    build_simulator()
    print(
        f"\nSummary\n  torch_npu {options.torch_npu} for Python {options.python}; no NPU was used"
    )
    problems = problems_of(unpacked, options.torch_npu)
    said, problem = run_with_torch(unpacked, options.torch_npu, options.python)
    print(f"  with torch    {said}")
    problems += [problem] if problem else []
    for each in problems:
        print(f"  failed        {each}")
    return 1 if problems else 0


if __name__ == "__main__":
    raise SystemExit(main())
