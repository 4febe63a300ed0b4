from __future__ import annotations

from pathlib import Path

import outcast
from scripts import api_reference


def test_the_reference_is_what_the_code_says() -> None:
    text = api_reference.PAGE.read_text(encoding="utf-8")
    hint = "run: python scripts/api_reference.py"
    assert text.endswith(api_reference.markdown()), hint
    assert [name for name in outcast.__all__ if f"{name}`" not in text] == ["__version__"]


def test_the_examples_are_python() -> None:
    blocks = Path(api_reference.PAGE).read_text().split("```python\n")[1:]
    examples = [block.split("```")[0] for block in blocks]
    examples = [code for code in examples if " -> " not in code]
    assert len(examples) >= 8
    for code in examples:
        compile(code, "docs/api.md", "exec")
