"""The backends on which cases can run, and their properties."""

from __future__ import annotations

from functools import cache

from collops.core import core
from collops.golden_run import npu


@cache
def is_on_npu(backend: str) -> bool:
    """Whether the backend's tensors lie on an NPU."""
    return any(name == backend and memory == "npu" for name, _, memory, _ in core().backends())


@cache
def keeps_order(backend: str) -> bool:
    """Whether the backend adds as golden does, bit for bit."""
    return not any(name == backend and sums for name, _, _, sums in core().backends())


def check_replacement(text: str) -> None:
    """Raises ValueError unless every backend that is named as a replacement can run here."""
    states = {name: reason for name, reason, _, _ in core().backends()}
    engines = [text]
    if "=" in text:
        pairs = [pair.partition("=") for pair in text.split(",")]
        for name, equals, _ in pairs:
            if not equals:
                raise ValueError(f"backend {text!r}: {name!r} is no pair such as hccl=shm")
            _check_known(name, tuple(dict.fromkeys((*states, *core().backend_names()))))
        engines = [engine for _, _, engine in pairs]
    for engine in engines:
        _check_known(engine, tuple(states))
        if states[engine]:
            raise ValueError(states[engine])
    if any(is_on_npu(engine) for engine in engines):
        npu.load()


def _check_known(name: str, known: tuple[str, ...]) -> None:
    if name not in known:
        raise ValueError(f"backend {name!r} is unknown; use one of {', '.join(known)}")
