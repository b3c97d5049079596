"""The backends on which cases can run, and their properties."""

from __future__ import annotations

from functools import cache
from multiprocessing import get_context
from typing import TYPE_CHECKING

from collops.core import core
from collops.golden_run.memory.find import memory_of

if TYPE_CHECKING:
    from multiprocessing.connection import Connection


@cache
def keeps_order(backend: str) -> bool:
    """Whether the backend adds as golden does, bit for bit."""
    return not any(name == backend and sums for name, _, sums in core().backend_kinds())


def is_on_device(backend: str) -> bool:
    """Whether the backend's tensors lie in the memory of a device."""
    return memory_of(backend) is not None


def check_replacement(text: str) -> None:
    """Raises ValueError unless every backend that is named as a replacement can run here."""
    names = tuple(name for name, _, _ in core().backend_kinds())
    engines = [text]
    if "=" in text:
        pairs = [pair.partition("=") for pair in text.split(",")]
        for name, equals, _ in pairs:
            if not equals:
                raise ValueError(f"backend {text!r}: {name!r} is not a pair such as hccl=shm")
            _check_known(name, tuple(dict.fromkeys((*names, *core().backend_names()))))
        engines = [engine for _, _, engine in pairs]
    for engine in engines:
        _check_known(engine, names)
    states = _states()
    for engine in engines:
        if states[engine]:
            raise ValueError(states[engine])
        memory = memory_of(engine)
        if memory is not None:
            memory.load()


def _check_known(name: str, known: tuple[str, ...]) -> None:
    if name not in known:
        raise ValueError(f"backend {name!r} is unknown; use one of {', '.join(known)}")


def _states() -> dict[str, str]:
    """Why each backend cannot run here; empty where it can.

    They are asked in another process: a driver of GPUs that has been initialised in this one cannot
    be used by the ranks that are forked from it.
    """
    context = get_context("fork")
    end, far = context.Pipe(duplex=False)
    process = context.Process(target=_tell_states, args=(far,), daemon=True)
    process.start()
    far.close()
    try:
        states: dict[str, str] = end.recv()
    except EOFError:
        raise ValueError("the process that asks which backends can run here has died") from None
    finally:
        end.close()
        process.join()
    return states


def _tell_states(end: Connection) -> None:
    end.send({name: reason for name, reason, _, _ in core().backends()})
