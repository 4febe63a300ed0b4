"""A small language for what became of a run: `share(lone) < 0.5 and timeouts(0) > 3`.

An outcome is a comparison, or several with `and`, `or` and `not`. It compares numbers with the
quantities of QUANTITIES. Of these some are of the run, and some of a flow or a group of flows.
"""

from __future__ import annotations

import ast
import itertools
import math
import operator
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

import polars as pl

from outcast.errors import ConfigError, did_you_mean
from outcast.records import Run
from outcast.view import main_ratio

LONGEST = 200
LONE = "lone"
STARVED_SHARE = 0.5
EXAMPLES = "share(lone) < 0.5, starved, ratio > 2, timeouts(0) > 3"

_COMPARISONS: Mapping[type[ast.cmpop], Callable[[float, float], bool]] = {
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
}


def _mean(column: str) -> Callable[[pl.DataFrame, pl.DataFrame], float]:
    return lambda some, every: _number(some[column].mean())


def _sum(column: str) -> Callable[[pl.DataFrame, pl.DataFrame], float]:
    return lambda some, every: _number(some[column].sum())


def timeouts() -> pl.Expr:
    """The timeouts of some rows of flows.parquet: the kernel's counts where it has each flow's.

    Elsewhere, where a host sends several flows, those that the captures show.
    """
    kernel = pl.col("timeouts")
    return pl.when(kernel.is_not_null().all()).then(kernel.sum()).otherwise(
        pl.col("timeouts_seen").sum()
    )  # fmt: skip


def _share(some: pl.DataFrame, every: pl.DataFrame) -> float:
    fair = _number(every["goodput_bps"].mean())
    return _number(some["goodput_bps"].mean()) / fair if fair else float("nan")


def _number(value: object) -> float:
    return float(value) if isinstance(value, int | float) else float("nan")


OF_FLOWS: Mapping[str, Callable[[pl.DataFrame, pl.DataFrame], float]] = {
    "share": _share,
    "goodput": _mean("goodput_bps"),
    "drops": _sum("dropped"),
    "timeouts": lambda some, every: _number(some.select(timeouts()).item()),
    "longest_chain": lambda some, every: _number(some["longest_chain"].max()),
}
"""Quantities of a flow or a group of flows, from its rows of flows.parquet and from all rows."""

OF_RUN: Mapping[str, Callable[[Run], float]] = {
    "ratio": lambda run: _number(main_ratio(run.summary)),
    "jain": lambda run: _number(run.summary.jain_index),
    "total": lambda run: run.summary.total_goodput_bps,
}
"""Quantities of a run."""

STARVED = "starved"


@dataclass(frozen=True)
class Outcome:
    """A question about a run that can be answered with yes or no, as `words` was written."""

    words: str
    _tree: ast.expr

    def of(self, run: Run) -> bool:
        """Whether a run has this outcome, for sure.

        What is not known, as the ratio of one class, is neither so nor otherwise, as NULL in SQL.

        Raises:
            ConfigError: the run has no such flow or group.
            InputError: its tables cannot be read.
        """
        return self.known(run) is True

    def known(self, run: Run) -> bool | None:
        """As `of`; None if it is unknown."""
        with run.reading():
            flows = run.table("flows")
        return _holds(self._tree, run, flows)

    def require_planned(self, run: Run) -> None:
        """Raises ConfigError if it names a program's flow, whose number differs between futures."""
        calls = (node for node in ast.walk(self._tree) if isinstance(node, ast.Call))
        named = {_flow_or_group(call.args[0]) for call in calls}
        planned = {flow.flow for flow in run.manifest.planned_flows}
        for flow in run.manifest.flows:
            if flow.flow in named - planned:
                raise ConfigError(
                    f"--outcome {self.words!a}: flow {flow.flow} is a program's, and each future "
                    "numbers them differently; allowed are flows of the configuration and groups"
                )


def parse(words: str) -> Outcome:
    """Reads an outcome. Raises ConfigError, which says what is allowed."""
    if len(words) > LONGEST:
        raise ConfigError(f"--outcome: {len(words)} characters; allowed are {LONGEST}")
    try:
        tree = ast.parse(words.strip(), mode="eval").body
    except (SyntaxError, ValueError):
        raise _refused(words, "is no outcome") from None
    _check(tree, words)
    return Outcome(words.strip(), tree)


def _refused(words: str, why: str) -> ConfigError:
    return ConfigError(f"--outcome {words!a}: {why}; allowed are outcomes as {EXAMPLES}")


def _check(tree: ast.expr, words: str) -> None:
    """Raises ConfigError unless the expression is a question."""
    if isinstance(tree, ast.BoolOp):
        for part in tree.values:
            _check(part, words)
    elif isinstance(tree, ast.UnaryOp) and isinstance(tree.op, ast.Not):
        _check(tree.operand, words)
    elif isinstance(tree, ast.Compare):
        if any(type(op) not in _COMPARISONS for op in tree.ops):
            raise _refused(words, "has another comparison than < <= > >= == !=")
        for part in (tree.left, *tree.comparators):
            _check_number(part, words)
    elif not _is_starved(tree):
        raise _refused(words, "compares nothing")
    elif isinstance(tree, ast.Call):
        _check_of_flows(tree, words)


def _is_starved(tree: ast.expr) -> bool:
    name = tree.func if isinstance(tree, ast.Call) else tree
    return isinstance(name, ast.Name) and name.id == STARVED


def _check_number(tree: ast.expr, words: str) -> None:
    if isinstance(tree, ast.UnaryOp) and isinstance(tree.op, ast.USub):
        tree = tree.operand
    if isinstance(tree, ast.Constant) and type(tree.value) in (int, float):
        return
    if isinstance(tree, ast.Name) and tree.id in OF_RUN:
        return
    if isinstance(tree, ast.Call) and isinstance(tree.func, ast.Name) and tree.func.id in OF_FLOWS:
        _check_of_flows(tree, words)
        return
    name = tree.func if isinstance(tree, ast.Call) else tree
    known = (*OF_RUN, *(f"{quantity}(...)" for quantity in OF_FLOWS))
    near = did_you_mean(name.id, (*OF_RUN, *OF_FLOWS)) if isinstance(name, ast.Name) else ""
    raise _refused(words, f"{ast.unparse(tree)} is no quantity ({', '.join(known)}){near}")


def _check_of_flows(call: ast.Call, words: str) -> None:
    if len(call.args) != 1 or call.keywords or _flow_or_group(call.args[0]) is None:
        raise _refused(
            words, f"{ast.unparse(call)}: of one flow's number, of {LONE}, or of 'a group'"
        )


def _flow_or_group(argument: ast.expr) -> str | int | None:
    if isinstance(argument, ast.Name):
        return argument.id
    if isinstance(argument, ast.Constant) and type(argument.value) in (int, str):
        return argument.value  # type: ignore[return-value]
    return None


def _holds(tree: ast.expr, run: Run, flows: pl.DataFrame) -> bool | None:
    """Whether it holds; None if that is unknown."""
    if isinstance(tree, ast.BoolOp):
        parts = [_holds(part, run, flows) for part in tree.values]
        return _all(parts) if isinstance(tree.op, ast.And) else _not(_all(map(_not, parts)))
    if isinstance(tree, ast.UnaryOp):
        return _not(_holds(tree.operand, run, flows))
    if isinstance(tree, ast.Compare):
        values = [_value(part, run, flows) for part in (tree.left, *tree.comparators)]
        return _all([
            None if math.isnan(left) or math.isnan(right) else _COMPARISONS[type(op)](left, right)
            for op, (left, right) in zip(tree.ops, itertools.pairwise(values), strict=True)
        ])  # fmt: skip
    wanted = _flow_or_group(tree.args[0]) if isinstance(tree, ast.Call) else LONE
    share = _share(_rows(wanted, run, flows), flows)
    return None if math.isnan(share) else share < STARVED_SHARE


def _all(parts: Iterable[bool | None]) -> bool | None:
    found = {*parts}
    return False if False in found else None if None in found else True


def _not(part: bool | None) -> bool | None:
    return None if part is None else not part


def _value(tree: ast.expr, run: Run, flows: pl.DataFrame) -> float:
    if isinstance(tree, ast.UnaryOp):
        return -_value(tree.operand, run, flows)
    if isinstance(tree, ast.Constant):
        return float(tree.value)  # type: ignore[arg-type]
    if isinstance(tree, ast.Name):
        return OF_RUN[tree.id](run)
    assert isinstance(tree, ast.Call)
    assert isinstance(tree.func, ast.Name)
    return OF_FLOWS[tree.func.id](_rows(_flow_or_group(tree.args[0]), run, flows), flows)


def _rows(wanted: str | int | None, run: Run, flows: pl.DataFrame) -> pl.DataFrame:
    """The rows of flows.parquet of a flow or of a group. Raises ConfigError."""
    groups = {group.label: list(group.flows) for group in run.groups}
    lone = [] if run.marked is None else [LONE]
    if wanted == LONE and lone:
        wanted = run.marked
    if isinstance(wanted, int):
        found = [flow for flow in flows["flow"] if flow == wanted]
    else:
        found = groups.get(str(wanted), [])
    if not found:
        what = (
            "starved and lone ask of a lone flow, which this run has not"
            if wanted == LONE
            else f"{wanted}: no flow or group of the run"
        )
        raise ConfigError(
            f"--outcome: {what}; allowed are starved(...), share(...) and others of 0 to "
            f"{', '.join([str(flows.height - 1), *lone, *map(repr, groups)])}"
        )
    return flows.filter(pl.col("flow").is_in(found))
