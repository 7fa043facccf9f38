"""Hand-made facts for reports: any bound, any stopping rule, seeded or not."""

from ipate.accounting.bounds import Meter
from ipate.engines.teachers.wording import manner
from ipate.people.budgets import Account, Budget, Group
from ipate.release.description import GroupFacts, Parameters
from ipate.release.history import Point
from ipate.release.results import GroupResult, state_guarantee
from ipate.report.facts import Facts, Outcome, Owner, Scores

SCORES = Scores(label_accuracy=0.8123, student_accuracy=0.7654)
COSTS = {"high": 0.98765, "low": 2.91234}


def group(name, *, budget, cost_share=0.5, people=60):
    owner = Group(id=name, budget=Budget(budget, 1e-5), people=people)
    return GroupFacts(
        account=Account(group=owner, sensitivity=1.0),
        teachers=15,
        weight=1.0,
        copies=1,
        participation=1.0,
        people_share=cost_share,
        vote_share=0.5,
    )


def facts(
    *,
    bound="gdp",
    stopped_by="account",
    seeded=False,
    check=True,
    groups=None,
    costs=None,
    stop="budget",
    n_labels=471,
    variant="weighting",
):
    """Return unfiltered facts, with everything that the data owner may see."""
    own = groups or (group("high", budget=1.0), group("low", budget=3.0))
    paid = costs or [COSTS.get(entry.id, entry.budget.epsilon / 2) for entry in own]
    ids = [entry.id for entry in own]
    used = Parameters(
        variant=variant,
        rule="gdp",
        teachers=30,
        sigma=10.0,
        check_sigma=20.0 if check else None,
        threshold=15.0 if check else None,
        bound=bound,
        conversion="gdp" if bound == "gdp" else "improved",
        orders=dict.fromkeys(ids, 12.0) if bound in ("loose", "sup") else {},
        stop=stop,
        max_labels=999 if stopped_by == "fixed" else None,
        teacher_model="bayes",
        student_model="logistic",
        reason="parameters as given",
    )
    made = state_guarantee(Meter(bound), stopped_by=stopped_by, seeded=seeded)
    outcome = Outcome(
        ended="count" if stopped_by == "fixed" else "budget",
        n_labels=n_labels,
        n_queries=n_labels + 152,
        groups=tuple(
            GroupResult(group=entry.account.group, cost=cost, sensitivity=1.0)
            for entry, cost in zip(own, paid, strict=True)
        ),
        history=(
            Point(queries=0, labels=0, costs=dict.fromkeys(ids, 0.0)),
            Point(queries=n_labels + 152, labels=n_labels, costs=dict(zip(ids, paid, strict=True))),
        ),
    )
    return Facts(
        audience="private",
        data_name="example",
        data_source="",
        data_notes=(),
        classes=("a", "b"),
        n_people=120,
        n_pool=1000,
        groups=own,
        merged=(),
        withdrawn=0,
        notes=(),
        parameters=used,
        manner=manner(used, copies=max(entry.copies for entry in own)),
        guarantee=made,
        stopped_by=stopped_by,
        noise_seed=77777 if seeded else None,
        split_seed=0,
        versions={"ipate": "0"},
        released=outcome if made.publishable else None,
        owner=Owner(
            outcome=outcome,
            scores=SCORES,
            standard_labels=236,
            teacher_accuracy=0.6543,
            plurality_accuracy=0.8765,
            comparison=None,
        ),
    )
