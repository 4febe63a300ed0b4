"""Offers what `import outcast` has, and what the verbs of the command line call."""

from outcast import members

TYPE_CHECKING = False  # See outcast/__init__.py.
if TYPE_CHECKING:
    from outcast.api.archives import make_again, opened, require_comparable, scratch_folder
    from outcast.api.experiments import checked
    from outcast.api.making import execute
    from outcast.api.many import Place, causes, experiment_of, make_each
    from outcast.api.progress import note
    from outcast.archive import zips
    from outcast.archive.contents import collect, require_unchanged
    from outcast.emulation.commands import python_module
    from outcast.engines.guest import kernels, roots
    from outcast.plan.addresses import ipv4_of
    from outcast.plan.links import Direction
    from outcast.plan.model import Plan, Planned
    from outcast.plan.noise import CARD_ENDS
    from outcast.plan.ports import asked_of_switch, switch_queue
    from outcast.sweep.points import derived_seed
    from outcast.sweep.pool import ask_to_end, end, interrupted_by_signals, started
    from outcast.sweep.store import SweepDirectory
else:
    __getattr__ = members(
        __name__,
        {
            "outcast.api.archives": "make_again opened require_comparable scratch_folder",
            "outcast.api.experiments": "checked",
            "outcast.api.making": "execute",
            "outcast.api.many": "Place causes experiment_of make_each",
            "outcast.api.progress": "note",
            "outcast.archive": "zips",
            "outcast.archive.contents": "collect require_unchanged",
            "outcast.emulation.commands": "python_module",
            "outcast.engines.guest": "kernels roots",
            "outcast.plan.addresses": "ipv4_of",
            "outcast.plan.links": "Direction",
            "outcast.plan.model": "Plan Planned",
            "outcast.plan.noise": "CARD_ENDS",
            "outcast.plan.ports": "asked_of_switch switch_queue",
            "outcast.sweep.points": "derived_seed",
            "outcast.sweep.pool": "ask_to_end end interrupted_by_signals started",
            "outcast.sweep.store": "SweepDirectory",
        },
    )
