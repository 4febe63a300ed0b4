"""The processor that the guest's kernel and its programs are made for."""

from __future__ import annotations

import platform

from outcast.errors import FeatureMissingError

NEEDED = "x86_64"
"""As uname(2) names it. Linux itself has User-Mode Linux for x86 only (arch/x86/um)."""


def misfit() -> str:
    """Why this machine's processor cannot run the guest, and what to do; empty if it can."""
    machine = platform.machine()
    if machine == NEEDED:
        return ""
    return (
        f"the virtual engine needs an {NEEDED} processor, and this machine's is {machine}; run it "
        "in GitHub Codespaces, on a server or in an emulated machine (docs/anywhere.md)"
    )


def require() -> None:
    """Raises FeatureMissingError where this machine's processor cannot run the guest."""
    if unfit := misfit():
        raise FeatureMissingError(unfit)
