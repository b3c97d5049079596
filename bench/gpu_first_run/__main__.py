"""One run on a machine with a GPU that is at hand for minutes: what it carries, what it asks.

    python bench/gpu_first_run pack --nccl libnccl.so.2    # here: what the run needs, in one folder
    python3 bench/gpu_first_run run                        # there: every question, and the report
    python bench/gpu_first_run tables report.json          # the tables of docs/gpu.md

Both machines have this checkout. Exit status of run: 1 if a question failed.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

# Beside this folder: what other programs of bench/ have, too.
sys.path.append(str(Path(__file__).resolve().parents[1]))

import goals
from questions import HERE, NCCL, Setting, questions

from report import ROOT, Question, Report

FOLDER = ROOT / "build" / "gpu_first_run"
MOST_MIB = 64
MOST_S = 570.0


def main() -> int:
    """Does what the first word says."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_subparsers(required=True).add_parser
    packing = add("pack", help="builds a wheel, and puts it beside what else the run needs")
    packing.set_defaults(do=pack)
    packing.add_argument("--python", default="python3.12", help="the other machine's (python3.12)")
    packing.add_argument("--nccl", type=Path, metavar="FILE", help="an NCCL of 2.30 or newer")
    packing.add_argument(
        "--kernels",
        type=kernels,
        action="append",
        default=[],
        metavar="NAME=FATBIN",
        help="kernels to measure beside those of the wheel; repeatable",
    )
    running = add("run", help="asks every question, and writes the report")
    running.set_defaults(do=run)
    running.add_argument(
        "--seconds", type=float, default=MOST_S, help=f"for all together ({MOST_S:.0f})"
    )
    running.add_argument(
        "--output", type=Path, default=FOLDER / "report.json", help="the JSON file of the report"
    )
    running.add_argument(
        "--here", action="store_true", help="use this Python's collops instead of installing one"
    )
    running.add_argument("--short", action="store_true", help="only two ranks and small sizes")
    running.add_argument("--only", metavar="WORD", help="only questions whose name contains it")
    showing = add("tables", help="prints the tables of a report, in Markdown")
    showing.set_defaults(do=show)
    showing.add_argument("report", type=Path)
    options = parser.parse_args()
    status: int = options.do(options)
    return status


def kernels(text: str) -> tuple[str, Path]:
    """A name and a fatbin's file."""
    name, _, file = text.partition("=")
    if not name.isidentifier() or not Path(file).is_file():
        raise argparse.ArgumentTypeError(
            f"NAME=FILE is needed, of a file that exists, got {text!r}"
        )
    return name, Path(file)


def pack(options: argparse.Namespace) -> int:
    """Fills the folder: a wheel, and what was named."""
    carried = FOLDER / "carried"
    shutil.rmtree(carried, ignore_errors=True)
    (carried / "kernels").mkdir(parents=True)
    wheel = [options.python, "-m", "pip", "wheel", "-q", "--no-deps", "-w", str(carried), str(ROOT)]
    words = f"{os.environ.get('CMAKE_ARGS', '')} -DCOLLOPS_GPU_KERNELS=ON"
    subprocess.run(wheel, env={**os.environ, "CMAKE_ARGS": words}, check=True)
    if options.nccl:
        shutil.copy2(options.nccl, carried / "libnccl.so.2")
    for name, file in options.kernels:
        shutil.copy2(file, carried / "kernels" / f"{name}.fatbin")
    files = [file for file in carried.rglob("*") if file.is_file()]
    mib = sum(file.stat().st_size for file in files) / 2**20
    print(f"{carried.relative_to(ROOT)}: {mib:.1f} MiB")
    for file in files:
        print(f"  {file.relative_to(carried)}: {file.stat().st_size / 2**20:.1f} MiB")
    if mib > MOST_MIB:
        print(f"more than {MOST_MIB} MiB")
        return 1
    return 0


def run(options: argparse.Namespace) -> int:
    """Asks everything; 1 if something failed."""
    folder = options.output.resolve().parent
    folder.mkdir(parents=True, exist_ok=True)
    report = Report(options.output, options.seconds, "bench/gpu_first_run", goals.judged)
    carried = FOLDER / "carried"
    env: dict[str, str] = {}
    if not options.here:
        site = FOLDER / "site"
        shutil.rmtree(site, ignore_errors=True)
        if not report.ask(installation(carried, site)):
            return 1
        env["PYTHONPATH"] = os.pathsep.join(filter(None, [str(site), os.environ.get("PYTHONPATH")]))
    own_nccl = carried / "libnccl.so.2"
    if own_nccl.exists():
        env |= {"LD_PRELOAD": str(own_nccl), **NCCL}
    setting = Setting(
        python=sys.executable,
        rows=folder,
        # It uses CUDA's runtime, which a simulated driver is not enough for.
        ceilings=None if options.short else compiled(folder),
        kernels={file.stem: file for file in sorted((carried / "kernels").glob("*.fatbin"))},
        env=env | {n: v for n, v in os.environ.items() if n == "COLLOPS_SIM_GPU"},
        short=options.short,
    )
    for question in questions(setting):
        if options.only and options.only not in question.name:
            continue
        if question.rows is not None:
            question.rows.unlink(missing_ok=True)
        report.ask(question)
    asked = report.found["questions"]
    print(f"All of it is in {options.output}")
    return 1 if any(question["state"] == "failed" for question in asked) else 0


def installation(carried: Path, site: Path) -> Question:
    """Installs the wheel that was carried, or builds this tree if there is none."""
    pip = [sys.executable, "-m", "pip"]
    into = [*pip, "install", "-q", "--no-index", "--no-deps", "--no-compile", "--target", str(site)]
    wheels = [str(wheel) for wheel in carried.glob("collops-*.whl")]
    words = [*into, *wheels] if wheels else [*into, "--no-build-isolation", str(ROOT)]
    return Question("installation", words, 60 if wheels else 150)


def compiled(folder: Path) -> Path | None:
    """The program of ceilings.cu; None without an nvcc, or if it fails."""
    nvcc = shutil.which("nvcc") or shutil.which("nvcc", path="/usr/local/cuda/bin")
    program = folder / "ceilings"
    if nvcc is None:
        return None
    words = [nvcc, "-O3", "-arch=native", "-o", str(program), str(HERE / "ceilings.cu")]
    with contextlib.suppress(subprocess.SubprocessError):
        subprocess.run(words, check=True, timeout=60, capture_output=True)
        return program
    return None


def show(options: argparse.Namespace) -> int:
    """Prints the tables, and the goals."""
    found = json.loads(options.report.read_text())
    every = [row for question in found["questions"] for row in question["rows"]]
    print(f"{found['gpu']}, commit {found['commit']}, {found['date']}\n")
    print(goals.tables(every))
    print("| goal | needed | found | reached |\n|---|---|---|---|")
    for goal in found["goals"]:
        least = goal["at_least"] is not None
        needed = f"at least {goal['at_least']}" if least else f"at most {goal['at_most']}"
        print(f"| {goal['goal']} | {needed} | {goal['found']} | {goal['reached']} |")
    print("\n| question | state | s |\n|---|---|---|")
    for question in found["questions"]:
        reason = f": {question['reason']}" if "reason" in question else ""
        print(f"| {question['name']} | {question['state']}{reason} | {question.get('seconds')} |")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
