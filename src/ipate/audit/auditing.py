"""The audit of a run: a copy in a temporary folder, the attacks on it, and their result."""

import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from ipate.audit.ballots import attack_ballots
from ipate.audit.student import Trials, check_student
from ipate.audit.subject import Audit, Copy, GroupAudit, Subject, read_subject, silent
from ipate.audit.teachers import attack_teachers, measure_noise
from ipate.errors import InputError
from ipate.models.named import NETS
from ipate.runs.ledgers import Bar

CONFIDENCE = 0.999
DRAWS = 200_000


def audit(
    run: Path,
    *,
    confidence: float = CONFIDENCE,
    draws: int = DRAWS,
    student_runs: int = 0,
    on_real_people: bool = False,
    bar: Bar = silent,
) -> Audit:
    """Attack a run in a copy and return the largest lower bound on ε that was reached, group by group.

    Parameters
    ----------
    run : Path
        The folder of a finished run; nothing in it is changed.
    confidence : float
        The probability with which all bounds hold at once.
    draws : int
        How many answers measure each kind of noise.
    student_runs : int
        How often the student is trained again, with and without each group's canary; 0 leaves this attack out.
    on_real_people : bool
        For a run on a file of people: read its allocation, who learns from whom, which is private. Otherwise made-up
        people of the same groups are allocated anew.
    """
    if not 0.5 <= confidence < 1:
        raise InputError(f"confidence is {confidence:g}: it must be from 0.5 to below 1")
    if draws < 1000:
        raise InputError(f"draws is {draws}: at least 1000 are needed")
    begun = time.monotonic()
    subject = read_subject(run, on_real_people=on_real_people)
    check_student(subject, student_runs)
    n_groups = len(subject.people.groups)
    error = (1 - confidence) / (2 if student_runs else 1)
    trials = Trials(runs=student_runs, error=error / n_groups, draws=draws)
    with tempfile.TemporaryDirectory(prefix="ipate-audit-") as where:
        if subject.settings.ballots:
            groups, noise = attack_ballots(subject, Path(where), trials=trials, error=error, bar=bar)
        else:
            copy = Copy(subject=subject, where=Path(where))
            noise = measure_noise(copy, queries=draws, error=error, bar=bar)
            groups = attack_teachers(copy, noise, trials=trials, bar=bar)
    return Audit(
        run=subject.run,
        voting=subject.settings.voting,
        guarantee=subject.guarantee,
        confidence=confidence,
        people=subject.source,
        private=subject.private,
        noise=noise,
        groups=tuple(sorted(groups, key=lambda group: group.promised)),  # the strictest first, as in reports
        notes=tuple(_notes(subject, groups)),
        seconds=time.monotonic() - begun,
    )


def _notes(subject: Subject, groups: Sequence[GroupAudit]) -> Iterator[str]:
    """Yield what a reader of the result should know."""
    yield (
        f"People: {subject.source}. No private row, label or vote was read. The bounds are lower bounds on ε: finding "
        "nothing is no proof."
    )
    if subject.guarantee == "none":
        yield "The run itself promises nothing; what its settings promise with secure noise was audited."
    if subject.settings.n_first is not None:
        yield "The check compares the votes with a student in the run, and among themselves here; it costs the same."
    if subject.config.teachers.model in NETS and not subject.settings.ballots:
        yield "Nets are trained in batches of their own, which the audit does not attack; its teachers are of one kind."
    for group in groups:
        if group.found:
            worst = max(group.attacks, key=lambda attack: (group.exceeds(attack), attack.reached))
            reach = "" if group.teachers is None else f" reaches {group.teachers} of the teachers and"
            charged = "" if worst.charged is None else f" and the ledger charged {worst.charged:.4g}"
            yield (
                f"Group {group.group}: one person{reach} moves a weight of {group.moved:.4g}; {worst.name} show "
                f"ε ≥ {worst.reached:.4g}, {group.promised:.4g} was promised{charged}."
            )
