"""Names that others gave, as of an interface in a capture, in a form that can be shown anywhere."""

from __future__ import annotations

import hashlib
import unicodedata

MOST_COLUMNS = 24
"""Small figures and tables have no place for more. Linux has 15 characters at most."""


def shown_name(name: str, blank: str = "", most: int = MOST_COLUMNS) -> str:
    """A name of at most `most` columns without characters that act on what shows it.

    Control characters and direction marks are escaped. The end of a longer name gives way to a hash
    of it, so that different names stay different. `blank` is taken if nothing of it can be seen.
    """
    if not name.strip():
        return blank
    shown = "".join(
        letter if letter.isprintable() else letter.encode("unicode_escape").decode("ascii")
        for letter in name
    )
    if max(len(shown), _columns(shown)) <= most:
        return shown
    digest = hashlib.blake2s(name.encode(errors="surrogatepass")).hexdigest()[:6]
    kept = shown[: most - 7]
    while _columns(kept) > most - 7:
        kept = kept[:-1]
    return f"{kept}…{digest}"


def _columns(text: str) -> int:
    """How many columns a terminal takes for a text."""
    return sum(1 + (unicodedata.east_asian_width(letter) in "WF") for letter in text)
