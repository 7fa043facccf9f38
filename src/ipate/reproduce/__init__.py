"""Every table and figure by name, and the files that one of them becomes."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType

from ipate.files import write_text
from ipate.reproduce import beyond, cost_history, errata, labels, ratios, skew, students, table1
from ipate.reproduce.grid import Options
from ipate.reproduce.results import Sheet
from ipate.reproduce.workshop import Workshop

EXPERIMENTS: Mapping[str, Callable[[Workshop, Options], Sheet]] = MappingProxyType(
    {
        "table1": table1.table1,
        "mnist-labels": labels.mnist,
        "mnist-students": students.mnist,
        "adult-labels": labels.adult,
        "adult-students": students.adult,
        "adult-skew": skew.adult_skew,
        "fig-cost-history": cost_history.fig_cost_history,
        "fig-ratios": ratios.fig_ratios,
        "fig-weighted-ratio": ratios.fig_weighted_ratio,
        "errata": errata.errata,
        "beyond": beyond.beyond,
    }
)


def write_sheet(sheet: Sheet, out: str | Path, *, command: str) -> list[Path]:
    """Write NAME.json, NAME.md and the figures into a folder."""
    folder = Path(out)
    folder.mkdir(parents=True, exist_ok=True)
    files = {f"{sheet.name}.json": json.dumps(sheet.json(command), indent=1, ensure_ascii=False) + "\n"}
    files |= {f"{sheet.name}.md": sheet.markdown(command), **sheet.figures}
    for name, text in files.items():
        write_text(folder / name, text)
    return [folder / name for name in files]
