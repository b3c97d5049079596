"""torch's SymmetricMemory operators on CPUs, and async tensor parallelism by a pass of inductor."""

from __future__ import annotations
