"""The phases of a run inside the engine, in order, and their names in messages."""

from __future__ import annotations

DURING = {
    "boot": "the guest's boot",
    "setup": "the set-up",
    "verify": "the verification",
    "capture_start": "the start of the captures",
    "connect": "the start of the programs",
    "traffic": "the traffic",
    "command": "the command",
    "capture_end": "the end of the captures",
}
"""Words for each phase, used in messages on what went wrong during it."""
