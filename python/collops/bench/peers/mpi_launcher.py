"""MPI libraries of this host, and how each of them starts ranks."""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass
from pathlib import Path

from collops.core import usable_cores
from collops.launch.programs import answers

_ASK_S = 20


@dataclass(frozen=True)
class Mpi:
    """One MPI: its name, the program that starts ranks, and their environment variables."""

    name: str
    program: str
    environment: dict[str, str]

    def command(self, ranks: int) -> list[str]:
        """The launcher's command line, without the program of the ranks."""
        words = [self.program, "-n", str(ranks)]
        if self.name == "Open MPI":
            words += ["--bind-to", "none", "--map-by", ":OVERSUBSCRIBE"]
            if os.geteuid() == 0:
                words.append("--allow-run-as-root")
        return words

    def variables(self, ranks: int) -> dict[str, str]:
        """Environment variables of the ranks; with more ranks than cores, ranks must yield."""
        more = dict(self.environment)
        over = ranks > usable_cores()[0]
        if self.name == "Open MPI" and over:
            more["OMPI_MCA_mpi_yield_when_idle"] = "1"
        if self.name == "Intel MPI":
            more.update({"I_MPI_FABRICS": "shm", "I_MPI_PIN": "0"})
            if over:
                more["I_MPI_THREAD_YIELD"] = "2"
        return more


def find_mpis(prefixes: list[Path]) -> list[Mpi]:
    """The MPI in each prefix; without prefixes, the MPI of the mpirun on PATH, if there is one.

    Raises:
        ValueError: a prefix has no mpirun.
    """
    if prefixes:
        return [_at(prefix) for prefix in prefixes]
    program = shutil.which("mpirun")
    return [_with(program, Path(program).resolve().parent.parent)] if program else []


def _at(prefix: Path) -> Mpi:
    for name in ("mpiexec", "mpirun"):
        program = prefix / "bin" / name
        if os.access(program, os.X_OK):
            return _with(str(program), prefix)
    raise ValueError(f"--mpi {prefix}: there is no {prefix}/bin/mpiexec and no mpirun")


def _with(program: str, prefix: Path) -> Mpi:
    # Intel MPI's programs look for each other on PATH.
    environment = {"PATH": f"{prefix / 'bin'}:{os.environ.get('PATH', '')}"}
    name = _name(program, environment)
    # libmpi.so itself may be a linker script, so a name with a version is preferred.
    libraries = [path for part in ("lib", "lib64") for path in (prefix / part).glob("libmpi.so*")]
    if libraries:
        library = max(libraries, key=lambda path: (path.name != "libmpi.so", -len(path.name)))
        environment["MPI4PY_LIBMPI"] = str(library)
        folders = str(library.parent), os.environ.get("LD_LIBRARY_PATH")
        environment["LD_LIBRARY_PATH"] = ":".join(filter(None, folders))
    if name == "Intel MPI":
        environment["I_MPI_ROOT"] = str(prefix)
    return Mpi(name, program, environment)


def _name(program: str, environment: dict[str, str]) -> str:
    """The library's name, as the program prints it."""
    try:
        [answer] = answers([([program, "--version"], {**os.environ, **environment})], _ASK_S)
    except OSError as problem:
        raise ValueError(f"--mpi: {program} --version: {problem}") from None
    if answer.status is None:
        raise ValueError(f"--mpi: {program} --version: did not end within {_ASK_S} s")
    said = answer.out + answer.err
    if "Open MPI" in said or "OpenRTE" in said or "prte" in said.lower():
        return "Open MPI"
    if "Intel" in said:
        return "Intel MPI"
    return "MPICH" if "HYDRA" in said else f"MPI of {program}"
