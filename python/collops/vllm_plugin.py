"""What vLLM calls in each of its processes: on CPUs its ranks then use collops.

The entry point in pyproject.toml names register(). The rest of collops is imported when a process
makes its first group.
"""

from __future__ import annotations

import os
from typing import Any


def register() -> None:
    """Makes vLLM use collops, unless its platform is another one or COLLOPS_VLLM is 0."""
    if os.environ.get("COLLOPS_VLLM") == "0":
        return
    from vllm.logger import init_logger
    from vllm.platforms import current_platform

    if not current_platform.is_cpu():
        return
    from collops.torch.serving.vllm_cpu import enable

    try:
        enable(type(current_platform))
    except AttributeError as error:
        log: Any = init_logger("vllm.collops")
        log.warning("collops is not used: vLLM has changed: %s", error)
