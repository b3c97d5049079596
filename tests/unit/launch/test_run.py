"""``collops run``: its ranks' variables, output, ends and signals."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from collops.cli.run import one_host, parse, this_host
from collops.core import core
from collops.launch.rank_table import make_rank_table, read_rank_table
from patience import patience
from tests import programs
from tests.faults import replaced_rank

RUN = [sys.executable, "-m", "collops", "run"]
LIMIT_S = patience(60.0)


def collops_run(*words: str, **env: str) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        [*RUN, *words], env=os.environ | env, capture_output=True, timeout=LIMIT_S, check=False
    )


def start(*words: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen([*RUN, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE)


@pytest.fixture
def script(tmp_path: Path):
    def write(text: str) -> str:
        path = tmp_path / "script.py"
        path.write_text(text, encoding="utf-8")
        return str(path)

    return write


def test_ranks_meet_and_their_lines_are_prefixed(script):
    path = script(
        "import collops, numpy as np, sys\n"
        "c = collops.init()\n"
        "print(c.rank, c.all_gatherv(np.full(c.rank + 1, c.rank)).tolist(), *sys.argv[1:])\n"
    )
    ended = collops_run("-n", "3", path, "--x", "-n")
    assert ended.returncode == 0, ended.stderr.decode()
    lines = [f"[{r}] {r} [0, 1, 1, 2, 2, 2] --x -n" for r in range(3)]
    assert sorted(ended.stdout.decode().splitlines()) == lines


def test_a_compiled_program_is_started_as_it_is(tmp_path):
    echo = tmp_path / "echo"
    shutil.copy(shutil.which("echo"), echo)
    ended = collops_run("-n", "2", os.path.relpath(echo), "here", "-n")
    assert ended.returncode == 0, ended.stderr.decode()
    assert sorted(ended.stdout.decode().splitlines()) == ["[0] here -n", "[1] here -n"]


def test_options_of_other_launchers_are_the_scripts_after_it(script):
    ended = collops_run("-n", "1", script("import sys; print(sys.argv[1:])"), "-np", "--nproc")
    assert ended.stdout.decode() == "[0] ['-np', '--nproc']\n"


def test_two_jobs_at_once_never_meet(script):
    path = script("import collops\nprint(collops.init().size)\n")
    jobs = [start("-n", str(n), path) for n in (2, 3)]
    for n, job in zip((2, 3), jobs, strict=True):
        out, err = job.communicate(timeout=LIMIT_S)
        assert job.returncode == 0, err.decode()
        assert sorted(out.decode().splitlines()) == [f"[{r}] {n}" for r in range(n)]


def test_variables_of_one_host(monkeypatch):
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    monkeypatch.setattr(core(), "cores", lambda: (14, ""))
    environments = one_host(3)
    assert [e["COLLOPS_RANK"] for e in environments] == ["0", "1", "2"]
    for name, value in {
        "WORLD_SIZE": "3",
        "LOCAL_WORLD_SIZE": "3",
        "MASTER_ADDR": "127.0.0.1",
        "OMP_NUM_THREADS": "4",
    }.items():
        assert {e[name] for e in environments} == {value}
    for name in ("COLLOPS_JOB_ID", "COLLOPS_JOB_KEY", "MASTER_PORT"):
        assert len({e[name] for e in environments}) == 1
    assert one_host(1)[0]["COLLOPS_JOB_ID"] != environments[0]["COLLOPS_JOB_ID"]
    assert len(environments[0]["COLLOPS_JOB_KEY"]) == 64


def test_what_the_user_has_set_is_kept(monkeypatch):
    names = ("COLLOPS_JOB_KEY", "OMP_NUM_THREADS")
    for name in names:
        monkeypatch.setenv(name, "3")
    assert [one_host(2)[1][name] for name in names] == ["3", "3"]


def test_variables_of_a_table(tmp_path, monkeypatch):
    monkeypatch.setenv("COLLOPS_SERVER_ID", "b")
    for name in ("MASTER_PORT", "OMP_NUM_THREADS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(core(), "cores", lambda: (1, ""))
    path = tmp_path / "t.json"
    path.write_text(make_rank_table(["10.0.0.1", "b"], 2), encoding="utf-8")
    environments = this_host(str(path), read_rank_table(path))
    assert [e["RANK_ID"] for e in environments] == ["2", "3"]
    assert [e["RANK"] for e in environments] == ["2", "3"]
    assert [e["LOCAL_RANK"] for e in environments] == ["0", "1"]
    assert [e["DEVICE_ID"] for e in environments] == ["0", "1"]
    for name, value in {
        "WORLD_SIZE": "4",
        "RANK_SIZE": "4",
        "LOCAL_WORLD_SIZE": "2",
        "MASTER_ADDR": "10.0.0.1",
        "MASTER_PORT": "29500",
        "RANK_TABLE_FILE": str(path),
        "OMP_NUM_THREADS": "1",
    }.items():
        assert {e[name] for e in environments} == {value}


def test_devices_of_a_super_pod_have_numbers_of_their_own(tmp_path):
    path = tmp_path / "t.json"
    path.write_text(make_rank_table(["a", "b"], 2, version="1.2"), encoding="utf-8")
    assert [place.server for place in read_rank_table(path).ranks] == [0, 0, 1, 1]


def test_a_table_starts_this_hosts_ranks(tmp_path, script):
    path = tmp_path / "t.json"
    path.write_text(make_rank_table(["a"], 2), encoding="utf-8")
    program = script("import collops\nc = collops.init()\nprint(c.rank, c.size)\n")
    ended = collops_run("--rank-table", str(path), program, COLLOPS_SERVER_ID="a")
    assert ended.returncode == 0, ended.stderr.decode()
    assert sorted(ended.stdout.decode().splitlines()) == ["[0] 0 2", "[1] 1 2"]


def test_a_table_that_is_not_complete_is_awaited(tmp_path, script):
    path = tmp_path / "t.json"
    path.write_text(json.dumps({"status": "initializing"}), encoding="utf-8")
    ended = collops_run("--rank-table", str(path), "--timeout-s", "0.1", script("pass"))
    assert ended.returncode == 2
    assert b"was not complete in 0.1 s" in ended.stderr


def test_the_first_failure_ends_all_and_is_the_status(script):
    path = script(
        "import os, sys, time\n"
        "if os.environ['RANK'] == '1': sys.exit(7)\n"
        "print(os.getpid(), flush=True)\n"
        "time.sleep(600)\n"
    )
    ended = collops_run("-n", "3", path)
    assert ended.returncode == 7
    assert b"rank 1 (pid " in ended.stderr
    assert b"exited with status 7" in ended.stderr
    for line in ended.stdout.decode().splitlines():
        assert not programs.is_alive(int(line.split()[1]))


def test_of_failures_together_the_first_is_the_status(script, tmp_path):
    path = script(
        "import os, pathlib, sys, time\n"
        "first = pathlib.Path(sys.argv[1])\n"
        "if os.environ['RANK'] == '0':\n"
        "    first.with_suffix('.part').write_text(str(os.getpid()))\n"
        "    first.with_suffix('.part').rename(first)\n"
        "    sys.exit(7)\n"
        "while not first.exists(): time.sleep(0.01)\n"
        "stat = pathlib.Path('/proc', first.read_text(), 'stat')\n"
        "while stat.exists() and ') Z' not in stat.read_text(): time.sleep(0.01)\n"
        "sys.exit(9)\n"
    )
    ended = collops_run("-n", "2", path, str(tmp_path / "first"))
    assert ended.returncode == 7
    assert b"exited with status 9" in ended.stderr


def test_a_rank_ended_by_a_signal_gives_its_number(script):
    ended = collops_run("-n", "2", script("import os; os.kill(os.getpid(), 9)"))
    assert ended.returncode == 128 + signal.SIGKILL
    assert b"was ended by SIGKILL" in ended.stderr


def test_a_rank_that_ignores_the_signal_is_killed_on_a_second_one(script):
    job = start(
        "-n",
        "2",
        script(
            "import signal, time\n"
            "signal.signal(signal.SIGINT, signal.SIG_IGN)\n"
            "print('ready', flush=True)\n"
            "time.sleep(600)\n"
        ),
    )
    assert job.stdout is not None
    for _ in range(2):
        assert b"ready" in job.stdout.readline()
    job.send_signal(signal.SIGINT)
    assert job.stderr is not None
    assert b"SIGINT: ending the ranks" in job.stderr.readline()
    time.sleep(1.1)  # what comes sooner is the same wish
    job.send_signal(signal.SIGINT)
    job.communicate(timeout=LIMIT_S)
    assert job.returncode == 128 + signal.SIGINT


def test_two_signals_at_once_are_one_and_a_rank_may_save(script):
    """As from timeout(1), which signals its child and then the process group."""
    job = start(
        "-n",
        "1",
        script(
            "import signal, sys, time\n"
            "def save(*_):\n"
            "    time.sleep(0.5)\n"
            "    print('saved', flush=True)\n"
            "    sys.exit(0)\n"
            "signal.signal(signal.SIGTERM, save)\n"
            "print('ready', flush=True)\n"
            "signal.pause()\n"
        ),
    )
    assert job.stdout is not None
    assert job.stderr is not None
    assert b"ready" in job.stdout.readline()
    job.send_signal(signal.SIGTERM)
    assert b"SIGTERM: ending the ranks" in job.stderr.readline()
    job.send_signal(signal.SIGTERM)
    out, _ = job.communicate(timeout=LIMIT_S)
    assert (job.returncode, out) == (0, b"[0] saved\n")


def test_a_signal_that_is_ignored_stays_ignored(script):
    code = (
        "import os, signal, sys\n"
        "signal.signal(signal.SIGHUP, signal.SIG_IGN)  # as nohup does\n"
        "os.execv(sys.executable, [sys.executable, *sys.argv[1:]])\n"
    )
    path = script("print('ready', flush=True)\nimport time; time.sleep(0.5); print('done')\n")
    words = [sys.executable, "-c", code, *RUN[1:], "-n", "2", path]
    job = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert job.stdout is not None
    for _ in range(2):
        assert b"ready" in job.stdout.readline()
    job.send_signal(signal.SIGHUP)
    out, err = job.communicate(timeout=LIMIT_S)
    assert (job.returncode, sorted(out.splitlines()), err) == (0, [b"[0] done", b"[1] done"], b"")


def test_a_signal_is_passed_on_and_what_is_written_then_is_not_lost(script):
    job = start(
        "-n",
        "2",
        script(
            "import os, signal, sys\n"
            "def end(*_):\n"
            "    print('ending', flush=True)\n"
            "    os.write(1, b'no newline')\n"
            "    sys.exit(0)\n"
            "signal.signal(signal.SIGTERM, end)\n"
            "print('ready', flush=True)\n"
            "signal.pause()\n"
        ),
    )
    assert job.stdout is not None
    for _ in range(2):
        assert b"ready" in job.stdout.readline()
    job.send_signal(signal.SIGTERM)
    out, _ = job.communicate(timeout=LIMIT_S)
    assert job.returncode == 0
    assert sorted(out.splitlines()) == sorted(
        [b"[0] ending", b"[1] ending", b"[0] no newline", b"[1] no newline"]
    )


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_that_a_rank_does_not_end_well_after_is_the_status(number, script):
    # Rank 1 handles it and ends well, rank 0 does nothing about it.
    job = start(
        "-n",
        "2",
        script(
            "import os, signal, sys\n"
            "if os.environ['RANK'] == '1':\n"
            f"    signal.signal({number:d}, lambda *_: sys.exit(0))\n"
            "print('ready', flush=True)\n"
            "signal.pause()\n"
        ),
    )
    assert job.stdout is not None
    for _ in range(2):
        assert b"ready" in job.stdout.readline()
    job.send_signal(number)
    job.communicate(timeout=LIMIT_S)
    assert job.returncode == 128 + number


def test_python_or_a_kernel_without_pidfds_and_a_parent_that_ignores_ends_of_children(script):
    run = (
        "import os, signal, sys\n"
        "del os.pidfd_open\n"
        "signal.signal(signal.SIGCHLD, signal.SIG_IGN)\n"
        "signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCHLD})\n"
        "from collops.cli import main\n"
        "sys.exit(main(sys.argv[1:]))\n"
    )
    path = script("import os, sys; sys.exit(int(os.environ['RANK']) * 7)")
    words = [sys.executable, "-c", run, "run", "-n", "2", path]
    ended = subprocess.run(words, capture_output=True, timeout=LIMIT_S, check=False)
    assert (ended.returncode, ended.stderr.decode().partition("(")[0]) == (
        7,
        "collops run: rank 1 ",
    )


def test_nobody_reads_what_the_ranks_print(script):
    path = script("for _ in range(9): print('x' * 9999)")
    # Standard output is closed, its reader has gone, it is full; standard error is closed.
    for shell, status in ((">&-", 0), ("2>&-", 0), ("| true", 0), (">/dev/full", 1)):
        words = f'set -o pipefail; "$@" {shell}'
        ended = subprocess.run(
            ["bash", "-c", words, "bash", *RUN, "-n", "2", path],
            capture_output=True,
            timeout=LIMIT_S,
            check=False,
        )
        full = "collops run: standard output: No space left on device\n"
        expected = (status, full if status else "")
        assert (ended.returncode, ended.stderr.decode()) == expected, shell


def test_what_cannot_be_started_is_named(tmp_path):
    script = tmp_path / "script"
    script.write_text("#!/no/such/interpreter\n", encoding="utf-8")
    no_python = collops_run("-n", "1", str(script))
    assert b"it begins with #!/no/such/interpreter; pass --no-python" in no_python.stderr
    plain = collops_run("-n", "1", "--no-python", str(script))
    assert b"script: not executable" in plain.stderr
    script.chmod(0o755)
    ended = collops_run("-n", "1", "--no-python", str(script))
    assert b"script is there, but not the interpreter or loader that it names" in ended.stderr
    gone = (
        "import sys\n"
        "from collops.cli import main\n"
        "sys.executable = '/no/such/python'\n"
        "sys.exit(main(sys.argv[1:]))\n"
    )
    words = [sys.executable, "-c", gone, "run", "-n", "1", __file__]
    ended = subprocess.run(words, capture_output=True, timeout=LIMIT_S, check=False)
    message = b"collops run: cannot start rank 0: /no/such/python: No such file or directory\n"
    assert (ended.returncode, ended.stderr) == (2, message)


def test_ranks_end_with_a_launcher_that_is_killed(script):
    job = start(
        "-n", "2", script("import os, time\nprint(os.getpid(), flush=True)\ntime.sleep(600)\n")
    )
    assert job.stdout is not None
    pids = [int(job.stdout.readline().split()[1]) for _ in range(2)]
    job.kill()
    job.wait(LIMIT_S)
    for pid in pids:
        programs.await_gone(pid)
    job.communicate()


def test_what_a_rank_leaves_behind_is_ended(script):
    path = script(
        "import subprocess, sys\n"
        "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'])\n"
        "print(child.pid, flush=True)\n"
    )
    ended = collops_run("-n", "2", path)
    assert ended.returncode == 0
    for line in ended.stdout.decode().splitlines():
        programs.await_gone(int(line.split()[1]))


def test_bytes_pass_as_they_are(script):
    path = script("import os\nos.write(1, bytes(range(256)) * 1000)\n")
    ended = collops_run("-n", "1", path)
    assert ended.stdout.replace(b"[0] ", b"") == bytes(range(256)) * 1000 + b"\n"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["-n", "2", "none.py"], "none.py: no such script"),
        (["-n", "2", "--no-python", "none-such"], "none-such: no such program"),
        (["-n", "2", "python", "x.py"], "python: leave it out"),
        (["-n", "2", "/no/such/python3.11", "-m", "x"], "python3.11: leave it out"),
        (["-n", "2", os.path.dirname(__file__)], "a folder without __main__.py"),
        (["-n", "2", os.devnull], "/dev/null: not a regular file"),
        (["--rank-table", "x", "--timeout-s", "nan", "x.py"], "of seconds above 0, got 'nan'"),
        (["-n", "0", "x.py"], "-n must be at least 1, got 0"),
        (["-n", "2"], "no script given"),
        (["x.py"], "one of the arguments -n --rank-table is required"),
        (["--rank-table", "none.json", __file__], "none.json"),
    ],
)
def test_what_cannot_be_started_is_an_error(words, message):
    ended = collops_run(*words)
    assert ended.returncode == 2
    assert message in ended.stderr.decode()
    assert ended.stdout == b""


def test_what_follows_the_script_is_the_scripts():
    options = parse(["-n", "2", "-m", "tool", "--help", "-m", "x"])
    assert options.command == ["tool", "--help", "-m", "x"]
    assert parse(["-n", "2", "--", "a.py", "--", "b"]).command == ["a.py", "--", "b"]


# What a rank does the first time: it is killed, or exits; started anew it ends well.
ENDS = {"SIGKILL": "os.kill(os.getpid(), 9)", "status 3": "sys.exit(3)"}


@pytest.mark.parametrize("rank", [0, 1])
@pytest.mark.parametrize("how", ENDS)
def test_a_rank_that_fails_is_started_anew(script, how, rank):
    """The others go on; the first process, whose group it is, may be the one that has ended."""
    path = script(
        "import os, sys, time\n"
        "own = [os.environ[n] for n in ('COLLOPS_RANK', 'COLLOPS_RESTARTS', 'COLLOPS_RANK_SIZE')]\n"
        "print(*own, os.getpid(), flush=True)\n"
        f"if own[:2] == ['{rank}', '0']: {ENDS[how]}\n"
        "if own[1] == '0': time.sleep(0.5)\n"
    )
    ended = collops_run("-n", "3", "--restart", "2", path)
    assert ended.returncode == 0, ended.stderr.decode()
    lines = [line.split()[1:] for line in ended.stdout.decode().splitlines()]
    starts = {(int(number), restarts): pid for number, restarts, size, pid in lines}
    assert {size for _, _, size, _ in lines} == {"3"}
    assert sorted(starts) == sorted([(0, "0"), (1, "0"), (2, "0"), (rank, "1")])
    *said, hint = ended.stderr.decode().splitlines()
    verb = "was ended by" if how == "SIGKILL" else "exited with"
    assert said == [
        f"collops run: rank {rank} (pid {starts[rank, '0']}) {verb} {how}",
        f"collops run: rank {rank} is started anew as pid {starts[rank, '1']} (1 of 2)",
    ]
    assert hint.startswith("collops run: a further process joins the job with: COLLOPS_RESTARTS=1 ")


def test_the_failure_after_the_last_restart_ends_the_job(script):
    path = script(
        "import os, sys, time\n"
        "if os.environ['RANK'] == '1': sys.exit(4 + int(os.environ['COLLOPS_RESTARTS']))\n"
        "time.sleep(600)\n"
    )
    ended = collops_run("-n", "2", "--restart", "2", path)
    assert ended.returncode == 6
    anew = [line for line in ended.stderr.decode().splitlines() if "started anew" in line]
    assert [line.rpartition(" (")[2] for line in anew] == ["1 of 2)", "2 of 2)"]


def test_no_rank_is_started_anew_after_a_signal(script):
    path = script("import time\nprint('ready', flush=True)\ntime.sleep(600)\n")
    job = start("-n", "2", "--restart", "5", path)
    assert job.stdout is not None
    for _ in range(2):
        assert b"ready" in job.stdout.readline()
    job.send_signal(signal.SIGTERM)
    _, err = job.communicate(timeout=LIMIT_S)
    assert (job.returncode, b"anew" in err) == (128 + signal.SIGTERM, False)


def test_the_command_that_it_prints_starts_a_process_that_joins(script, monkeypatch):
    """The key is not in it, and the rank that was started anew may have ended."""
    path = script(
        "import collops, numpy as np, os, sys\n"
        "env = os.environ\n"
        "anew = int(env.get('COLLOPS_RESTARTS', '0')) > 0\n"
        "if anew and 'COLLOPS_RANK' in env: sys.exit()\n"
        "comm = collops.init(join='dp') if anew else collops.init(comm_domain='dp')\n"
        "if not anew and comm.rank == 1: sys.exit(1)\n"
        "if not anew:\n"
        "    try: comm.barrier()\n"
        "    except collops.PeerLostError: comm = comm.shrink().grow(1)\n"
        "ranks = comm.all_gather(np.array([comm.rank])).tolist()\n"
        "print(ranks, env['COLLOPS_JOB_KEY'])\n"
    )
    monkeypatch.setenv("COLLOPS_PORT", "29600")
    job = start("-n", "2", "--restart", "1", path)
    assert job.stdout is not None
    assert job.stderr is not None
    try:
        hint = ""
        while "a further process" not in hint:
            hint = job.stderr.readline().decode()
            assert hint
        typed = subprocess.run(
            ["sh", "-c", hint.partition(": a further process joins the job with: ")[2]],
            env={name: text for name, text in os.environ.items() if "COLLOPS" not in name},
            capture_output=True,
            timeout=LIMIT_S,
            check=False,
        )
        assert typed.stdout.decode().startswith("[0, 1] "), typed.stderr.decode()
        assert typed.stdout.split()[-1].decode() not in hint
        assert " COLLOPS_PORT=29600 " in hint
        assert job.stdout.readline() == b"[0] " + typed.stdout
    finally:
        job.terminate()
        job.communicate()


def test_a_rank_that_failed_is_told_where_it_cannot_be_started_anew(tmp_path):
    program = tmp_path / "program"
    program.write_text('#!/bin/sh\nrm "$0"; exit 3\n', encoding="utf-8")
    program.chmod(0o755)
    ended = collops_run("-n", "1", "--restart", "1", "--no-python", str(program))
    told, why = ended.stderr.decode().splitlines()
    assert (ended.returncode, told.partition(") ")[2]) == (2, "exited with status 3")
    assert why == f"collops run: cannot start rank 0: {program}: No such file or directory"


def test_a_program_that_starts_over_when_all_its_ranks_do(script):
    """It knows nothing of joining: the loss of one ends all, and all make a new group."""
    path = script(
        "import collops, numpy as np, os\n"
        "comm = collops.init()\n"
        "total = comm.all_reduce(np.array([comm.rank]))\n"
        "if comm.rank == 1 and os.environ['COLLOPS_RESTARTS'] == '0': os.kill(os.getpid(), 9)\n"
        "comm.barrier()\n"
        "print(*total)\n"
    )
    ended = collops_run("-n", "3", "--restart", "3", path)
    assert ended.returncode == 0, ended.stderr.decode()
    assert sorted(ended.stdout.decode().splitlines()) == ["[0] 3", "[1] 3", "[2] 3"]
    assert b"to join ranks that have gone on, call init(join=COMM_DOMAIN)" in ended.stderr


@pytest.mark.parametrize("table", [False, True], ids=["-n", "--rank-table"])
def test_lost_ranks_are_replaced_in_the_group(tmp_path, table):
    """Two ranks are killed one after the other, rank 0 first; the calls of all steps are right."""
    ranks = ["-n", "3"]
    if table:
        path = tmp_path / "ranks.json"
        path.write_text(make_rank_table(["a"], 3), encoding="utf-8")
        ranks = ["--rank-table", str(path)]
    ended = collops_run(*ranks, "--restart", "2", replaced_rank.__file__, COLLOPS_SERVER_ID="a")
    assert ended.returncode == 0, ended.stderr.decode()
    # Label 1 has lived on; the ranks behind it came in turn.
    assert sorted(ended.stdout.decode().splitlines()) == ["[0] 1 3", "[1] 0 3", "[2] 2 3"]
