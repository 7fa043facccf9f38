"""The methods on images. What several runs share, such as a trained ensemble, is prepared once and kept in a folder.

The private rows of MNIST are the same in every run, so one ensemble of each kind serves all runs and all budgets:
budgets are dealt at random, so teachers are exchangeable. Pool, noise and student differ from run to run.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from ipate._types import Ints
from ipate.engines.ballots.design import allocate_ballots, voters
from ipate.engines.ballots.release import release
from ipate.engines.base import Means
from ipate.engines.teachers.asking import ask, plan_queries
from ipate.engines.teachers.loop import account_terms, label
from ipate.engines.teachers.panel import Panel
from ipate.engines.teachers.settings import TeacherOptions, TeacherSettings, choose_settings
from ipate.engines.teachers.variants import allocate
from ipate.engines.teachers.votes import Votes
from ipate.ledger.base import MemoryLedger
from ipate.models.named import DEFAULT, make_model
from ipate.people.people import People
from ipate.public.features import fit_features, pool_encoder
from ipate.release.noise import SeededNoise
from ipate.release.results import Labelling, Record
from ipate.students.confidence import label_distributions
from ipate.students.student import STUDENTS, Student
from paper.compare import dpsgd
from paper.compare.outcome import Clock, Outcome, Studio, scored
from paper.compare.tables import REFUSED, deal, paper_labels, trained_by_dpsgd
from paper.compare.worlds import Mix, World
from paper.experiments import SETUPS

Array = NDArray[Any]
NET = "small"  # ipate's net for teachers of images
SEMI, GRAPH = "semi", "graph"  # ipate's students of images, with a GPU and without


def device() -> str:
    """Return "cuda" where there is a GPU, else "cpu"."""
    import torch

    return "cuda" if torch.cuda.is_available() else "cpu"


def machine() -> str:
    """Return the name of the device in an outcome."""
    return "GPU" if device() == "cuda" else "CPU"


# What is prepared


def prepare_encoder(world: World, studio: Studio) -> None:
    """Train the self-supervised features of a pool, as the semi-supervised student of a run does."""
    from ipate.torch.contrastive import train_encoder

    encoder = train_encoder(world.pool[0], steps=studio.steps, seed=world.seed)
    studio.store("encoder", world, {name: value.cpu().numpy() for name, value in encoder.state.items()})


def prepare_nets(world: World, studio: Studio) -> None:
    """Train ipate's nets as teachers, as many as the default says, and keep their votes."""
    settings = _chosen(world, None, STUDENTS[SEMI])
    _train_nets(world, studio, "nets", NET, settings.n_teachers)


def prepare_paper(world: World, studio: Studio) -> None:
    """Train the paper's 250 nets and keep their votes."""
    _train_nets(world, studio, "paper", SETUPS["mnist"].teacher, min(250, world.people // 20))


def _train_nets(world: World, studio: Studio, what: str, preset: str, k: int) -> None:
    from ipate.torch.training import train_ensemble

    ensemble = train_ensemble(
        *world.private, deal(world, k), n_classes=world.n_classes, preset=preset, steps=studio.steps, seed=0
    )
    votes = np.concatenate([own for _, own in ensemble.vote(_asked(world))], axis=1)
    studio.store(what, world, {"votes": votes.astype(np.uint8)})


def prepare_logistic(world: World, studio: Studio) -> None:
    """Train ipate's default teachers on pixels, as a run without a GPU does, and keep their votes."""
    k = _chosen(world, None, STUDENTS[GRAPH]).n_teachers
    X, y = _flat(world.private[0]), world.private[1]
    asked = _flat(_asked(world))
    votes = [make_model(DEFAULT).fit(X[rows], y[rows]).predict(asked) for rows in deal(world, k)]
    studio.store("logistic", world, {"votes": np.stack(votes).astype(np.uint8)})


def _asked(world: World) -> Array:
    """Return all points that the pool of some run may have: those that are no people's."""
    return np.concatenate([world.pool[0], world.test[0]])[np.argsort(_places(world))]


def _places(world: World) -> Ints:
    return np.concatenate([world.pool_rows, world.test_rows])


def _votes(world: World, studio: Studio, what: str) -> Array:
    """Return the votes of prepared teachers on the pool of a run."""
    votes = studio.load(what, world)["votes"]
    return votes[:, np.searchsorted(np.sort(_places(world)), world.pool_rows)]


# ipate


def _people(world: World, mix: Mix | None) -> People:
    epsilon = np.ones(world.people) if mix is None else mix.of_people(world.people, world.seed)
    return People.from_budgets(epsilon, delta=world.delta)


def _chosen(world: World, mix: Mix | None, student: Student) -> TeacherSettings:
    """Return the settings that a run chooses for itself."""
    means = Means(
        groups=_people(world, mix).groups,
        n_pool=len(world.pool[1]),
        n_classes=world.n_classes,
        student=student,
        seed=world.seed,
    )
    return choose_settings(TeacherOptions(), means)


def teachers_semi(world: World, mix: Mix, studio: Studio) -> Outcome:
    """Use nets as teachers, queries by coverage and the semi-supervised student: a run with a GPU."""
    return _by_teachers(world, mix, studio, votes="nets", student=SEMI)


def teachers_graph(world: World, mix: Mix, studio: Studio) -> Outcome:
    """Use logistic teachers, queries by coverage and the graph student: a run without a GPU."""
    return _by_teachers(world, mix, studio, votes="logistic", student=GRAPH)


def _by_teachers(world: World, mix: Mix, studio: Studio, *, votes: str, student: str) -> Outcome:
    clock, people, own = Clock(), _people(world, mix), STUDENTS[student]
    settings = _chosen(world, mix, own)
    allocation = allocate(settings.variant, people=people, n_teachers=settings.n_teachers, seed=world.seed)
    if student == SEMI:
        pool_encoder(world.pool[0], encoder=_encoder(world, studio))
    kind = own.embedding(world.pool[0].shape[1:])
    asking = plan_queries(world.pool[0], settings, n_classes=world.n_classes, seed=world.seed, kind=kind)
    ballot = Votes(
        votes=_votes(world, studio, votes),
        n_classes=world.n_classes,
        groups=allocation.teacher_groups,
        weights=allocation.weights,
    )
    panel, aggregator = Panel.of(allocation.layout), settings.aggregator(allocation.scale)
    book = MemoryLedger(account_terms(panel, settings.meter, aggregator))

    def answered(order: Ints, after: Labelling | None = None) -> Labelling:
        noise = SeededNoise(world.seed)
        return label(ballot, panel, aggregator, settings.meter, order=order, noise=noise, ledger=book, after=after)

    weight = float(allocation.weights.sum())
    result = ask(asking, answered, n_classes=world.n_classes, total_weight=weight)
    record = Record.of(result, n_public=len(world.pool[1]))
    if not record.n_labels:
        return clock.on(Outcome(accuracy=None), note=REFUSED)
    known = label_distributions(
        record.labels,
        n_classes=world.n_classes,
        noisy_votes=record.noisy_votes,
        step=record.step,
        total_weight=weight,
    )
    note = f"{record.n_labels} labels"
    return _taught(world, mix, studio, student=own, labels=record.labels, clock=clock, note=note, targets=known)


def ballots_semi(world: World, mix: Mix, studio: Studio) -> Outcome:
    """Use ballots and the semi-supervised student: a run with a GPU."""
    return _by_ballots(world, mix, studio, SEMI)


def ballots_graph(world: World, mix: Mix, studio: Studio) -> Outcome:
    """Use ballots and the graph student: a run without a GPU."""
    return _by_ballots(world, mix, studio, GRAPH)


def _by_ballots(world: World, mix: Mix, studio: Studio, student: str) -> Outcome:
    clock, people, own = Clock(), _people(world, mix), STUDENTS[student]
    encoder = _encoder(world, studio) if student == SEMI else None
    kind = own.embedding(world.pool[0].shape[1:])
    features = fit_features(world.pool[0], n_classes=world.n_classes, kind=kind, encoder=encoder)
    found = release(
        world.pool[0],
        *world.private,
        voters(allocate_ballots("weighting", people=people, seed=world.seed)),
        n_classes=world.n_classes,
        noise=SeededNoise(world.seed),
        features=features,
    )
    known: dict[str, Any] = {"sample_weight": found.decoded.sample_weight}
    known |= {"review": found.decoded.review} if own.reviews and found.decoded.reviewable else {}
    return _taught(world, mix, studio, student=own, labels=found.labelling.labels, clock=clock, **known)


def _taught(
    world: World,
    mix: Mix | None,
    studio: Studio,
    *,
    student: Student,
    labels: Ints,
    clock: Clock,
    note: str = "",
    **known: Any,
) -> Outcome:
    """Teach a student, with the encoder that was trained on its pool, and score it outside the pool."""
    if student.name == SEMI:
        known["encoder"] = _encoder(world, studio)
        model = student.make(studio.options, seed=world.seed)
    else:
        model = student.make({"image_shape": world.pool[0].shape[1:]}, seed=world.seed)
    pool, shape = (world.pool[0], _same) if student.images else (_flat(world.pool[0]), _flat)
    trained = student.teach(model, pool, labels, classes=range(world.n_classes), **known)
    found = scored(lambda X: trained.predict(shape(X)), world, mix, public=True)
    return clock.on(found, where=machine() if student.name == SEMI else "CPU", note=note)


def _same(X: Array) -> Array:
    return X


def _flat(X: Array) -> Array:
    """Return images as lines of numbers from 0 to 1, as a run gives them to logistic regression."""
    return (X.reshape(len(X), -1) / np.float32(255)).astype(np.float32)


def _encoder(world: World, studio: Studio) -> Any:
    """Return the prepared encoder of a pool."""
    import torch

    from ipate.torch.contrastive import Encoder
    from ipate.torch.nets import NETS

    state = {name: torch.from_numpy(value) for name, value in studio.load("encoder", world).items()}
    return Encoder(net=NETS["average"], image=(1, *world.pool[0].shape[1:]), state=state)


# Rivals


def ceiling(world: World, mix: Mix | None, studio: Studio) -> Outcome:
    """Train the semi-supervised student's net on all private rows, from the same encoder, without privacy."""
    return _supervised(world, studio, *world.private, public=False)


def pool_truth(world: World, mix: Mix | None, studio: Studio) -> Outcome:
    """Train the semi-supervised student on the true labels of the pool, which nobody has."""
    return _supervised(world, studio, *world.pool, public=True)


def _supervised(world: World, studio: Studio, X: Array, y: Array, *, public: bool) -> Outcome:
    clock = Clock()
    model = STUDENTS[SEMI].make({"classes": np.arange(world.n_classes), **studio.options}, seed=world.seed)
    model.fit(X, np.asarray(y, dtype=np.int64), first_targets=y, encoder=_encoder(world, studio))
    return clock.on(scored(model.predict, world, None, public=public), where=machine())


def pool_truth_graph(world: World, mix: Mix | None, studio: Studio) -> Outcome:
    """Train the graph student on the true labels of the pool."""
    return _taught(
        world, mix, studio, student=STUDENTS[GRAPH], labels=np.asarray(world.pool[1], dtype=np.int64), clock=Clock()
    )


def by_dpsgd(world: World, mix: Mix, setting: dpsgd.Setting) -> Outcome:
    """Train a tanh CNN by DP-SGD, or by individual DP-SGD, on pixels that the pool scales."""
    mean, spread = (float(getattr(world.pool[0], name)()) / 255 for name in ("mean", "std"))

    def prepare(X: Array) -> Array:
        return ((X.astype(np.float32) / 255 - mean) / spread)[:, None]

    return trained_by_dpsgd(world, mix, setting, prepare, device=device())


def paper_pate(world: World, mix: Mix, studio: Studio) -> Outcome:
    """Use the paper's teachers, noise and student; weights by budgets, under the gdp account."""
    from ipate.torch.training import train_student

    clock, setup = Clock(), SETUPS["mnist"]
    asked, labels = paper_labels(world, mix, _votes(world, studio, "paper"), setup.mechanism)
    if not len(labels):
        return clock.on(Outcome(accuracy=None), note=REFUSED, where=machine())
    student = train_student(
        world.pool[0][asked],
        labels,
        n_classes=world.n_classes,
        preset=setup.student,
        seed=world.seed,
        **({"epochs": 50.0} if studio.steps is None else {"steps": studio.steps}),
    )
    return clock.on(scored(student.predict, world, mix, public=True), where=machine(), note=f"{len(labels)} labels")
