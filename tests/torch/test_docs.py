"""The examples of docs/torch.md run."""

import re
from pathlib import Path

import pytest

pytest.importorskip("torch.nn", reason="needs torch: pip install 'ipate[torch]'")

PAGE = Path(__file__).parents[2] / "docs" / "torch.md"


def test_examples_of_the_torch_page_run(tmp_path, monkeypatch):
    pytest.importorskip("skorch")
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text(), flags=re.DOTALL)
    assert len(blocks) == 6
    space = {}
    for block in blocks:
        exec(compile(block, str(PAGE), "exec"), space)
