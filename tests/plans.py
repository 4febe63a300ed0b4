"""Plans for tests that need no run."""

import configs
from outcast.experiment import Experiment, load
from outcast.plan.make import make_plan
from outcast.plan.model import Plan


def planned(config: str, *settings: str) -> tuple[Experiment, Plan]:
    """A shipped experiment with these settings, resolved for the virtual engine, and its plan."""
    whole = load(configs.find(config), settings).resolved("virtual")
    return whole, make_plan(whole)
