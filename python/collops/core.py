"""Loads the extension module and passes it facts about this process that only Python has."""

from __future__ import annotations

import atexit
import functools
import hashlib
import importlib.util
import os
import sys
import threading
from multiprocessing import process
from types import ModuleType
from typing import Any, NoReturn

from collops.errors import Error, ErrorCode, describe, raise_status

_announced_pid = -1
_exited = ""  # what the last sys.exit() of the main thread said, unless it was that all is well


def core() -> ModuleType:
    """The extension module, ready for this process.

    Raises:
        UnsupportedError: the module cannot be loaded here; the message says why.
    """
    try:
        from collops import _core
    except ImportError as error:
        reason = "Linux only" if sys.platform != "linux" else str(error)
        if sys.platform == "linux" and importlib.util.find_spec("collops._core") is None:
            folder = os.path.dirname(__file__)
            reason = (
                f"{folder} has sources only: `pip install .`, and start Python in another folder"
            )
        raise_status(ErrorCode.ERROR_UNSUPPORTED, f"collops cannot load its C++ core: {reason}")
    global _announced_pid, _exited
    if _announced_pid != os.getpid():
        if _announced_pid == -1:
            _note_exits()
        _announced_pid, _exited = os.getpid(), ""
        _announce(_core)
    return _core


def usable_cores() -> tuple[int, str]:
    """How many cores' time this process may use, and the cgroup whose CPU quota says so, or ""."""
    try:
        count, cgroup = core().cores()
    except Error:  # without a core no quota is read
        return len(os.sched_getaffinity(0)), ""
    return int(count), str(cgroup)


def _announce(module: ModuleType) -> None:
    # The key is equal in all processes that multiprocessing started from one program, under every
    # start method; a hash of it does not reveal the key.
    key = bytes(process.current_process().authkey)
    module.set_process_family(hashlib.sha256(b"collops" + key).hexdigest()[:16])
    module.watch_signals(True)
    module.log_to(_log)
    module.find_wheels(_library_folder)
    atexit.register(leave)
    if process.parent_process() is not None:
        # Up to Python 3.12 a child of multiprocessing does not run atexit. From 3.13 on it does,
        # but the exception that ended the child is no longer known then.
        from multiprocessing.util import Finalize

        Finalize(None, leave, exitpriority=100)


def _log(level: int, line: bytes) -> bool:
    """Passes a line of the core to the logger collops; False: nobody has configured logging.

    Traced lines were requested by COLLOPS_TRACE, so they are logged unless the logger itself has a
    level above theirs.
    """
    logging = sys.modules.get("logging")
    if logging is None:
        return False
    logger = logging.getLogger("collops")
    if not logger.hasHandlers():
        return False
    if level >= logger.level and logger.manager.disable < level:
        text = line.decode(errors="replace")
        logger.handle(logger.makeRecord(logger.name, level, "(collops)", 0, text, (), None))
    return True


def _library_folder(package: str) -> str:
    """The folder of a package's libraries; empty if the package is not installed."""
    try:
        spec = importlib.util.find_spec(package)
    except ModuleNotFoundError:  # of the package around it
        return ""
    folders = (spec.submodule_search_locations if spec else None) or []
    return os.path.join(folders[0], "lib") if folders else ""


def leave(error: BaseException | None = None) -> None:
    """Closes every communicator of this process; the other ranks get the reason."""
    from collops import _core

    error = error or _exception_here() or _exception_of_the_end()
    ended = f"its process ended after {_exited}" if _exited else "its process ended"
    _core.close_all(describe(error) if error else ended)
    _core.stop_recording()
    _core.log_to(None)
    _core.watch_signals(False)


def act_in_words(act: str) -> str:
    """What this rank does, such as ``"rank 1 called close()"``, and the exception because of which.

    That is the one that is being raised or handled here: a ``finally`` block, where ranks often
    leave, cannot be told from an ``except`` block after which the program goes on.
    """
    if error := _exception_here():
        return f"{act} while handling {describe(error)}"
    if error := _exception_of_the_end():
        return f"{act} after {describe(error)}"
    return f"{act} after {_exited}" if _exited and _interpreter_ends() else act


def _exception_here() -> BaseException | None:
    """The exception that is being raised or handled in this thread, unless it says all is well.

    In place of a sys.exit(1) in an ``except`` block it is the exception that was handled there.
    """
    error = sys.exc_info()[1]
    if not isinstance(error, SystemExit) or isinstance(error.code, str):
        return error
    return (error.__context__ or error) if error.code else None


def _note_exits() -> None:
    """Lets sys.exit() note its argument: when the interpreter ends, its exception is forgotten."""
    leave_interpreter = sys.exit

    @functools.wraps(leave_interpreter)
    def exit_and_note(status: Any = None, /) -> NoReturn:
        global _exited
        if threading.current_thread() is threading.main_thread():
            _exited = act_in_words(describe(SystemExit(status))) if status else ""
        leave_interpreter(status)

    sys.exit = exit_and_note


def _exception_of_the_end() -> BaseException | None:
    """The exception that ends the interpreter; while it runs, this may be one of long ago."""
    error: BaseException | None = getattr(sys, "last_value", None)
    return error if _interpreter_ends() else None


def _interpreter_ends() -> bool:
    """Whether the main thread has ended; functions of atexit run then."""
    return not threading.main_thread().is_alive()
