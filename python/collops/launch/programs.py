"""Ranks that are programs: started on this host, watched and ended, with their output passed on."""

from __future__ import annotations

import contextlib
import ctypes
import os
import selectors
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Mapping, Sequence
from types import FrameType
from typing import IO, Any, NamedTuple

from collops.errors import ErrorCode, raise_status
from collops.launch.processes import signal_name

# A line this long is passed on before its end has come.
_MOST = 1 << 16


class Prefixed:
    """Passes bytes on to `out`, whatever they are, with `prefix` before every line.

    A line is passed on when it is whole, so lines of several ranks do not mix.
    """

    def __init__(self, prefix: bytes, out: IO[bytes]) -> None:
        self._prefix = prefix
        self._out = out
        self._line = b""

    def write(self, data: bytes) -> None:
        """Takes what has come; nothing means that no more will."""
        if not data:
            self.finish()
            return
        *whole, self._line = (self._line + data).split(b"\n")
        if len(self._line) > _MOST:
            whole.append(self._line)
            self._line = b""
        if whole:
            self._pass_on(b"".join(self._prefix + line + b"\n" for line in whole))

    def finish(self) -> None:
        """Passes on a last line that has no end."""
        if self._line:
            self._pass_on(self._prefix + self._line + b"\n")
            self._line = b""

    def _pass_on(self, lines: bytes) -> None:
        self._out.write(lines)
        self._out.flush()


# Between the signal that asks a rank to end and the one that ends it.
GRACE_S = 10.0
# The same for programs that write into files, and the patience with those that are ending.
_PROGRAM_GRACE_S = 5.0
# A signal within this time of the first is the same wish: timeout(1) sends one to its child and one
# to the process group, and a terminal sends one to every process, whose parents pass theirs on.
_ONE_WISH_S = 1.0
# Between the first failure and the signal: ranks that fail together, or because of it, say so.
_FAIL_S = 0.5
# For what programs that a rank has started may still write once all ranks have ended.
_DRAIN_S = 1.0
_PASSED_ON = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_PR_SET_PDEATHSIG = 1


class Job:
    """Programs that run one rank each, in a process group of their own.

    Every line they write is passed on with the rank before it. One that fails is started anew, if
    restarts are left. Else the others are asked to end, and ended after ten seconds; so they are on
    SIGINT, SIGTERM and SIGHUP, at once on a second one. Nothing that they have started is left in
    the group, also when this process is killed: then the ranks end with it. One job at a time, in
    the main thread.

    Args:
        command: the program and its arguments, the same for every rank.
        environments: the variables of each rank; COLLOPS_RANK is its number.
        restarts: how often a rank that fails is started anew, all ranks together.
    """

    def __init__(
        self,
        command: Sequence[str],
        environments: Sequence[Mapping[str, str]],
        restarts: int = 0,
    ) -> None:
        self._command = list(command)
        self._environments = environments
        self._restarts = restarts
        self._restarted = 0
        self._key = -1  # a file that has the job's key
        self._ranks = [environment["COLLOPS_RANK"] for environment in environments]
        self._processes: list[subprocess.Popen[bytes]] = []
        self._of_rank: dict[int, subprocess.Popen[bytes]] = {}  # the last one, by index
        self._selector = selectors.DefaultSelector()
        self._running: set[int] = set()  # indices
        self._status = 0
        self._asked = 0  # the signal by which the user, or a launcher above, wants an end
        self._asked_at = 0.0
        self._unhandled = False  # whether a rank has not ended with 0 after that signal
        self._next: list[tuple[float, int]] = []  # when to send which signal, the soonest first

    def run(self) -> int:
        """Runs the ranks to their end.

        Returns:
            0, or what the first rank that failed, and was not started anew, ended with: its exit
            status, or 128 and the number of the signal. After a signal to this process: 128 and its
            number, but 0 if all ranks were started and ended with 0.

        Raises:
            SystemFailureError: the program cannot be started.
        """
        # One that is ignored stays so, as programs under nohup and of a script's & expect.
        heard = [n for n in _PASSED_ON if signal.getsignal(n) is not signal.SIG_IGN]
        handlers = {number: signal.signal(number, self._on_signal) for number in heard}
        # It wakes the loop when a rank has ended, on every kernel. The parent of this process may
        # have ignored or blocked it.
        handlers[signal.SIGCHLD] = signal.signal(signal.SIGCHLD, lambda *_: None)
        mask = signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGCHLD})
        wake_read, wake_write = os.pipe()
        os.set_blocking(wake_write, False)
        before = signal.set_wakeup_fd(wake_write, warn_on_full_buffer=False)
        self._selector.register(wake_read, selectors.EVENT_READ, None)
        try:
            for index in range(len(self._ranks)):
                if self._asked:  # what is started now has not heard of it
                    break
                self._start(index)
            while self._running:
                self._turn(wake_read)
            self._drain()
            unhandled = self._unhandled or len(self._of_rank) < len(self._ranks)
            return self._status or (128 + self._asked if self._asked and unhandled else 0)
        finally:
            self._end()
            signal.set_wakeup_fd(before)
            for number, handler in handlers.items():
                signal.signal(number, handler)
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)
            self._selector.close()
            os.close(wake_read)
            os.close(wake_write)
            if self._key >= 0:
                os.close(self._key)

    def _start(self, index: int) -> None:
        env = dict(self._environments[index])
        env.pop("COLLOPS_RESTARTS", None)  # of a job that this process is a rank of
        if self._restarts:
            env["COLLOPS_RESTARTS"] = str(self._restarted)
        group = self._processes[0].pid if self._processes else 0
        try:
            process = subprocess.Popen(
                self._command,
                env=env,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                bufsize=0,
                preexec_fn=_Child(os.getpid(), group),
            )
        except OSError as error:
            why = _why_not_started(self._command[0], error)
            raise_status(ErrorCode.ERROR_RT_FAIL, f"cannot start rank {self._ranks[index]}: {why}")
        self._processes.append(process)
        self._of_rank[index] = process
        self._running.add(index)
        prefix = f"[{self._ranks[index]}] ".encode()
        for pipe, out in ((process.stdout, sys.stdout), (process.stderr, sys.stderr)):
            assert pipe is not None
            os.set_blocking(pipe.fileno(), False)
            self._selector.register(pipe, selectors.EVENT_READ, Prefixed(prefix, _binary(out)))

    def _turn(self, wake_read: int) -> None:
        """Waits for the next thing to happen, and does what follows from it."""
        ready = self._selector.select(self._next[0][0] - time.monotonic() if self._next else None)
        woken = False
        for key, _ in ready:
            if isinstance(key.data, Prefixed):
                self._read(key)
            else:
                woken = bool(os.read(wake_read, 512))
        # After what they wrote.
        for index in sorted(self._running if woken else ()):
            self._note_end(index)
        while self._next and self._next[0][0] <= time.monotonic():
            self._signal_group(self._next.pop(0)[1])

    def _read(self, key: selectors.SelectorKey) -> bool:
        """Passes on what is there; False at the end."""
        pipe: Any = key.fileobj
        try:
            data = os.read(key.fd, 1 << 16)
        except BlockingIOError:
            return True
        key.data.write(data)
        if data:
            return True
        self._selector.unregister(pipe)
        pipe.close()
        return False

    def _note_end(self, index: int) -> None:
        # Not reaped: as long as the group's first process is there, the group's number is ours.
        process = self._of_rank[index]
        ended = os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        if ended is None:
            return
        self._running.discard(index)
        exited = ended.si_code == os.CLD_EXITED
        status = ended.si_status if exited else 128 + ended.si_status
        if status == 0:
            return
        how = (
            f"exited with status {status}"
            if exited
            else f"was ended by {signal_name(ended.si_status)}"
        )
        told = f"rank {self._ranks[index]} (pid {process.pid}) {how}"
        if self._restarted < self._restarts and self._status == 0 and not self._asked:
            self._restart(index, told)
            return
        self._unhandled = True
        if self._next and self._next[0][1] == signal.SIGKILL:
            return  # because it was asked to
        _say(told)
        if self._status == 0 and not self._asked:
            self._status = status
            self._ask_to_end(signal.SIGTERM, _FAIL_S)

    def _restart(self, index: int, told: str) -> None:
        _say(told)  # first: the new process may not start
        self._restarted += 1
        self._start(index)
        pid = self._of_rank[index].pid
        anew = f"rank {self._ranks[index]} is started anew as pid {pid}"
        _say(f"{anew} ({self._restarted} of {self._restarts})")
        if self._restarted == 1:
            _say(
                f"a further process joins the job with: {self._joining(self._environments[index])}"
            )

    def _joining(self, env: Mapping[str, str]) -> str:
        """The command of a process that joins by hand, which reads the job's key from this one."""
        words = [f"COLLOPS_RESTARTS={self._restarted}"]  # so that the program joins
        words += [
            f"{name}={shlex.quote(env[name])}"
            for name in ("COLLOPS_JOB_ID", "RANK_TABLE_FILE", "COLLOPS_BACKEND", "COLLOPS_PORT")
            if name in env
        ]
        if key := env.get("COLLOPS_JOB_KEY"):
            # Ranks come and go. Only this user can open it.
            self._key = os.memfd_create("collops run: key")
            os.write(self._key, key.encode())
            words.append(f'COLLOPS_JOB_KEY="$(cat /proc/{os.getpid()}/fd/{self._key})"')
        return " ".join([*words, shlex.join(self._command)])

    def _on_signal(self, number: int, _frame: FrameType | None) -> None:
        now = time.monotonic()
        if self._asked:
            if now - self._asked_at >= _ONE_WISH_S:
                self._next = [(now, signal.SIGKILL)]
            return
        self._asked, self._asked_at = number, now
        _say(f"{signal_name(number)}: ending the ranks")
        self._ask_to_end(number, 0.0)

    def _ask_to_end(self, number: int, patience_s: float) -> None:
        now = time.monotonic() + patience_s
        self._next = [(now, number), (now + GRACE_S, signal.SIGKILL)]

    def _signal_group(self, number: int) -> None:
        if self._processes:
            try:
                os.killpg(self._processes[0].pid, number)
            except (ProcessLookupError, PermissionError):
                return  # nobody is left but those that have ended

    def _drain(self) -> None:
        """Passes on what is left in the pipes, which programs started by ranks may hold open."""
        deadline = time.monotonic() + _DRAIN_S
        while time.monotonic() < deadline:
            pipes = [k for k in self._selector.get_map().values() if isinstance(k.data, Prefixed)]
            if not pipes:
                return
            for key, _ in self._selector.select(deadline - time.monotonic()):
                if isinstance(key.data, Prefixed):
                    self._read(key)

    def _end(self) -> None:
        """Leaves no process of the group, no zombie and no pipe."""
        self._signal_group(signal.SIGKILL)
        for key in list(self._selector.get_map().values()):
            if isinstance(key.data, Prefixed):
                key.data.finish()
        for process in self._processes:
            for pipe in (process.stdout, process.stderr):
                if pipe is not None:
                    pipe.close()
            process.wait()


class _Child:
    """What a rank's process does before its program: it joins the group, and ends with us."""

    def __init__(self, parent: int, group: int) -> None:
        self._parent = parent
        self._group = group
        self._libc = ctypes.CDLL(None)  # not after fork(): loading takes locks

    def __call__(self) -> None:
        os.setpgid(0, self._group)
        self._libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != self._parent:  # it ended before we asked
            os._exit(1)


def _binary(stream: Any) -> IO[bytes]:
    out: IO[bytes] = stream.buffer
    return out


def _why_not_started(program: str, error: OSError) -> str:
    if error.filename is None:  # no process, or no pipes to it
        return f"{error.strerror}"
    found = shutil.which(program)
    if isinstance(error, FileNotFoundError) and found:
        return f"{found} is there, but not the interpreter or loader that it names"
    return f"{program}: {error.strerror}"


def _say(text: str) -> None:
    with contextlib.suppress(OSError):  # of a terminal that has gone
        print(f"collops run: {text}", file=sys.stderr, flush=True)


class Programs:
    """Programs that run ranks, each in a session of its own. Use it with ``with`` to end them.

    Args:
        commands: the words and the environment of each.
        output: the file to which they print.
        errors: the file of their standard error; None: the same.
    """

    def __init__(
        self,
        commands: Iterable[tuple[Sequence[str], Mapping[str, str]]],
        output: IO[str],
        errors: IO[str] | None = None,
    ) -> None:
        self._processes: list[subprocess.Popen[bytes]] = []
        try:
            for words, env in commands:
                process = subprocess.Popen(
                    words,
                    env=env,
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=errors or output,
                    start_new_session=True,
                )
                self._processes.append(process)
        except BaseException:
            self._end(0.0)
            raise

    def running(self) -> bool:
        """Whether at least one program runs and none has failed."""
        return None in [process.poll() for process in self._processes] and not self.failed

    @property
    def failed(self) -> bool:
        """Whether a program has ended with a status other than 0."""
        return any(process.returncode for process in self._processes)

    def wait(self, timeout_s: float) -> list[int | None]:
        """Waits until all have ended, or for some seconds; the statuses, None where one runs."""
        deadline = time.monotonic() + timeout_s
        for process in self._processes:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(max(deadline - time.monotonic(), 0.0))
        return [process.returncode for process in self._processes]

    def kill(self) -> None:
        """Ends them at once, with all that they have started."""
        for process in self._processes:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)

    def __enter__(self) -> Programs:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._end(_PROGRAM_GRACE_S if kind is None else 0.0)

    def _end(self, patience_s: float) -> None:
        """Waits a while for programs that are ending, then ends them and all that they started."""
        if None in self.wait(patience_s):
            for process in self._processes:
                if process.poll() is None:
                    with contextlib.suppress(ProcessLookupError):
                        os.killpg(process.pid, signal.SIGTERM)
            self.wait(_PROGRAM_GRACE_S)
        self.kill()
        self.wait(_PROGRAM_GRACE_S)


class Answer(NamedTuple):
    """How a program ended, and what it printed."""

    status: int | None  # None: it was ended, because it had not ended by itself
    out: str
    err: str


def answers(
    commands: Iterable[tuple[Sequence[str], Mapping[str, str]]], timeout_s: float
) -> list[Answer]:
    """Runs programs at the same time, and ends those that take longer with all they have started.

    Args:
        commands: the words and the environment of each.
        timeout_s: seconds for all of them.

    Raises:
        OSError: one cannot be started.
    """
    deadline = time.monotonic() + timeout_s
    found = []
    with contextlib.ExitStack() as stack:
        started = []
        for command in commands:
            out, err = (
                stack.enter_context(tempfile.TemporaryFile("w+", errors="replace"))
                for _ in range(2)
            )
            started.append((stack.enter_context(Programs([command], out, err)), out, err))
        for programs, out, err in started:
            [status] = programs.wait(max(deadline - time.monotonic(), 0.0))
            if status is None:
                programs.kill()
            for file in (out, err):
                file.seek(0)
            found.append(Answer(status, out.read(), err.read()))
    return found
