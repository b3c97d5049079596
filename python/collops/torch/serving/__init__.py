"""Drop-ins for inference engines whose data-parallel ranks have different numbers of rows.

vLLM and SGLang gather the rows of all ranks before a mixture of experts and reduce them back after
it. These classes give their communicators the two calls on collops.
"""

from __future__ import annotations

from collops.torch.serving.rows import collops_group
from collops.torch.serving.sglang import SglangCollectives, SglangCommunicator
from collops.torch.serving.vllm import VllmCollectives

__all__ = ["SglangCollectives", "SglangCommunicator", "VllmCollectives", "collops_group"]
