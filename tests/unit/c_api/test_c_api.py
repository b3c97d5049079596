"""collops_c.h: programs in C99, and C calls of communicators that Python has made."""

from __future__ import annotations

import ctypes
import multiprocessing
import os
import queue
import re
import shlex
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import collops
from collops.testing import run_ranks
from patience import patience

HERE = Path(__file__).parent
ROOT = HERE.parents[2]
PACKAGE = Path(collops.__file__).parent
HEADER = ROOT / "bindings" / "c" / "collops_c.h"
FLOAT32, FLOAT64, SUM = 0, 11, 0
LIMIT_S = patience(60)


def run(*command: str | Path, **variables: str) -> subprocess.CompletedProcess[str]:
    """Runs a program as a user does."""
    return subprocess.run(
        [str(part) for part in command],
        env={**os.environ, **variables},
        text=True,
        timeout=LIMIT_S,
        stdin=subprocess.DEVNULL,
        capture_output=True,
    )


def collops_command(*words: str | Path) -> subprocess.CompletedProcess[str]:
    return run(sys.executable, "-m", "collops", *words)


def compiled(source: Path, folder: Path) -> Path:
    """A program of C99, as docs/c_api.md says; nothing may be worth a warning."""
    flags = collops_command("c-flags")
    assert flags.returncode == 0, flags.stderr
    program = folder / source.stem
    strict = ["-std=c99", "-pedantic", "-Wall", "-Wextra", "-Werror", "-pthread"]
    done = run("cc", *strict, source, "-o", program, *shlex.split(flags.stdout))
    assert done.returncode == 0, done.stderr
    return program


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("programs")
    return {source.stem: compiled(source, folder) for source in HERE.glob("*.c")}


@pytest.mark.parametrize("ranks", [1, 2, 3])
def test_every_call_moves_what_it_says(ranks: int, programs: dict[str, Path]) -> None:
    done = collops_command("run", "-n", str(ranks), programs["every_call"])
    assert done.returncode == 0, done.stderr
    assert done.stdout.count(f"ranks: {ranks}\n") == ranks


REFUSALS = """\
ERROR_INVALID_PARAM barrier: comm NULL
ERROR_INVALID_PARAM init: comm is NULL: pass where the result goes
ERROR_INVALID_PARAM init: struct_size of the options is 3, which no version of this library has: begin with COLLOPS_INIT_OPTIONS
ERROR_INVALID_PARAM init: nothing says which rank this process is, and of how many: start it with `collops run -n N PROGRAM`, torchrun, mpirun or srun, pass rank and rank_size, or set COLLOPS_RANK and COLLOPS_RANK_SIZE
ERROR_INVALID_PARAM init: nothing says which rank this process is, and of how many: start it with `collops run -n N PROGRAM`, torchrun, mpirun or srun, pass rank and rank_size, or set COLLOPS_RANK and COLLOPS_RANK_SIZE
ERROR_INVALID_PARAM init: rank_size must be at least 1, got 0
ERROR_INVALID_PARAM init: rank must be from 0 to 0, got 1
ERROR_INVALID_PARAM init: no backend is called "mpi"; pass one of "hccl", "nccl", "cuda", "shm", "ucx"
ERROR_INVALID_PARAM init: timeout_s must be a number of seconds above 0, got -1
ERROR_INVALID_PARAM init: meet_at is "10.0.0.1:1" without a job_id: pass that of the ranks that meet there
ERROR_INVALID_PARAM init: comm_domain has 131 characters, the limit is 128
ERROR_INVALID_PARAM init: tuning=size: "size" is not a pair such as all_reduce_one_step=32k
ERROR_INVALID_PARAM init: join is "dp": leave out rank, rank_size, comm_domain, meet_at and tuning, which the group gives its new ranks
NO_ERROR
ERROR_INVALID_PARAM all_gatherv: sizes is NULL: pass an array of length 1, one number per rank
ERROR_INVALID_PARAM all_gatherv: sizes[0] must be >= 0, got -1
ERROR_INVALID_TENSOR_SIZE all_gatherv: 9223372036854775807 rows of 1 elements are more than memory can hold
ERROR_INVALID_TENSOR_ADDR all_gatherv: x is NULL, and has 2 elements
ERROR_INVALID_TENSOR_ADDR all_gatherv: out is NULL, and has 2 elements
ERROR_INVALID_TENSOR_ADDR all_gatherv: out overlaps x in memory: give it memory of its own, or pass x as this rank's own block of out
ERROR_INVALID_TENSOR_DTYPE all_gatherv: dtype 5 is no element type: pass one of collops_c.h's, such as COLLOPS_FLOAT32
ERROR_INVALID_TENSOR_DTYPE all_gatherv: dtype -1 is no element type: pass one of collops_c.h's, such as COLLOPS_FLOAT32
ERROR_INVALID_PARAM reduce_scatterv: op must be from 0 (COLLOPS_SUM) to 7 (COLLOPS_BXOR), got 8
ERROR_INVALID_TENSOR_INI_MATCH reduce_scatterv: there is no band of float32: convert x to an integer type
ERROR_INVALID_PARAM all_to_allv: send_sizes is NULL: pass an array of length 1, one number per rank
ERROR_INVALID_PARAM all_to_allv: recv_sizes is NULL: pass an array of length 1, one number per rank
ERROR_INVALID_PARAM gatherv: root must be in [0, 1), got 1
ERROR_INVALID_PARAM scatterv: root must be in [0, 1), got -1
ERROR_INVALID_PARAM all_reduce: count must be from 0 to 576460752303423487, got -1
ERROR_INVALID_PARAM all_reduce: count must be from 0 to 576460752303423487, got 9223372036854775807
ERROR_INVALID_PARAM reduce: root must be in [0, 1), got 7
ERROR_INVALID_TENSOR_ADDR broadcast: data is NULL, and has 2 elements
ERROR_INVALID_PARAM send: to is this rank itself, 0: pass another rank
ERROR_INVALID_PARAM send: to must be in [0, 1), got 1
ERROR_INVALID_PARAM recv: tag must be at least 0, got -2
ERROR_INVALID_PARAM recv: count must be from 0 to 576460752303423487, got -1
ERROR_INVALID_TENSOR_ADDR recv: out is NULL, and has 2 elements
ERROR_INVALID_PARAM split: part is NULL: pass where the result goes
ERROR_INVALID_PARAM shrink: shrunk is NULL: pass where the result goes
ERROR_INVALID_PARAM shrink: timeout_s must be a number of seconds, or 0, got -1
ERROR_INVALID_PARAM shrink: num_excluded must be >= 0, got -1
ERROR_INVALID_PARAM shrink: exclude is NULL: pass an array of length 2
ERROR_INVALID_PARAM shrink: exclude[0] is 0, this rank: the ranks that stay call it; one that goes calls close()
ERROR_INVALID_PARAM old_ranks: ranks is NULL: pass where the result goes
ERROR_INVALID_PARAM old_ranks: collops_shrink() has not made this communicator
ERROR_INVALID_PARAM grow: grown is NULL: pass where the result goes
ERROR_INVALID_PARAM grow: timeout_s must be a number of seconds, or 0, got -1
ERROR_INVALID_PARAM grow: n must be from 1 to 127, got 0
ERROR_INVALID_PARAM set_timeout: seconds must be a number above 0, got 0
ERROR_INVALID_PARAM rank: rank is NULL: pass where the result goes
ERROR_INVALID_PARAM size: size is NULL: pass where the result goes
NO_ERROR
NO_ERROR
ERROR_ABORTED barrier: this communicator has ended (go on with shrink(), or make a new one on all ranks): rank 0 called collops_abort()
NO_ERROR
ERROR_INVALID_PARAM close: comm NULL
"""  # noqa: E501
UNKNOWN = re.compile(
    r"comm (\(nil\)|0x\w+) is not an open communicator of this library in this process: pass what "
    r"collops_init\(\) gave, or Communicator\.handle of Python's"
)


def test_a_wrong_call_gets_a_text_and_ends_nothing(programs: dict[str, Path]) -> None:
    done = run(programs["refusals"], COLLOPS_JOB_ID=f"refusals of {os.getpid()}")
    assert (done.returncode, done.stderr) == (0, "")
    assert [line.rstrip() for line in UNKNOWN.sub("comm NULL", done.stdout).splitlines()] == (
        REFUSALS.splitlines()
    )


def test_the_ranks_that_are_left_go_on_and_a_new_one_joins(programs: dict[str, Path]) -> None:
    done = collops_command("run", "-n", "4", programs["goes_on"])
    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.splitlines()) == ["[0] 0 of 3", "[2] 1 of 3", "[3] 2 of 3"]


def test_ranks_are_threads(programs: dict[str, Path]) -> None:
    done = run(programs["threads"], COLLOPS_JOB_ID=f"threads of {os.getpid()}")
    assert (done.returncode, done.stdout, done.stderr) == (0, "0 0\n" * 3, "")


def library() -> ctypes.CDLL:
    """That of this process, once the extension is loaded."""
    lib = ctypes.CDLL("libcollops_c.so")
    lib.collops_last_error.restype = ctypes.c_char_p
    return lib


def said(lib: ctypes.CDLL) -> str:
    return str(lib.collops_last_error().decode())


def handle_of(comm: collops.Communicator) -> ctypes.c_void_p:
    return ctypes.c_void_p(comm.handle)


def address_of(array: Any) -> ctypes.c_void_p:
    return ctypes.c_void_p(array.ctypes.data)


def gather(lib: ctypes.CDLL, comm: collops.Communicator, x: Any, out: Any, sizes: Any) -> int:
    given = (ctypes.c_int64 * len(sizes))(*sizes) if sizes is not None else None
    call = lib.collops_all_gatherv
    return int(call(handle_of(comm), address_of(x), address_of(out), given, FLOAT32))


def test_c_uses_a_communicator_of_python() -> None:
    """In turn with Python's own calls, and with rank 0 in C and rank 1 in Python."""

    def work(rank: int) -> list[float]:
        with collops.init() as comm:
            lib, sizes = library(), [3, 2]
            x = np.arange(sizes[rank], dtype=np.float32) + 10 * rank
            out = np.full(5, -1, np.float32)
            assert gather(lib, comm, x, out, sizes) == 0, said(lib)
            assert out.tolist() == comm.all_gatherv(x, sizes).tolist()
            out[:] = -1
            if rank == 0:
                assert gather(lib, comm, x, out, sizes) == 0, said(lib)
            else:
                comm.all_gatherv(x, sizes, out=out)
            return out.tolist()

    assert run_ranks(work, 2) == [[0, 1, 2, 10, 11]] * 2


def test_a_waiting_call_holds_no_gil_and_a_second_thread_is_refused() -> None:
    """Of two threads of rank 0 one waits; rank 1 comes when the other one has its answer."""
    there, here = multiprocessing.Pipe(duplex=False)

    def work(rank: int) -> list[tuple[int, str]]:
        with collops.init() as comm:
            lib, answers = library(), queue.SimpleQueue[tuple[int, str]]()

            def call() -> None:
                error = lib.collops_barrier(handle_of(comm))
                answers.put((error, said(lib)))

            if rank == 1:
                assert there.poll(LIMIT_S)
                call()
                return [answers.get()]
            threads = [threading.Thread(target=call) for _ in range(2)]
            for thread in threads:
                thread.start()
            refused = answers.get(timeout=LIMIT_S)
            here.send_bytes(b"go")
            return [refused, answers.get(timeout=LIMIT_S)]

    [(refused, text), waited], other = run_ranks(work, 2)
    assert (waited, other) == ((0, ""), [(0, "")])
    assert refused == 1
    assert "one thread at a time" in text


def test_what_is_wrong_in_one_rank_is_told_to_the_others() -> None:
    def work(rank: int) -> tuple[int, str, list[float]]:
        with collops.init() as comm:
            lib = library()
            x, out = np.full(1, rank + 1, np.float32), np.zeros(2, np.float32)
            error = gather(lib, comm, x, out, None if rank == 1 else [1, 1])
            text = said(lib)
            assert gather(lib, comm, x, out, [1, 1]) == 0, said(lib)
            return error, text, out.tolist()

    (code, text, right), (own_code, own_text, own_right) = run_ranks(work, 2)
    assert right == own_right == [1, 2]
    assert (own_code, own_text) == (
        1,
        "all_gatherv: sizes is NULL: pass an array of length 2, one number per rank",
    )
    assert code == 102
    assert own_text in text


def test_a_lost_rank_and_the_time_out_are_errors() -> None:
    def work(rank: int) -> list[int]:
        lib = library_after(collops.init(comm_domain="late"))
        late = collops.init(comm_domain="late")
        lib.collops_set_timeout(handle_of(late), ctypes.c_double(0.2))
        found = [lib.collops_barrier(handle_of(late))] if rank == 0 else []
        comm = collops.init(comm_domain="lost")
        if rank == 1:
            comm.close()
            return found
        found.append(lib.collops_barrier(handle_of(comm)))
        assert "rank 1 called close()" in said(lib)
        return found

    assert run_ranks(work, 2)[0] == [100, 101]


def library_after(_: collops.Communicator) -> ctypes.CDLL:
    return library()


def test_a_closed_communicator_and_that_of_a_parent_are_refused() -> None:
    def work(_: int) -> tuple[int, str, int]:
        comm = collops.init()
        lib = library()
        assert lib.collops_barrier(handle_of(comm)) == 0
        child = os.fork()
        if child == 0:
            error = lib.collops_barrier(handle_of(comm))
            os._exit(error if UNKNOWN.search(said(lib)) else 99)
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        handle = handle_of(comm)
        comm.close()
        del comm
        return lib.collops_barrier(handle), said(lib), status

    [(error, text, of_child)] = run_ranks(work, 1)
    assert (error, of_child) == (1, 1)
    assert UNKNOWN.search(text)


def test_ctrl_c_ends_a_wait_and_tells_the_others() -> None:
    def work(rank: int) -> tuple[str, str, str]:
        with collops.init() as comm:
            lib = library()
            assert lib.collops_barrier(handle_of(comm)) == 0
            caught = ""
            try:
                if rank == 0:
                    threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT)).start()
                else:
                    time.sleep(patience(1))
                lib.collops_barrier(handle_of(comm))
            except SystemError as error:  # ctypes finds the exception when the call has returned
                caught = repr(error.__cause__)
            return caught, said(lib), repr(comm)

    (caught, text, _), (other, other_text, _) = run_ranks(work, 2)
    assert (caught, other) == ("KeyboardInterrupt()", "")
    assert text == "barrier: rank 0 was interrupted"
    assert text in other_text


def test_a_library_that_is_opened_by_its_path_is_another_one() -> None:
    def work(_: int) -> tuple[int, int, str]:
        with collops.init() as comm:
            own = library()
            other = ctypes.CDLL(str(PACKAGE / "libcollops_c.so"))
            other.collops_last_error.restype = ctypes.c_char_p
            errors = (lib.collops_barrier(handle_of(comm)) for lib in (own, other))
            return (*errors, said(other))  # type: ignore[return-value]

    [(own, other, text)] = run_ranks(work, 1)
    assert (own, other) == (0, 1)
    assert UNKNOWN.search(text)


def test_both_libraries_have_what_the_header_declares() -> None:
    names = re.findall(r"^COLLOPS_C_API [\w* ]*?\b(\w+)\(", HEADER.read_text(), re.M)
    assert len(names) > 20
    collops.core.core()
    for lib in (library(), ctypes.CDLL(str(PACKAGE / "libcollops_c.so"))):
        assert lib.collops_abi_version() == 1
        assert [name for name in names if not hasattr(lib, name)] == []


def test_numbers_of_the_header_are_those_of_the_core() -> None:
    numbers = dict(re.findall(r"COLLOPS_(\w+) = (\d+)", HEADER.read_text()))
    core = (ROOT / "ops/collops/core/dtype.h").read_text()
    found = re.findall(r"k(\w+) = (\d+)", core.replace("kBit", "kB"))
    of_core = {name.upper(): number for name, number in found}
    status = (ROOT / "ops/collops/core/status.h").read_text()
    of_core |= {"OK": "0", **dict(re.findall(r"(ERROR_\w+) = (\d+)", status))}
    assert {name: of_core.get(name) for name in numbers} == numbers


def test_the_installed_header_is_the_sources_and_cpp_takes_it(tmp_path: Path) -> None:
    installed = PACKAGE / "include" / "collops_c.h"
    assert installed.read_text() == HEADER.read_text()
    source = tmp_path / "a.cpp"
    source.write_text("#include <collops_c.h>\n")
    strict = ["-std=c++11", "-pedantic", "-Wall", "-Wextra", "-Werror", "-fsyntax-only"]
    done = run("c++", *strict, f"-I{installed.parent}", source)
    assert done.returncode == 0, done.stderr


def test_the_program_of_the_page_does_what_the_page_says(tmp_path: Path) -> None:
    page = (ROOT / "docs" / "c_api.md").read_text()
    [program] = re.findall(r"^```c\b[^\n]*\n(.*?)^```", page, re.M | re.S)
    (tmp_path / "gather.c").write_text(program)
    compile_line, run_line = re.findall(r"^    \$ (.*)$", page, re.M)
    expected = re.findall(r"^    (\[\d\].*)$", page, re.M)
    collops_program = shlex.join([sys.executable, "-m", "collops"])
    for line in (compile_line, run_line):
        words = line.replace("collops ", f"{collops_program} ")
        done = subprocess.run(
            ["sh", "-c", words], cwd=tmp_path, text=True, capture_output=True, timeout=LIMIT_S
        )
        assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.splitlines()) == expected
