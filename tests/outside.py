"""Parts that are not ipate's own, named in configurations as outside:NAME."""

from dataclasses import replace

from sklearn.naive_bayes import GaussianNB

from ipate.accounting.gdp import Gdp
from ipate.engines.teachers.aggregators import NamedAggregator
from ipate.engines.teachers.influence import Variant
from ipate.engines.teachers.variants import blocs_of
from ipate.people.budgets import Account
from ipate.students.student import Student


class Apart(Variant):
    """Groups are kept apart and every vote counts 1."""

    name = "apart"
    summary = "groups apart, all votes alike"

    def layout(self, *, groups, n_teachers, seed=0):
        """Lay out teachers of one group each, with equal weights."""
        return replace(blocs_of(groups=groups, n_teachers=n_teachers), variant=self.name)


class Cheap(Apart):
    """Every vote counts 2.78 and is charged as 1."""

    name = "cheap"

    def layout(self, *, groups, n_teachers, seed=0):
        """Charge too little."""
        made = super().layout(groups=groups, n_teachers=n_teachers)
        return replace(made, weights=2.78 * made.weights)


class Twice(Apart):
    """Every person is in two teachers and charged for one."""

    name = "twice"

    def layout(self, *, groups, n_teachers, seed=0):
        """Charge too little."""
        made = super().layout(groups=groups, n_teachers=n_teachers)
        return replace(made, copies=dict.fromkeys(made.copies, 2))


class Covered(Twice):
    """Every person is in two teachers and charged for both."""

    name = "covered"

    def layout(self, *, groups, n_teachers, seed=0):
        """Charge for two teachers."""
        made = super().layout(groups=groups, n_teachers=n_teachers)
        return replace(made, groups=tuple(Account(group=own.group, sensitivity=2.0) for own in made.groups))


class Majority(NamedAggregator):
    """A noisy label where the largest count is by T above half of all votes."""

    name = "majority"
    summary = "a label where a noisy check finds a majority"
    needs = ("sigma", "check_sigma", "threshold")

    def maxima(self, counts, *, total_weight, probs=None):
        """Return the votes above one half."""
        return counts.max(axis=1) - total_weight / 2


class Dear(Gdp):
    """The bound gdp by another name."""

    name = "dear"


class Plain(Student):
    """Naive Bayes on the points that have a label."""

    name = "plain"

    def make(self, options, *, seed=None, n_jobs=None):
        """Return the model."""
        return GaussianNB(**options)

    def fit(self, model, pool, labels, *, n_classes, sample_weight=None, labelled=None):
        """Train on labels."""
        return model.fit(pool[labels >= 0], labels[labels >= 0])
