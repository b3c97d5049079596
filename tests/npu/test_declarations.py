"""What the backend declares of CANN against the headers in the torch_npu wheel, by a compiler."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from cann_declarations import (
    BACKEND,
    OPS,
    Backend,
    Wheel,
    compare,
    compared,
    read_lines,
)


def wheel() -> Wheel:
    """The headers of the torch_npu that is imported."""
    module = sys.modules["torch_npu"]
    third_party = Path(str(module.__file__)).parent / "include" / "third_party"
    return Wheel(third_party, str(module.__version__))


def changed_ops(folder: Path, right: str, wrong: str) -> Path:
    """The headers and sources that are compared, with another text in one of the backend's."""
    shutil.copytree(OPS, folder)
    paths = [path for path in (folder / BACKEND).iterdir() if right in path.read_text()]
    assert len(paths) == 1, right
    text = paths[0].read_text()
    assert text.count(right) == 1
    paths[0].write_text(text.replace(right, wrong))
    return folder


def test_our_declarations_are_canns(tmp_path: Path) -> None:
    result = compare(Backend.read(), wheel(), tmp_path)
    assert result.problems == []
    # Every function is compared, but for those of which no wheel, or a newer one, has a header.
    functions = [line for line in result.lines if "SAME_FUNCTION" in line or "SAME_TYPEDEF" in line]
    own = Backend.read().functions.values()
    assert len(functions) + len(set(own) & set(result.left_out)) == len(own) > 0


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("kBFloat16 = 11", "kBFloat16 = 12"),
        ("uint32_t* rank_size", "uint64_t* rank_size"),
        ("kRootInfoBytes = 4108", "kRootInfoBytes = 4096"),
        ("void* send, uint64_t send_count, void* receive", "void* send, void* receive"),
        ('"HcclGetRankSize"', '"HcclGetCommName"'),
        # The wheel has the types of some of aclnn's functions, in torch_npu's own words.
        ("(*create_tensor)(const int64_t* dims", "(*create_tensor)(const int32_t* dims"),
    ],
)
def test_a_wrong_declaration_is_found(tmp_path: Path, right: str, wrong: str) -> None:
    backend = Backend.read(changed_ops(tmp_path / "ops", right, wrong))
    [said] = compare(backend, wheel(), tmp_path).problems
    assert "static assertion failed" in said or "static_assert" in said


@pytest.mark.parametrize(
    ("right", "wrong", "said"),
    [
        ("kRemote = 21,", "kRemote = 21, kNew = 99,", "names.txt has no line for Result::kNew"),
        ('"HcclGetRankId", &api.get_rank_id', '"X", &x', "Api::get_rank_id is never looked up"),
        ('"HcclGetRankId"', '"HcclGetRank"', "lacks HcclGetRank, unlike oldest_wheels.txt"),
    ],
)
def test_what_nothing_compares_is_found(tmp_path: Path, right: str, wrong: str, said: str) -> None:
    backend = Backend.read(changed_ops(tmp_path / "ops", right, wrong))
    assert any(problem.endswith(said) for problem in compared(backend, wheel()).problems)


def test_a_wheel_that_lacks_what_it_should_have_is_found(tmp_path: Path) -> None:
    own = wheel()
    shutil.copytree(own.includes[1], tmp_path / "acl" / "inc")
    shutil.copytree(own.includes[2], tmp_path / "hccl" / "inc")
    header = tmp_path / "acl" / "inc" / "acl" / "acl_rt.h"
    name = "aclmdlRIDestroyRegisterCallback"
    header.write_text(header.read_text().replace(name, "aclmdlRIOther"))
    said = f"lacks {name}, unlike oldest_wheels.txt"
    for version, problems in [("2.13.0", 1), ("2.10.0.post4", 1), ("2.9.0.post2", 0)]:
        found = compared(Backend.read(), Wheel(tmp_path, version)).problems
        assert sum(problem.endswith(said) for problem in found) == problems, version


def test_the_configuration_begins_as_hccl_initializes_it(tmp_path: Path) -> None:
    # HcclCommConfigInit is an inline function of the wheel: a program says what it sets.
    fields = [words[2] for words in read_lines("names.txt") if words[:1] == ["field"]]
    config = [n for n in fields if re.match(r"hccl[A-Z]|aclGraph", n) and wheel().has(n)]
    numbers = [name for name in config if not re.search(r"Name|Udi|Algo|Retry", name)]
    lines = "".join(
        f'  std::printf("{name} %lld\\n", (long long)config.{name});\n' for name in numbers
    )
    (tmp_path / "main.cpp").write_text(
        "#include <cstdio>\n#include <cstring>\n"
        '#include "acl/acl.h"\n#include "hccl/hccl.h"\n'
        "int main() {\n  HcclCommConfig config;\n  std::memset(&config, 1, sizeof(config));\n"
        "  HcclCommConfigInit(&config);\n  unsigned long long head[3];\n"
        "  std::memcpy(head, &config, sizeof(head));\n"
        '  std::printf("%llu %llx %llx %zu\\n", head[0], head[1], head[2], sizeof(config));\n'
        f"{lines}  return 0;\n}}\n"
    )
    program = tmp_path / "main"
    command = ["c++", "-std=c++17", *(f"-isystem{path}" for path in wheel().includes)]
    subprocess.run([*command, str(tmp_path / "main.cpp"), "-o", str(program)], check=True)
    said = subprocess.run([str(program)], capture_output=True, text=True, check=True).stdout
    head, *rest = [line.split() for line in said.splitlines()]
    assert head[0] == head[3]  # the size
    assert head[1:3] == ["af0f0f0f0", "0"]  # the magic word, then version 10; reserved
    unset = str(0xFFFFFFFF)
    values = {
        "hcclBufferSize": unset,
        "hcclDeterministic": unset,
        "hcclOpExpansionMode": "0",
        "hcclRdmaTrafficClass": unset,
        "hcclRdmaServiceLevel": unset,
        "hcclWorldRankID": "0",
        "hcclJobID": "0",
        "aclGraphZeroCopyEnable": "0",
        "hcclExecTimeOut": "-1",
        "hcclQos": unset,
        "hcclSymWinMaxMemSizePerRank": "16",
    }
    assert dict(rest) == {name: values[name] for name in numbers}
