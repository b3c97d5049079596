"""What the cases may run on, and what that asks for."""

from __future__ import annotations

from collops.core import core
from collops.golden_run import npu

NPU = "hccl"
# Backends whose engine adds in an order of its own.
UNORDERED = (NPU,)


def check_replacement(text: str) -> None:
    """Raises ValueError unless every backend that is named as a replacement can run here."""
    states = dict(core().backends())
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
    if NPU in engines:
        npu.load()


def _check_known(name: str, known: tuple[str, ...]) -> None:
    if name not in known:
        raise ValueError(f"backend {name!r} is unknown; use one of {', '.join(known)}")
