"""Who takes part in a new run of a ledger, and the refusals that need an explicit answer from the data owner.

Ids, budgets and numbers of people are public, so messages may name them.
"""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from ipate.errors import InputError, show
from ipate.ledger.records import Identity, PolicyTerms, RunRow, Terms
from ipate.people.budgets import Budget, Group
from ipate.people.ids import ALLOWED, plain_id, plain_ids

_LISTED = 3


@dataclass(frozen=True, kw_only=True)
class Roster:
    """The people of a run: their accounts, and who of the private file is used without protection.

    Parameters
    ----------
    people : mapping, optional
        Person to account id. None: the run knows accounts only.
    unprotected : collection of str
        The people whose rows of the private file are pool or test data.
    withdrawn : mapping
        People who withdrew, and the account in which they would be. They are in no account, and nothing is charged to
        them; they count only where their absence would show. A ledger that has no record of them gets one.
    policy : PolicyTerms, optional
        What the people agreed to, if their policy has a version.
    rows : bool
        Whether the ids are row numbers of one file, because the file names no people.
    overlap : bool
        Whether the private rows may also be pool or test data (allow_overlap), which protects nobody.
    new_people : bool
        Accept a run whose people are mostly unknown to the ledger.
    accept_larger_budgets : bool
        Accept budgets that are larger than in the last run.
    """

    people: Mapping[str, str] | None = None
    unprotected: Collection[str] = field(default=())
    withdrawn: Mapping[str, str] = field(default_factory=dict)
    policy: PolicyTerms | None = None
    rows: bool = False
    overlap: bool = False
    new_people: bool = False
    accept_larger_budgets: bool = False

    def __post_init__(self) -> None:
        """Bring ids into their one form; refuse an id that is invalid, given twice, or protected and not."""
        if self.people is not None:
            names = plain_ids(self.people)
            _refuse_invalid(names, self.people)
            object.__setattr__(self, "people", dict(zip(names, self.people.values(), strict=True)))
            if len(self.people) < len(names):
                twice = next(name for name, count in Counter(names).items() if count > 1)
                raise InputError(f"people: duplicate id {show(twice)}, written in two ways: a person has one account")
        bare = frozenset(plain_ids(self.unprotected))
        _refuse_invalid(bare, self.unprotected)
        object.__setattr__(self, "unprotected", bare)
        both = bare & {**(self.people or {}), **self.withdrawn}.keys()
        if both:
            raise InputError(f"person {show(min(both))} is private and also pool or test data: it can be one of them")

    @classmethod
    def of(cls, people: "Mapping[str, str] | Roster | None") -> "Roster":
        """Return a roster as it is, and make one of a mapping from person to account."""
        return people if isinstance(people, Roster) else cls(people=people)

    @property
    def identity(self) -> Identity:
        """What the ids are."""
        return "account" if self.people is None else "row" if self.rows else "person"

    @property
    def everybody(self) -> frozenset[str]:
        """The ids of all people of the private file, protected or not, those who withdrew among them."""
        return frozenset(self.counted or ()) | frozenset(self.unprotected)

    @property
    def counted(self) -> Mapping[str, str] | None:
        """Person to account id, with those who withdrew: opening balances then do not show that somebody left."""
        return None if self.people is None else {**self.people, **self.withdrawn}

    def admit(self, terms: Sequence[Terms], runs: Mapping[int, RunRow], *, withdrawn: Collection[str] = ()) -> None:
        """Refuse a new run that contradicts earlier ones, or that needs an answer which was not given.

        `withdrawn` are the people who withdrew from the ledger.
        """
        if not runs:
            self._check_protection(runs, withdrawn)
            return
        for run in runs.values():
            if run.identity != self.identity:
                raise InputError(_OTHER_IDS[run.identity, self.identity].format(run=run.name))
        self._check_overlap(runs)
        if self.people is not None:
            self._check_known(runs)
            self._check_protection(runs, withdrawn)
        self._check_policy(runs)
        self._check_budgets(terms, runs)

    def _check_protection(self, runs: Mapping[int, RunRow], withdrawn: Collection[str]) -> None:
        """Refuse people who were protected before, or have withdrawn, and now are not, and the other way round."""
        protected = {person for run in runs.values() for person, _ in run.members}.union(withdrawn)
        bare = frozenset[str]().union(*(run.unprotected for run in runs.values()))
        way_out = "use the same split_seed and sizes as before, or take pool and test data from data.public_file"
        for found, before, now in (
            (protected & frozenset(self.unprotected), "protected", "pool or test data"),
            (bare & (self.counted or {}).keys(), "pool or test data", "protected"),
        ):
            if found:
                raise InputError(
                    f"{len(found):,} people, such as {show(min(found))}, are {now} here and were {before} in an "
                    f"earlier run on this ledger, and what was released of a person cannot be protected: {way_out}"
                )

    def _check_overlap(self, runs: Mapping[int, RunRow]) -> None:
        """Refuse runs with and without an accepted overlap on one ledger: nobody recorded whose rows were released."""
        for run in runs.values():
            if run.parent is None and (run.reason == "overlap") != self.overlap:
                had, has = ("accepts", "does not") if run.reason == "overlap" else ("does not accept", "does")
                raise InputError(
                    f"run {run.name!r} of this ledger {had} private rows in its pool or test data (allow_overlap) and "
                    f"the new run {has}: such rows are released without protection, and which people they belong to "
                    "is not recorded, so no budget on this ledger would hold; leave allow_overlap out, use other data, "
                    "or begin another ledger with --fresh-ledger, and the report says so"
                )

    def _check_known(self, runs: Mapping[int, RunRow]) -> None:
        """Refuse people who are mostly strangers to the ledger, and other rows of a file that names no people."""
        known, here = everybody(runs), self.everybody
        strangers = here - known
        if self.rows and (strangers or known - here):
            raise InputError(
                f"the data names no people and its rows are not those of earlier runs on this ledger ({len(here):,} "
                f"rows now, {len(known):,} before), so nobody knows who spent what: name the column of ids as "
                "data.person from the first run on; --fresh-ledger begins another ledger, and the report says so"
            )
        if 2 * len(strangers) > len(here) and not self.new_people:
            raise InputError(
                f"{len(strangers):,} of {len(here):,} people, such as {show(min(strangers))}, are unknown to this "
                f"ledger, which knows {len(known):,}, such as {show(min(known))}: if ids are written in another way "
                "than before, correct them; if these people are new, say so with --new-people (new_people = true)"
            )

    def _check_policy(self, runs: Mapping[int, RunRow]) -> None:
        """Refuse a version of a policy that stood for another ε or δ: nobody agreed to the new one under its name."""
        now = self.policy
        for run in runs.values():
            old = run.policy
            if now is None or old is None or old.version != now.version:
                continue
            was, new = dict(old.levels), dict(now.levels)
            changed = [
                f"ε = {was[name]:g} at level {show(name)} and now is {new[name]:g}"
                for name in was
                if name in new and was[name] != new[name]
            ]
            if old.delta is not None and now.delta is not None and old.delta != now.delta:
                changed.append(f"δ = {old.delta:g} and now is {now.delta:g}")
            if changed:
                raise InputError(
                    f"version {show(now.version)} of the policy was {changed[0]} (run {run.name!r} of this ledger): "
                    "people agreed to the old values under this version, so give the changed policy a new version and "
                    "date, and ask them to agree to it"
                )

    def _check_budgets(self, terms: Sequence[Terms], runs: Mapping[int, RunRow]) -> None:
        """Refuse budgets that grew since a person's, or without people a group's, last run."""
        if self.accept_larger_budgets:
            return
        now, before = {entry.account.id: entry.account.group for entry in terms}, _last_budgets(runs)
        places = self.counted or {name: name for name in now}
        grown: dict[tuple[Budget, Group], list[str]] = {}
        for person, account in places.items():
            old, group = before.get(person), now.get(account)
            if old and group and (group.epsilon > old.epsilon or group.delta > old.delta):
                grown.setdefault((old, group), []).append(person)
        if not grown:
            return
        one, many = ("account", "accounts") if self.people is None else ("person", "people")
        listed = [
            f"{len(who):,} {one if len(who) == 1 else many} from (ε, δ) = {_pair(old)} to {_pair(group.budget)} in "
            f"group {group.id!r}, such as {show(min(who))}"
            for (old, group), who in sorted(grown.items(), key=lambda item: -len(item[1]))
        ]
        more = f"; and {len(listed) - _LISTED:,} more" if len(listed) > _LISTED else ""
        raise InputError(
            f"the budgets of {sum(map(len, grown.values())):,} {many} are larger than in their last run on this "
            f"ledger: {'; '.join(listed[:_LISTED])}{more}: if they have consented to that, say so with "
            "--accept-larger-budgets (accept_larger_budgets = true)"
        )


_CHANGE = "earlier spending could not be matched to people; give person ids in every run on a ledger, or in none"
_OTHER_IDS = {
    (old, new): f"run {{run!r}} of this ledger {had} and the new run {has}: {_CHANGE}"
    for old, had in (
        ("person", "names its people"),
        ("row", "knows people by row number"),
        ("account", "names no people"),
    )
    for new, has in (("person", "does"), ("row", "knows people by row number"), ("account", "does not"))
}


def everybody(runs: Mapping[int, RunRow]) -> frozenset[str]:
    """Return everybody that the runs of a ledger know, protected or not."""
    return frozenset(
        person for run in runs.values() for names in (dict(run.members), run.unprotected) for person in names
    )


def _last_budgets(runs: Mapping[int, RunRow]) -> dict[str, Budget]:
    """Return the budget of every person, or without people of every account, in their last run."""
    found: dict[str, Budget] = {}
    for run in runs.values():
        budgets = {row.id: row.terms.account.group.budget for row in run.accounts}
        found.update((person, budgets[account]) for person, account in run.places)
    return found


def _pair(budget: Budget) -> str:
    return f"({budget.epsilon:g}, {budget.delta:g})"


def _refuse_invalid(names: Collection[str], given: Collection[object]) -> None:
    if "" in names:
        wrong = next(value for value in given if not plain_id(value))
        raise InputError(f"people: person is {show(wrong)}: {ALLOWED}")
