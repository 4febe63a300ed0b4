"""What the kernel is made of besides its source: our configuration fragment and patches."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from pathlib import Path

from outcast.errors import KernelError

FOLDER = Path(__file__).parent
_OPTIONAL = "# Only in some versions\n"
_CONGESTION_CONTROL = re.compile(r"^CONFIG_TCP_CONG_([A-Z0-9]+)=y", re.MULTILINE)
_SYMBOL = re.compile(r"^(CONFIG_[A-Z0-9_]+=\S+)$", re.MULTILINE)


@dataclass(frozen=True)
class Recipe:
    """Everything of ours that decides what comes out.

    Attributes:
        fragment: the configuration, on top of allnoconfig.
        patches: the changes to the source, in their order.
    """

    fragment: Path
    patches: tuple[Path, ...]

    @property
    def digest(self) -> str:
        """Names the recipe: the same text, the same digest."""
        digest = hashlib.sha256()
        for path in (self.fragment, *self.patches):
            text = path.read_bytes()
            digest.update(f"{path.name} {len(text)}\n".encode() + text)
        return digest.hexdigest()

    def congestion_controls(self) -> list[str]:
        """TCP's congestion controls that the configuration builds in; reno always is."""
        built = _CONGESTION_CONTROL.findall(self.fragment.read_text())
        return sorted({"reno", *(name.lower() for name in built)} - {"advanced"})

    def require_configured(self, effective: str) -> None:
        """Raises KernelError naming what of the fragment the configuration does not have."""
        found = set(_SYMBOL.findall(effective))
        required, _, _ = self.fragment.read_text().partition(_OPTIONAL)
        lacking = [each for each in _SYMBOL.findall(required) if each not in found]
        if lacking:
            raise KernelError(
                f"the kernel's configuration does not take {', '.join(lacking)}; "
                "this source is too old or too new for it"
            )


OURS = Recipe(
    fragment=FOLDER / "fragment.config",
    patches=tuple(sorted((FOLDER / "patches").glob("*.patch"))),
)
"""The recipe that the virtual engine uses."""
