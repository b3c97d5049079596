"""Damaged rank tables: each is read, or is one error that names the file; none crashes or hangs.

rank_tables/ has a right table of every form, from which the damaged ones are made.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import collops
from collops.launch.rank_table import RankTable, read_rank_table, table_refusal

CORPUS = sorted((Path(__file__).parent / "rank_tables").glob("*.json"))
SCALARS = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | st.text(max_size=70)
    | st.sampled_from(["", "0", "-1", "1.2", "2.0", "18446744073709551616", "a\x00b", "fd00::1"])
)
VALUES = SCALARS | st.lists(SCALARS, max_size=3) | st.dictionaries(st.text(max_size=9), SCALARS)


def places(value: Any) -> list[tuple[Any, Any]]:
    """Every container and key or index in it, of a JSON document."""
    keys = (
        value if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ()
    )
    found = [(value, key) for key in keys]
    for key in keys:
        found += places(value[key])
    return found


@st.composite
def damaged_values(draw: st.DrawFn) -> bytes:
    """A table of which some values are other ones, are gone, or stand elsewhere."""
    table = json.loads(draw(st.sampled_from(CORPUS)).read_text(encoding="utf-8"))
    for _ in range(draw(st.integers(0, 3))):
        container, key = draw(st.sampled_from(places(table)))
        what = draw(st.sampled_from(["replace", "remove", "repeat", "move"]))
        if what == "remove":
            del container[key]
        elif what == "repeat" and isinstance(container, list):
            container.append(container[key])
        elif what == "move":
            other, place = draw(st.sampled_from(places(table)))
            container[key] = json.loads(json.dumps(other[place]))
        else:
            container[key] = draw(VALUES)
        if not places(table):
            break
    return json.dumps(table).encode()


@st.composite
def damaged_bytes(draw: st.DrawFn) -> bytes:
    """A table's text with a stretch of it replaced, removed or repeated."""
    text = draw(st.sampled_from(CORPUS)).read_bytes()
    begin = draw(st.integers(0, len(text)))
    end = draw(st.integers(begin, min(len(text), begin + 40)))
    middle = draw(st.binary(max_size=8) | st.just(text[begin:end] * 3) | st.just(b"[" * 5000))
    return text[:begin] + middle + text[end:]


def check_whole(table: RankTable) -> None:
    """What every table that is read promises."""
    assert not table.completed or table.ranks
    assert all(0 <= place.server < len(table.servers) for place in table.ranks)
    assert all(0 <= place.device_id < 2**16 for place in table.ranks)
    assert {place.server for place in table.ranks} == set(range(len(table.servers)))
    names = [server.name for server in table.servers]
    assert len(set(names)) == len(names)
    assert all((name and name.isprintable()) or not name.isascii() for name in names)


def read(path: Path, text: bytes) -> None:
    path.write_bytes(text)
    try:
        table = read_rank_table(path)
    except collops.ArgumentError as error:
        assert error.code == 1
        assert str(error).startswith(f'rank table "{path}"')
        assert len(str(error)) < 1000 + len(str(path))
    else:
        check_whole(table)


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("tables") / "table.json"


@pytest.mark.parametrize("right", CORPUS, ids=lambda path: path.stem)
def test_the_corpus_is_read(right: Path) -> None:
    check_whole(read_rank_table(right))


@pytest.mark.parametrize("backend", ["hccl", "ucx"])
def test_tables_like_those_of_the_documents_are_taken(backend: str) -> None:
    """Every key of the samples in HCCL's documents, and an operator's table of pods."""
    tables = [path for path in CORPUS if path.stem.startswith("documents")]
    assert [table_refusal(path, backend) for path in tables] == [""] * 5


@given(text=damaged_values())
def test_a_table_with_other_values(path: Path, text: bytes) -> None:
    read(path, text)


@given(text=damaged_bytes())
def test_a_table_with_other_bytes(path: Path, text: bytes) -> None:
    read(path, text)
