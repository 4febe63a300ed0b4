"""Text for spreadsheets, in which no cell becomes a formula.

Others write some of the texts: students, and whoever made a capture or a topology. A spreadsheet
would execute a cell that begins with `=`, so such a text gets an apostrophe in front, also after a
semicolon or in a new line (OWASP, CSV Injection).
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterable, Sequence

import polars as pl

_FORMULA = re.compile(r"(^|[;\t\r\n])(?=[=+\-@\t\r\n＝＋－＠])")
"""A cell that a spreadsheet executes may begin there.

Some spreadsheets read semicolons, tabs and line ends as the ends of cells, whatever is quoted.
"""


def csv_text(rows: Iterable[Sequence[object]]) -> str:
    """Rows as CSV (RFC 4180, with line feeds). No cell of text can become a formula."""
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerows([_cell(value) for value in row] for row in rows)
    return stream.getvalue()


def without_formulas(frame: pl.DataFrame) -> pl.DataFrame:
    """The table with texts that cannot become a formula."""
    changed = []
    for column in frame.iter_columns():
        if column.dtype in (pl.String, pl.Categorical, pl.Enum):
            texts = column.unique().cast(pl.String).drop_nulls()
            safe = {text: cell for text in texts if (cell := _cell(text)) != text}
            if safe:
                changed.append(column.cast(pl.String).replace(safe))
    return frame.with_columns(changed)


def _cell(value: object) -> object:
    if not isinstance(value, str):
        return value
    try:
        float(value)
    except ValueError:
        return _FORMULA.sub(r"\1'", value)
    return value
