"""The models of an exercise's files, which refuse unknown keys, names, lines."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, StringConstraints

from outcast.reproduce import measures
from outcast.reproduce.claims import Measure


class Part(BaseModel):
    """A part of an exercise's files; an unknown key is refused."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


Name = Annotated[str, StringConstraints(pattern=r"^[a-z][a-z0-9_-]{0,39}$")]
"""The name of a run, a question, a parameter or a choice."""

Line = Annotated[str, StringConstraints(min_length=1, max_length=1000)]


def _measure(value: Any) -> Any:
    tree = {"kind": value} if isinstance(value, str) else value
    if isinstance(tree, dict) and tree.get("kind") not in measures.MEASURES:
        raise ValueError(f"{tree.get('kind')!r}: allowed are {', '.join(measures.MEASURES)}")
    return tree


RunMeasure = Annotated[Measure, BeforeValidator(_measure)]
"""A measure of a run: its name, or `{kind: NAME, hops: 6}` where it takes more."""
