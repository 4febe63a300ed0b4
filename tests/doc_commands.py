"""The commands that the pages show, and which of them no test runs.

tests/unit/project/test_docs.py checks the words of each. tests/virtual/test_doc_commands.py runs
all but those of NOT_RUN, in one folder where `results/fig3c` and `results/mine` are runs of fig3c.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from scripts.docs_hook import ROOT_PAGES

ROOT = Path(__file__).parents[1]
PAGES = [*(ROOT / name for name in ROOT_PAGES), *sorted((ROOT / "docs").rglob("*.md"))]

_BLOCK = re.compile(r"^ *```(\w*)\n(.*?)^ *```", re.MULTILINE | re.DOTALL)
_SHELL = {"", "sh", "console"}
_INDENTED = re.compile(r"(?:^ {4,}\S.*\n)+", re.MULTILINE)
_PROGRAMS = (
    *("outcast", "bash", "cp", "diff", "git", "limactl", "pip", "podman", "python", "python3"),
    *("setpriv", "sudo", "tshark", "twine", "vagrant", r"[\w-]+\.sh"),
)
_COMMAND = re.compile(rf" *(?:\$ )?((?:[A-Z_]+=\S+ )*(?:\S*/)?(?:{'|'.join(_PROGRAMS)})(?: .*)?)$")
_USAGE = re.compile(r"\.\.\.|\||\[[A-Z]")

BY_HAND = "it is for a person, a fresh machine or the network; see docs/install.md, What was tried"
LONG = "it takes minutes; shorter runs of the kind are in tests/virtual"
ELSEWHERE = "other tests run the verb, with files that they make"

NOT_RUN: dict[str, str] = {
    # A page, or a page and how its commands begin.
    "CONTRIBUTING.md": BY_HAND,
    "README.md scripts/": BY_HAND,
    "README.md .venv/bin/outcast run": LONG,
    "docs/anywhere.md": BY_HAND,
    "docs/api.md": BY_HAND,
    "docs/blackout.md": LONG,
    "docs/coming-from.md": LONG,
    "docs/determinism.md": ELSEWHERE,
    "docs/events.md": LONG,
    "docs/first-run.md": LONG,
    "docs/exercises.md": ELSEWHERE,
    "docs/grading.md": ELSEWHERE,
    "docs/install.md": BY_HAND,
    "docs/noise.md": LONG,
    "docs/own-captures.md": ELSEWHERE,
    "docs/programs.md": LONG,
    "docs/design/releasing.md": "its steps take hours, and publish",
    "docs/study.md": LONG,
    "docs/sweeps.md": ELSEWHERE,
    "docs/test-your-program.md": ELSEWHERE,
    "docs/teaching.md": LONG,
    "docs/transports.md": LONG,
    "docs/whatif.md": LONG,
    "docs/verbs/fate.md": ELSEWHERE,
    "docs/verbs/join.md": ELSEWHERE,
    "docs/verbs/replay.md": ELSEWHERE,
    "docs/verbs/results.md": ELSEWHERE,
    "docs/verbs/run.md": LONG,
}


@dataclass(frozen=True, slots=True)
class Command:
    """A command as a page shows it.

    Attributes:
        page: the page's path in the checkout.
        line: what to type.
    """

    page: str
    line: str

    @property
    def key(self) -> str:
        """What NOT_RUN's keys are beginnings of."""
        return f"{self.page} {self.line}"

    @property
    def why_not_run(self) -> str | None:
        return next((why for start, why in NOT_RUN.items() if self.key.startswith(start)), None)


def commands() -> Iterator[Command]:
    """Every command in a block of the pages, in their order."""
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        blocks = [block for language, block in _BLOCK.findall(text) if language in _SHELL]
        if page.name == "releasing.md":
            blocks += _INDENTED.findall(text)
        for block in blocks:
            for line in block.replace("\\\n", " ").splitlines():
                found = _COMMAND.fullmatch(re.sub(r"\s+# .*", "", line))
                if found and not (found[1].startswith("outcast") and _USAGE.search(found[1])):
                    yield Command(str(page.relative_to(ROOT)), found[1])
