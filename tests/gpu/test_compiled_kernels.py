"""What nvcc makes of the GPU kernels, as wheels have it. Nothing runs them here."""

from __future__ import annotations

from pathlib import Path

import pytest

KERNELS = Path(__file__).resolve().parents[2] / "build" / "gpu-kernels" / "collops_kernels.fatbin"


def test_they_have_ptx_of_the_oldest_gpus_and_are_not_compressed() -> None:
    """GPUs between the compiled ones need it, and drivers before 580 cannot decompress."""
    if not KERNELS.exists():
        pytest.skip("no nvcc has compiled the GPU kernels")
    assert b".target sm_80" in KERNELS.read_bytes()
