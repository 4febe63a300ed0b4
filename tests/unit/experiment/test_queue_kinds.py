"""A queue kind is one class, registered once. A part that it leaves out is refused, not guessed."""

import errno
import os
import re
from collections.abc import Callable
from itertools import dropwhile
from pathlib import Path
from typing import Any, Literal, get_args

import pytest
from pydantic import ValidationError

from outcast import netlink
from outcast.emulation.kernel import rtnetlink
from outcast.engines import doctor
from outcast.errors import FeatureMissingError, RunError
from outcast.experiment import queues
from outcast.experiment.limit import Limit
from outcast.experiment.queues import KINDS
from outcast.experiment.queues.base import Drops, Qdisc, QueueKind, Shaped
from tests import queue_kinds

WHOLE: dict[str, Any] = {
    "drops": "later",
    "probe": {"mine": ""},
    "counters": {},
    "shaper_kind": property(lambda self: "tbf"),
    "wire_limit": property(lambda self: Limit()),
    "tc": lambda self: (Qdisc("mine", ""),),
    "check": lambda self, *shown: iter(()),
}


def kind(parts: dict[str, Any]) -> type[QueueKind]:
    annotations = {"kind": Literal["mine"]}
    return type("Mine", (QueueKind,), {"__annotations__": annotations, **parts})


def test_a_kind_that_says_all_of_it_is_taken():
    assert kind(WHOLE).model_validate({"kind": "mine"}).tc() == (Qdisc("mine", ""),)


@pytest.mark.parametrize("part", WHOLE)
def test_a_kind_that_leaves_out_a_part_is_refused_when_it_is_defined(part):
    with pytest.raises(TypeError, match=f"queue kind Mine: no {part}"):
        kind({name: value for name, value in WHOLE.items() if name != part})


def test_a_file_of_a_kind_is_not_forgotten():
    """Each file that names a kind has its class in `Queue`, and a name that no other kind has."""
    named = {
        f"{queues.__name__}.{path.stem}"
        for path in Path(queues.__path__[0]).glob("*.py")
        if re.search(r"^    kind: Literal\[", path.read_text(encoding="utf-8"), re.MULTILINE)
    }
    assert named
    assert named == {each.__module__ for each in KINDS}
    names = [each.model_fields["kind"].annotation for each in KINDS]
    assert len(set(names)) == len(names)


@pytest.mark.parametrize("name", queue_kinds.BY_NAME)
def test_what_a_kind_says_is_known_everywhere(name):
    queue = queue_kinds.queue(name)
    assert queue.drops in get_args(Drops)
    qdiscs = queue.tc()
    # Only the kernel knows what qdisc a user's module registers.
    own = {"mine"} if name == "custom" else set()
    assert {qdisc.kind for qdisc in qdiscs} <= set(doctor.QDISCS) | own
    assert set(queue.probe) <= set(doctor.QDISCS)
    assert set(queue.counters) <= {qdiscs[0].kind}
    # tc's batch runs first, so no qdisc of tc is below a qdisc that tc cannot set up.
    rest = dropwhile(lambda qdisc: isinstance(qdisc.options, str), qdiscs)
    assert all(isinstance(qdisc.options, bytes) for qdisc in rest)


def another(value: Any, annotation: object) -> Any:
    """A value of a key other than this one."""
    if isinstance(value, bool):
        return not value
    if isinstance(value, (int, float)):
        return 2 * value or 10**9
    if isinstance(value, Limit):
        return Limit.model_validate({name: each and 2 * each for name, each in value})
    if chosen := [each for each in get_args(annotation) if isinstance(each, str)]:
        return next(each for each in chosen if each != value)
    return {None: 6, "mine": "other", (): (7,)}[value]


KEYS = [
    (name, key)
    for name, kind in queue_kinds.BY_NAME.items()
    # Filters put packets into classes, and not the qdisc; see test_service_classes.py.
    for key in sorted({*kind.model_fields} - {*Shaped.model_fields, "kind", "classes"})
]


@pytest.mark.parametrize(("name", "key"), KEYS)
def test_the_kernel_is_told_each_key_and_asked_for_it(name, key):
    def told_and_asked(queue: QueueKind) -> list[object]:
        told = queue.tc()
        shown = [netlink.encode(99, bytes(64))] * len(told)
        asked = [(setting.name, setting.requested) for setting in queue.check(*shown)]
        return [told, [qdisc.kind for qdisc in told], asked]

    before = queue_kinds.queue(name)
    value = another(getattr(before, key), type(before).model_fields[key].annotation)
    told, kinds, asked = told_and_asked(before)
    told_then, kinds_then, asked_then = told_and_asked(before.model_copy(update={key: value}))
    # Whether the average falls in idle times is a parameter of the guest's kernel.
    is_told = (name, key) != ("red", "idle")
    assert (told != told_then) == is_told
    assert ((kinds, asked) != (kinds_then, asked_then)) == is_told


def test_kinds_of_one_qdisc_read_its_counters_alike():
    readers: dict[str, set[object]] = {}
    for each in KINDS:
        for name, read in each.counters.items():
            readers.setdefault(name, set()).add(read)
    assert [name for name, different in readers.items() if len(different) != 1] == []


def test_a_qdisc_that_the_kernel_does_not_know_is_a_missing_feature(monkeypatch):
    def refuse(number: int) -> Callable[..., None]:
        def replace(*_args: object, **_options: object) -> None:
            raise OSError(number, os.strerror(number))

        return replace

    how: dict[str, Any] = {"parent": netlink.ROOT, "major": 3, "options": b""}
    monkeypatch.setattr(netlink, "replace_qdisc", refuse(errno.ENOENT))
    with pytest.raises(FeatureMissingError, match="this kernel has no qdisc mine"):
        rtnetlink.replace_qdisc("s1-eth1", "mine", **how)
    monkeypatch.setattr(netlink, "replace_qdisc", refuse(errno.EINVAL))
    with pytest.raises(RunError, match="s1-eth1: qdisc 3: mine: Invalid argument"):
        rtnetlink.replace_qdisc("s1-eth1", "mine", **how)


def custom(**keys: object) -> QueueKind:
    return queue_kinds.queue("custom", **keys)


def test_a_custom_qdisc_gets_the_numbers_and_shows_them():
    words = custom(options=[11, 7])
    (qdisc,) = words.tc()
    assert qdisc == Qdisc("mine", bytes([11, 0, 0, 0, 7, 0, 0, 0]))
    assert [setting.shown for setting in words.check(qdisc.options + bytes(4))] == [11, 7]
    assert [setting.shown for setting in words.check(b"\x0b\0\0\0\x09")] == [11, None]
    attributes = custom(options={"2": 1000, "1": 5000})
    (qdisc,) = attributes.tc()
    assert qdisc.options == netlink.encode(1, b"\x88\x13\0\0") + netlink.encode(2, b"\xe8\x03\0\0")
    assert [(s.requested, s.shown) for s in attributes.check(qdisc.options[:8])] == [
        (5000, 5000),
        (1000, None),
    ]
    assert custom().tc() == (Qdisc("mine", b""),)
    assert list(custom().check(b"")) == []


@pytest.mark.parametrize(
    "keys",
    [
        {"qdisc": "a b"},
        {"qdisc": ""},
        {"qdisc": "x" * 16},
        {"options": [-1]},
        {"options": [1 << 32]},
        {"options": {"0": 1}},
        {"options": {"16384": 1}},
        {"options": "limit 11"},
        {"limit": "11 packets"},
    ],
)
def test_what_no_custom_qdisc_can_be(keys):
    with pytest.raises(ValidationError):
        custom(**keys)
