"""The kinds of queues that a port can have, a file for each.

A kind is registered by its place in `Queue`. By that the configuration's schema knows it, and so
does the code that sets queues up, reads them back, and says what a kernel lacks.
"""

from __future__ import annotations

from typing import Annotated, get_args

from pydantic import Field

from outcast.experiment.queues.base import QueueKind
from outcast.experiment.queues.classes import Drr, HtbClasses, Prio
from outcast.experiment.queues.codel import Cake, Codel, FqCodel
from outcast.experiment.queues.drop_tail import Bfifo, Custom, Htb, Pfifo, Tbf
from outcast.experiment.queues.fq import Fq, PacingFq, Sfq
from outcast.experiment.queues.pie import DualPi2, Pie
from outcast.experiment.queues.red import EcnThreshold, Red

__all__ = ["KINDS", "WITH_CLASSES", "PacingFq", "Pfifo", "Queue"]

Queue = Annotated[
    Tbf
    | Htb
    | Pfifo
    | Bfifo
    | Red
    | EcnThreshold
    | Sfq
    | Fq
    | Codel
    | FqCodel
    | Pie
    | Cake
    | DualPi2
    | Prio
    | Drr
    | HtbClasses
    | Custom,
    Field(discriminator="kind"),
]

KINDS: tuple[type[QueueKind], ...] = get_args(get_args(Queue)[0])
"""The classes of all kinds."""

WITH_CLASSES = frozenset(("prio", "drr", "htb_classes"))
"""The kinds that part packets by their code points, so that some pass others."""
