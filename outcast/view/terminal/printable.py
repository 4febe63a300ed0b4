"""Escapes text from others' files, because a terminal could act on it or hide a part of it."""

from __future__ import annotations

import re

_NOT_ASCII = re.compile(r"[^\n\t\x20-\x7e]")


def printable(text: str) -> str:
    r"""Escapes characters that a terminal would act on or not show. It writes them as `\x1b`.

    These are control characters, direction marks, and the bytes of a name that is not UTF-8.
    """
    return _NOT_ASCII.sub(
        lambda match: (
            match[0]
            if match[0].isprintable()
            else match[0].encode("unicode_escape").decode("ascii")
        ),
        text,
    )
