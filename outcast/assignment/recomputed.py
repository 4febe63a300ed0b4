"""Repeats a run's analysis from its captures and counters, and compares it with the submission."""

from __future__ import annotations

import math
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from polars.testing import assert_frame_equal

from outcast import analysis
from outcast.analysis import run_tables
from outcast.errors import InputError, OutcastError
from outcast.records.run import Run
from outcast.records.run_directory import RunDirectory
from outcast.records.summary import Summary

_RAW = ("config.yaml", "plan.json", "manifest.json", "counters.json", "blackout.json")
_RAW_FOLDERS = ("captures", "flows", "samples")
_RELATIVE = 1e-9
"""How far sums may differ, because processors can add in another order."""


def recompute(submitted: RunDirectory, target: Path) -> RunDirectory:
    """Copies a run's raw files to `target` and analyses them there.

    Raises:
        InputError: if the run cannot be analysed or contradicts itself.
    """
    target.mkdir(parents=True)
    try:
        for name in _RAW:
            if (submitted.path / name).is_file():
                shutil.copyfile(submitted.path / name, target / name)
        for name in _RAW_FOLDERS:
            if (submitted.path / name).is_dir():
                shutil.copytree(submitted.path / name, target / name)
        directory = RunDirectory(target)
        analysis.analyze(directory)
    except (OutcastError, OSError) as error:
        raise InputError(f"cannot be analysed: {error}") from None
    return directory


def differences(submitted: RunDirectory, fresh: RunDirectory, *, tables: bool) -> tuple[str, ...]:
    """How a submitted analysis differs from a fresh one, in lines.

    Args:
        submitted: the run that was handed in.
        fresh: a run with the same captures, analysed here.
        tables: whether the tables are compared too, and not only the summary.
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
            assert_frame_equal(here.table(name), there.table(name))
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
