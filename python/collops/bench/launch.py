"""Starts the ranks of a benchmark, yields the points that they write, and ends them."""

from __future__ import annotations

import json
import pickle
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from collops.launch.environment import own_environment, place_names
from collops.launch.processes import new_job_id
from collops.launch.programs import Programs

if TYPE_CHECKING:
    from collops.bench.peers.mpi_launcher import Mpi

_PROGRAM = [sys.executable, "-m", "collops.bench.rank_program"]
_LOOK_S = 0.1
_LAST_LINES = 8
# Variables of a launcher that started this process; they are not passed to the ranks.
DROPPED = (
    *place_names(0, 1, 0, 1),
    "MASTER_ADDR",
    "MASTER_PORT",
    "COLLOPS_JOB_ID",
    "COLLOPS_FUSED",
    "COLLOPS_BACKEND",
    "COLLOPS_TRACE",
)
_THREADS = ("COLLOPS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")


class RanksFailedError(RuntimeError):
    """The ranks ended before they had measured everything; the text is their last output."""


class Request(Protocol):
    """What a program of ranks is given, pickled."""

    @property
    def threads(self) -> int:
        """Threads of a rank."""


def launch(
    request: Request,
    ranks: int,
    mpi: Mpi | None,
    placed: Sequence[Mapping[str, str]] = (),
    program: Sequence[str] = _PROGRAM,
) -> Iterator[dict[str, Any]]:
    """Runs one request on `ranks` ranks, and yields each line of JSON that rank 0 writes.

    Args:
        request: what to measure.
        ranks: the number of ranks.
        mpi: what starts them; None: this program.
        placed: the variables of the ranks that a rank table places on this host; empty: no table.
        program: what a rank runs, with the files of the request, gloo's store and the records.

    Raises:
        RanksFailedError: a rank failed.
    """
    with tempfile.TemporaryDirectory(prefix="collops-bench-") as name:
        folder = Path(name)
        (folder / "request").write_bytes(pickle.dumps(request))
        records = folder / "records"
        records.touch()
        words_of_rank = [*program, str(folder / "request"), str(folder / "store"), str(records)]
        starts = _commands(request, ranks, mpi, placed)
        commands = [([*words, *words_of_rank], env) for words, env in starts]
        with (folder / "said").open("w") as said, Programs(commands, said) as programs:
            yield from _follow(records, programs)
        if programs.failed:
            lines = [line for line in (folder / "said").read_text().splitlines() if line.strip()]
            raise RanksFailedError("\n".join(lines[-_LAST_LINES:]))


def _commands(
    request: Request, ranks: int, mpi: Mpi | None, placed: Sequence[Mapping[str, str]]
) -> list[tuple[list[str], dict[str, str]]]:
    """The commands to start: one program of MPI, or one program per rank."""
    own = dict.fromkeys(_THREADS, str(request.threads)) | {"PYTHONWARNINGS": "ignore"}
    if placed:
        dropped = ("COLLOPS_BACKEND", "COLLOPS_TRACE")
        kept = [{k: v for k, v in each.items() if k not in dropped} for each in placed]
        return [([], {**each, **own}) for each in kept]
    env = {name: value for name, value in own_environment(own).items() if name not in DROPPED}
    env.update({"GLOO_SOCKET_IFNAME": "lo"})
    if mpi is not None:
        return [(mpi.command(ranks), {**env, **mpi.variables(ranks)})]
    env.update({"COLLOPS_JOB_ID": new_job_id("bench")})
    return [([], env | place_names(rank, ranks, rank, ranks)) for rank in range(ranks)]


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
