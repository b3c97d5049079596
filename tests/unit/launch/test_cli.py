"""The command line: output on success and on errors."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest

from collops.cli import main
from collops.launch.rank_table import make_rank_table
from tests import programs


def collops(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Runs ``collops`` with these arguments and variables."""
    return programs.run(
        [sys.executable, "-m", "collops", *arguments],
        capture_output=True,
        env={**os.environ, **environment},
    )


@pytest.mark.parametrize("words", [(), ("golden",), ("bench",)])
def test_a_missing_word_is_answered_by_the_help(words: tuple[str, ...]) -> None:
    done = collops(*words)
    assert (done.returncode, done.stdout) == (2, "")
    assert " --help' for details." in done.stderr


def test_version() -> None:
    done = collops("--version")
    assert (done.returncode, done.stdout) == (0, f"collops {metadata.version('collops')}\n")


def test_doctor_says_which_backends_run_and_why_the_others_do_not() -> None:
    done = collops("doctor", COLLOPS_JOB_ID="the-job", COLLOPS_BACKEND="shm")
    assert done.returncode == 0, done.stderr
    lines = {line.split()[0]: line for line in done.stdout.splitlines() if line.strip()}
    assert lines["shm"].split() == ["shm", "ready"]
    assert "libhccl.so" in lines["hccl"]
    assert lines["nccl"].split()[1] == "ready" or "lib" in lines["nccl"]
    assert lines["cuda"].split()[1] == "ready" or "libcuda.so.1" in lines["cuda"]
    assert "the-job, from COLLOPS_JOB_ID" in lines["identity"]
    assert lines["COLLOPS_BACKEND"].split() == ["COLLOPS_BACKEND", "shm"]
    assert "MiB" in lines["segment"]
    assert "numpy" in lines


def sections(text: str) -> dict[str, dict[str, str]]:
    """Of each part of the report: its rows."""
    found: dict[str, dict[str, str]] = {}
    for line in text.splitlines():
        if not line.startswith(" "):
            rows = found[line] = {}
        else:
            name, _, said = line.strip().partition("  ")
            rows[name] = said.strip()
    return found


def test_doctor_shows_no_key() -> None:
    done = collops("doctor", COLLOPS_JOB_KEY="a-secret", COLLOPS_JOBKEY="another-one")
    assert "secret" not in done.stdout
    assert "another" not in done.stdout
    found = sections(done.stdout)["Environment"]
    assert found["COLLOPS_JOB_KEY"] == "set, not shown"
    assert found["COLLOPS_JOBKEY"].startswith("set, not shown  WRONG: unknown variable")


def test_doctor_says_which_ucx_it_is_or_what_to_install(tmp_path: Path) -> None:
    found = sections(collops("doctor").stdout)["UCX"]
    if "no" not in found:
        assert set(found) == {"library", "version", "transports", "RDMA"}
        assert "libucp" in found["library"]
        assert found["version"][0].isdecimal()
        assert "tcp/" in found["transports"]
        assert found["RDMA"] == "yes" or found["RDMA"].startswith("no: this ")
    nowhere = str(tmp_path / "libucp.so.0")
    done = collops("doctor", COLLOPS_UCX_LIBRARY=nowhere)
    assert done.returncode == 1, done.stderr
    missing = sections(done.stdout)["UCX"]
    assert list(missing) == ["no"]
    assert nowhere in missing["no"]
    assert "pip install 'collops[multihost]'" in missing["no"]


def test_doctor_has_a_line_for_each_thing_that_cuda_and_nccl_lack(tmp_path: Path) -> None:
    """With simulated GPUs tests/gpu/test_doctor.py sees more of it."""
    found = sections(collops("doctor", COLLOPS_KERNELS=str(tmp_path / "none")).stdout)
    cuda = found["CUDA"]
    assert cuda["GPU kernels"].startswith(
        f"no: the GPU kernels are missing: there is no file {tmp_path}"
    )
    assert cuda["driver"].startswith(("CUDA 1", "no: CUDA's driver"))
    assert ("GPUs" in cuda) == cuda["driver"].startswith("CUDA 1")
    blas = cuda["cuBLASLt, for LinearParallel"]
    assert blas == "found" or (blas.startswith("no: ") and "libcublasLt" in blas)
    assert "version" in found["NCCL"] or "NCCL" in found["NCCL"]["no"].replace("nccl", "NCCL")


def test_doctor_says_where_a_rank_table_places_this_host(tmp_path: Path) -> None:
    assert sections(collops("doctor").stdout)["Hosts"].keys() == {"none"}
    table = tmp_path / "ranks.json"
    table.write_text(make_rank_table(["node-a", "node-b"], 2))
    env = {"RANK_TABLE_FILE": str(table), "COLLOPS_SERVER_ID": "node-b"}
    found = sections(collops("doctor", **env).stdout)["Hosts"]
    assert "2 host(s), 4 ranks, backend ucx" in found["table"]
    assert found["this host"] == "node-b, ranks 2, 3"
    found = sections(collops("doctor", **env | {"COLLOPS_SERVER_ID": "node-c"}).stdout)["Hosts"]
    assert found["this host"].startswith("not found: ")
    table.write_text("[]")
    done = collops("doctor", **env)
    assert done.returncode == 0, done.stderr
    assert str(table) in sections(done.stdout)["Hosts"]["no"]


def test_doctor_need_not_be_a_rank_of_the_table(tmp_path: Path) -> None:
    table = tmp_path / "ranks.json"
    table.write_text(make_rank_table(["node-a", "node-b"], 2))
    env = {"RANK_TABLE_FILE": str(table), "COLLOPS_SERVER_ID": "node-b"}

    def job(**more: str) -> dict[str, str]:
        return sections(collops("doctor", **env, **more).stdout)["Job"]

    found = job()
    assert found["launcher"].startswith("none: start the ranks with collops run --rank-table FILE")
    assert found["identity"].endswith("from the rank table's content")
    # Who says that this process is a rank of the table is contradicted by it.
    assert job(DEVICE_ID="1")["launcher"] == f'rank table "{table}", rank 3 of 4'
    assert 'DEVICE_ID is "7", but no rank of this host' in job(DEVICE_ID="7")["launcher"]
    assert "places it on server" in job(RANK_ID="0", RANK_SIZE="4")["launcher"]


def test_a_table_is_checked_by_the_rules_of_a_backend(tmp_path: Path) -> None:
    table = tmp_path / "ranks.json"

    def check(*options: str) -> tuple[int, str]:
        done = collops("rank-table", "check", str(table), *options)
        return done.returncode, done.stdout.splitlines()[-1]

    text = make_rank_table(["node-a", "node-b"], 1)
    table.write_text(text)
    refused = f'backend hccl: rank table "{table}": rank 0 has no device_ip'
    for options, status in ((), 0), (("--backend", "hccl"), 1):
        code, said = check(*options)
        assert (code, said.startswith(refused)) == (status, True)
    one_host = f'backend shm runs on one host, but rank table "{table}" places the ranks on 2'
    assert check("--backend", "shm") == (1, f"backend shm: {one_host}")
    assert check("--backend", "ucx") == (0, "backend ucx: accepts it")
    table.write_text(text.replace('"completed"', '"initializing"'))
    assert check("--backend", "hccl")[0] == 0
    table.write_text(text.replace('"1.0",', "'1.0',"))
    done = collops("rank-table", "check", str(table), "--backend", "hccl")
    fault = "malformed JSON at line 2, column 14 (byte 15 of "
    assert (done.returncode, fault in done.stderr) == (2, True)


PLAN = ("plan", "--op", "all_gatherv", "--bytes", "1m", "--hosts", "2", "--ranks-per-host", "2")
PRINTING = (
    ("--version",),
    ("doctor",),
    ("golden", "list"),
    ("bench", "barrier", "--quick", "--peers", "none"),
    PLAN,
)


@pytest.mark.parametrize("words", PRINTING, ids=lambda words: " ".join(words[:2]))
def test_output_that_cannot_be_written_ends_the_program(words: tuple[str, ...]) -> None:
    """Without a word where nobody reads it: as any program that SIGPIPE ends."""

    def ended(out: int | None) -> tuple[int, str]:
        done = programs.run(
            [sys.executable, "-m", "collops", *words], stdout=out, stderr=subprocess.PIPE
        )
        return done.returncode, done.stderr

    read, write = os.pipe()
    os.close(read)
    assert ended(write) == (141, "")
    os.close(write)
    with open("/dev/full", "wb") as full:
        said = f"collops {words[0]}: standard output: No space left on device\n"
        assert ended(full.fileno()) == (1, said)


def test_output_that_is_closed_is_dropped() -> None:
    """Nor does a file of the program get its number, into which others would print."""
    code = (
        "import os\n"
        "[os.close(number) for number in (0, 1, 2)]\n"
        "os.execv({0!r}, [{0!r}, '-m', 'collops', *{1!r}])"
    )
    for words in (PLAN, ("doctor",)):
        done = programs.run([sys.executable, "-c", code.format(sys.executable, words)])
        assert done.returncode == 0


@pytest.mark.parametrize(
    "words",
    [
        "bench barrier --json {folder}",
        "golden compare --op broadcast --dtype f32 {folder}.npy {folder}.npy",
        "golden list {folder}",
        "plan --hosts 2 --op all_gatherv --bytes 1k --json {folder}",
        "plan --hosts 2 --op all_gatherv --bytes 1k --links {folder}",
        "rank-table make --hosts a --devices-per-host 1 --output {folder}",
        "trace merge --output trace.json {folder}",
        "tune --output {folder}",
    ],
)
def test_a_file_that_cannot_be_used_is_named_with_the_reason(
    words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for ending in ("", ".npy"):
        Path(f"{tmp_path}{ending}").mkdir(exist_ok=True)
    arguments = words.format(folder=tmp_path).split()
    assert main(arguments) == 2
    [name] = {one for one in arguments if one.startswith(str(tmp_path))}
    said = capsys.readouterr().err
    assert said.startswith(f"collops {arguments[0]}")
    assert said.endswith(f": {name}: Is a directory\n")
    assert said.count("\n") == 1


def test_a_character_that_the_terminal_lacks_is_escaped() -> None:
    done = collops("rank-table", "check", "\u4e2d.json", PYTHONIOENCODING="ascii")
    assert done.stderr.startswith('collops rank-table: rank table "\\u4e2d.json"')


def test_doctor_says_what_limits_the_cores_and_that_there_are_no_pidfds() -> None:
    code = (
        "from collops.cli import main\n"
        "from collops.core import core\n"
        "core().cores = lambda: (3, '/sys/fs/cgroup/job')\n"
        "core().without_pidfds = lambda: 'Function not implemented'\n"
        "main(['doctor'])\n"
    )
    shown = programs.run([sys.executable, "-c", code], capture_output=True).stdout
    found = sections(shown)["Machine"]
    limited = f"3 of {os.cpu_count()} (CPU quota of /sys/fs/cgroup/job)"
    assert found["cores"] == f"{limited} may be used"
    assert found["pidfds"].startswith("no: Function not implemented; ")


def test_doctor_works_where_the_core_cannot_load() -> None:
    code = (
        "import sys; sys.modules['collops._core'] = None\n"
        "from collops.cli import main; raise SystemExit(main(['doctor']))"
    )
    done = programs.run([sys.executable, "-c", code], capture_output=True)
    assert done.returncode == 1
    assert "collops cannot load its C++ core" in done.stdout


def test_trace_writes_one_line_per_step_of_a_call() -> None:
    code = (
        "import collops, numpy as np\n"
        "from collops.testing import run_ranks\n"
        "def work(rank):\n"
        "    comm = collops.init(comm_domain='tp0')\n"
        "    comm.all_gatherv(np.zeros(rank + 1, np.float32), [1, 2])\n"
        "    comm.reduce_scatterv(np.zeros(3, np.float64), [1, 2])\n"
        "    comm.all_gatherv(np.zeros(rank + 1, np.float32))\n"
        "    comm.barrier()\n"
        "    param = collops.AllReduceParam(hccl_comm=comm, backend='shm')\n"
        "    collops.Operation(param).forward([np.zeros((1, 2), np.float32)])\n"
        "    comm.send(np.zeros(5), 1) if rank == 0 else comm.recv(np.zeros(5), 0)\n"
        "run_ranks(work, 2)"
    )
    done = programs.run(
        [sys.executable, "-c", code],
        capture_output=True,
        env={**os.environ, "COLLOPS_TRACE": "1"},
    )
    assert done.returncode == 0, done.stderr
    lines = sorted(done.stderr.splitlines())
    starts = [
        f"r{rank}/2 tp0 shm {call} "
        for rank in range(2)
        for call in (
            "AllReduce call=5 send=2 float32 recv=2",  # a struct's: by its own name
            f"all_gatherv call=1 send={rank + 1} float32 recv=3",
            f"all_gatherv call=3 send={rank + 1} float32 recv=3",
            "all_gatherv without sizes call=3 send=8 uint8 recv=16",
            "barrier call=4",
            *(["recv send=0 float64 recv=5"] if rank else []),
            f"reduce_scatterv call=2 send=3 float64 recv={rank + 1}",
            *([] if rank else ["send send=5 float64 recv=0"]),
        )
    ]
    assert [line.startswith(start) for line, start in zip(lines, starts, strict=True)] == [
        True
    ] * 14
    assert all(line.endswith(" ms") for line in lines)
