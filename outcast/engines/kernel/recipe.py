"""The kernel's recipe besides its source: configuration fragments and patches."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from outcast import handed_in
from outcast.errors import InputError, KernelError

FOLDER = Path(__file__).parent
_MOST_BYTES = 64 << 20
_OPTIONAL = "# Only in some versions\n"
_SYMBOL = re.compile(r"^((CONFIG_[A-Z0-9_]+)=\S+)$", re.MULTILINE)
_SWITCHED_OFF = re.compile(r"^(?:# )?(CONFIG_[A-Z0-9_]+)(?:=n| is not set)$", re.MULTILINE)
_KEPT = 3
"""A number for what is kept of a build besides the program (see `headers`): raise it when that
changes, so that kernels that were kept before are built anew."""


@dataclass(frozen=True)
class Recipe:
    """Everything besides the source that decides what is built.

    Attributes:
        fragment: the file of the configuration, which is applied on top of allnoconfig.
        patches: the files of the changes to the source, in the order in which they are applied.
        own_fragments: the user's files of configuration, which come after ours. The later counts.
        own_patches: the user's patches, applied after ours.
        optional: the names of patches that are left out where they do not fit the source.
    """

    fragment: Path
    patches: tuple[Path, ...]
    own_fragments: tuple[Path, ...] = ()
    own_patches: tuple[Path, ...] = ()
    optional: tuple[str, ...] = ()

    @property
    def digest(self) -> str:
        """A hash of the names and contents of all files."""
        digest = hashlib.sha256(f"kept {_KEPT}\n".encode())
        for path in (self.fragment, *self.patches, *self.own_fragments, *self.own_patches):
            text = path.read_bytes()
            digest.update(f"{path.name} {len(text)}\n".encode() + text)
        return digest.hexdigest()

    def with_own(self, fragments: Sequence[Path], patches: Sequence[Path]) -> Recipe:
        """The recipe with the user's files. Raises InputError where one cannot be read."""
        for path in (*fragments, *patches):
            try:
                content = handed_in.read_bytes(path, _MOST_BYTES)
            except FileNotFoundError:
                raise InputError(f"{path}: there is no such file") from None
            if path in fragments and not content.isascii():
                raise InputError(f"{path}: allowed is text of lines as CONFIG_X=y")
        return replace(self, own_fragments=tuple(fragments), own_patches=tuple(patches))

    def configuration(self) -> str:
        """All fragments in one text, for KCONFIG_ALLCONFIG; the later line of a symbol counts."""
        fragments = (self.fragment, *self.own_fragments)
        return "\n".join(path.read_text(encoding="utf-8") for path in fragments)

    def require_configured(self, effective: str) -> None:
        """Raises KernelError, which names the symbols that the effective configuration lacks."""
        required, _, _ = self.fragment.read_text(encoding="utf-8").partition(_OPTIONAL)
        requested = {name: symbol for symbol, name in _SYMBOL.findall(required)}
        for path in self.own_fragments:
            text = path.read_text(encoding="utf-8")
            requested.update({name: symbol for symbol, name in _SYMBOL.findall(text)})
            for name in _SWITCHED_OFF.findall(text):
                requested.pop(name, None)
        present = {symbol for symbol, _ in _SYMBOL.findall(effective)}
        lacking = ", ".join(symbol for symbol in requested.values() if symbol not in present)
        if lacking:
            own = ", ".join(path.name for path in self.own_fragments)
            raise KernelError(
                f"the kernel's configuration{own and f' with {own}'} does not take {lacking}; "
                "this source is too old or too new for it, or what it depends on is off"
            )


OURS = Recipe(
    fragment=FOLDER / "fragment.config",
    patches=tuple(sorted((FOLDER / "patches").glob("*.patch"))),
    # Events of TCP and the queues differ with Linux's version, and runs without events need none.
    # 0014, 0020 and 0021 only save time.
    optional=(
        "0010-events-say-whose-packet.patch",
        "0011-events-of-tcp.patch",
        "0013-drops-below-netem.patch",
        "0014-um-fault-around.patch",
        # Where these do not fit, hosts' delays come before their queues, RED is the stock kernel's,
        # programs read, a lone frame takes no time on a link, and no packet has another fate.
        "0015-a-host-lets-go-behind-its-card.patch",
        "0016-red-sees-an-empty-queue.patch",
        "0017-tcp-sink.patch",
        "0018-a-frame-takes-its-time.patch",
        "0019-fates-of-packets.patch",
        "0020-um-small-code.patch",
        "0021-um-interrupts-in-virtual-time.patch",
        # Where it does not fit, IPv6 is there in every run, and switched off at each interface.
        "0023-ipv6-only-where-asked-for.patch",
        # Where it does not fit, a kernel with symbols is another one than that without.
        "0024-um-the-same-with-symbols.patch",
        # Where it does not fit, `routing.core: packet` is refused by its probes.
        "0025-another-port-for-each-packet.patch",
        # Where it does not fit, programs read this machine's own counter.
        "0026-um-the-counter-is-the-clock.patch",
    ),
)
"""The recipe that the virtual engine uses."""
