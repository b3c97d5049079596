"""What the backend declares of CANN against the headers in the torch_npu wheel, by a compiler."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SOURCE = ROOT / "tests" / "npu" / "declarations.cpp"
API = "comm/backends/hccl/library/api.h"


def compile_with(folder: Path) -> subprocess.CompletedProcess[str]:
    """Compiles the comparison with our headers of a folder."""
    compiler = os.environ.get("CXX") or shutil.which("c++") or "c++"
    wheel = Path(str(sys.modules["torch_npu"].__file__)).parent / "include"
    headers = [wheel, wheel / "third_party" / "acl" / "inc", wheel / "third_party" / "hccl" / "inc"]
    command = [compiler, "-std=c++17", "-fsyntax-only", "-Wall", "-Wextra", "-Werror"]
    command += [f"-I{folder}", *(f"-isystem{header}" for header in headers), str(SOURCE)]
    return subprocess.run(command, capture_output=True, text=True)


def test_our_declarations_are_canns() -> None:
    done = compile_with(ROOT / "ops")
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("kBFloat16 = 11", "kBFloat16 = 12"),
        ("uint32_t* rank_size", "uint64_t* rank_size"),
        ("kRootInfoBytes = 4108", "kRootInfoBytes = 4096"),
        ("void* send, uint64_t send_count, void* receive", "void* send, void* receive"),
    ],
)
def test_a_wrong_declaration_is_found(tmp_path: Path, right: str, wrong: str) -> None:
    for header in (API, "core/status.h", "core/dtype.h"):
        target = tmp_path / header
        target.parent.mkdir(parents=True, exist_ok=True)
        text = (ROOT / "ops" / header).read_text()
        if header == API:
            assert text.count(right) == 1
            text = text.replace(right, wrong)
        target.write_text(text)
    done = compile_with(tmp_path)
    assert done.returncode != 0
    assert "static assertion failed" in done.stderr or "static_assert" in done.stderr
