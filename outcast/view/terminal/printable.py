"""Text from others' files, so that a terminal neither acts on it nor hides a part of it."""

from __future__ import annotations

import re

_NOT_ASCII = re.compile(r"[^\n\t\x20-\x7e]")


def printable(text: str) -> str:
    r"""Escapes what a terminal would act on, or not show, as Python writes it: `\x1b`.

    This concerns control characters, direction marks and the bytes of a name that is not UTF-8.
    """
    return _NOT_ASCII.sub(
        lambda match: (
            match[0]
            if match[0].isprintable()
            else match[0].encode("unicode_escape").decode("ascii")
        ),
        text,
    )
