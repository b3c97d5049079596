"""Which backend runs a struct once COLLOPS_BACKEND has replaced its own, and what it asks for."""

from __future__ import annotations

from collops.core import core
from collops.golden_run import npu

NPU = "hccl"
# Backends whose engine adds in an order of its own.
UNORDERED = (NPU,)
# ATB's names of its own kernels, which run here on what "hccl" runs on.
_LCAL = ("lccl", "lcoc", "mc2")


def engine_of(name: str, replacement: str) -> str:
    """The backend that runs a struct.

    Args:
        name: the struct's backend.
        replacement: what COLLOPS_BACKEND is: a name, or a map such as ``hccl=shm``.
    """
    engine = _replaced(name, replacement)
    return _replaced("hccl", replacement) if engine in _LCAL else engine


def check_replacement(text: str) -> None:
    """Raises ValueError unless every backend that is named as a replacement can run here."""
    states = dict(core().backends())
    engines = [text]
    if "=" in text:
        pairs = [pair.partition("=") for pair in text.split(",")]
        for name, equals, _ in pairs:
            if not equals:
                raise ValueError(f"backend {text!r}: {name!r} is no pair such as hccl=shm")
            _check_known(name, (*states, *_LCAL))
        engines = [engine for _, _, engine in pairs]
    for engine in engines:
        _check_known(engine, tuple(states))
        if states[engine]:
            raise ValueError(states[engine])
    if NPU in engines:
        npu.load()


def _check_known(name: str, known: tuple[str, ...]) -> None:
    if name not in known:
        raise ValueError(f"backend {name!r} is unknown; use one of {', '.join(known)}")


def _replaced(name: str, replacement: str) -> str:
    if "=" not in replacement:
        return replacement or name
    pairs = [pair.partition("=") for pair in replacement.split(",")]
    return next((to for own, equals, to in pairs if equals and own == name), name)
