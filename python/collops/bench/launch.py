"""Starts the ranks of a benchmark, yields the points that they write, and ends them."""

from __future__ import annotations

import argparse
import json
import os
import pickle
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from collops.bench.operator import Operator, Request, Row
from collops.bench.peers.mpi_launcher import Mpi
from collops.launch.environment import await_table, own_environment, place_names, this_host
from collops.launch.processes import new_job_id
from collops.launch.programs import Programs

_PROGRAM = [sys.executable, "-m", "collops.bench.ranks"]
_TABLE_S = 300.0
_LOOK_S = 0.1
_LAST_LINES = 8
# Variables of a launcher that started this process; they are not passed to the ranks.
_DROPPED = (
    *place_names(0, 1, 0, 1),
    "MASTER_ADDR",
    "MASTER_PORT",
    "COLLOPS_JOB_ID",
    "COLLOPS_FUSED",
    "COLLOPS_BACKEND",
    "COLLOPS_TRACE",
)
_THREADS = ("COLLOPS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
# Ranks of one process on one GPU: NCCL's own switch for them; so few blocks that the kernels of 8
# ranks run at once (else they wait for each other for ever); a hardware queue for each rank's
# stream. A variable that is set already is left as it is.
_ON_GPUS = {
    "NCCL_MULTI_RANK_GPU_ENABLE": "1",
    "NCCL_MAX_CTAS": "16",
    "CUDA_DEVICE_MAX_CONNECTIONS": "32",
}


class RanksFailedError(RuntimeError):
    """The ranks ended before they had measured everything; the text is their last output."""


@dataclass(frozen=True)
class Start:
    """Who starts the ranks: the benchmark itself, a rank table, or `collops run`."""

    size: int = 0  # of the ranks; 0: as many as a point has, all on this host
    environments: tuple[Mapping[str, str], ...] = ()  # of this host's ranks, from a rank table
    rank: int = -1  # of this process, if `collops run` has started it

    @property
    def shows(self) -> bool:
        """Whether rank 0, which has the results, is this process or one that it starts."""
        ranks = [environment["COLLOPS_RANK"] for environment in self.environments]
        return self.size == 0 or self.rank == 0 or "0" in ranks


def start_of(operator: Operator, options: argparse.Namespace) -> Start:
    """How the ranks begin, by the options and the environment.

    Raises:
        ValueError: the environment does not say which rank this is.
        ArgumentError: the rank table is wrong, or does not have this host.
    """
    if options.rank_table:
        table = await_table(options.rank_table, _TABLE_S)
        environments = this_host(options.rank_table, table)
        return Start(len(table.ranks), tuple(environments))
    if operator.several_hosts and "COLLOPS_RANK" in os.environ:
        return Start(_number("COLLOPS_RANK_SIZE"), rank=_number("COLLOPS_RANK"))
    return Start()


def _number(name: str) -> int:
    text = os.environ.get(name, "")
    if not text.isdecimal():
        raise ValueError(f"{name} must be a whole number, got {text!r}")
    return int(text)


def launch(
    request: Request,
    ranks: int,
    mpi: Mpi | None = None,
    placed: Sequence[Mapping[str, str]] = (),
) -> Iterator[Row]:
    """Runs one request on `ranks` ranks, and yields each line of JSON that rank 0 writes.

    They are started by `mpi`, or by this program; `placed` has the variables of those that a rank
    table places on this host.

    Raises:
        RanksFailedError: a rank failed.
    """
    with tempfile.TemporaryDirectory(prefix="collops-bench-") as name:
        folder = Path(name)
        (folder / "request").write_bytes(pickle.dumps(request))
        records = folder / "records"
        records.touch()
        program = [*_PROGRAM, str(folder / "request"), str(folder / "store"), str(records)]
        starts = _commands(request, ranks, mpi, placed)
        commands = [([*words, *program], env) for words, env in starts]
        with (folder / "said").open("w") as said, Programs(commands, said) as programs:
            yield from _follow(records, programs)
        if programs.failed:
            lines = [line for line in (folder / "said").read_text().splitlines() if line.strip()]
            raise RanksFailedError("\n".join(lines[-_LAST_LINES:]))


def _commands(
    request: Request, ranks: int, mpi: Mpi | None, placed: Sequence[Mapping[str, str]]
) -> list[tuple[list[str], dict[str, str]]]:
    """The commands to start: one program of MPI, one of threads, or one program per rank."""
    own = dict.fromkeys(_THREADS, str(request.threads)) | {"PYTHONWARNINGS": "ignore"}
    if request.gpu:
        return [([], {**process_of_ranks(), **own})]
    if placed:
        dropped = ("COLLOPS_BACKEND", "COLLOPS_TRACE")
        kept = [{k: v for k, v in each.items() if k not in dropped} for each in placed]
        return [([], {**each, **own}) for each in kept]
    env = _without_launcher(own)
    env.update({"GLOO_SOCKET_IFNAME": "lo"})
    if mpi is not None:
        return [(mpi.command(ranks), {**env, **mpi.variables(ranks)})]
    env.update({"COLLOPS_JOB_ID": new_job_id("bench")})
    return [([], env | place_names(rank, ranks, rank, ranks)) for rank in range(ranks)]


def process_of_ranks() -> dict[str, str]:
    """The variables of a process whose threads are the ranks."""
    own = {name: os.environ.get(name, value) for name, value in _ON_GPUS.items()}
    return _without_launcher(own) | {"COLLOPS_JOB_ID": new_job_id("bench")}


def _without_launcher(own: dict[str, str]) -> dict[str, str]:
    kept = own_environment(own).items()
    return {name: value for name, value in kept if name not in _DROPPED}


def _follow(records: Path, programs: Programs) -> Iterator[dict[str, Any]]:
    """The lines of JSON, until all processes have ended or one has failed."""
    with records.open() as lines:
        rest = ""
        while True:
            running = programs.running()
            rest += lines.read()
            *whole, rest = rest.split("\n")
            for line in whole:
                yield json.loads(line)
            if not running:
                return
            time.sleep(_LOOK_S)
