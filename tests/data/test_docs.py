import re
from pathlib import Path

PAGE = Path(__file__).parents[2] / "docs" / "data.md"


def test_every_example_on_the_page_runs(tmp_path, monkeypatch):
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), flags=re.DOTALL)
    assert len(blocks) >= 5
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("IPATE_DATA", str(tmp_path / "cache"))
    scope: dict[str, object] = {}
    for block in blocks:
        exec(compile(block, str(PAGE.name), "exec"), scope)
