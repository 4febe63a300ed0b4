"""A sweep: which keys take which values, and what happens to the captures."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field, JsonValue, model_validator

from outcast.experiment.parts import Part, described

_OWN_KEYS = ("points", "order", "captures", "labels")
_FIXED = ("sweep", "repetitions")
"""Keys that cannot be swept, because all runs of a sweep share them."""


class Sweep(Part):
    """The runs of `outcast sweep`.

    Every other key here is a key of the configuration, with dots between levels, and has a list of
    values. All combinations are run.
    """

    model_config = ConfigDict(
        extra="allow",
        json_schema_extra={"additionalProperties": {"type": ["array", "object"]}},
    )
    __pydantic_extra__: dict[str, list[JsonValue]] = Field(init=False)

    points: tuple[dict[str, JsonValue], ...] = described(
        "instead of all combinations: a list of points, each a mapping of key to value. If there "
        "are also lists of values, each point is combined with all of them",
        default=(),
    )
    order: Literal["given", "random"] = described(
        "the order in which runs start; random is drawn from the seed", default="given"
    )
    captures: Literal["keep", "compress", "drop"] = described(
        "what happens to a run's captures after its analysis", default="keep"
    )

    labels: dict[str, Annotated[str, Field(min_length=1, max_length=80)]] = described(
        "what tables, axes and legends call a swept key, as `{flows.1.hosts: rivals}`; if left "
        "out, the key",
        default={},
    )

    @property
    def lists(self) -> Mapping[str, list[JsonValue]]:
        """The keys that take each of several values."""
        return self.__pydantic_extra__

    @property
    def keys(self) -> list[str]:
        """Every key that is swept."""
        return [*self.lists, *sorted({key for point in self.points for key in point})]

    @model_validator(mode="before")
    @classmethod
    def _with_dots(cls, tree: Any) -> Any:
        """Reads `queue: {limit: [...]}` as `queue.limit: [...]`."""
        if not isinstance(tree, Mapping):
            return tree
        flat = {key: value for key, value in tree.items() if key in _OWN_KEYS}
        for key, value in tree.items():
            for dotted, inner in _flattened(str(key), value) if key not in _OWN_KEYS else ():
                if dotted in flat:
                    raise ValueError(f"{dotted} is given twice")
                if not isinstance(inner, list) or not inner:
                    raise ValueError(f"{dotted}: allowed is a list of one value or more")
                flat[dotted] = inner
        return flat

    def _require(self) -> None:
        if both := [key for key in self.keys if self.keys.count(key) > 1]:
            raise ValueError(
                f"{min(both)} is in points and also has a list of values; allowed is one of the two"
            )
        for key in self.keys:
            if key.split(".")[0] in _FIXED:
                raise ValueError(f"{key} cannot be swept")
        for key, label in self.labels.items():
            if key not in self.keys:
                swept = ", ".join(self.keys) or "none"
                raise ValueError(f"labels: {key} is not swept; swept are {swept}")
            if not label.isprintable():
                raise ValueError(f"labels: {key}: allowed are printable characters")
        if any(not point for point in self.points):
            raise ValueError("points: one is empty; allowed is a mapping of keys to values")


def _flattened(key: str, value: object) -> Iterator[tuple[str, object]]:
    if isinstance(value, Mapping) and value:
        for inner_key, inner_value in value.items():
            yield from _flattened(f"{key}.{inner_key}", inner_value)
    else:
        yield key, value
