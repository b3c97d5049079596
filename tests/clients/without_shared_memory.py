"""vLLM's own communicator as it is on CPUs without AVX-512, and between hosts: on gloo.

vLLM imports the module in its ranks if it is told so: ``worker_extension_cls``.
"""

from __future__ import annotations

from vllm.distributed.device_communicators.cpu_communicator import CpuCommunicator


class Extension:
    """What vLLM adds to its ranks: nothing."""


CpuCommunicator._all_group_ranks_share_shm_group_name = lambda self: False
