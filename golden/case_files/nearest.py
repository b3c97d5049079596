"""The known word that a wrong one was probably meant to be, for messages that can say so."""

from __future__ import annotations

from collections.abc import Iterable

_MOST_EDITS = 2


def nearest(word: str, known: Iterable[str]) -> str | None:
    """Return the known word that `word` misses by a letter or two, or None.

    Upper and lower case are alike. A word of 8 letters or more may be wrong in two of them, a
    shorter one in one, so that other words which happen to be short are not taken for it.

    Example:
        >>> nearest("SocVersoin", ["SocVersion", "OpName"]), nearest("Remark", ["OpName"])
        ('SocVersion', None)
    """
    found: tuple[int, str] | None = None
    for other in known:
        most = _MOST_EDITS if len(other) >= 8 else 1
        if abs(len(word) - len(other)) > most:
            continue
        edits = _edits(word.lower(), other.lower())
        if edits <= most and (found is None or edits < found[0]):
            found = (edits, other)
    return found[1] if found else None


def _edits(a: str, b: str) -> int:
    """Return how many letters must be put in, taken out or replaced to make `a` of `b`."""
    row = list(range(len(b) + 1))
    for i, left in enumerate(a, start=1):
        diagonal, row[0] = row[0], i
        for j, right in enumerate(b, start=1):
            above = row[j]
            row[j] = min(above + 1, row[j - 1] + 1, diagonal + (left != right))
            diagonal = above
    return row[-1]
