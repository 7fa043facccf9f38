"""`errata`, `beyond`: the published weighting charged rightly; better and releasable accounts, stronger teachers."""

import math
from collections.abc import Mapping, Sequence
from functools import partial

import numpy as np

from ipate.accounting.bounds import Meter
from paper import experiments
from paper.experiments import THREE_GROUPS, TWO_GROUPS, Budgets, setting_name
from paper.grid import Options, run_votings, shared_ensembles
from paper.models import Ensemble, TrainedModels
from paper.pages import Cell, Page, Row, Spread, Table, spread
from paper.strong import GDP, PAIRS, STRONG, strong_teachers
from paper.voting import PAPER, by_rule, charge_again, published, run_voting, standard, weighting

_ERRATA_COLUMNS = ("weights", "reported", "the paper", "right charges", "most overspent", "by budgets")


def errata(models: TrainedModels, options: Options) -> Page:
    """Measure the effect of pairing weights and budgets by rank, and of the smaller errata."""
    first, second = shared_ensembles("mnist-official", options), shared_ensembles("mnist", options)
    models.require([*first, *second])
    official, split = models.ensembles(first), models.ensembles(second)
    three = {n: (given, experiments.TABLE1_PRINTED["mnist-official", n][2][0]) for n, given in THREE_GROUPS.items()}
    two = {setting_name(*key): (given, experiments.MNIST_LABELS.cells[*key, "W"]) for key, given in TWO_GROUPS.items()}
    tables: list[Table] = []
    overspent: list[tuple[str, Spread]] = []
    for title, ensembles, cases in (
        ("Table 1's people (ε = 1, 2, 3), MNIST", official, three),
        ("The table of labels (ln 2 and a higher budget), MNIST", split, two),
    ):
        rows: list[Row] = []
        for name, (given, printed) in cases.items():
            cells, share = _charges(ensembles, given, printed, options)
            rows.append((name, cells))
            overspent.append((name, share))
        tables.append(Table(title=title, columns=_ERRATA_COLUMNS, rows=rows, notes=() if tables else [_ERRATA_NOTE]))
    return Page(
        name="errata",
        title="What the published weighting charges",
        tables=tables,
        about="The published rule (Algorithm 2: a group's weight is its budget times its number of teachers) sorts "
        "weights and budgets apart and pairs them by rank. Here both accounts see the same votes, points and noise; "
        f"{options.ensembles} ensembles × {options.votings} votings, the paper's account (tight, classic).",
        findings=[*_overspent(overspent), *_smaller_errata(split[0], options)],
    )


_ERRATA_NOTE = (
    "reported: labels when the published pairing stops. right charges: labels when somebody's budget really ends, "
    "under the same weights. most overspent: the group with the largest ε over its budget when the published "
    "pairing stops, by right charges. by budgets: weights in the ratio of budgets, right charges."
)


def _charges(
    ensembles: Sequence[Ensemble], given: Budgets, printed: float, options: Options
) -> tuple[list[Cell | str], Spread]:
    """Return the cells of one setting, and what share of its budget the most overspent group has spent."""
    algorithm2 = partial(weighting, rule="algorithm2")
    reported, right, fair = (
        run_votings(ensembles, make, given, options) for make in (published, algorithm2, weighting)
    )
    who, share = [], []
    for voting in reported:
        spent, _, _ = charge_again(voting, algorithm2(voting.ensemble, given))
        who.append(max(given, key=lambda name: spent[name] / given[name][0]))
        share.append(spent[who[-1]] / given[who[-1]][0])
    weights = {group.id: group.sensitivity for group in algorithm2(ensembles[0], given).panel.groups}
    shown = " / ".join(f"{weights[name]:.2f}" for name in given)
    times = f"{max(sorted(set(who)), key=who.count)}: {spread(share).mean:.2f} × its budget"
    counted, correct, by_budgets = (Cell(ours=votings.labels) for votings in (reported, right, fair))
    return [shown, counted, f"{printed:,.0f}", correct, times, by_budgets], spread(share)


def _overspent(shares: Sequence[tuple[str, Spread]]) -> list[str]:
    broken = [f"{name} ({share.mean:.2f} ×)" for name, share in shares if share.mean > 1.01]
    if not broken:
        return ["No budget is overspent here."]
    harm = (
        f"In {len(broken)} of {len(shares)} settings somebody has spent more than their budget when the published code "
        f"stops: {', '.join(broken)}."
    )
    return [harm, "Where the weights (budget × share) have the order of the budgets, the pairing does no harm."]


def _smaller_errata(ensemble: Ensemble, options: Options) -> list[str]:
    """Measure the errata that need no table."""
    scheme = standard(ensemble, experiments.two_groups(math.log(16), math.log(16), 0.5))
    votings = [run_voting(ensemble, scheme, number=number) for number in range(options.votings)]
    moved = spread(float(np.mean((v.labels != ensemble.plurality[v.asked])[v.answered])) for v in votings)
    low, high = round(100 * experiments.LOWER), round(100 * math.log(8))
    divisor = math.gcd(low, high)
    noise = (
        f"Noise: with independent noise {moved.mean:.2%} of the labels differ from the plurality; 'the same random "
        "noise in each dimension' (Gaussian mechanism) would move none of them and release the bare argmax."
    )
    copies = (
        f"Algorithm 1 as printed, precision 2, makes {low // divisor} and {high // divisor} copies for ln 2 and ln "
        "8; the paper used 1 and 3, and so do we."
    )
    return [noise, copies, _ALGORITHM3, _PRIVATE_COUNTS]


_ALGORITHM3 = (
    "Algorithm 3 as printed selects 'ε_j/ε_max teachers' of a group, a number below 1: the fraction of its teachers is "
    "meant, and taken here. The published interactive aggregator cannot run, and would not charge its check; ours does "
    "(`Interactive`)."
)
_PRIVATE_COUNTS = (
    "Every count in this folder that stops on tight or exact costs is for comparison only: when it stops depends on "
    "private votes, so it is no DP guarantee. `beyond` has the releasable counts."
)
_EXACT = Meter("exact", "improved")
_BEYOND_COLUMNS = ("paper's account", "exact, improved, gdp weights", "ratio", "gdp, releasable", "ratio ")


def beyond(models: TrainedModels, options: Options) -> Page:
    """Measure what better accounts and better teachers add."""
    parts: tuple[tuple[str, str, Mapping[str, Budgets]], ...] = (
        ("Table 1, MNIST", "mnist-official", THREE_GROUPS),
        ("Table 1, SVHN", "svhn", THREE_GROUPS),
        ("MNIST, two groups", "mnist", PAIRS),
        ("Adult, two groups", "adult", PAIRS),
    )
    parts = tuple(part for part in parts if options.wants(part[1]))
    own = [setup for setup in STRONG if options.wants(setup)]
    models.require(spec for setup in (*own, *(s for _, s, _ in parts)) for spec in shared_ensembles(setup, options))
    strong, findings = strong_teachers(models, options, setups=own)
    tables = []
    for title, setup, cases in parts:
        tables.append(_better_accounts(title, models.ensembles(shared_ensembles(setup, options)), cases, options))
        models.log(f"{title}: counted under three accounts")
    return Page(
        name="beyond",
        title="Beyond the paper: exact costs, releasable guarantees, more teachers",
        tables=[*tables, *strong],
        findings=[*map(_gain, tables), *findings],
        about="The same votes under three accounts: the paper's (tight, classic, weights in the ratio of budgets), the "
        "exact divergence with the improved conversion and gdp weights (also private: it depends on the votes), and "
        "the releasable gdp account, under which everybody has (ε, δ)-DP with their own budget. Weighting throughout; "
        f"{options.ensembles} ensembles (SVHN: {options.ensembles}) × {options.votings} votings.",
    )


def _better_accounts(
    title: str, ensembles: Sequence[Ensemble], cases: Mapping[str, Budgets], options: Options
) -> Table:
    rows: list[Row] = []
    for name, given in cases.items():
        paper_account, *better = (
            run_votings(ensembles, partial(by_rule, rule=rule), given, options, meter).labels
            for rule, meter in (("proportional", PAPER), ("gdp", _EXACT), ("gdp", GDP))
        )
        cells: list[Cell | str] = [Cell(ours=paper_account)]
        for counts in better:
            cells += [Cell(ours=counts), f"{counts.mean / paper_account.mean:.2f}"]
        rows.append((name, cells))
    return Table(title=f"Labels, {title}", columns=_BEYOND_COLUMNS, rows=rows)


def _gain(table: Table) -> str:
    exact, gdp = ([float(str(cells[place])) for _, cells in table.rows] for place in (2, 4))
    return (
        f"{table.title.removeprefix('Labels, ')}: exact costs give {min(exact):.2f} to {max(exact):.2f} times the "
        f"labels of the paper's account; the releasable account {min(gdp):.2f} to {max(gdp):.2f} times."
    )
