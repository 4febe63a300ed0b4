"""What the kernel is built from besides its source: our configuration fragment and patches."""

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
    """Everything of ours that decides what the built program is.

    Attributes:
        fragment: the file of the configuration, which is applied on top of allnoconfig.
        patches: the files of the changes to the source, in the order in which they are applied.
    """

    fragment: Path
    patches: tuple[Path, ...]

    @property
    def digest(self) -> str:
        """A hash of the names and contents of all files."""
        digest = hashlib.sha256()
        for path in (self.fragment, *self.patches):
            text = path.read_bytes()
            digest.update(f"{path.name} {len(text)}\n".encode() + text)
        return digest.hexdigest()

    def congestion_controls(self) -> list[str]:
        """TCP's congestion controls that the configuration builds in; reno always is one."""
        built = _CONGESTION_CONTROL.findall(self.fragment.read_text())
        return sorted({"reno", *(name.lower() for name in built)} - {"advanced"})

    def require_configured(self, effective: str) -> None:
        """Raises KernelError, which names the symbols that the effective configuration lacks."""
        present = set(_SYMBOL.findall(effective))
        required, _, _ = self.fragment.read_text().partition(_OPTIONAL)
        lacking = [symbol for symbol in _SYMBOL.findall(required) if symbol not in present]
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
