"""Vanishing in the tables of labels: whose cost ends a voting."""

import math

from paper.experiments import two_groups
from paper.grid import Options
from paper.labels import whose_cost
from paper.voting import PAPER, rotation_costs, vanishing

STRICT = two_groups(math.log(2), math.log(8), 0.25)


def test_group_mean_hides_overspent_teachers(common):
    costs = rotation_costs(common, vanishing(common, STRICT, power=2), number=0)
    on_average = costs.affordable_on_average()
    assert on_average > costs.affordable()
    budget, delta = costs.panel.budgets
    worst, _ = PAPER.epsilon(costs.spent(on_average), delta)
    assert (worst > budget).any()
    groups = [costs.panel.account_group == place for place in range(len(costs.panel.groups))]
    means = {}
    for queries in (on_average, on_average + 1):
        epsilon, _ = PAPER.epsilon(costs.spent(queries), delta)
        means[queries] = [epsilon[own].mean() / budget[own][0] for own in groups]
    assert max(means[on_average]) <= 1 < max(means[on_average + 1])


def test_group_mean_gives_more_labels_than_worst_teacher(common):
    table = whose_cost([common], Options(ensembles=1, votings=2))
    differ = []
    for name, (early, final, worst, coins, improved, mean) in table.rows:
        assert coins.ours.mean <= worst.ours.mean < min(improved.ours.mean, mean.ours.mean)
        if early != final:
            differ.append(name)
    assert differ == ["25% at ln 8", "25% at ln 16"]
