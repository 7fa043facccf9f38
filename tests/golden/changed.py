"""Results that are meant to differ from the recorded ones, each with the reason.

`CHANGED` maps the name of a case to the places in its results, and these to a sentence that says why they differ now. A
place is the beginning of a path such as "1 run.groups.high.cost": "1 run" stands for the whole first step, and "" for
the whole case. A place that does not differ fails the comparison too, so the list cannot outlive its reasons.
"""

_ASKED = (
    "compared teachers are asked in the order of a run (random by the split seed, or by the rule of queries); "
    "before, they were asked in the order of the pool"
)
_TESTED = (
    "the queries of ptr are those of a run, in the order of the pool, and so is its design; before, a fit asked them "
    "in the random order of the split seed"
)

CHANGED: dict[str, dict[str, str]] = {
    "data digits compared": {"1 run.compared.standard": _ASKED},
    "fit ptr": {f"1 fit.{name}": _TESTED for name in ("answered", "asked", "labels", "labels_", "predicted", "right")},
    "fit ptr failed": {"1 fit": f"{_TESTED}; with this seed the test on these queries is passed"},
    "ledger two fits": {
        "3 fit": "a fit is refused before training if an account cannot pay for one more query, as a run is; before, "
        "it trained all teachers and released no new label"
    },
    "left after the run": {
        "3 resume.votes": "after the labelling is complete, teachers whose votes a withdrawal erased are not trained "
        "again; before, they were, although no vote was counted any more"
    },
    "refused fit of too few labels": {
        "1 fit.error": "the same message is raised as TooFewLabelsError, a kind of InputError, so that the engine auto "
        "knows when it may take ballots"
    },
}
