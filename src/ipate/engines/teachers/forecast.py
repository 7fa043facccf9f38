"""What budgets afford to teachers, as a plan shows it: every variant, more consent, more teachers, other bounds."""

from dataclasses import asdict

from ipate.accounting.bounds import find_bound
from ipate.engines.base import Forecast, Means, Table
from ipate.engines.context import Bar, silent
from ipate.engines.teachers.outlook import Prospect, prospect
from ipate.engines.teachers.plan import FEWER_POINTS, RATES, GroupPlan, Plan, VariantPlan, make_plan
from ipate.engines.teachers.reference import Expectation, expectations, read_reference
from ipate.engines.teachers.settings import TeacherOptions, changed
from ipate.engines.teachers.tuning import SKILLS
from ipate.engines.teachers.variants import VARIANTS

_BOUNDS = ("gdp", "sup", "ptr")  # that a reference compares


def forecast(asked: TeacherOptions, means: Means, *, bar: Bar = silent) -> Forecast:
    """Return the plan of every variant, with the settings that a run chooses.

    A reference or a design is for the bound ptr; under another bound a reference compares the bounds.
    """
    source, _ = read_reference(asked.reference)
    own = asked if find_bound(asked.bound).whole else changed(asked, reference=None)
    with bar("variants and levels computed", len(means.groups) + len(VARIANTS)) as progress:
        found = prospect(own, means, progress=progress)
    settings = found.settings
    counted = settings.meter.planning
    plan = make_plan(
        groups=means.groups,
        n_teachers=settings.n_teachers,
        mechanism=settings.aggregator().mechanism,
        meter=counted,
        n_classes=means.n_classes,
        parties=means.parties,
        seed=means.seed,
        options={settings.variant: settings.options},
        standing=means.standing,
    )
    expected: tuple[Expectation, ...] = ()
    if source is not None:
        with bar("variants compared with the reference", len(plan.variants)) as progress:
            expected = expectations(plan, source, pool=means.n_pool, progress=progress)
    notes = list(plan.notes)
    if counted != settings.meter:
        what = f"The run's bound {settings.meter.bound} depends on the votes"
        notes.insert(0, f"{what}; this plan counts by {counted.bound}.")
    return Forecast(
        facts={**plan.facts(), **found.facts(), "expected": [asdict(row) for row in expected]},
        tables=(
            *(_variant(variant, means) for variant in plan.variants),
            _guaranteed(plan, found),
            *_outlook(found, means),
            *_expected(expected),
            _more_teachers(plan),
        ),
        notes=tuple(notes),
    )


def _symbol(plan: VariantPlan) -> str:
    return "σ" if plan.mechanism.noise == "gaussian" else "b"


def _variant(plan: VariantPlan, means: Means) -> Table:
    """Return the groups of a variant: their influence, and what each budget affords."""
    noise, symbol = plan.mechanism, _symbol(plan)
    kind = "" if noise.noise == "gaussian" else "Laplace noise with "
    check = "" if not noise.has_check else f", σ_T = {noise.check_sigma:.5g}, T = {noise.threshold:.5g}"
    rates = (f"queries at {rate:.0%}" for rate in RATES)
    return Table(
        title=f"{plan.variant} ({plan.layout.rule}): {plan.n_teachers} teachers of "
        f"{plan.people_per_teacher:.4g} people, {kind}{symbol} = {noise.sigma:.5g}{check}",
        columns=("group", "ε", "δ", "people", "teachers", plan.influence, "Δ", *rates),
        rows=tuple(_group(group, means) for group in plan.groups),
        notes=plan.layout.notes,
    )


def _group(group: GroupPlan, means: Means) -> tuple[str, ...]:
    account, people = group.account, str(means.shown(group.account.people))
    return (
        *(account.id, f"{account.epsilon:.4g}", f"{account.delta:g}", people, str(group.teachers)),
        *(f"{group.influence:.4g}", f"{account.sensitivity:.4g}"),
        *("far more" if n is None else str(n) for n in group.queries),
    )


def _guaranteed(plan: Plan, found: Prospect) -> Table:
    """Return the labels that the budgets guarantee under each variant, and which variant suits."""
    settings, chances = found.settings, plan.chances
    notes = [f"For {settings.variant}: {settings.reason}.", f"Suits: {plan.suits}. {plan.why}"]
    if chances.unanimous_passes is not None:
        notes.append(
            f"A unanimous vote passes the check with the probability {chances.unanimous_passes:.2f}: "
            "expect no higher answer rate."
        )
    if chances.label_right is not None:
        notes.append(
            f"Where {chances.share:.0%} of the votes go to one of {plan.n_classes} classes and the rest is spread "
            f"evenly, the label names it with the probability {chances.label_right:.4f}."
        )
    return Table(
        title=f"Labels that the budgets guarantee, by the {plan.meter.bound} bound (and the group that ends it)",
        columns=("variant", *(f"{rate:.0%} answered" for rate in RATES), "against standard"),
        rows=tuple(
            (
                variant.variant,
                *(f"{given.labels} ({given.binding})" for given in variant.guaranteed),
                "—" if (ratio := variant.guaranteed[-1].ratio) is None else f"×{ratio:.2f}",
            )
            for variant in plan.variants
        ),
        notes=tuple(notes),
    )


def _outlook(found: Prospect, means: Means) -> tuple[Table, ...]:
    """Return what a student can expect under each variant, and what more consent would bring."""
    own = found.outlook
    profiles = (
        f"Labels: on average over reference profiles of teachers, which are {SKILLS[0]:.0%} to {SKILLS[-1]:.0%} of the "
        "way from guessing to perfect, and for the worst and the best of them. Clean: so many correct labels teach as "
        "much. Each variant has the settings that are chosen for it."
    )
    notes = [profiles]
    if (first := found.settings.n_first) is not None:
        notes.append(f"Rounds: {first:,} points; then a student of their labels is compared with the votes.")
    expected = Table(
        title=f"What a student can expect from a pool of {means.n_pool} points",
        columns=("variant", "teachers", "people each", "labels", "worst to best", "right", "clean"),
        rows=tuple(
            (
                row.variant,
                str(row.n_teachers),
                f"{row.people_per_teacher:.4g}",
                str(row.labels),
                f"{row.fewest} to {row.most}",
                f"{row.right:.0%}",
                str(row.clean),
            )
            for row in (own, *found.others)
        ),
        notes=tuple(notes),
    )
    if not found.steps:
        return (expected,)
    steps = (
        (
            step.group,
            str(means.shown(step.people)),
            f"{step.to:.4g}",
            f"{step.epsilon:.4g}",
            str(step.labels),
            f"{step.labels - own.labels:+d}",
        )
        for step in found.steps
    )
    columns = ("if the people of", "people", "allowed ε", "instead of", "labels", "more")
    title = f"What more consent would bring, under {own.variant}"
    return expected, Table(title=title, columns=columns, rows=tuple(steps))


def _expected(rows: tuple[Expectation, ...]) -> tuple[Table, ...]:
    """Return the labels to expect by bound, if there is a reference."""
    if not rows:
        return ()
    cells = ((row.variant, f"{row.answer_rate:.0%}", *(str(row.labels[bound]) for bound in _BOUNDS)) for row in rows)
    compared = Table(
        title="Labels to expect where votes are as the reference's, by bound",
        columns=("variant", "answered", *_BOUNDS),
        rows=tuple(cells),
        notes=(
            "gdp and sup hold for all votes. ptr asks one private yes/no question first.",
            "These figures may be published if the reference is independent of these people.",
        ),
    )
    return (compared,)


def _more_teachers(plan: Plan) -> Table:
    """Return the labels that other numbers of teachers would afford."""
    symbol, names = _symbol(plan.variants[0]), list(plan.more[0].labels)
    rows = (
        (
            str(row.n_teachers),
            f"{row.people_per_teacher:.4g}",
            *("—" if (labels := row.labels[name]) is None else str(labels) for name in names),
        )
        for row in plan.more
    )
    return Table(
        title=f"What more teachers would afford, at equal {symbol}/k and 100% answered",
        columns=("teachers", "people each", *names),
        rows=tuple(rows),
        notes=(
            FEWER_POINTS.replace("σ", symbol),
            "From budgets, what is left of them, numbers of people and noise alone.",
        ),
    )
