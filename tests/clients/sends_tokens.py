"""collops's plug-in for vLLM, sending the few tokens of a test as it sends many.

vLLM imports the module in its ranks if it is told so: ``worker_extension_cls``.
"""

from __future__ import annotations

from typing import Any

from collops.torch.serving import vllm_cpu

SENT = "tokens went to the ranks of their experts"


class Extension:
    """What vLLM adds to its ranks: nothing."""


send_rows = vllm_cpu.send_rows


def tell(*args: Any) -> Any:
    """Says in the log that it was called, and calls what it stands for."""
    print(SENT, flush=True)
    return send_rows(*args)


vllm_cpu.LEAST_BYTES, vllm_cpu.send_rows = 0, tell
