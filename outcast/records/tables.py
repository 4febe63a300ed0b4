"""Reads and writes tables in Parquet and CSV.

No other module opens a table by its name, because polars gives `[`, `*`, `?`, `~` and `=` in a
name a meaning: a pattern, the home folder or a column. It would return another file's rows.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

import polars as pl
from polars.io.plugins import register_io_source

from outcast import files, handed_in
from outcast.errors import InputError


def write_table(frame: pl.DataFrame, path: Path) -> None:
    """Writes CSV if the name ends in .csv, else Parquet. Raises InputError if it cannot."""
    with _writing(path) as stream:
        if path.suffix == ".csv":
            without_formulas(frame).write_csv(stream)
        else:
            frame.write_parquet(stream, compression="snappy", statistics=True)


@contextmanager
def _writing(path: Path) -> Iterator[BinaryIO]:
    try:
        with files.writing(path) as stream:
            yield stream
    except OSError as error:
        raise InputError(f"{path}: cannot be written: {error.strerror or error}") from None


BLOCK_ROWS = 1 << 21
"""Rows of a block of a long table, so that memory does not have to hold all of it."""

PART_ROWS = 200_000
"""Rows that wait in memory before they become a part."""


class PartsWriter:
    """Writes one Parquet table in parts, so that memory does not grow with it.

    Args:
        path: the table.
        folder: gets the parts. It is made when there is one, and the caller removes it.
        empty: the table without rows.
        about: what the file's metadata say.
    """

    def __init__(
        self, path: Path, folder: Path, empty: pl.DataFrame, about: Mapping[str, str]
    ) -> None:
        self._path, self._folder, self._about = path, folder, dict(about)
        self._waiting = [empty]
        self._parts: list[Path] = []
        self._rows = 0

    def add(self, frame: pl.DataFrame) -> None:
        self._waiting.append(frame)
        self._rows += frame.height
        if sum(waiting.height for waiting in self._waiting) >= PART_ROWS:
            self._folder.mkdir(exist_ok=True)
            part = self._folder / f"{self._path.stem}.{len(self._parts)}.parquet"
            pl.concat(self._waiting).write_parquet(part, compression="snappy", statistics=False)
            self._parts.append(part)
            self._waiting = self._waiting[:1]

    def finish(self) -> int:
        """Puts the table in its place. Returns its rows. Raises InputError if it cannot."""
        whole = pl.concat(
            [
                *(pl.scan_parquet(part.absolute(), glob=False) for part in self._parts),
                pl.concat(self._waiting).lazy(),
            ]
        )
        with _writing(self._path) as stream:
            whole.sink_parquet(stream, compression="snappy", metadata=self._about)
        return self._rows


def write_blocks(path: Path, height: int, block: Callable[[slice], pl.DataFrame]) -> None:
    """Writes a table of `height` rows, of which `block` gives some at a time.

    Writes CSV if the name ends in .csv, else Parquet. Raises InputError if it cannot.
    """
    starts = range(0, max(height, 1), BLOCK_ROWS)
    blocks = (block(slice(first, min(first + BLOCK_ROWS, height))) for first in starts)
    with _writing(path) as stream:
        if path.suffix == ".csv":
            for number, frame in enumerate(blocks):
                without_formulas(frame).write_csv(stream, include_header=number == 0)
            return
        source = register_io_source(
            lambda *_: blocks, schema=block(slice(0, 0)).schema, is_pure=False
        )
        source.sink_parquet(stream, compression="snappy", statistics=True)


def read_table(path: Path) -> pl.DataFrame:
    """Reads a whole table. Raises InputError as `scan_table` does."""
    table = scan_table(path)
    with refusing(f"{path}: cannot be read as a table"):
        return table.collect()


def scan_table(path: Path) -> pl.LazyFrame:
    """Opens a table that is read when it is used: CSV if its name ends in .csv, else Parquet.

    Raises InputError: it is missing, or is no table.
    """
    with refusing(f"{path}: cannot be read as a table"):
        handed_in.opened(path).close()
        # An absolute path, because polars takes a leading `~` for the home folder.
        whole = path.absolute()
        if path.suffix == ".csv":
            return pl.scan_csv(whole, glob=False)
        table = pl.scan_parquet(whole, glob=False, hive_partitioning=False)
        table.collect_schema()
        return table


@contextmanager
def refusing(what: str, remedy: str = "") -> Iterator[None]:
    """Turns errors from a broken table, or from a missing column, into InputError."""
    try:
        yield
    except FileNotFoundError as error:
        raise InputError(f"{error.filename or what}: there is no such file{remedy}") from error
    except _OF_POLARS as error:
        is_column = isinstance(error, pl.exceptions.ColumnNotFoundError)
        why = "a column is missing" if is_column else "it is damaged, or of another kind"
        raise InputError(f"{what}: {why}{remedy}") from error
    except (LookupError, OSError, TypeError, ValueError) as error:
        first = (str(error).splitlines() or [""])[0]
        raise InputError(f"{what}: {first}{remedy}") from error


_OF_POLARS = (pl.exceptions.PolarsError, pl.exceptions.PanicException)
"""A panic of polars is a BaseException."""


_FORMULA = re.compile(r"(^|[;\t\r\n])(?=[=+\-@\t\r\n＝＋－＠])")
"""Places where a cell can begin that a spreadsheet executes (OWASP, CSV Injection).

Strangers wrote some of the texts. Some spreadsheets end a cell at semicolons, tabs and line ends,
also within quotes.
"""


def csv_text(rows: Iterable[Sequence[object]]) -> str:
    """Rows as CSV (RFC 4180, with line feeds). No cell of text can become a formula."""
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerows([_cell(value) for value in row] for row in rows)
    return stream.getvalue()


def without_formulas(frame: pl.DataFrame) -> pl.DataFrame:
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
