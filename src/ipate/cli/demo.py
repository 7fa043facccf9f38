"""`ipate demo`: individualized against standard PATE, on votes of imaginary teachers."""

import typer

__all__ = ["EXAMPLE", "command"]

EXAMPLE = "Example: ipate demo"


def command() -> None:
    """Label with votes of imaginary teachers: standard PATE beside weighting, nobody over budget."""
    from collections import Counter

    import numpy as np

    from ipate.accounting.meter import Meter
    from ipate.aggregators import Confident
    from ipate.budgets import Group
    from ipate.cli.common import print_table
    from ipate.demo import DEMO_GROUPS, synthetic_votes
    from ipate.labelling import label
    from ipate.mechanism import Mechanism
    from ipate.panel import Panel
    from ipate.variants.weighting import weights_for

    votes = synthetic_votes()
    names = votes.groups or ()
    mechanism = Mechanism(sigma=40, check_sigma=150, threshold=200)
    delta = 1e-5
    promised = {name: epsilon for name, epsilon, _ in DEMO_GROUPS}
    budgets = [Group(id=name, epsilon=epsilon, delta=delta) for name, epsilon in promised.items()]
    rule = weights_for(groups=budgets, teachers_per_group=Counter(names))
    weights = np.array([rule[name] for name in names])
    strictest = min(promised.values())
    panels = {
        "standard PATE": Panel.from_votes(votes, [(name, strictest, delta, None) for name in promised]),
        "individualized PATE (weighting)": Panel.from_votes(
            votes, [(name, epsilon, delta, None) for name, epsilon in promised.items()], weights=weights
        ),
    }
    runs = {name: label(votes, panel, Confident(mechanism=mechanism), Meter("gdp")) for name, panel in panels.items()}
    typer.echo(
        f"{votes.n_teachers} imaginary teachers vote on {votes.n_queries} public points, {votes.n_classes} classes. "
        "No data, no training: the votes are drawn by a generator; the noise and the account are real.\n"
    )
    for name, run in runs.items():
        truth = np.asarray(votes.labels)[run.queries]
        right = float(np.mean(run.labels[run.answered] == truth[run.answered]))
        print_table(
            f"{name}: {run.n_labels} labels from {run.n_queries} queries, {right:.1%} of them right",
            ["consent level", "teachers", "a vote counts", "promised ε", "spent ε", "δ"],
            [
                [
                    group.group,
                    str(group.teachers),
                    f"{group.weight:.3f}",
                    f"{promised[group.group]:g}",
                    f"{group.epsilon:.4f}",
                    f"{group.delta:g}",
                ]
                for group in run.groups
            ],
            [],
        )
    standard, individual = runs.values()
    typer.echo(f"{individual.n_labels / standard.n_labels:.1f} times as many labels, nobody's budget exceeded.\n")
    typer.echo(individual.guarantee.statement)
