"""Cases as files: one .npz of tensors per case, and manifest.json that states every case.

The same cases give the same bytes, on every machine: archives have no compression and no times.
"""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np

from ..cases import all_outputs, inputs
from ..data.dtypes import Array
from ..operators.case import Case
from .case_fields import case_of, distinct_fields, fields_of
from .tensor_files import read_entries

SCHEMA = 1
MANIFEST = "manifest.json"


# Is told of progress: how many cases are written, of how many.
Shows = Callable[[int, int], None]


def write_cases(cases: Sequence[Case], directory: Path, shows: Shows | None = None) -> Path:
    """Write the tensors of `cases` and their manifest into `directory`, which is made if needed.

    A case's file holds `rank{r}/{input}` for every input of every rank and `rank{r}/output`, what
    rank r must get (a second output is `rank{r}/output1`); bfloat16 tensors are uint16 bit
    patterns. Files of the same names are replaced.

    Args:
        cases: cases with unique ids.
        directory: where to write.
        shows: is called after every case.

    Returns:
        The manifest's path.

    Raises:
        OSError: a file cannot be written.

    Example:
        >>> import tempfile
        >>> case = Case("all_gather_v", "tiny", 2, "int8", (2, 1), (0, 2), ((2,), (1,)), (3, 3))
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     manifest = write_cases([case], Path(folder))
        ...     [(again, _, outputs)] = read_cases(manifest)
        >>> again == case, outputs[1].tolist()
        (True, [-125, -124, 32])
    """
    directory.mkdir(parents=True, exist_ok=True)
    entries = []
    for case in cases:
        per_rank = inputs(case)
        outputs = all_outputs(case, [list(own.values()) for own in per_rank])
        tensors: dict[str, Array] = {}
        for r, (own, results) in enumerate(zip(per_rank, outputs, strict=True)):
            tensors |= {f"rank{r}/{name}": tensor for name, tensor in own.items()}
            for number, output in enumerate(results):
                tensors[f"rank{r}/output{number or ''}"] = output
        file = f"{case.id}.npz"
        _write_npz(directory / file, tensors)
        entries.append(
            {"id": case.id, "file": file, "inputs": list(per_rank[0]), **fields_of(case)}
        )
        if shows is not None:
            shows(len(entries), len(cases))
    manifest = directory / MANIFEST
    text = json.dumps({"schema": SCHEMA, "bfloat16": "uint16 bits", "cases": entries}, indent=1)
    manifest.write_text(text + "\n", encoding="utf-8")
    return manifest


def read_cases(manifest: Path) -> Iterator[tuple[Case, list[dict[str, Array]], list[Array]]]:
    """Yield every case of a manifest with its inputs and its expected outputs, per rank.

    Args:
        manifest: path of the manifest.json that write_cases wrote.

    Raises:
        OSError: a file cannot be read.
        ValueError: the manifest is none, or a file lacks a tensor.
    """
    for case, names, file in read_manifest(manifest):
        tensors, ranks = read_entries(file), range(case.rank_size)
        try:
            per_rank = [{name: tensors[f"rank{r}/{name}"] for name in names} for r in ranks]
            outputs = [tensors[f"rank{r}/output"] for r in ranks]
        except KeyError as missing:
            raise ValueError(f"{file}: has no {missing.args[0]}") from None
        yield case, per_rank, outputs


def read_manifest(manifest: Path) -> list[tuple[Case, tuple[str, ...], Path]]:
    """Return every case of a manifest, with the names of its inputs and the file of its tensors.

    Raises:
        OSError: the manifest cannot be read.
        ValueError: it is not JSON or of another schema, or a case lacks a field or has a wrong one.

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     read_manifest(write_cases([], Path(folder)))
        []
    """
    try:
        content = json.loads(
            manifest.read_text(encoding="utf-8"), object_pairs_hook=distinct_fields
        )
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{manifest}: is not JSON ({error})") from None
    schema = content.get("schema") if isinstance(content, dict) else None
    if schema != SCHEMA:
        raise ValueError(f"{manifest}: schema is {schema!r}, this golden reads {SCHEMA}")
    cases: list[tuple[Case, tuple[str, ...], Path]] = []
    try:
        for entry in content["cases"]:
            fields = {k: v for k, v in entry.items() if k not in ("id", "file", "inputs")}
            file = manifest.parent / entry["file"]
            cases.append((case_of(fields), tuple(map(str, entry["inputs"])), file))
    except KeyError as missing:
        text = f"case {len(cases) + 1} has no field {missing}"
        raise ValueError(f"{manifest}: {text}") from None
    except (TypeError, AttributeError) as problem:
        raise ValueError(f"{manifest}: case {len(cases) + 1}: {problem}") from None
    return cases


def _write_npz(path: Path, tensors: Mapping[str, Array]) -> None:
    """Write what np.savez would, with a fixed date in place of the clock's."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as archive:
        for name, tensor in tensors.items():
            content = io.BytesIO()
            np.lib.format.write_array(content, np.ascontiguousarray(tensor), allow_pickle=False)
            entry = zipfile.ZipInfo(f"{name}.npy", date_time=(1980, 1, 1, 0, 0, 0))
            archive.writestr(entry, content.getvalue())
