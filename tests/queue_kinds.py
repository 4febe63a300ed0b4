"""The queue kinds of the registry, so that a test of all kinds meets a new one by itself."""

from typing import Any, get_args

from pydantic import TypeAdapter

from outcast.experiment.queues import KINDS, Queue
from outcast.experiment.queues.base import QueueKind

BY_NAME = {get_args(each.model_fields["kind"].annotation)[0]: each for each in KINDS}
LIMITED = [name for name, each in BY_NAME.items() if "limit" in each.model_fields]
"""The kinds that a configuration gives a limit: all but those of a user's module."""


def keys(name: str, **more: Any) -> dict[str, Any]:
    """The keys that a queue of this kind cannot do without; small ones, as more keys change."""
    given: dict[str, Any] = {"kind": name}
    fields = BY_NAME[name].model_fields
    if "limit" in fields:
        given["limit"] = "100 packets" if "packets" in BY_NAME[name].counts else "1MB"
    if "threshold" in fields:
        given["threshold"] = "1 packets"
    if "classes" in fields:
        own = {"rate": "1mbit"} if name == "htb_classes" else {}
        given["classes"] = [{"name": "a", "dscp": "ef", **own}, {"name": "b", **own}]
    if name == "custom":
        given["qdisc"] = "mine"
    return given | more


def queue(name: str, **more: Any) -> QueueKind:
    """A queue of this kind. Raises ValidationError where a kind needs a key that `keys` lacks."""
    made: QueueKind = TypeAdapter(Queue).validate_python(keys(name, **more))
    return made
