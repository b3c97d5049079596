"""The word that a misspelt one means, and the error of a word that is unknown."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

# The least similarity (difflib's ratio) of a misspelt word of a command line and the right one.
_ALIKE = 0.6


def nearest(word: str, known: Iterable[str], alike: float = _ALIKE) -> str | None:
    """Return the known word most similar to `word`, with a ratio (difflib) of `alike` or more.

    Example:
        >>> nearest("SocVersoin", ["SocVersion"], 0.85), nearest("Remark", ["OpName"], 0.85)
        ('SocVersion', None)
    """
    lower = {other.lower(): other for other in known}
    found = difflib.get_close_matches(word.lower(), lower, 1, alike)
    return lower[found[0]] if found else None


def unknown(what: str, word: str, known: Iterable[str], listed: str = "") -> ValueError:
    """Return the error of a word that is not known, with the one that is meant.

    Args:
        what: what the word names, such as "operator".
        word: what was written.
        known: the right words.
        listed: what to print of them; empty: all.

    Example:
        >>> print(unknown("operator", "brodcast", ["send", "broadcast"]))
        operator 'brodcast' is unknown; use one of send, broadcast; did you mean 'broadcast'?
    """
    words = list(known)
    near = nearest(word, words)
    hint = f"; did you mean {near!r}?" if near else ""
    return ValueError(
        f"{what} {word!r} is unknown; use {listed or 'one of ' + ', '.join(words)}{hint}"
    )
