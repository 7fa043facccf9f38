"""Write a run's report: html and JSON, public or private, each in the folder where it belongs."""

from dataclasses import dataclass
from pathlib import Path

from ipate.errors import InputError
from ipate.report.collect import collect
from ipate.report.facts import Audience, Facts
from ipate.report.page import page
from ipate.report.twin import as_json
from ipate.runs.folder import RunFolder
from ipate.tables import write_text

__all__ = ["Report", "check_target", "write_facts", "write_report"]


@dataclass(frozen=True, kw_only=True)
class Report:
    """A report that was written: where, and from which facts."""

    html: Path
    json: Path
    facts: Facts


def write_report(
    run_folder: str | Path | RunFolder, *, audience: Audience = "public", out: str | Path | None = None
) -> Report:
    """Write `report.html` and `report.json` of a run.

    Parameters
    ----------
    run_folder : path or RunFolder
        A run whose labels have been given.
    audience : {"public", "private"}
        public holds only what may be published; private is for the data owner, and says so on every page.
    out : path, optional
        The html file; its twin stands beside it with the suffix .json. Unless given, both go to the run's
        own folder `public` or `private`.

    Returns
    -------
    Report
        The two files and the facts they were written from.
    """
    folder = run_folder if isinstance(run_folder, RunFolder) else RunFolder.open(Path(run_folder))
    html = _target(folder, audience, out)
    return write_facts(collect(folder, audience), html)


def write_facts(facts: Facts, html: Path) -> Report:
    """Write the page and its twin; private ones are readable by their owner alone."""
    texts = {html: page(facts), html.with_suffix(".json"): as_json(facts)}
    for path, content in texts.items():
        write_text(path, content, private=facts.audience == "private")
    return Report(html=html, json=html.with_suffix(".json"), facts=facts)


def check_target(out: str | Path) -> Path:
    """Return where a page may go: a file that ends in .html, in a folder that is there."""
    path = Path(out)
    if path.suffix.lower() not in (".html", ".htm"):
        raise InputError(f"out is {str(path)!r}: it must end in .html; the JSON twin is written beside it")
    if not path.parent.is_dir():
        raise InputError(f"{path.parent}: no such folder")
    return path


def _target(folder: RunFolder, audience: Audience, out: str | Path | None) -> Path:
    if out is None:
        return (folder.private if audience == "private" else folder.public) / "report.html"
    path = check_target(out)
    if audience == "private" and path.resolve().is_relative_to(folder.public.resolve()):
        raise InputError(f"out is {str(path)!r}: a private report must not lie in the run's public folder")
    return path
