"""The report of `ipate label`: what it needs is checked before anything is charged, and it is written after."""

import json
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ipate.errors import InputError

if TYPE_CHECKING:
    from ipate.accounting.bounds import Meter
    from ipate.ledger.base import Ledger
    from ipate.people.budgets import GroupRow
    from ipate.release.description import Description
    from ipate.release.results import Labelling


@dataclass(frozen=True)
class Describer:
    """Writes the public report of a labelling, if one is wanted."""

    path: Path | None
    votes: Path
    people: Mapping[str, int | None]
    sites: tuple[str, ...]
    controller: str | None
    contact: str | None

    @classmethod
    def of(
        cls,
        path: Path | None,
        votes: Path,
        rows: "Sequence[GroupRow]",
        meter: "Meter",
        *,
        seeded: bool,
        controller: str | None,
        contact: str | None,
    ) -> "Describer":
        """Check that a report can be written, before anything is charged."""
        if path is None and (controller is not None or contact is not None):
            raise InputError("--controller and --contact are for a report: add --report REPORT.html")
        if path is not None:
            from ipate.report.assemble import check_target

            check_target(path)
            if seeded or not meter.data_independent:
                why = "its noise is seeded" if seeded else f"its costs (bound {meter.bound}) are private"
                raise InputError(f"--report writes a public report, and this labelling has none, because {why}")
        people, sites = {row.group: row.people for row in rows}, () if path is None else _sites(votes)
        return cls(path=path, votes=votes, people=people, sites=sites, controller=controller, contact=contact)

    def write(
        self,
        result: "Labelling",
        ledger: "Ledger | None",
        described: "Description",
        *,
        n_pool: int,
        n_classes: int,
        queries: Sequence[str] | None,
    ) -> None:
        """Write the report while the ledger is open; an earlier private labelling leaves none to write."""
        if self.path is None or ledger is None:
            return
        from ipate.report.assemble import assemble, labelled_source, write_facts

        if not result.guarantee.publishable:
            logging.getLogger("ipate").warning(
                "warning: %s was not written: an earlier labelling on the ledger was charged private costs", self.path
            )
            return
        source = labelled_source(
            result,
            ledger,
            described,
            name=self.votes.name,
            people=self.people,
            n_pool=n_pool,
            n_classes=n_classes,
            queries=queries,
            sites=self.sites,
            controller=self.controller,
            contact=self.contact,
        )
        write_facts(assemble(source, "public"), self.path)


def _sites(votes: Path) -> tuple[str, ...]:
    """Return the names of the sites whose votes or ballots were merged, from the file beside them; empty without it."""
    stated = votes.parent / "sites.json"
    if not stated.is_file():
        return ()
    try:
        return tuple(str(site["site"]) for site in json.loads(stated.read_text(encoding="utf-8"))["sites"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InputError(f"{stated}: it does not state the sites ({error}); restore the file") from None
