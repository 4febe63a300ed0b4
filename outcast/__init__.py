"""outcast: many-to-one unfairness at a switch, reproducible on one machine."""

__version__ = "0.1.0"
