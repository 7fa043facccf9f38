"""Teachers with their weights, and the accounts that their votes are charged to.

A teacher's weight and a group's budget are matched here, once, by the group's id, and never by position or rank.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from ipate._types import Floats, Integers
from ipate.allocation.layout import Layout
from ipate.engines.teachers.votes import Votes, check_weights, count_votes, weigh_votes
from ipate.errors import InputError
from ipate.people.budgets import Account, Budget, Group


@dataclass(frozen=True, kw_only=True)
class Tally:
    """The counted votes of B queries; `present` and `scale` are set under vanishing only."""

    counts: Floats  # (B, C), weighted vote counts
    voted: NDArray[np.bool_]  # (blocs, B, C + 1), classes a bloc voted for; last column: abstentions; or no blocs
    votes: Integers  # (k, B), −1 for teachers that abstained or did not take part
    sensitivity: Floats  # Δ of every account: (accounts,), or (B, accounts) if teachers take turns
    present: NDArray[np.bool_] | None = None  # (k, B), which teachers took part
    scale: Floats | None = None  # (B,), weight of a participant's vote: k over the number of participants


@dataclass(frozen=True, kw_only=True)
class Panel:
    """The teachers of an ensemble and the accounts that their votes are charged to.

    Attributes
    ----------
    groups : tuple of Account
        The accounts of the groups, in any order; other fields refer to them by their index in this tuple.
    weights : array of shape (k,)
        The teachers' weights.
    member : integer array of shape (k,), optional
        The index of the group on whose people each teacher was trained; None if teachers mix groups (upsampling).
    rotating : bool
        Whether teachers take turns (vanishing), so that every teacher has its own account.
    disjoint : bool
        Whether every person's data was used by one teacher only, even if `member` is None.
    """

    groups: tuple[Account, ...]
    weights: Floats
    member: NDArray[np.intp] | None = None
    rotating: bool = False
    disjoint: bool = False

    def __post_init__(self) -> None:
        ids = [group.id for group in self.groups]
        if len(set(ids)) != len(ids):
            raise InputError(f"duplicate group id {next(i for i in ids if ids.count(i) > 1)!r}: ids must be unique")
        check_weights(self.weights)
        if self.member is not None and self.member.shape != self.weights.shape:
            raise InputError(f"there are {self.weights.size} weights for {self.member.size} teachers with a group")
        if self.rotating and self.member is None:
            raise InputError("rotating is set without groups: vanishing needs one group per teacher")
        if self.rotating and np.any(self.weights != 1):
            raise InputError("participation and weights are both given: vanishing sets the weights itself")
        for position, group in enumerate(self.groups):
            own = self.weights if self.member is None else self.weights[self.member == position]
            heaviest = float(own.max()) if own.size else 0.0
            if not self.rotating and group.sensitivity < heaviest:
                raise InputError(
                    f"group {group.id!r} has the sensitivity {group.sensitivity:g}, "
                    f"below the weight {heaviest:g} of one of its teachers: one person can change at least that much"
                )

    @classmethod
    def of(cls, layout: Layout) -> "Panel":
        """Return the teachers of a layout and the accounts that their votes are charged to."""
        position = {group.id: place for place, group in enumerate(layout.groups)}
        member = None
        if layout.teacher_groups is not None:
            member = np.array([position[name] for name in layout.teacher_groups], dtype=np.intp)
        return cls(
            groups=layout.groups,
            weights=layout.weights.copy(),
            member=member,
            rotating=layout.participation is not None,
        )

    @classmethod
    def from_votes(
        cls, votes: Votes, groups: Sequence[tuple[str, float, float, float | None]], *, weights: Floats | None = None
    ) -> "Panel":
        """Match a votes file with budgets by group id.

        Parameters
        ----------
        votes : Votes
            The votes. If they have no `groups`, teachers mix groups (upsampling).
        groups : sequence of (id, epsilon, delta, sensitivity)
            The budgets. A sensitivity of None means the largest weight of the group's teachers.
        weights : array of shape (k,), optional
            The teachers' weights. Default: 1.
        """
        weight = np.ones(votes.n_teachers) if weights is None else np.asarray(weights, dtype=np.float64)
        rotating = votes.participation is not None
        position = {row[0]: index for index, row in enumerate(groups)}
        member = None
        if votes.groups is None and rotating:
            raise InputError("participation is given without groups: vanishing needs one group per teacher")
        if votes.groups is not None:
            unknown = sorted(set(votes.groups) - set(position))
            if unknown:
                raise InputError(f"group {unknown[0]!r} has teachers but no budget: add it to the group file")
            idle = sorted(set(position) - set(votes.groups))
            if idle:
                raise InputError(f"group {idle[0]!r} has a budget but no teachers: remove it from the group file")
            member = np.array([position[name] for name in votes.groups], dtype=np.intp)
        made = []
        for index, (name, epsilon, delta, sensitivity) in enumerate(groups):
            if sensitivity is None:
                if member is None:
                    raise InputError(
                        f"group {name!r} has no sensitivity: the votes name no groups, so the group file must "
                        "give the weight that one person of each group can change"
                    )
                moved = 1.0 if rotating else float(weight[member == index].max())
            elif rotating:
                raise InputError(
                    f"group {name!r} has the sensitivity {sensitivity:g}: under vanishing it is computed from the "
                    "participation; remove it"
                )
            else:
                moved = float(sensitivity)
            made.append(Account(group=Group(id=name, budget=Budget(epsilon, delta)), sensitivity=moved))
        return cls(groups=tuple(made), weights=weight, member=member, rotating=rotating)

    @property
    def n_teachers(self) -> int:
        """The number of teachers, k."""
        return int(self.weights.size)

    @cached_property
    def total_weight(self) -> float:
        """The sum of all teachers' weights, a public constant."""
        return float(self.weights.sum())

    @cached_property
    def accounts(self) -> tuple[Account, ...]:
        """The accounts that are charged: one per group, or one per teacher if teachers take turns."""
        if not self.rotating or self.member is None:
            return self.groups
        return tuple(replace(self.groups[place], id=f"teacher {i}") for i, place in enumerate(self.member.tolist()))

    @cached_property
    def account_ids(self) -> tuple[str, ...]:
        """The ids of the accounts."""
        return tuple(account.id for account in self.accounts)

    @cached_property
    def account_group(self) -> NDArray[np.intp]:
        """The index in `groups` of every account's group."""
        if self.rotating and self.member is not None:
            return self.member
        return np.arange(len(self.groups), dtype=np.intp)

    @cached_property
    def budgets(self) -> tuple[Floats, Floats]:
        """ε and δ of every account."""
        epsilon = np.array([account.epsilon for account in self.accounts])
        return epsilon, np.array([account.delta for account in self.accounts])

    @cached_property
    def blocs(self) -> tuple[tuple[int, float, NDArray[np.intp]], ...]:
        """Teachers of equal group and weight: (group index, weight, teacher indices)."""
        member = np.zeros(self.n_teachers, np.intp) if self.member is None else self.member
        keys = np.column_stack([member.astype(np.float64), self.weights])
        unique, inverse = np.unique(keys, axis=0, return_inverse=True)
        return tuple(
            (int(group), float(weight), np.flatnonzero(inverse.ravel() == index))
            for index, (group, weight) in enumerate(unique)
        )

    def blocs_of(self, position: int) -> tuple[int, ...] | None:
        """Return the blocs that a person of this group may affect; None if one person may change several votes."""
        if self.member is None and not self.disjoint:
            return None
        mine = [i for i, (owner, _, _) in enumerate(self.blocs) if self.member is None or owner == position]
        allowed = (self.groups[position].sensitivity, 0.0)
        return tuple(mine) if all(self.blocs[index][1] in allowed for index in mine) else None

    def tally(
        self, votes: Integers, n_classes: int, present: NDArray[np.bool_] | None = None, *, blocs: bool = True
    ) -> Tally:
        """Count votes of shape (k, B) with the teachers' weights; `present` is for vanishing.

        Without `blocs` the votes per bloc, which only the exact bound needs, are not computed.
        """
        if present is not None:
            return self._tally_present(votes, n_classes, present)
        if not blocs:
            nobody = np.zeros((0, votes.shape[1], n_classes + 1), dtype=bool)
            counts = weigh_votes(votes, n_classes, self.weights)
            return Tally(counts=counts, voted=nobody, votes=votes, sensitivity=self.own_sensitivities)
        counts = np.zeros((votes.shape[1], n_classes))
        voted = np.empty((len(self.blocs), votes.shape[1], n_classes + 1), dtype=bool)
        for index, (_, weight, teachers) in enumerate(self.blocs):
            own = count_votes(votes, n_classes, rows=teachers)
            counts += weight * own
            voted[index, :, :-1] = own > 0
            voted[index, :, -1] = own.sum(axis=1) < teachers.size
        return Tally(counts=counts, voted=voted, votes=votes, sensitivity=self.own_sensitivities)

    def _tally_present(self, votes: Integers, n_classes: int, present: NDArray[np.bool_]) -> Tally:
        signed = np.result_type(votes.dtype, np.int8)  # −1 must be representable: votes are often uint8
        heard = np.where(present, votes.astype(signed), signed.type(-1))
        attending = present.sum(axis=0)
        scale = np.where(attending > 0, self.n_teachers / np.maximum(attending, 1), 0.0)
        counts = count_votes(heard, n_classes)
        voted = np.empty((1, votes.shape[1], n_classes + 1), dtype=bool)
        voted[0, :, :-1] = counts > 0
        voted[0, :, -1] = ((votes < 0) & present).any(axis=0)
        weighted = np.asarray(counts * scale[:, None], dtype=np.float64)
        moved = np.asarray(present.T * scale[:, None], dtype=np.float64)
        return Tally(counts=weighted, voted=voted, votes=heard, sensitivity=moved, present=present, scale=scale)

    @cached_property
    def own_sensitivities(self) -> Floats:
        """Δ of every group if all teachers vote on every query."""
        return np.array([group.sensitivity for group in self.groups])

    def without(self, leaving: frozenset[str]) -> "Panel":
        """Return the panel after some groups left: their teachers get weight 0, the other weights are scaled up.

        The remaining weights again sum to the old total, so that noise and threshold keep their meaning, and
        sensitivities are scaled alike, so that everybody is charged for their actual weight.
        """
        if self.member is None or self.rotating:
            raise InputError("groups can leave only if every teacher belongs to one group (not upsampling)")
        gone = np.array([group.id in leaving for group in self.groups])
        staying = np.where(gone[self.member], 0.0, self.weights)
        if staying.sum() <= 0:
            raise InputError("every group would leave: no teacher would be left to vote")
        factor = self.total_weight / float(staying.sum())
        groups = tuple(
            replace(group, sensitivity=0.0 if left else group.sensitivity * factor)
            for group, left in zip(self.groups, gone, strict=True)
        )
        return Panel(groups=groups, weights=staying * factor, member=self.member)
