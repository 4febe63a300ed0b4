"""Compares the analysis that was handed in with one that was made here."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from polars.testing import assert_frame_equal

from outcast.analysis import run_tables
from outcast.errors import InputError
from outcast.records.run import Run
from outcast.records.run_directory import RunDirectory
from outcast.records.summary import Summary

_RELATIVE = 1e-9
"""How far sums may differ, because processors can add in another order."""


def differences(submitted: RunDirectory, fresh: RunDirectory, *, tables: bool) -> tuple[str, ...]:
    """How a submitted analysis differs from a fresh one, in lines.

    `fresh` has the same captures, analysed here. With `tables` these are compared too, and not only
    the summary.
    """
    return (
        *_summary_differences(submitted, Run(fresh).summary),
        *(_table_differences(submitted, fresh) if tables else ()),
    )


def summary_differences(stated: Summary, fresh: Summary) -> list[str]:
    """The keys in which two summaries differ, with dots between levels. `wall_s` is left out."""
    first, second = (dict(_leaves(s.model_dump(exclude={"wall_s"}))) for s in (stated, fresh))
    return [
        key
        for key in dict.fromkeys((*first, *second))
        if key not in first or key not in second or not _equal(first[key], second[key])
    ]


def _summary_differences(submitted: RunDirectory, fresh: Summary) -> list[str]:
    try:
        stated = Run(submitted).summary
    except InputError:
        return ["summary.json is missing, or cannot be read"]
    keys = summary_differences(stated, fresh)
    if not keys:
        return []
    more = f" and {len(keys) - 1} more" if len(keys) > 1 else ""
    return [f"summary.json is not what the captures give: {keys[0]}{more}"]


def _table_differences(submitted: RunDirectory, fresh: RunDirectory) -> list[str]:
    here, there = Run(submitted), Run(fresh)
    wrong = []
    for name, _ in run_tables.TABLES:
        if name not in here.tables and name not in there.tables:
            continue
        try:
            assert_frame_equal(*(run.table(name, whole=True) for run in (here, there)))
        except (AssertionError, InputError):
            wrong.append(f"{name}.parquet is not what the captures give")
    return wrong


def _leaves(tree: Any, at: str = "") -> Iterator[tuple[str, Any]]:
    if isinstance(tree, dict) and tree:
        for key, value in tree.items():
            yield from _leaves(value, f"{at}.{key}" if at else str(key))
    elif isinstance(tree, (list, tuple)) and tree:
        for index, value in enumerate(tree):
            yield from _leaves(value, f"{at}.{index}")
    else:
        yield at, tree


def _equal(stated: Any, fresh: Any) -> bool:
    if isinstance(stated, float) and isinstance(fresh, float):
        return math.isclose(stated, fresh, rel_tol=_RELATIVE, abs_tol=1e-12) or stated == fresh
    return bool(stated == fresh)
