"""What a GPU is asked in one run, the most important first."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import many_cores
from report import ROOT, Question

HERE = Path(__file__).resolve().parent
SIZES = "1k,64k,256k,1m,8m,64m"
# +-50 %: shares of 3 and 1 are 1.5 and 0.5 of the mean.
SKEWED = "3:1"
ROWS = (1024, 4096)
# What several ranks on one GPU need of NCCL 2.30; `collops bench` sets the same.
NCCL = {"NCCL_MULTI_RANK_GPU_ENABLE": "1", "NCCL_MAX_CTAS": "16", "NCCL_ALGO": "RING"}
# CUDA tensors in tests/conformance, with the driver that the loader finds: a simulated one in the
# test of this run.
CUDA_TENSORS = {"COLLOPS_SIM_GPU": "none", "CUDA_DEVICE_MAX_CONNECTIONS": "32"}
# ncu and the sanitizers: a small call of two ranks.
_FEW = ("--ranks", "2", "--sizes", "1k", "--skew", SKEWED, "--quick", "--peers", "none")


@dataclass(frozen=True)
class Setting:
    """What the questions are asked with.

    python: the interpreter that has collops.
    rows: the folder for the rows of benchmarks.
    ceilings: the compiled program of ceilings.cu; None: it is not there.
    kernels: other builds of the kernels, whose names are columns beside `plain`.
    env: for all commands.
    short: only two ranks and small sizes.
    """

    python: str
    rows: Path
    ceilings: Path | None
    kernels: dict[str, Path]
    env: dict[str, str]
    short: bool = False

    def program(self, name: str, *words: str) -> list[str]:
        """The words of a program of this folder."""
        return [self.python, str(HERE / name), *words]

    def bench(self, name: str, operator: str, *words: str, limit_s: float) -> Question:
        """A benchmark, whose rows are kept."""
        file = self.rows / f"{name.replace(' ', '_').replace('/', '_')}.jsonl"
        command = [self.python, "-m", "collops", "bench", operator, *words, "--json", str(file)]
        return Question(name, command, limit_s, rows=file, env=self.env)


def questions(setting: Setting) -> list[Question]:
    """All of them, in the order in which they are asked."""
    made = [
        Question("doctor", [setting.python, "-m", "collops", "doctor"], 20, env=setting.env),
        *_ceilings(setting),
        *_collectives(setting),
        *_products(setting),
        *_rightness(setting),
        *_tools(setting),
        *_host(setting),
    ]
    for question in made:
        question.env = {**setting.env, **question.env}
    return made


def _ceilings(setting: Setting) -> Iterator[Question]:
    """What the memory can do: copies, fills, one read for one to eight writes."""
    missing = "" if setting.ceilings else "there is no GPU or no nvcc for ceilings.cu"
    yield Question("ceilings", [str(setting.ceilings)], 20, missing)


def _collectives(setting: Setting) -> Iterator[Question]:
    """Times by size, beside NCCL's, and beside the other builds of the kernels."""
    sizes = "1k" if setting.short else SIZES
    for ranks in ("2",) if setting.short else ("8", "2"):
        common = ["--backend", "cuda", "--ranks", ranks, "--graph", "--dtype", "bf16"]
        common += ["--quick"] if setting.short else []
        for operator in ("all_gather_v", "reduce_scatter_v"):
            name, even = f"{operator} of {ranks}", ["--sizes", sizes, "--skew", "even"]
            yield setting.bench(name, operator, *common, *even, "--peers", "nccl", limit_s=50)
            alone = ["--peers", "none"]
            for kernels, file in setting.kernels.items():
                words = [*common, *even, *alone]
                question = setting.bench(f"{name}, {kernels}", operator, *words, limit_s=30)
                question.env = {"COLLOPS_KERNELS": str(file)}
                question.told = {"kernels": kernels}
                yield question
            longest = ["--sizes", sizes.rsplit(",", 1)[-1], "--skew", SKEWED]
            words = [*common, *longest, *alone]
            yield setting.bench(f"{name}, {SKEWED}", operator, *words, limit_s=20)


def _products(setting: Setting) -> Iterator[Question]:
    """Fused against unfused and the product alone. One that hangs ends by its own time-out."""
    common = ["--backend", "cuda", "--rows-share", "1:1", "--type", "1,2", "--dtype", "bf16"]
    common += ["--peers", "none"]  # torch's processes take most of the time
    common += ["--quick"] if setting.short else ["--iterations", "7"]
    for ranks in ("2",) if setting.short else ("8", "2", "4"):
        for m in (8,) if setting.short else ROWS:
            shape = f"{m},8,8" if setting.short else f"{m},8192,8192"
            for form in (["--graph"], []) if ranks == "8" else (["--graph"],):
                name = f"products of {ranks}, M = {m}{'' if form else ', no graph'}"
                words = [*common, "--ranks", ranks, "--shapes", shape, *form]
                question = setting.bench(name, "linear_parallel", *words, limit_s=30)
                question.env = {"COLLOPS_TIMEOUT_S": "10"}
                yield question


def _rightness(setting: Setting) -> Iterator[Question]:
    """Conformance, torch's groups, lost ranks, and the other kinds of arrays."""
    tests = [setting.python, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
    tests += [str(ROOT / "tests" / "conformance" / "test_conformance.py"), "-k"]
    env = {**NCCL, **CUDA_TENSORS}
    if setting.short:
        env["COLLOPS_SIM_GPU"] = setting.env.get("COLLOPS_SIM_GPU", "none")
    # LinearParallel first: it is what has hung.
    chosen = {
        "conformance of products, threads": "cuda and threads and linear_parallel",
        "conformance, threads": "cuda and threads and not linear_parallel",
        "conformance, processes": "cuda and not threads and atb and (linear or gather_v)",
    }
    if setting.short:
        chosen = {"conformance": "cuda and all_gather_v and atb and p2"}
    for name, choice in chosen.items():
        yield Question(name, [*tests, choice], 60, env=env, tests=True)
    if not setting.short:  # they need torch's CUDA tensors
        for backend in ("cuda", "nccl"):
            by = {**env, "COLLOPS_BACKEND": f"nccl={backend}"}
            words = setting.program("torch_groups.py")
            yield Question(f"torch groups, {backend}", words, 60, env=by)
        for backend in ("cuda", "nccl"):
            for kind in ("killed", "late"):
                words = setting.program("lost_ranks.py", backend, kind)
                yield Question(f"{kind} rank, {backend}", words, 30, env=env)
    yield Question("arrays", setting.program("arrays.py", "cuda", "nccl"), 40, env=env)


def _tools(setting: Setting) -> Iterator[Question]:
    """What the GPU's own tools see: the bytes that a call moves, races, wrong accesses."""
    # Over a range, as kernels that wait for each other cannot be run one after the other.
    measured = "dram__bytes_read.sum,dram__bytes_write.sum,gpu__time_duration.sum"
    words = ["--replay-mode", "app-range", "--target-processes", "all", "--metrics", measured]
    yield _by_tool("bytes moved", "ncu", words + setting.program("moved_bytes.py"), 40)
    call = [setting.python, "-m", "collops", "bench", "all_gather_v", "--backend", "cuda", *_FEW]
    for kind in ("racecheck", "memcheck"):
        words = ["--tool", kind, "--target-processes", "all", "--error-exitcode", "9"]
        yield _by_tool(kind, "compute-sanitizer", words + call, 60)


def _by_tool(name: str, tool: str, words: list[str], limit_s: float) -> Question:
    found = shutil.which(tool)
    missing = "" if found else f"{tool} is not installed"
    return Question(name, [found or tool, *words], limit_s, missing)


def _host(setting: Setting) -> Iterator[Question]:
    """What only a machine with many cores shows: the CPU's collectives and products."""
    if not setting.short:
        yield from many_cores.questions(setting.python, setting.rows)
