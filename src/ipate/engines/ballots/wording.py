"""What ballots state about their release for its report: parameters and phrases."""

from ipate.accounting.bounds import Meter
from ipate.engines.ballots.design import SIGMA
from ipate.engines.context import BASELINE
from ipate.release.description import Description, Manner, Parameters, from_outside
from ipate.release.results import Labelling


def described(
    variant: str, meter: Meter, *, rule: str, reason: str, outside: tuple[str, ...], student_model: str = ""
) -> Description:
    """Return what is stated of a release of ballots; a ballot weighs what its person's account is charged."""
    used = Parameters(
        engine="ballots",
        variant=variant,
        rule=rule,
        sigma=SIGMA,
        bound=meter.bound,
        conversion=meter.conversion,
        student_model=student_model,
        reason=reason,
    )
    return Description(parameters=used, manner=manner(used, outside=outside))


def described_elsewhere(result: Labelling) -> Description:
    """Return what is stated of a release of ballots that were cast elsewhere."""
    return described(
        "weighting",
        result.meter,
        rule="as given",
        reason="parameters as given",
        outside=from_outside(bound=result.meter.definition),
        student_model="trained elsewhere",
    )


def manner(used: Parameters, *, outside: tuple[str, ...] = ()) -> Manner:
    """Return facts and phrases of ballots."""
    return Manner(
        uniform=True,
        individual=used.variant != BASELINE,
        proofs=("ballots", "filter"),
        outside=outside,
        rows=(("engine", "ballots: one weighted vote per person, all released at once"),),
        influence_note="One person's ballot weighs at most the number shown, in multiples of the noise of a label; "
        "whoever allows less privacy has a heavier ballot, and so shapes the labels more.",
        opening="cast one ballot each for the class of their public cell; one noisy histogram of all ballots labelled "
        "the public points",
        became="and a student learnt from those labels alone",
        took_part="cast the ballots",
        charged="Every person cast one ballot, weighted by their budget, and all ballots were released at once, as one "
        "histogram with noise. Everybody was charged for it before it was seen, whether they cast a ballot or "
        "not. So the promise to rely on is the budget; the cost shown is what was spent of it.",
        released="The histogram of all ballots, the labels that were read off it, and how clear each label is.",
        withdrew="whoever left before the histogram was released cast an empty ballot; a ballot that was cast by then "
        "is in the histogram and stays there, and the promise about it still holds.",
        public_people="How many withdrew: before the release their ballots become empty and they are still counted, "
        "after it the histogram stays as it is.",
        public_settings="The cells, which follow from the pool alone, the weight of a ballot, the noise and the way of "
        "accounting.",
        leaver="their ballot stays in the histogram if that was released with it",
        before="their ballot stays empty",
        after="their ballot is in the released histogram and stays there",
        way="one noisy histogram of everybody's ballots labelled them",
        how="Every person cast one weighted ballot, and one noisy histogram of all ballots was released.",
        asked="There is one query, for all cells at once; nobody can ask further questions of the private data.",
        noise_of="an entry of the histogram",
        noise_on=" on every entry of one histogram",
        figures="one histogram was released; take its noise, the weight of a ballot",
        card="Every person cast one ballot, weighted by their budget, for the class of the public cell that their rows "
        "fall into. One noisy histogram of all ballots labelled the {pool:,} public points; the student "
        "was trained on these, each weighted by how clear its label was.",
    )
