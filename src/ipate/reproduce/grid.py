"""Every voting of an experiment over splits and seeds, held once."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from ipate.accounting.bounds import Meter
from ipate.reproduce.ensembles import Ensemble, Spec
from ipate.reproduce.schemes import Scheme, published, standard, two, upsampling, vanishing, weighting
from ipate.reproduce.settings import HIGHER, LOWER, SHARES
from ipate.reproduce.voting import PAPER, Booth, Spread, Voting, spread
from ipate.reproduce.workshop import Pupil, Workshop

COPIES = {"ln 4": 2, "ln 8": 3, "ln 16": 4}
"""Copies of whoever has the higher budget: its ratio to ln 2, as in the paper's 'Details of Upsampling'."""


BASELINE = ("baseline", 0.0, "S")


@dataclass(frozen=True, kw_only=True)
class Options:
    """How much of everything.

    Attributes
    ----------
    ensembles, votings : int
        Repetitions; the paper has 10 × 5.
    """

    ensembles: int = 3
    votings: int = 5


@dataclass(frozen=True, kw_only=True, eq=False)
class Held:
    """A voting with the ensemble that held it."""

    ensemble: Ensemble
    number: int
    voting: Voting

    def pupil(self, key: tuple[Any, ...]) -> Pupil:
        """Return the student that learns from its labels."""
        given = self.voting.given
        replicate = self.ensemble.spec.replicate
        return Pupil(
            key=(*key, replicate, self.number),
            replicate=replicate,
            rows=self.ensemble.public[self.voting.asked[given]],
            labels=self.voting.labels[given],
        )


@dataclass(frozen=True, kw_only=True, eq=False)
class Grid:
    """All votings of an experiment, by (higher budget, share, variant); the baseline's under `BASELINE`."""

    setup: str
    cells: dict[tuple[str, float, str], list[Held]] = field(default_factory=dict)

    def labels(self, key: tuple[str, float, str]) -> Spread:
        """Return how many labels a cell's votings gave."""
        return spread(held.voting.n_labels for held in self.cells[key])

    def accuracy(self, key: tuple[str, float, str]) -> Spread:
        """Return which share of a cell's labels is right, in per cent."""
        return spread(100 * held.voting.accuracy for held in self.cells[key])

    def ratio(self, key: tuple[str, float, str]) -> Spread:
        """Return a cell's labels over the mean of the baseline's on the same split."""
        base: dict[int, list[int]] = {}
        for held in self.cells[BASELINE]:
            base.setdefault(held.ensemble.spec.replicate, []).append(held.voting.n_labels)
        return spread(
            held.voting.n_labels / spread(base[held.ensemble.spec.replicate]).mean for held in self.cells[key]
        )

    def pupils(self, variants: str) -> Iterator[Pupil]:
        """Yield the students of all votings of some variants; the baseline is S."""
        for key, cell in self.cells.items():
            for held in cell if key[2] in variants else ():
                yield held.pupil(key)


def shared(setup: str, options: Options) -> list[Spec]:
    """Return the ensembles that all variants but upsampling share."""
    return [Spec(setup=setup, replicate=replicate) for replicate in range(options.ensembles)]


def upsampled(setup: str, options: Options, *, higher: str, share: float) -> list[Spec]:
    """Return upsampling's own ensembles for one setting."""
    return [
        Spec(setup=setup, replicate=replicate, shares=(1 - share, share), copies=(1, COPIES[higher]))
        for replicate in range(options.ensembles)
    ]


def votings(
    ensembles: Iterable[Ensemble], scheme_of: Callable[[Ensemble], Scheme], options: Options, meter: Meter = PAPER
) -> list[Held]:
    """Hold all votings of some ensembles; `scheme_of` makes an ensemble's scheme."""
    found = []
    for ensemble in ensembles:
        booth = Booth(ensemble, scheme_of(ensemble), meter)
        for number in range(options.votings):
            found.append(Held(ensemble=ensemble, number=number, voting=booth.hold(number)))
    return found


def make_grid(
    workshop: Workshop, setup: str, options: Options, *, variants: Sequence[str] = "UVWP", meter: Meter = PAPER,
    rule: str = "proportional", also: Sequence[Spec] = (),
) -> Grid:  # fmt: skip
    """Hold the votings of the main experiment.

    Variants: U upsampling, V and Q vanishing with participation (ε/ε_max)⁴ and (ε/ε_max)², W weighting by `rule`,
    P weighting by Algorithm 2 and charged as published. `also` names ensembles that will be asked for later.
    """
    settings = [(higher, share) for higher in HIGHER for share in SHARES]
    specs = shared(setup, options)
    ups = {key: upsampled(setup, options, higher=key[0], share=key[1]) for key in settings} if "U" in variants else {}
    workshop.need([*specs, *(spec for own in ups.values() for spec in own), *also])
    ensembles = [workshop.ensemble(spec) for spec in specs]
    grid = Grid(setup=setup)
    lowest = two(LOWER, LOWER, 0.5)
    grid.cells[BASELINE] = votings(ensembles, partial(standard, given=lowest), options, meter)
    for higher, share in settings:
        given = two(LOWER, HIGHER[higher], share)
        makers = {
            "V": partial(vanishing, given=given),
            "Q": partial(vanishing, given=given, power=2),
            "W": partial(weighting, given=given, rule=rule),
            "P": partial(published, given=given),
        }
        for variant in variants:
            key = (higher, share, variant)
            if variant == "U":
                own = [workshop.ensemble(spec) for spec in ups[higher, share]]
                grid.cells[key] = votings(own, partial(upsampling, given=given), options, meter)
            else:
                grid.cells[key] = votings(ensembles, makers[variant], options, meter)
        workshop.say(f"{setup}: votings held for {higher}, {share:.0%}")
    return grid
