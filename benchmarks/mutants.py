"""Break the privacy code on purpose, one line at a time: every mutant must make a test fail.

A mutant is a textual patch to a copy of `src` and `paper`, never to the source itself. Its tests run against that
copy, and a plugin stops them unless the copy is what Python imported. First the same tests run on an unchanged copy:
they must pass there, or a failure would prove nothing.

    python benchmarks/mutants.py [--list] [--only NAME ...] [--jobs N]

Prints which test killed which mutant; exits with 1 if a mutant survives.
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

__all__ = ["MUTANTS", "ROOT", "Mutant", "mutate", "place"]

ROOT = Path(__file__).resolve().parents[1]
UNCHANGED = "unchanged"
PASSED, FAILED = 0, 1  # pytest's exit codes; any other says that the tests did not run
LONGEST = 600

EXACT = "tests/accounting/test_exact.py"
TIGHT = "tests/accounting/test_loose_tight.py"
LAWS = "tests/labelling/test_laws.py"
LAPLACE = "tests/runs/test_laplace.py"
CHARGING = "tests/labelling/test_charging.py"
AUDIT = "tests/labelling/test_hockey_stick.py"
AUDITING = "tests/audit/test_auditing.py"
NOISE = "tests/labelling/test_noise.py"
TESTED = "tests/labelling/test_tested.py"
ACCOUNT = "tests/labelling/test_audit.py"
LABEL = "tests/cli/test_label.py"
RUN_LEDGERS = "tests/runs/test_ledgers.py"
RUN_OUTLOOK = "tests/runs/test_outlook.py"
CARRIED = "tests/report/test_carried.py"
EXCHANGE = "tests/parties/test_exchange.py"
FIT = "tests/parties/test_fit.py"
MERGE = "tests/parties/test_merge.py"
SITE = "tests/parties/test_site.py"
POOL = "tests/attacks/test_08_private_rows_as_pool.py"
CELLS = "tests/data/test_private_cells.py"
MISALIGNED = "tests/attacks/test_03_misaligned_budgets.py"
PTR = "tests/accounting/ptr"
STUDENT = "tests/runs/test_student.py"
INTERACTIVE = "tests/runs/test_interactive.py"
DEPLOYED = "tests/students/test_deployed.py"
COUNTS = "tests/labelling/test_counts.py"
COUNTS_LAW = "tests/labelling/test_counts_law.py"
CONTRACT = "tests/ledger/test_contract.py"
LAW = "tests/ballots/test_law.py"
DESIGN = "tests/ballots/test_design.py"
COUNTING = "tests/ballots/test_counting.py"
RELEASE = "tests/ballots/test_release.py"
GIVEN = "tests/ballots/test_given.py"
DESCENT = "tests/paper/compare/test_descent.py"
DPSGD = "tests/paper/compare/test_dpsgd.py"
RUN_BALLOTS = "tests/runs/test_ballots.py"
LABEL_BALLOTS = "tests/cli/test_label_ballots.py"
SITE_BALLOTS = "tests/parties/test_ballots.py"
PARTY_BALLOTS = "tests/cli/test_party_ballots.py"
FORWARD = f"{TIGHT}::test_tight_lies_between_forward_divergence_and_loose"
THEOREM = f"{TIGHT}::test_tight_matches_theorem_six_at_fifty_digits"
BY_ID = f"{CHARGING}::test_weights_and_budgets_are_matched_by_group_id"
ATTACK = f"{AUDIT}::test_attack_never_exceeds_the_claimed_epsilon"
OWN_WEIGHT = f"{AUDIT}::test_group_is_charged_for_its_own_weight"
CHARGED = f"{CHARGING}::test_all_checks_and_released_labels_are_charged"
LEAVING = "tests/runs/test_withdrawal.py"
LEFT = "tests/runs/test_left_for_good.py"
PROVENANCE = "tests/runs/test_provenance.py"
WITHDRAWING = "tests/ledger/test_withdrawing.py"
STATEMENT = "tests/runs/test_statement.py"
TOLD = f"{STATEMENT}::test_private_figures_are_shown_to_owner_only"
INTERRUPTED = f"{LEAVING}::test_interrupted_withdrawal_is_completed_before_next_release"
LEARN_AGAIN = f"{LEAVING}::test_withdrawal_retrains_only_teachers_of_that_person"
FAILING = "tests/attacks/test_01_failing_teacher.py::test_failing_teacher_is_not_visible"
ODD = "tests/attacks/test_01_odd_cells_in_memory.py"
QUOTED = "tests/attacks/test_18_errors_quote_no_cells.py"
SMALL = "tests/attacks/test_17_small_groups.py"
DRAWS = "tests/attacks/test_06_shared_random_state.py"
SHARED = f"{DRAWS}::test_one_person_moves_only_their_own_teacher"
QUIET = "tests/teachers/test_isolation.py"
DRY = "tests/teachers/test_dry.py"
VOTINGS = "tests/paper/test_voting.py"
STRONG = "tests/paper/test_strong.py"
POOLED = "tests/paper/test_pool_students.py"
IDS = "tests/attacks/test_04_ids.py"
PROTECTED = "tests/attacks/test_05_protected_then_public.py"
FORGOTTEN = "tests/attacks/test_09_forgotten_ledger.py"
PLAIN_SUM = f"{ACCOUNT}::test_account_equals_plain_sum_of_costs"


@dataclass(frozen=True)
class Mutant:
    """One way to break privacy: `old` stands once in `file`, `new` replaces it, `tests` must notice.

    `file` is a path in `src/ipate`, or one that begins with `paper/`.
    """

    name: str
    file: str
    old: str
    new: str
    tests: tuple[str, ...]


MUTANTS = (
    # What a deployed student holds, and how it is read.
    Mutant(
        "a student without a guarantee is public",
        "runs/ledgers.py",
        "return folder.public if record.publishable else folder.private",
        "return folder.public",
        (f"{STUDENT}::test_seeded_run_deploys_into_private_folder",),
    ),
    Mutant(
        "points chosen by private labels are public",
        "engines/teachers/engine.py",
        'run.store.once("queries-later", lambda: {"queries": later})',
        'run.store.once("queries-later", lambda: {"queries": later}, public=True)',
        ("tests/runs/test_asking.py::test_second_round_of_seeded_run_stays_private",),
    ),
    # The two rounds of interactive, with a student between them.
    Mutant(
        "a student of private labels is public",
        "runs/store.py",
        "(self.folder.path if public else self.folder.private)",
        "(self.folder.path if public else self.folder.public)",
        (f"{INTERACTIVE}::test_files_tell_teachers_labels_from_own_classes",),
    ),
    Mutant(
        "a resumed second round has another student",
        "runs/store.py",
        "        if not path.is_file():\n            write_npz(",
        "        if path:\n            write_npz(",
        (f"{INTERACTIVE}::test_interrupted_second_round_keeps_its_student",),
    ),
    Mutant(
        "the second round asks before its student is stored",
        "pipeline.py",
        'store.once("student-probs", make)["probs"]',
        'make()["probs"]',
        (f"{INTERACTIVE}::test_interrupted_second_round_keeps_its_student",),
    ),
    Mutant(
        "a student's own class costs no check",
        "engines/teachers/loop.py",
        "paid = checks + outcome.answered[:, None, None] * label_cost",
        "paid = ~outcome.reinforced[:, None, None] * checks + outcome.answered[:, None, None] * label_cost",
        (f"{INTERACTIVE}::test_every_check_and_every_vote_label_is_charged",),
    ),
    Mutant(
        "the second round forgets the labels of the first",
        "engines/teachers/loop.py",
        "        self.n_labels, self.n_asked = earlier.n_labels, earlier.n_queries\n",
        "",
        ("tests/test_classifier.py::test_interactive_serves_every_variant_and_stop",),
    ),
    Mutant(
        "the second round begins without the first, in a result",
        "engines/teachers/loop.py",
        "        self.parts.append((earlier.queries, answers, earlier.repeated))\n",
        "",
        ("tests/labelling/test_loop.py::test_labelling_in_two_parts_equals_one",),
    ),
    Mutant(
        "a run without probabilities is charged",
        "pipeline.py",
        "            check_guesses(self.student, self.model)\n",
        "            pass\n",
        (f"{INTERACTIVE}::test_student_without_probabilities_is_refused_uncharged",),
    ),
    Mutant(
        "a fit without probabilities is charged",
        "pipeline.py",
        "        if settings.asks_student:\n",
        "        if not settings.asks_student:\n",
        ("tests/test_classifier.py::test_student_without_probabilities_cannot_be_asked",),
    ),
    Mutant(
        "own classes of earlier fits count as paid labels",
        "report/assemble.py",
        "    labels = record.teachers_labels\n",
        "    labels = record.labels\n",
        ("tests/test_classifier.py::test_reinforced_answers_of_earlier_fits_are_reported",),
    ),
    Mutant(
        "interactive is allowed under ptr",
        "engines/teachers/settings.py",
        "        check_tested(used)\n",
        "        pass\n",
        (f"{INTERACTIVE}::test_interactive_is_refused_under_ptr",),
    ),
    Mutant(
        "notes on private labels are logged",
        "runs/teaching.py",
        "    if record.publishable:  # the notes follow from released labels",
        "    if record:",
        (f"{STUDENT}::test_seeded_run_deploys_into_private_folder",),
    ),
    Mutant(
        "a student that cannot learn is refused after all is paid",
        "students/student.py",
        "        if not self.tried:\n",
        "        if True:\n",
        (f"{STUDENT}::test_student_that_cannot_learn_costs_nobody",),
    ),
    Mutant(
        "a pickled student is read unasked",
        "students/deployed.py",
        'if kind == "pickle" and not allow_pickle:',
        "if False:",
        (f"{DEPLOYED}::test_custom_type_is_a_pickle_that_needs_a_flag",),
    ),
    Mutant(
        "untrusted types are read from skops",
        "students/deployed.py",
        "unknown = sorted(set(_extra_types(data)) - set(TRUSTED))",
        "unknown: list[str] = []",
        (f"{DEPLOYED}::test_skops_file_with_unknown_type_is_refused",),
    ),
    Mutant(
        "private costs stand in the model card",
        "students/card.py",
        '"cost": g.cost if open_ else None',
        '"cost": g.cost',
        ("tests/test_classifier.py::test_card_of_seeded_fit_says_do_not_publish",),
    ),
    # What a release costs.
    Mutant(
        "gdp label at half sigma",
        "accounting/gdp.py",
        '2 * (check_sensitivity(sensitivity) / check_positive("sigma", sigma)) ** 2',
        '2 * (check_sensitivity(sensitivity) / check_positive("sigma", sigma / 2)) ** 2',
        ("tests/accounting/test_gdp.py", OWN_WEIGHT),
    ),
    Mutant(
        "gdp label at twice sigma",
        "accounting/gdp.py",
        '2 * (check_sensitivity(sensitivity) / check_positive("sigma", sigma)) ** 2',
        '2 * (check_sensitivity(sensitivity) / check_positive("sigma", 2 * sigma)) ** 2',
        (OWN_WEIGHT,),
    ),
    Mutant(
        "gdp label at twice sigma, attacked",
        "accounting/gdp.py",
        '2 * (check_sensitivity(sensitivity) / check_positive("sigma", sigma)) ** 2',
        '2 * (check_sensitivity(sensitivity) / check_positive("sigma", 2 * sigma)) ** 2',
        (ATTACK,),
    ),
    Mutant(
        "gdp label moves one count",
        "accounting/gdp.py",
        "np.asarray(2 * (check_sensitivity",
        "np.asarray((check_sensitivity",
        (OWN_WEIGHT,),
    ),
    Mutant(
        "loose label at half sigma",
        "accounting/loose.py",
        'check_positive("sigma", sigma)',
        'check_positive("sigma", sigma / 2)',
        (f"{TIGHT}::test_loose_is_the_gaussian_divergence", PLAIN_SUM),
    ),
    Mutant(
        "exact label at half sigma",
        "accounting/exact.py",
        'scale = check_positive("sigma", sigma)\n    queries, classes',
        'scale = check_positive("sigma", sigma / 2)\n    queries, classes',
        (EXACT,),
    ),
    Mutant(
        "exact check at twice sigma",
        "accounting/exact.py",
        'scale = check_positive("check_sigma", check_sigma)',
        'scale = check_positive("check_sigma", 2 * check_sigma)',
        (EXACT,),
    ),
    Mutant(
        "exact label in one direction",
        "accounting/exact.py",
        "worst_divergence(logp, logq, sizes, alphas, reverse=True)",
        "worst_divergence(logp, logq, sizes, alphas, reverse=False)",
        (EXACT,),
    ),
    Mutant(
        "exact check in one direction",
        "accounting/exact.py",
        "worst_divergence(logp, logq, np.ones_like(logp), alphas, reverse=True)",
        "worst_divergence(logp, logq, np.ones_like(logp), alphas, reverse=False)",
        (EXACT,),
    ),
    Mutant(
        "exact reverse direction with the wrong sign",
        "accounting/_renyi.py",
        "ratio=-ratio",
        "ratio=ratio",
        (EXACT,),
    ),
    Mutant(
        "exact check tries one neighbour",
        "accounting/exact.py",
        "moves[:, None] * [-1.0, 1.0]",
        "moves[:, None] * [-1.0, -1.0]",
        (EXACT,),
    ),
    Mutant(
        "exact group pays for one of its votes",
        "accounting/exact.py",
        "np.maximum(out, by_source[:, source], out=out, where=mask[:, source, None])",
        "np.copyto(out, by_source[:, source], where=mask[:, source, None])",
        (EXACT,),
    ),
    Mutant(
        "upsampling without the reverse bound",
        "accounting/exact.py",
        "return np.maximum(forward, worst_tangent(logp, laws.slopes(q, a), sizes, orders))",
        "return forward",
        (EXACT,),
    ),
    Mutant(
        "tight without the loose cap",
        "accounting/tight.py",
        "usable = (alpha < below[part, :, None]) & (cost < bound[part])",
        "usable = alpha < below[part, :, None]",
        (FORWARD,),
    ),
    Mutant(
        "tight without its conditions",
        "accounting/tight.py",
        "valid = (moved > 0) & (alpha2 > 1) & (-lq > eps2) & (lq <= limit)",
        "valid = moved > 0",
        (f"{AUDIT}::test_tight_covers_one_vote_larger_than_the_noise",),
    ),
    Mutant(
        "tight at any order",
        "accounting/tight.py",
        "below = np.where(valid, alpha1, 0.0)",
        "below = np.where(valid, np.inf, 0.0)",
        (THEOREM,),
    ),
    Mutant(
        "tight at sensitivity 1",
        "accounting/tight.py",
        "scale = sigma / moved",
        "scale = sigma / np.minimum(moved, 1)",
        (FORWARD, THEOREM),
    ),
    Mutant(
        "sup 2% too small",
        "accounting/sup.py",
        "np.minimum(table[where.reshape(ratios.shape)], loose)",
        "0.98 * np.minimum(table[where.reshape(ratios.shape)], loose)",
        ("tests/accounting/test_sup.py",),
    ),
    # From costs to ε.
    Mutant(
        "improved conversion with the wrong sign",
        "accounting/loose.py",
        "np.log1p(-1 / alpha) - (np.log(alpha) + log_delta)",
        "-np.log1p(-1 / alpha) - (np.log(alpha) + log_delta)",
        ("tests/accounting/test_conversion.py",),
    ),
    Mutant(
        "improved conversion without its first term",
        "accounting/loose.py",
        "np.log1p(-1 / alpha) - (np.log(alpha) + log_delta)",
        "-(np.log(alpha) + log_delta)",
        ("tests/accounting/test_conversion.py",),
    ),
    Mutant(
        "improved conversion forgets delta's share",
        "accounting/loose.py",
        "(np.log(alpha) + log_delta) / (alpha - 1)",
        "(np.log(alpha) + log_delta) / alpha",
        ("tests/accounting/test_conversion.py",),
    ),
    Mutant(
        "gdp budget read too large",
        "accounting/gdp.py",
        "low, high) * (1 - SAFETY))",
        "low, high) * 1.001)",
        ("tests/accounting/test_gdp.py",),
    ),
    # Who pays.
    Mutant(
        "teachers matched with groups by sorted position",
        "engines/teachers/panel.py",
        "member = np.array([position[name] for name in votes.groups]",
        "member = np.array([sorted(position).index(name) for name in votes.groups]",
        (BY_ID, OWN_WEIGHT),
    ),
    Mutant(
        "weights sorted apart from budgets",
        "engines/teachers/panel.py",
        "return np.array([group.sensitivity for group in self.groups])",
        "return np.sort([group.sensitivity for group in self.groups])",
        (BY_ID, OWN_WEIGHT),
    ),
    Mutant(
        "weights sorted apart from budgets, attacked",
        "engines/teachers/panel.py",
        "return np.array([group.sensitivity for group in self.groups])",
        "return np.sort([group.sensitivity for group in self.groups])",
        (ATTACK,),
    ),
    Mutant(
        "budgets sorted apart from groups",
        "engines/teachers/loop.py",
        "return [Terms(account=account, meter=unit) for account, unit in zip(panel.accounts, units, strict=True)]",
        "budgets = sorted((account.group.budget for account in panel.accounts), key=lambda budget: budget.epsilon)\n"
        "    paired = zip(panel.accounts, units, budgets, strict=True)\n"
        "    return [Terms(account=account.with_budget(own), meter=unit) for account, unit, own in paired]",
        (BY_ID,),
    ),
    Mutant(
        "vanishing charges the average",
        "engines/teachers/panel.py",
        "moved = np.asarray(present.T * scale[:, None], dtype=np.float64)",
        "moved = np.ones(present.T.shape)",
        (f"{CHARGING}::test_teacher_pays_only_for_queries_it_voted_on",),
    ),
    Mutant(
        "vanishing at weight 1",
        "engines/teachers/panel.py",
        "moved = np.asarray(present.T * scale[:, None], dtype=np.float64)",
        "moved = np.asarray(1.0 * present.T)",
        (f"{CHARGING}::test_teacher_pays_only_for_queries_it_voted_on",),
    ),
    Mutant(
        "those who stay keep their old sensitivity",
        "engines/teachers/panel.py",
        "sensitivity=0.0 if left else group.sensitivity * factor)",
        "sensitivity=0.0 if left else group.sensitivity)",
        (f"{CHARGING}::test_remaining_groups_are_charged_for_their_scaled_weight",),
    ),
    Mutant(
        "a sensitivity below the weight is accepted",
        "engines/teachers/panel.py",
        "if not self.rotating and group.sensitivity < heaviest:",
        "if False:",
        ("tests/votes/test_panel.py",),
    ),
    Mutant(
        "closed form: checks that were not answered are free",
        "engines/teachers/account.py",
        "self.spent = asked[-1] * check + given[-1] * label",
        "self.spent = given[-1] * (check + label)",
        (f"{ACCOUNT}::test_closed_form_matches_query_by_query_sum",),
    ),
    Mutant(
        "closed form: an account ends one query late",
        "engines/teachers/account.py",
        "self.exhausted = np.where(ends, high, -1)",
        "self.exhausted = np.where(ends, high + 1, -1)",
        (f"{ACCOUNT}::test_closed_form_matches_query_by_query_sum",),
    ),
    Mutant(
        "a comparison with private costs is called publishable",
        "engines/teachers/account.py",
        "return all(audit.guarantee.publishable for audit in",
        "return any(audit.guarantee.publishable for audit in",
        ("tests/labelling/test_comparison.py::test_one_private_bound_makes_comparison_private",),
    ),
    Mutant(
        "a figure of private costs is readable by others",
        "report/figures.py",
        "private=not comparison.publishable",
        "private=False",
        ("tests/labelling/test_comparison.py::test_private_figure_says_so_and_is_closed",),
    ),
    Mutant(
        "others can count the charges of a ledger by its head",
        "ledger/durable.py",
        'f"{head}\\n", private=True)',
        'f"{head}\\n")',
        ("tests/ledger/test_durable.py::test_transcript_view_lists_every_release",),
    ),
    Mutant(
        "a history of private costs is written to an open file",
        "cli/account.py",
        "if mode == 0o600 and path.is_file():",
        "if False:",
        ("tests/cli/test_account.py::test_private_history_closes_a_file_that_was_open",),
    ),
    Mutant(
        "private costs are printed in the block that may be published",
        "cli/account.py",
        "if result.guarantee.publishable is publishable",
        "if publishable",
        ("tests/cli/test_account.py::test_table_of_all_bounds_has_two_blocks",),
    ),
    Mutant(
        "a history of private costs is readable by others",
        "cli/account.py",
        "all(guarantee.publishable for guarantee in promised)",
        "any(guarantee.publishable for guarantee in promised)",
        ("tests/cli/test_account.py::test_history_of_all_bounds_names_them_and_is_closed",),
    ),
    Mutant(
        "those who abstain vote for the last class",
        "engines/teachers/votes.py",
        'known = n_classes - (votes.dtype.kind == "u")',
        "known = n_classes - 1",
        ("tests/votes/test_counting.py::test_vote_counts_match_a_plain_loop",),
    ),
    Mutant(
        "a teacher's weight goes to another",
        "engines/teachers/votes.py",
        "n_classes, np.flatnonzero(which == number))",
        "n_classes, np.flatnonzero(np.sort(which) == number))",
        ("tests/votes/test_counting.py::test_weighted_vote_counts_match_a_plain_loop",),
    ),
    Mutant(
        "check is free",
        "accounting/bounds.py",
        "return self.worst_check(sensitivity=sensitivity, check_sigma=check_sigma), label",
        "return 0 * self.worst_check(sensitivity=sensitivity, check_sigma=check_sigma), label",
        (OWN_WEIGHT, CHARGED),
    ),
    Mutant(
        "a bound's own price of a query is ignored",
        "engines/teachers/costs.py",
        "or meter.definition.prices_queries:",
        "or False:",
        ("tests/test_extension.py::test_bound_with_own_price_of_a_query_is_charged_by_it",),
    ),
    Mutant(
        "a name of a labelling that changes with the version",
        "people/budgets.py",
        '    id: str = ""\n    group: Group\n    sensitivity: float\n',
        '    group: Group\n    sensitivity: float\n    id: str = ""\n',
        (f"{LABEL}::test_name_of_a_run_is_the_same_in_every_version",),
    ),
    Mutant(
        "check is free where teachers take turns",
        "accounting/bounds.py",
        "return _by_query(self.worst_check(",
        "return _by_query(0 * self.worst_check(",
        (f"{CHARGING}::test_teacher_pays_only_for_queries_it_voted_on",),
    ),
    Mutant(
        "check charged only when answered, labelling",
        "engines/teachers/loop.py",
        "paid = checks + outcome.answered[:, None, None] * label_cost",
        "paid = outcome.answered[:, None, None] * (checks + label_cost)",
        (CHARGED, OWN_WEIGHT),
    ),
    Mutant(
        "check charged only when answered, account",
        "engines/teachers/account.py",
        "np.where(asked[queries, None, None], check, 0.0)",
        "np.where(given[queries, None, None], check, 0.0)",
        (f"{ACCOUNT}::test_check_is_charged_for_unanswered_queries_too",),
    ),
    Mutant(
        "only the last query of a batch is charged",
        "engines/teachers/loop.py",
        "total = np.cumsum(paid, axis=0)",
        "total = paid.copy()",
        (CHARGED,),
    ),
    # Noise.
    Mutant(
        "half the noise on a label",
        "engines/teachers/aggregators.py",
        'self.mechanism.sigma * noise.normal("label"',
        'self.mechanism.sigma / 2 * noise.normal("label"',
        (LAWS,),
    ),
    Mutant(
        "half the noise on a label, attacked",
        "engines/teachers/aggregators.py",
        'self.mechanism.sigma * noise.normal("label"',
        'self.mechanism.sigma / 2 * noise.normal("label"',
        (ATTACK,),
    ),
    Mutant(
        "half the noise on a check",
        "engines/teachers/aggregators.py",
        "lead + check_sigma * draws",
        "lead + check_sigma / 2 * draws",
        (f"{LAWS}::test_confident_pass_rate_matches_the_normal_law",),
    ),
    Mutant(
        "half the noise on an LNMax label",
        "engines/teachers/aggregators.py",
        "self.mechanism.sigma * noise.laplace",
        "self.mechanism.sigma / 2 * noise.laplace",
        (f"{LAWS}::test_lnmax_label_law_matches_quadrature",),
    ),
    Mutant(
        "a run charges Laplace labels as Gaussian ones",
        "engines/teachers/costs.py",
        "        noise=mechanism.noise,\n        counts=mechanism.counts,\n",
        '        noise="gaussian",\n        counts=mechanism.counts,\n',
        (f"{LAPLACE}::test_charges_are_those_of_laplace_noise",),
    ),
    Mutant(
        "a plan prices Laplace labels as Gaussian ones",
        "engines/teachers/plan.py",
        "        noise=noise.noise,\n        answer_rate=rate,\n",
        "        answer_rate=rate,\n",
        ("tests/planning/test_plan.py::test_plans_price_laplace_labels_by_their_scale",),
    ),
    Mutant(
        "a report claims Gaussian noise for Laplace labels",
        "release/description.py",
        'return "gaussian" if self.laplace_scale is None else "laplace"',
        'return "gaussian"',
        (f"{LAPLACE}::test_documents_state_laplace_noise_and_no_gaussian",),
    ),
    Mutant(
        "the scale of Laplace noise is stated as σ",
        "engines/teachers/aggregators.py",
        'normal = self.noise == "gaussian"',
        "normal = True",
        (f"{LAPLACE}::test_documents_state_laplace_noise_and_no_gaussian",),
    ),
    Mutant(
        "events of Laplace labels count one of two counts",
        "ledger/carry.py",
        '2.0 if noise == "laplace" else',
        '1.0 if noise == "laplace" else',
        (f"{LAPLACE}::test_program_and_events_agree_with_laplace_costs",),
    ),
    Mutant(
        "Laplace cost lost in rounding",
        "accounting/loose.py",
        "(logsumexp(both, axis=0) + rounding) / (alpha - 1)",
        "logsumexp(both, axis=0) / (alpha - 1)",
        ("tests/accounting/test_laplace.py::test_small_laplace_costs_are_not_lost_in_rounding",),
    ),
    Mutant(
        "the same draw for every class",
        "engines/teachers/aggregators.py",
        'noise.normal("label", queries, width)',
        'noise.normal("label", queries, 1)',
        (LAWS,),
    ),
    Mutant(
        "the same secure draw for every class",
        "release/noise.py",
        "return self._stream(purpose).standard_normal((len(queries), width))",
        "return np.repeat(self._stream(purpose).standard_normal((len(queries), 1)), width, axis=1)",
        (f"{LAWS}::test_gnmax_label_law_holds_with_secure_noise",),
    ),
    Mutant(
        "check and label share a stream",
        "engines/teachers/aggregators.py",
        'noise.normal("check", queries, 1)',
        'noise.normal("label", queries, 1)',
        (f"{LAWS}::test_check_and_label_never_draw_the_same_number", LAWS),
    ),
    Mutant(
        "purposes share a seeded stream",
        "release/noise.py",
        'self._uniform(f"normal/{purpose}", queries, width)',
        'self._uniform("normal/", queries, width)',
        (f"{NOISE}::test_seeded_noise_differs_between_seeds_purposes_queries_and_classes",),
    ),
    Mutant(
        "a fixed secure key",
        "release/noise.py",
        "key=secrets.randbits(256)",
        "key=7",
        (NOISE,),
    ),
    Mutant(
        "a child repeats its parent's noise",
        "release/noise.py",
        "        source.forget()",
        "        del source",
        (f"{NOISE}::test_forked_child_and_parent_draw_different_noise",),
    ),
    Mutant(
        "a fixed seed where none was given, source",
        "release/noise.py",
        "return SecureNoise() if seed is None else SeededNoise(seed)",
        "return SeededNoise(seed or 0)",
        (f"{NOISE}::test_noise_is_secure_unless_a_seed_is_given",),
    ),
    Mutant(
        "a fixed seed where none was given, labelling",
        "engines/teachers/loop.py",
        "source = SecureNoise() if noise is None else noise",
        'source = __import__("ipate.release.noise").noise.SeededNoise(0) if noise is None else noise',
        (f"{AUDIT}::test_default_noise_is_secure",),
    ),
    # Charge, then release.
    Mutant(
        "a refusal that charges those who can pay",
        "ledger/base.py",
        "broke = self.unaffordable(charge.cost)\n        if broke:",
        "broke = self.unaffordable(charge.cost)\n        if broke:\n"
        "            cost = charge.cost.items()\n"
        "            self._balances.update({(0, a): self.spent(a) + c for a, c in cost if a not in broke})",
        ("tests/ledger/test_contract.py::test_refused_charge_names_the_group_and_changes_nothing",),
    ),
    Mutant(
        "a ledger that never refuses",
        "ledger/base.py",
        "broke = self.unaffordable(charge.cost)\n",
        "broke = ()\n",
        ("tests/ledger/test_contract.py::test_whole_budget_can_be_spent_but_not_exceeded",),
    ),
    Mutant(
        "release before charge",
        "engines/teachers/loop.py",
        "        cut = min(cut, allowed)\n",
        "        cut = min(cut, allowed)\n"
        "        self.parts.append((chunk[:cut], answers[:cut], np.zeros(cut, dtype=bool)))\n",
        (f"{CHARGING}::test_refused_charge_releases_no_label",),
    ),
    Mutant(
        "only the check is tested before asking",
        "engines/teachers/loop.py",
        "self._payable(running - paid + checks + label_cost, spent)",
        "self._payable(running - paid + checks, spent)",
        (f"{CHARGING}::test_labelling_stops_before_the_ledger_would_refuse",),
    ),
    Mutant(
        "what was spent before is forgotten",
        "engines/teachers/loop.py",
        "running = spent + total",
        "running = 0 * spent + total",
        (f"{CHARGING}::test_labelling_stops_before_the_ledger_would_refuse",),
    ),
    Mutant(
        "a repeated query is drawn and charged again",
        "engines/teachers/loop.py",
        "fresh[index] = name not in seen",
        "fresh[index] = True",
        (f"{CHARGING}::test_repeated_query_is_charged_only_once",),
    ),
    Mutant(
        "an audit sorts budgets apart from groups",
        "engines/teachers/panel.py",
        "epsilon = np.array([account.epsilon for account in self.accounts])",
        "epsilon = np.sort([account.epsilon for account in self.accounts])",
        (PLAIN_SUM,),
    ),
    Mutant(
        "a filter's order chosen without its budget",
        "engines/teachers/loop.py",
        "meter.at_order(order) for order in orders",
        "meter.at_order(meter.orders[0]) for order in orders",
        (f"{CHARGING}::test_filter_fixes_one_renyi_order_per_account",),
    ),
    # Parties.
    Mutant(
        "merged weights by position",
        "parties/merge.py",
        "return np.array([weight[name] for name in self.teacher_groups])",
        "return np.sort([weight[name] for name in self.teacher_groups])",
        (f"{MERGE}::test_votes_keep_group_weight_and_budget",),
    ),
    Mutant(
        "merged weights sorted apart from groups",
        "parties/merge.py",
        "weight = weights_for(rule=rule, groups=[group.group for group in budgets], teachers_per_group=counts)",
        "weight = weights_for(rule=rule, groups=[group.group for group in budgets], teachers_per_group=counts)\n"
        "    weight = dict(zip(sorted(weight), sorted(weight.values()), strict=True))",
        (f"{MERGE}::test_weights_follow_budgets_and_sum_to_teachers",),
    ),
    Mutant(
        "two sites' groups of one name share an account",
        "parties/merge.py",
        "if merge_equal else group.id",
        'if merge_equal else group.id.partition("/")[2]',
        (f"{MERGE}::test_equal_group_names_share_no_account_by_default",),
    ),
    Mutant(
        "a site's ids without its name",
        "parties/site.py",
        'return f"{self.name}/{name}"',
        "return name",
        (f"{SITE}::test_site_declares_own_groups_in_private_folder",),
    ),
    Mutant(
        "a site scales by its private rows",
        "parties/site.py",
        "X = encoding.transform(rows.X)",
        "X = encoding.transform(rows.X - rows.X.mean(axis=0) + 30)",
        (f"{FIT}::test_one_person_changes_one_teacher_only",),
    ),
    Mutant(
        "votes on other queries are merged",
        "parties/merge.py",
        "if file.manifest.queries != wanted:",
        "if False:",
        (f"{MERGE}::test_votes_on_other_queries_are_refused",),
    ),
    Mutant(
        "a site is merged twice",
        "parties/merge.py",
        "if before.site == file.site:",
        "if False:",
        (f"{MERGE}::test_duplicate_site_is_refused",),
    ),
    Mutant(
        "other classes are merged",
        "parties/merge.py",
        "if difference := file.manifest.encoding.difference(encoding):",
        'if difference := "":',
        (f"{MERGE}::test_different_encoding_is_refused_and_named",),
    ),
    Mutant(
        "an expected fingerprint is not compared",
        "parties/merge.py",
        "if named.get(name, found) != found or (name not in named and found not in loose):",
        "if name not in named and not loose:",
        (f"{MERGE}::test_rewritten_file_is_detected_only_by_fingerprint",),
    ),
    Mutant(
        "votes are not hashed",
        "parties/exchange.py",
        " or array_sha256(votes) != manifest.votes:",
        ":",
        (f"{EXCHANGE}::test_changed_vote_is_detected_despite_valid_archive",),
    ),
    Mutant(
        "a manifest is not hashed",
        "parties/exchange.py",
        'if arrays["sha256"].tobytes() != bytes.fromhex(sha256(stated)):',
        "if False:",
        (f"{EXCHANGE}::test_edited_budget_is_detected",),
    ),
    Mutant(
        "a teacher from elsewhere is unpickled",
        "parties/site.py",
        "if sha256(data) != hashes[teacher]:",
        "if False:",
        (f"{SITE}::test_foreign_teacher_file_is_never_unpickled",),
    ),
    Mutant(
        "a site votes again without a word",
        "parties/exchange.py",
        "if others and not again:",
        "if False:",
        (f"{SITE}::test_voting_on_other_queries_needs_again",),
    ),
    # Graded propose-test-release.
    Mutant(
        "ptr losing classes at half the exponent",
        "accounting/ptr.py",
        "log_first = alpha * (alpha - 1) / sigma**2 + log_ndtr",
        "log_first = alpha * (alpha - 1) / (2 * sigma**2) + log_ndtr",
        (f"{PTR}/test_kappa.py",),
    ),
    Mutant(
        "ptr forgets the move between top and a class",
        "accounting/ptr.py",
        "second = np.maximum.reduce([first, kappas[2], kappas[-2]])",
        "second = first",
        (f"{PTR}/test_envelope.py",),
    ),
    Mutant(
        "ptr tables that are not convex",
        "accounting/ptr.py",
        "np.maximum(out[i], np.nextafter(2 * out[i + 1] - out[i + 2], np.inf), out=out[i])",
        "pass",
        (f"{PTR}/test_kappa.py",),
    ),
    Mutant(
        "ptr tables that are convex but for rounding",
        "accounting/ptr.py",
        "np.nextafter(2 * out[i + 1] - out[i + 2], np.inf)",
        "2 * out[i + 1] - out[i + 2]",
        (f"{PTR}/test_kappa.py",),
    ),
    Mutant(
        "ptr forgets the smallest chances of a wrong label",
        "accounting/ptr.py",
        "np.concatenate([[0.0], np.minimum(np.exp(logs), 0.5)])",
        "np.concatenate([[np.exp(_LOWEST_LOG_Q)], np.minimum(np.exp(logs), 0.5)])",
        (f"{PTR}/test_kappa.py",),
    ),
    Mutant(
        "ptr votes that lie off the lattice",
        "accounting/ptr.py",
        "if np.any(array % self.lattice):",
        "if False:",
        (f"{PTR}/test_envelope.py",),
    ),
    Mutant(
        "ptr sensitivity rounded down to the lattice",
        "engines/teachers/tested.py",
        "math.ceil(own.sensitivity / lattice) * lattice",
        "math.floor(own.sensitivity / lattice) * lattice",
        ("tests/planning/test_reference.py",),
    ),
    Mutant(
        "ptr weights rounded up to the lattice",
        "engines/teachers/tested.py",
        "np.floor(panel.weights / lattice) * lattice",
        "np.ceil(panel.weights / lattice) * lattice",
        ("tests/planning/test_reference.py",),
    ),
    Mutant(
        "ptr labels with weights that were not tested",
        "engines/teachers/tested.py",
        "panel = on_lattice(panel, design.setting.lattice)  #",
        "pass  #",
        ("tests/labelling/test_tested.py::test_tested_weights_are_those_that_label",),
    ),
    Mutant(
        "ptr noise not divided by a person's weight",
        "accounting/ptr.py",
        "    sigma = setting.sigma / unit\n",
        "    sigma = setting.sigma\n",
        (f"{PTR}/test_envelope.py",),
    ),
    Mutant(
        "ptr top class for free",
        "accounting/ptr.py",
        " + tables.top_at(np.log(wrong[free]))",
        "",
        (f"{PTR}/test_envelope.py",),
    ),
    Mutant(
        "ptr radius that spares the runner-up",
        "accounting/ptr.py",
        "once, twice = places - radius, places - 2 * radius",
        "once, twice = places - radius, places - radius",
        (f"{PTR}/test_envelope.py",),
    ),
    Mutant(
        "ptr passing at the votes' own maximum",
        "accounting/ptr.py",
        "np.minimum(top + radius, setting.total_weight)",
        "np.minimum(top, setting.total_weight)",
        (f"{PTR}/test_envelope.py",),
    ),
    Mutant(
        "ptr checks for free",
        "accounting/ptr.py",
        "np.log1p(tables.check + passing * label)",
        "np.log1p(passing * label)",
        (f"{PTR}/test_envelope.py",),
    ),
    Mutant(
        "ptr moves rounded down to the grid",
        "accounting/ptr.py",
        "math.ceil(group.sensitivity / self.grid)",
        "math.floor(group.sensitivity / self.grid)",
        (f"{PTR}/test_design.py",),
    ),
    Mutant(
        "a design that passes at level 0",
        "accounting/ladder.py",
        "if losses[0] < surely:",
        "if losses[0] < 0:",
        (f"{PTR}/test_design.py",),
    ),
    Mutant(
        "a design whose bounds are not verified",
        "accounting/ladder.py",
        "& ~(bounds <= limit)",
        "& np.isnan(bounds)",
        (f"{PTR}/test_design.py",),
    ),
    Mutant(
        "a bound that forgets what the ramp tells",
        "accounting/ladder.py",
        "budget - (below - losses) + losses / (orders - 1)",
        "budget + losses / (orders - 1)",
        (f"{PTR}/test_design.py",),
    ),
    Mutant(
        "a failure that tells too much",
        "accounting/ladder.py",
        "steep = losses > failure_limit(losses, steps, growth - _MARGIN)",
        "steep = losses < 0",
        (f"{PTR}/test_design.py",),
    ),
    Mutant(
        "a chance to fail that no coin can have",
        "accounting/ladder.py",
        "if losses[-1] < _LEAST_LOSS:",
        "if losses[-1] < 0:",
        (f"{PTR}/test_design.py",),
    ),
    Mutant(
        "a last bit of the coin that nobody pays",
        "accounting/ladder.py",
        "delta -= COIN",
        "delta -= 0.0",
        (f"{PTR}/test_design.py::test_delta_covers_the_last_bit_of_the_coin",),
    ),
    Mutant(
        "a fallback that was not paid for",
        "accounting/ladder.py",
        "return (1 - FALLBACK_DELTA) * group.delta, group.epsilon / 2",
        "return group.delta, group.epsilon",
        (f"{PTR}/test_design.py",),
    ),
    Mutant(
        "ptr level at one radius too few",
        "accounting/ladder.py",
        "totals[s - asked[at], column[at]]",
        "totals[np.maximum(s - 1 - asked[at], 0), column[at]]",
        (f"{PTR}/test_search_and_level.py::test_level_matches_its_definition",),
    ),
    Mutant(
        "ptr level that looks at its own radius alone",
        "accounting/ladder.py",
        "at = asked <= s",
        "at = asked == s",
        (f"{PTR}/test_search_and_level.py::test_release_is_within_delta_for_all_neighbours",),
    ),
    Mutant(
        "ptr level that asks the first group alone",
        "accounting/ladder.py",
        "within[s] &= bool(",
        "within[s] &= group is not setting.groups[0] or bool(",
        (f"{PTR}/test_search_and_level.py::test_level_matches_its_definition",),
    ),
    Mutant(
        "a design that knows the votes",
        "engines/teachers/tested.py",
        "if design.reference_hash == votes_hash(votes) or is_copy",
        "if is_copy",
        ("tests/planning/test_reference.py",),
    ),
    Mutant(
        "a design for other queries",
        "engines/teachers/tested.py",
        "if len(ids) != design.n_queries or hash_queries(ids) != design.queries_hash:",
        "if len(ids) != design.n_queries:",
        ("tests/planning/test_reference.py",),
    ),
    # A release that is tested as a whole.
    Mutant(
        "tested: the release is not charged",
        "engines/teachers/tested.py",
        "    _pay(book, charge, test)\n",
        "",
        (f"{TESTED}::test_charge_precedes_stored_bit_which_precedes_labels",),
    ),
    Mutant(
        "tested: the charge is half the budget",
        "engines/teachers/tested.py",
        "np.array([group.epsilon])",
        "np.array([group.epsilon / 2])",
        (f"{TESTED}::test_failed_test_draws_no_labels_and_costs_budget",),
    ),
    Mutant(
        "tested: the bit is not stored",
        "engines/teachers/tested.py",
        "    book.charge(replace(charge, cost=free, draws=(), keys=(_DRAWN,), payload=drawn, paid_by=_CHARGED))\n",
        "",
        (f"{TESTED}::test_resume_after_the_bit_draws_no_second",),
    ),
    Mutant(
        "tested: a ledger in memory pays twice",
        "engines/teachers/tested.py",
        "    if all(paid) and book.durable:",
        "    if all(paid):",
        (f"{TESTED}::test_failed_test_draws_no_labels_and_costs_budget",),
    ),
    Mutant(
        "tested: a charge pays for any design",
        "engines/teachers/tested.py",
        "        if kept is None or (kept.design, kept.votes) != (test.design, test.votes):",
        "        if kept is None or kept.votes != test.votes:",
        (f"{TESTED}::test_charge_for_one_design_covers_no_other",),
    ),
    Mutant(
        "tested: one bit, other votes",
        "engines/teachers/tested.py",
        "(kept.design, kept.votes) != (test.design, test.votes)",
        "kept.design != test.design",
        (f"{TESTED}::test_only_the_tested_votes_can_be_labelled",),
    ),
    Mutant(
        "tested: one bit, other weights",
        "engines/teachers/tested.py",
        'hashlib.sha256(np.ascontiguousarray(panel.weights, dtype="<f8").tobytes())',
        "hashlib.sha256()",
        (f"{TESTED}::test_only_the_tested_votes_can_be_labelled",),
    ),
    Mutant(
        "tested: answers of a private run are published",
        "engines/teachers/tested.py",
        '"other" if book.private_history else "fixed"',
        '"fixed"',
        (f"{TESTED}::test_reused_private_answers_make_tested_release_private",),
    ),
    Mutant(
        "tested: labels after a fail",
        "engines/teachers/tested.py",
        "        if not passed:\n",
        "        if False:\n",
        (f"{TESTED}::test_failed_test_draws_no_labels_and_costs_budget",),
    ),
    Mutant(
        "tested: the fallback has the whole budget",
        "engines/teachers/tested.py",
        "group.with_budget(Budget(*left[group.id]))",
        "group",
        (f"{TESTED}::test_fallback_run_spends_at_most_the_remaining_budget",),
    ),
    Mutant(
        "tested: a resumed fallback forgets what it spent",
        "engines/teachers/tested.py",
        "opening=self._spent_of(aggregator.mechanism), ",
        "opening=None, ",
        (f"{TESTED}::test_resumed_fallback_stays_within_its_remaining_budget",),
    ),
    Mutant(
        "tested: a design made from the votes themselves",
        "engines/teachers/tested.py",
        "    refuse_own_votes(design, votes)\n",
        "",
        (f"{TESTED}::test_design_made_from_the_same_votes_is_refused",),
    ),
    Mutant(
        "tested: a budget that was tested pays for another run",
        "ledger/carry.py",
        "np.inf if releases.cost.any() else 0.0",
        "0.0",
        (f"{TESTED}::test_tested_release_and_other_runs_share_no_budget",),
    ),
    # What may be said.
    Mutant(
        "a private bound called releasable",
        "accounting/bounds.py",
        "data_independent: bool = False",
        "data_independent: bool = True",
        ("tests/labelling/test_results.py", f"{AUDIT}::test_data_dependent_costs_are_never_releasable"),
    ),
    # What runs and reports do with the ledger.
    Mutant(
        "a plan looks at what private costs left",
        "ledger/durable.py",
        "if found is not None and any(_private(found[1], run) for run in found[1].runs.values()):",
        "if found is not None and not found:",
        (f"{RUN_OUTLOOK}::test_private_history_is_told_by_no_refusal",),
    ),
    Mutant(
        "a reason states weights after private costs",
        "engines/ballots/design.py",
        'standing.private:\n        return "ballots;',
        'not standing.private:\n        return "ballots;',
        (f"{RUN_OUTLOOK}::test_private_history_is_told_by_no_figure",),
    ),
    Mutant(
        "a reason counts whole budgets after earlier runs",
        "engines/ballots/engine.py",
        "n_pool=means.n_pool, spent=spent)",
        "n_pool=means.n_pool)",
        (f"{RUN_OUTLOOK}::test_reason_of_ballots_states_what_was_released",),
    ),
    Mutant(
        "a private history is forgotten",
        "engines/teachers/loop.py",
        "if meter.data_independent and book.private_history:",
        "if meter.data_independent and not book:",
        (
            f"{RUN_LEDGERS}::test_private_history_makes_later_run_private",
            f"{LABEL}::test_labels_after_private_release_are_not_releasable",
        ),
    ),
    Mutant(
        "a run charges accounts in memory",
        "engines/teachers/engine.py",
        "            ledger=ledger,\n",
        "",
        (f"{RUN_LEDGERS}::test_run_keeps_own_ledger_and_records_head",),
    ),
    Mutant(
        "a run takes any ledger",
        "runs/ledgers.py",
        "    return max(known_heads(folder).values(), key=lambda head: head.entries, default=None)\n",
        "    return None\n",
        (f"{RUN_LEDGERS}::test_replaced_or_missing_ledger_is_refused",),
    ),
    Mutant(
        "people are known by their place among the private rows",
        "runs/task.py",
        "persons = private if data.person_id is None",
        "persons = np.arange(len(private)) if data.person_id is None",
        (f"{RUN_LEDGERS}::test_run_keeps_own_ledger_and_records_head",),
    ),
    Mutant(
        "a seeded run shares a ledger with private ones",
        "ledger/records.py",
        "if recorded is not None and recorded != asked:",
        "if recorded is None and recorded != asked:",
        (f"{RUN_LEDGERS}::test_seeded_and_secure_runs_cannot_share_ledger",),
    ),
    Mutant(
        "two runs that begin at once mix seeded noise with secret noise",
        "ledger/durable.py",
        "    _check_noise(name, contents, opening.noise)\n",
        "",
        ("tests/ledger/test_durable.py::test_run_with_the_other_noise_is_refused",),
    ),
    Mutant(
        "label draws seeded noise for a ledger with secure noise",
        "engines/teachers/loop.py",
        "    check_noise(book, source)\n",
        "",
        ("tests/ledger/test_contract.py::test_labelling_refuses_to_mix_seeded_and_secure_noise",),
    ),
    Mutant(
        "a tested release draws seeded noise for a ledger with secure noise",
        "engines/teachers/tested.py",
        "    check_noise(book, source)\n",
        "",
        (f"{TESTED}::test_tested_release_refuses_mixed_noise",),
    ),
    Mutant(
        "a ledger is charged with the other kind of noise",
        "ledger/base.py",
        '        refuse_mixed_noise(str(self.path or "this ledger"), self.noise, noise_kind(seeded=charge.seeded))\n',
        "",
        ("tests/ledger/test_contract.py::test_charge_with_the_other_noise_is_refused",),
    ),
    Mutant(
        "a release is paid by one that was not charged",
        "ledger/base.py",
        "if charge.paid_by is not None and charge.paid_by not in",
        "if charge.paid_by is None and charge.paid_by not in",
        ("tests/ledger/test_contract.py::test_test_is_charged_before_its_only_bit",),
    ),
    Mutant(
        "another run of a pool is refused what a run drew for itself",
        "ledger/chain.py",
        'where = run.pool if scope == "pool" else self._first(run).name',
        "where = run.pool",
        ("tests/ledger/test_durable.py::test_keys_of_a_run_are_not_those_of_its_pool",),
    ),
    Mutant(
        "a cost that no draw explains is charged",
        "ledger/records.py",
        "if not self.draws and self.paid_by is None and",
        "if False and",
        ("tests/ledger/test_generic.py::test_cost_without_a_draw_is_refused",),
    ),
    Mutant(
        "a fit forgets what it paid if its student fails",
        "runs/fits.py",
        "            self.keep(lesson, self._allocation)\n",
        "            pass\n",
        ("tests/test_classifier.py::test_paid_labels_survive_a_student_that_fails",),
    ),
    Mutant(
        "what was charged as a whole is carried at its recorded cost",
        "ledger/carry.py",
        "if meter.whole or old.whole or releases.whole:",
        "if meter.whole:",
        ("tests/ledger/test_generic.py::test_whole_release_leaves_nothing_under_any_unit",),
    ),
    Mutant(
        "a bound that is missing is called a change",
        "ledger/chain.py",
        "                _refuse_unknown(name, row)\n",
        "",
        ("tests/ledger/test_generic.py::test_missing_bound_is_not_called_a_change",),
    ),
    Mutant(
        "a limit outlives its bound",
        "ledger/records.py",
        "return _limit(self.meter.definition, ",
        "return _limit(None, ",
        ("tests/ledger/test_generic.py::test_cached_limit_follows_the_bound_of_that_name",),
    ),
    Mutant(
        "a test is stored with a second bit",
        "ledger/base.py",
        "        known = self._keys(charge.scope)\n",
        '        known = () if charge.scope == "run" else self._keys(charge.scope)\n',
        ("tests/ledger/test_contract.py::test_test_is_charged_before_its_only_bit",),
    ),
    Mutant(
        "answers of one kind of release are given for another",
        "ledger/durable.py",
        "if found.scope == scope and found.codec == codec\n",
        "if found.scope == scope\n",
        ("tests/ledger/test_durable.py::test_keys_of_a_run_are_not_those_of_its_pool",),
    ),
    Mutant(
        "the hash does not cover the result of a test",
        "ledger/chain.py",
        "for part in fields(value)]",
        'for part in fields(value) if part.name != "payload"]',
        ("tests/ledger/test_tampering.py::test_edited_typed_field_is_refused_on_opening",),
    ),
    Mutant(
        "a private report is readable until it is done",
        "report/assemble.py",
        'private=facts.audience == "private"',
        "private=False",
        ("tests/report/test_leaks.py::test_private_report_is_never_readable_by_others",),
    ),
    Mutant(
        "ipate runs shows how long a private run was as if it were public",
        "runs/listing.py",
        "private=record is None or not record.publishable",
        "private=False",
        ("tests/runs/test_listing.py::test_label_count_of_private_run_is_marked",),
    ),
    Mutant(
        "a ledger that a kill left half written is not set right",
        "ledger/sqlite.py",
        "not in _UNFINISHED:",
        "not in ():",
        ("tests/ledger/test_failures.py::test_hot_journal_is_rolled_back_by_a_reader",),
    ),
    Mutant(
        "an interrupted labelling does not know its ledger",
        "cli/charging.py",
        "        if book is not None:\n            write_head(out, book)  # from now on",
        "        if False:\n            write_head(out, book)  # from now on",
        (f"{LABEL}::test_ledger_missing_after_interruption_is_refused",),
    ),
    Mutant(
        "a seeded run goes on as a private one",
        "runs/folder.py",
        "if noise != folder.config.noise:",
        "if False:",
        (f"{RUN_LEDGERS}::test_changing_the_seed_of_a_run_is_refused",),
    ),
    Mutant(
        "a run begins with less than a query left",
        "engines/teachers/engine.py",
        "if poor and (",
        "if not poor and (",
        (f"{RUN_LEDGERS}::test_exhausted_budget_is_refused_before_training",),
    ),
    Mutant(
        "a report forgets what was spent before",
        "release/history.py",
        "for *_, own in path]) + opening[account] for account",
        "for *_, own in path]) for account",
        (f"{CARRIED}::test_report_adds_costs_of_both_runs",),
    ),
    Mutant(
        "the head of a private run's ledger is published",
        "report/facts.py",
        "stopped_by=None, ledger_head=None, public_scores",
        "stopped_by=None, public_scores",
        (f"{CARRIED}::test_ledger_head_of_private_run_stays_private",),
    ),
    Mutant(
        "a public report tells whether private labels taught a student",
        "report/facts.py",
        'parameters=figures, student_folder="")',
        "parameters=figures)",
        ("tests/report/test_leaks.py::test_existence_of_private_student_is_not_told",),
    ),
    Mutant(
        "a public report tells which order decides a private cost",
        "report/facts.py",
        "figures = replace(facts.parameters, orders={})",
        "figures = facts.parameters",
        ("tests/report/test_leaks.py::test_existence_of_private_student_is_not_told",),
    ),
    # What a reference may know of the votes.
    Mutant(
        "a part of the votes is their own reference",
        "engines/teachers/tested.py",
        " or is_copy(design.reference_queries, votes):",
        ":",
        ("tests/attacks/test_07_private_reference.py",),
    ),
    Mutant(
        "other ids hide a copy of the votes",
        "engines/teachers/votes.py",
        " or _mostly(*once, fewest=_FEWEST_UNNAMED)",
        "",
        ("tests/votes/test_likeness.py", "tests/attacks/test_07_private_reference.py"),
    ),
    Mutant(
        "a design is not compared with the votes beside it",
        "cli/options.py",
        "        refuse_own_votes(found, votes)\n",
        "",
        ("tests/attacks/test_07_private_reference.py",),
    ),
    # Who is not protected, and how few people a group has.
    Mutant(
        "the headline forgets people without protection",
        "report/claims.py",
        "        if facts.unprotected and facts.n_people",
        "        if facts.unprotected < 0 and facts.n_people",
        ("tests/report/test_claims.py::test_headline_counts_people_without_protection",),
    ),
    Mutant(
        "people of the pool get no statement",
        "runs/statements.py",
        "            if not uses:\n                raise InputError(",
        "            if True:\n                raise InputError(",
        (f"{STATEMENT}::test_person_of_pool_or_test_rows_gets_an_answer",),
    ),
    # What an officer and a person are told.
    Mutant(
        "an attacker's odds are understated",
        "accounting/gdp.py",
        "ndtr(ndtri(alpha) + mu_of(epsilon, delta))",
        "ndtr(ndtri(alpha) + 0.9 * mu_of(epsilon, delta))",
        ("tests/report/test_odds.py::test_gdp_odds_are_those_of_two_gaussians",),
    ),
    Mutant(
        "the odds of a general bound forget delta",
        "accounting/bounds.py",
        "* alpha + off",
        "* alpha",
        ("tests/report/test_odds.py::test_general_odds_hold_for_randomized_response",),
    ),
    Mutant(
        "the fingerprint of private rows has a known key",
        "runs/provenance.py",
        "found = hmac.new(key, digestmod=hashlib.sha256)",
        'found = hmac.new(b"ipate", digestmod=hashlib.sha256)',
        ("tests/runs/test_provenance.py::test_two_runs_on_one_file_have_different_fingerprints",),
    ),
    Mutant(
        "the public report has a hash of the private file",
        "runs/provenance.py",
        '    found = {"pool and classes": str(data["pool"])}\n',
        '    found = {"pool and classes": str(data["pool"]), "file": str(private_fingerprint(folder))}\n',
        ("tests/runs/test_provenance.py::test_public_files_have_no_hash_of_private_rows",),
    ),
    Mutant(
        "the fingerprint of the configuration covers the seed",
        "runs/provenance.py",
        'exclude={"seed", "report"}',
        'exclude={"report"}',
        ("tests/runs/test_provenance.py::test_fingerprints_do_not_depend_on_the_seed",),
    ),
    Mutant(
        "consent to another version of the policy is accepted",
        "runs/task.py",
        "np.sort(private[column[private] != wanted])",
        "private[:0]",
        ("tests/runs/test_provenance.py::test_consent_of_another_version_is_refused",),
    ),
    Mutant(
        "a letter has private figures",
        "report/letter.py",
        "isinstance(statement, Statement) and statement.private",
        "False",
        ("tests/report/test_letter.py::test_letter_of_private_account_has_no_figure",),
    ),
    Mutant(
        "everybody can read the letters",
        "runs/statements.py",
        "os.open(name, flags, 0o600)",
        "os.open(name, flags, 0o644)",
        ("tests/runs/test_provenance.py::test_letters_reach_everybody_and_nobody_else_can_read_them",),
    ),
    Mutant(
        "a run without a guarantee is registered",
        "report/registry.py",
        '    if not facts.publishable:\n        raise InputError("the run has no guarantee',
        '    if False:\n        raise InputError("the run has no guarantee',
        ("tests/report/test_exports.py::test_run_without_guarantee_has_no_exports",),
    ),
    Mutant(
        "a report of labels names a hash of private votes",
        "report/assemble.py",
        "identity=Identity(begun=",
        "identity=Identity(run=ledger.run, begun=",
        ("tests/report/test_labelled.py::test_report_of_labels_has_no_hash_of_votes",),
    ),
    Mutant(
        "events forget what a person moves",
        "ledger/carry.py",
        '2.0 if noise == "laplace" else _ROOT2\n',
        '2.0 if noise == "laplace" else 1.0\n',
        ("tests/report/test_exports.py::test_dp_accounting_finds_the_same_epsilon",),
    ),
    Mutant(
        "the size of a small group is shown",
        "people/budgets.py",
        "people is None or people >= least or people == 0",
        "True",
        ("tests/report/test_page.py::test_small_groups_are_not_counted",),
    ),
    Mutant(
        "scores stand among what may be published",
        "release/results.py",
        '"private": {**hidden, **(scores or {})}}',
        '"private": {**hidden}} | {"publishable": {**head, **(scores or {})}}',
        ("tests/attacks/test_02_raw_vote_figures.py::test_accuracy_of_labels_is_not_called_releasable",),
    ),
    Mutant(
        "people are compared without the benchmark flag",
        "config.py",
        "if self.compare and self.data.file is not None and not self.benchmark:",
        "if self.compare and self.data.file is None and not self.benchmark and self.ledger:",
        ("tests/attacks/test_02_raw_vote_figures.py::test_comparison_on_people_needs_the_benchmark_flag",),
    ),
    Mutant(
        "the student's accuracy on people is public",
        "runs/task.py",
        "scores if self.public_test else set()",
        "scores",
        ("tests/attacks/test_15_student_accuracy_is_private.py",),
    ),
    # Budgets that arithmetic cannot account for, and what a guarantee is called.
    Mutant(
        "small steps of the Mills ratio cancel",
        "accounting/gdp.py",
        "if (short := mu <= _SHORT).any():",
        "if (short := mu < 0).any():",
        ("tests/accounting/test_gdp.py::test_no_allowed_budget_affords_a_larger_delta",),
    ),
    Mutant(
        "a tiny budget is accepted",
        "errors.py",
        "(value >= LEAST_EPSILON)",
        "(value > 0)",
        ("tests/attacks/test_13_tiny_budgets.py",),
    ),
    Mutant(
        "a huge budget is accepted",
        "errors.py",
        "(value <= MOST_EPSILON)",
        "(value < math.inf)",
        ("tests/attacks/test_14_huge_budgets.py",),
    ),
    Mutant(
        "a seeded run is called releasable",
        "release/results.py",
        "    if not (seeded or overlap):",
        "    if not overlap:",
        ("tests/labelling/test_results.py::test_seed_or_overlap_leaves_no_guarantee",),
    ),
    Mutant(
        "an overlapping run is called releasable",
        "release/results.py",
        "    if not (seeded or overlap):",
        "    if not seeded:",
        ("tests/labelling/test_results.py::test_seed_or_overlap_leaves_no_guarantee",),
    ),
    # Who may use what of whom: consent, withdrawal, statements.
    Mutant(
        "a number above the most allowed is accepted",
        "people/consent.py",
        'LIMITS["epsilon"][0](value) and value <= most',
        'LIMITS["epsilon"][0](value)',
        ("tests/people/test_consent.py",),
    ),
    Mutant(
        "a withdrawal leaves the teacher's old votes in use",
        "engines/teachers/store.py",
        "stale = np.flatnonzero(self.done & (self._from != self._now).any(axis=1)).tolist()",
        "stale: list[int] = []",
        (INTERRUPTED,),
    ),
    Mutant(
        "votes that were cut short are filled up with class 0",
        "engines/teachers/store.py",
        'open_memmap(path, mode="r")',
        'open_memmap(path, mode="r+")',
        ("tests/teachers/test_ensemble.py",),
    ),
    Mutant(
        "a cost with earlier runs in it is promised",
        "report/assemble.py",
        "elif meter.data_independent and source.extract.opening:",
        "elif False:",
        ("tests/test_classifier.py",),
    ),
    Mutant(
        "a withdrawal erases votes and keeps the person's place",
        "allocation/allocation.py",
        "persons = np.where(np.isin(self.persons, people), EMPTY, self.persons)",
        "persons = self.persons",
        (f"{LEAVING}::test_retrained_teacher_excludes_rows_of_withdrawn_person",),
    ),
    Mutant(
        "an interrupted withdrawal is forgotten",
        "runs/store.py",
        "kept = settle(self.folder, Allocation.load(path))",
        "kept = Allocation.load(path)",
        (INTERRUPTED,),
    ),
    Mutant(
        "whoever left goes on being charged",
        "allocation/allocation.py",
        "for index, place in homes if index not in left}",
        "for index, place in homes}",
        (LEARN_AGAIN, f"{LEAVING}::test_withdrawal_before_training_empties_place_without_cost"),
    ),
    Mutant(
        "a teacher is known by its place in the file",
        "ledger/carry.py",
        "for row in run.accounts if row.terms.account.group.id == group\n",
        "for row in run.accounts[-1:] if row.terms.account.group.id == group\n",
        ("tests/ledger/test_durable.py::test_teachers_in_other_rows_are_not_charged_twice",),
    ),
    Mutant(
        "a group that everybody left begins afresh",
        "ledger/carry.py",
        "pasts[account] = {past[person] for person in last_members(account, runs)}",
        "pasts[account] = set()",
        (f"{WITHDRAWING}::test_account_without_members_keeps_its_last_cost",),
    ),
    Mutant(
        "a statement tells a private cost to anybody",
        "runs/statements.py",
        "return full if private else for_the_person(full)",
        "return full",
        (TOLD,),
    ),
    Mutant(
        "a statement forgets an earlier private run",
        "runs/balances.py",
        'kind=_least_of(kinds | ({"private"} if ledger.private_history else set())),',
        'kind="releasable",',
        (f"{STATEMENT}::test_earlier_private_run_makes_total_private",),
    ),
    Mutant(
        "a statement forgets a private run of others",
        "runs/balances.py",
        'kinds | ({"private"} if ledger.private_history else set())',
        "kinds",
        (f"{STATEMENT}::test_private_run_of_others_hides_later_figures",),
    ),
    Mutant(
        "a withdrawal prints a private cost",
        "report/statement.py",
        'return self if self.kind == "releasable" else replace',
        "return self if True else replace",
        ("tests/cli/test_leaving.py::test_private_figures_are_printed_only_on_request",),
    ),
    Mutant(
        "the public report tells when somebody left",
        "runs/ledgers.py",
        ", parent=parent, reason=reason,",
        ",",
        (f"{LEAVING}::test_public_report_counts_withdrawals_without_identifying_anyone",),
    ),
    Mutant(
        "a withdrawal is not recorded on the ledger",
        "runs/withdrawal.py",
        "    if path is not None:\n        LEDGER.withdraw(path, [entry.person])\n",
        "",
        (f"{LEFT}::test_interrupted_record_of_the_ledger_completes_the_withdrawal",),
    ),
    Mutant(
        "a new ledger does not know who left its first run",
        "ledger/durable.py",
        "for person in sorted(unknown):",
        "for person in ():",
        (f"{LEFT}::test_new_ledger_has_withdrawals_before_first_charge",),
    ),
    Mutant(
        "a new run uses people who withdrew",
        "runs/withdrawal.py",
        "left = allocation.without(tuple(map(allocation.people.index_of, before)))",
        "left = allocation",
        (f"{LEFT}::test_later_run_leaves_out_whoever_withdrew",),
    ),
    Mutant(
        "a resumed run goes on with people who withdrew",
        "runs/withdrawal.py",
        "        if person in ids - gone\n"
        "        and (person in found.withdrawn or _since(found, person, begun))\n"
        "        and allocation.people.index_of(person) not in allocation.withdrawn",
        "        if False and allocation.people.index_of(person) not in allocation.withdrawn",
        (f"{LEFT}::test_unfinished_run_is_resumed_without_whoever_withdrew",),
    ),
    Mutant(
        "a run that began before a withdrawal takes the person back",
        "runs/withdrawal.py",
        "(person in found.withdrawn or _since(found, person, begun))",
        "person in found.withdrawn",
        (f"{LEFT}::test_person_who_consents_again_is_in_later_runs_only",),
    ),
    Mutant(
        "the ledger charges people who withdrew",
        "ledger/durable.py",
        "if gone and not gone.keys().isdisjoint(dict(run.members)):",
        "if False:",
        (f"{WITHDRAWING}::test_run_with_somebody_who_withdrew_is_refused",),
    ),
    Mutant(
        "the ledger goes on charging a run with people who withdrew",
        "ledger/durable.py",
        "                _refuse_withdrawn(str(path), contents, run)\n                unknown",
        "                unknown",
        (f"{WITHDRAWING}::test_run_with_somebody_who_withdrew_is_refused",),
    ),
    Mutant(
        "the number of a published head counts withdrawals",
        "ledger/chain.py",
        "counted = len(self.hashes) - 1 - len(self.withdrawals)",
        "counted = len(self.hashes) - 1",
        (f"{WITHDRAWING}::test_number_of_published_head_counts_no_withdrawal",),
    ),
    Mutant(
        "an opening balance shows that somebody left",
        "ledger/durable.py",
        "opened = openings(kept, roster.counted, contents.runs",
        "opened = openings(kept, roster.people, contents.runs",
        (f"{WITHDRAWING}::test_opening_balance_does_not_show_that_somebody_left",),
    ),
    Mutant(
        "the public report of a later run counts who had left",
        "report/assemble.py",
        "withdrawn=source.withdrawn,",
        "withdrawn=len(allocation.withdrawn),",
        (f"{LEFT}::test_nothing_public_of_later_run_shows_the_withdrawal",),
    ),
    Mutant(
        "people who withdrew become public data",
        "ledger/admission.py",
        "for person, _ in run.members}.union(withdrawn)",
        "for person, _ in run.members}",
        (f"{WITHDRAWING}::test_whoever_withdrew_cannot_become_public_data",),
    ),
    Mutant(
        "a fit trains on people who withdrew",
        "runs/fits.py",
        "enumerate(people.ids.tolist()) if person in gone)",
        "enumerate(people.ids.tolist()) if False)",
        (f"{LEFT}::test_fit_leaves_out_whoever_withdrew_from_its_ledger",),
    ),
    Mutant(
        "a version of the policy changes its meaning",
        "ledger/admission.py",
        "if name in new and was[name] != new[name]",
        "if False",
        ("tests/ledger/test_people.py::test_version_of_a_policy_keeps_its_meaning",),
    ),
    Mutant(
        "a run does not tell the ledger its policy",
        "runs/task.py",
        "        policy=_policy(config),\n",
        "",
        (f"{PROVENANCE}::test_version_that_stood_for_another_budget_is_refused",),
    ),
    Mutant(
        "a run uses people who agreed before the policy",
        "runs/task.py",
        "    _check_days(data, parts.private, people, config)\n",
        "",
        (f"{PROVENANCE}::test_consent_before_the_policy_is_refused",),
    ),
    Mutant(
        "a run accepts a consent of the future",
        "data/columns.py",
        "days.append(check_consent_day(value, what=what).isoformat())",
        "days.append(str(value))",
        (f"{PROVENANCE}::test_day_of_consent_in_the_future_is_refused",),
    ),
    Mutant(
        "a run promises a delta of one over the people",
        "people/grouping.py",
        '            warnings.simplefilter("error", DeltaWarning)\n',
        '            warnings.simplefilter("ignore", DeltaWarning)\n',
        ("tests/runs/test_task.py::test_delta_of_one_over_the_people_is_refused",),
    ),
    Mutant(
        "labels of given votes promise a delta of one over the people",
        "cli/label.py",
        "    check_delta([row.as_group(delta) for row in rows])\n",
        "",
        (f"{LABEL}::test_delta_of_one_over_the_people_is_refused",),
    ),
    Mutant(
        "a delta of exactly one over the people passes",
        "people/budgets.py",
        "worst.delta < 1 / n_people",
        "worst.delta <= 1 / n_people",
        (f"{LABEL}::test_delta_of_one_over_the_people_is_refused",),
    ),
    # The reproduction charges right, but where it shows what the published code does.
    Mutant(
        "upsampling charged for one copy",
        "paper/voting.py",
        "sensitivity=float(copies))",
        "sensitivity=1.0)",
        (f"{VOTINGS}::test_upsampling_charges_every_copy",),
    ),
    Mutant(
        "precomputed votings forget the checks",
        "paper/grid.py",
        "paid = checks + answered",
        "paid = answered",
        (f"{VOTINGS}::test_precomputed_votings_equal_the_loop",),
    ),
    Mutant(
        "beyond's own students ask more than was paid",
        "paper/strong.py",
        "asking=Counts(queries=settings.n_queries,",
        "asking=Counts(queries=2 * settings.n_queries,",
        (f"{STRONG}::test_own_students_spend_no_more_than_budgets",),
    ),
    Mutant(
        "beyond's own students see counts without noise",
        "paper/strong.py",
        "counts=outcome.noisy_votes,",
        "counts=np.rint(8 * counts / settings.sigma).astype(np.int64),",
        (f"{STRONG}::test_own_students_spend_no_more_than_budgets",),
    ),
    Mutant(
        "beyond's own students learn from points not asked",
        "paper/pool_students.py",
        "targets = np.zeros_like(known)",
        "targets = known.copy()",
        (f"{POOLED}::test_only_counts_of_asked_points_matter",),
    ),
    Mutant(
        "vanishing forgets the checks",
        "paper/voting.py",
        "cost = checks + (labels >= 0)[:, None] * label_cost",
        "cost = (labels >= 0)[:, None] * label_cost",
        (f"{VOTINGS}::test_rotation_costs_agree_with_the_loop",),
    ),
    Mutant(
        "a frame's column of ids is dropped unread",
        "runs/fits.py",
        "named = None if ids is None else column_of(table, ids[0])",
        "named = None",
        (f"{POOL}::test_frame_with_people_of_private_rows_is_refused",),
    ),
    Mutant(
        "budgets indexed by id are taken by position",
        "data/frames.py",
        'if known == set(labels) or (known and own.dtype.kind not in "iu"):',
        "if False:",
        (f"{MISALIGNED}::test_budgets_by_id_beside_plain_rows_are_refused",),
    ),
    Mutant(
        "budgets with one unknown id are taken by position",
        "data/frames.py",
        'if known == set(labels) or (known and own.dtype.kind not in "iu"):',
        "if known == set(labels):",
        (f"{MISALIGNED}::test_budgets_by_id_beside_plain_rows_are_refused",),
    ),
    Mutant(
        "runs with and without an overlap share a ledger",
        "ledger/admission.py",
        "        self._check_overlap(runs)\n",
        "",
        (f"{POOL}::test_overlap_shares_no_ledger_with_other_runs",),
    ),
    Mutant(
        "ledger does not record an accepted overlap",
        "ledger/durable.py",
        'reason="overlap" if parent is None and roster.overlap else opening.reason,',
        "reason=opening.reason,",
        (f"{POOL}::test_overlap_shares_no_ledger_with_other_runs",),
    ),
    Mutant(
        "refused charge states private costs",
        "ledger/base.py",
        "if self.private_history or not terms.meter.data_independent:",
        "if False:",
        (f"{CONTRACT}::test_refusal_under_private_bound_states_no_cost",),
    ),
    Mutant(
        "refused run states costs of a private one",
        "ledger/carry.py",
        "if any(not own.meter.data_independent and own.cost.any() for own in past):",
        "if False:",
        (f"{RUN_LEDGERS}::test_refusal_after_private_run_states_no_cost",),
    ),
    Mutant(
        "run without budget for a query states private costs",
        "engines/teachers/engine.py",
        "{PRIVATE_COSTS if checked.private else spent}",
        "{spent}",
        (f"{RUN_LEDGERS}::test_refusal_after_private_run_states_no_cost",),
    ),
    Mutant(
        "older copy of a ledger tells the number of private charges",
        "ledger/durable.py",
        "if any(not row.terms.meter.data_independent for run in contents.runs.values() for row in run.accounts):",
        "if False:",
        ("tests/ledger/test_tampering.py::test_older_copy_states_no_number_of_private_charges",),
    ),
    Mutant(
        "ids written in another way begin a new ledger",
        "ledger/finding.py",
        "if 2 * len(pairs) > len(own):",
        "if False:",
        ("tests/attacks/test_04_ids.py::test_new_ledger_is_refused_for_ids_like_those_of_another",),
    ),
    Mutant(
        "plan counts small groups in its table",
        "engines/teachers/forecast.py",
        "account, people = group.account, str(means.shown(group.account.people))",
        "account, people = group.account, str(group.account.people)",
        (f"{SMALL}::test_plan_does_not_count_small_groups",),
    ),
    Mutant(
        "plan counts small groups in its JSON",
        "planning/plan.py",
        'shown(value) if name == "people" else',
        'value if name == "people" else',
        (f"{SMALL}::test_plan_does_not_count_small_groups",),
    ),
    Mutant(
        "note on merged groups counts a few people",
        "people/grouping.py",
        "moved = shown_count(int(people[lost > 0].sum()), least=least)",
        "moved = int(people[lost > 0].sum())",
        (f"{SMALL}::test_merged_few_are_not_counted_in_the_note",),
    ),
    Mutant(
        "mean loss of a few merged people stated",
        "people/grouping.py",
        "if isinstance(moved, str):",
        "if False:",
        (f"{SMALL}::test_merged_few_are_not_counted_in_the_note",),
    ),
    Mutant(
        "other groups counted beside a small one",
        "people/budgets.py",
        'rest = f"{least} or more" if has_small(sizes, least=least) else None',
        "rest = None",
        (f"{SMALL}::test_total_does_not_tell_a_small_group",),
    ),
    Mutant(
        "weight of all ballots tells a small group",
        "release/results.py",
        "hidden = has_small((group.group.people for group in groups), least=least)",
        "hidden = False",
        (f"{SMALL}::test_total_does_not_tell_a_small_group",),
    ),
    # Teachers: nothing that private rows do to them is visible, and none moves another.
    Mutant(
        "first teacher of a process draws from torch unseeded",
        "models/isolation.py",
        'if not seeded and "torch" in sys.modules:',
        "if False:",
        (f"{DRAWS}::test_teacher_that_imports_torch_keeps_its_draws",),
    ),
    Mutant(
        "one label in a list changes the type of all",
        "data/cells.py",
        "    if not isinstance(values, list | tuple):\n        return values\n    found",
        "    if True:\n        return values\n    found",
        (f"{ODD}::test_odd_label_in_list_is_one_row_without_class",),
    ),
    Mutant(
        "a label that cannot be compared ends the fit",
        "runs/fits.py",
        "    except Exception:  # not hashable, for example a tuple with a list in it",
        "    except KeyError:",
        (f"{ODD}::test_odd_label_in_list_is_one_row_without_class",),
    ),
    Mutant(
        "one feature that is text refuses the fit",
        "runs/fits.py",
        "        X = numbers_alone(X)\n",
        "",
        (f"{ODD}::test_odd_feature_in_memory_is_one_unusable_row",),
    ),
    Mutant(
        "an error quotes private features of one dimension",
        "data/frames.py",
        '    if len(shape) < 2:\n        raise InputError(\n            f"{what} has',
        '    if len(shape) < 2:\n        raise InputError(\n            f"{X} {what} has',
        (f"{QUOTED}::test_features_and_labels_of_wrong_form_are_refused_without_cells",),
    ),
    Mutant(
        "an error of scikit-learn quotes a private cell",
        "runs/fits.py",
        "    except Exception as error:\n        line, typed",
        "    except ZeroDivisionError as error:\n        line, typed",
        (f"{QUOTED}::test_cells_that_scikit_learn_refuses_are_not_quoted",),
    ),
    Mutant(
        "a first line that is a person's row is compared with names",
        "files.py",
        "(not is_csv(source) or (found and 2 * len(found) >= len(others)))",
        "True",
        (f"{QUOTED}::test_first_line_that_is_no_header_is_not_shown",),
    ),
    Mutant(
        "a proposal names columns after a person's row",
        "data/proposal.py",
        "    if known or mark or any(",
        "    if known and mark and any(",
        (f"{QUOTED}::test_first_line_that_is_no_header_is_not_shown",),
    ),
    Mutant(
        "one cell of a mapping changes the type of its column",
        "data/raw.py",
        "return np.asarray(values if plain else cells.alone(values))",
        "return np.asarray(values)",
        (f"{ODD}::test_odd_cell_in_column_leaves_others_as_they_were",),
    ),
    Mutant(
        "a failing teacher ends the run",
        "models/isolation.py",
        "except BaseException as error:  # also SystemExit, which would end the run",
        "except ZeroDivisionError as error:",
        (FAILING,),
    ),
    Mutant(
        "a teacher that fails has no vote",
        "models/training.py",
        "yield teacher, fixed.copy() if done.failed else done.result",
        "if not done.failed:\n                yield teacher, done.result",
        ("tests/teachers/test_ensemble.py::test_failing_teacher_votes_fixed_class_and_others_as_before",),
    ),
    Mutant(
        "a vote that is no class is stored",
        "models/training.py",
        "if not (found.min() >= 0 and found.max() < n_classes and np.all(found == np.floor(found))):",
        "if False:",
        ("tests/teachers/test_ensemble.py::test_vote_for_unknown_class_becomes_fixed_class",),
    ),
    Mutant(
        "warnings of teachers are shown",
        "models/isolation.py",
        "warnings.showwarning = warned",
        "warnings.showwarning = shown",
        (f"{QUIET}::test_warnings_logs_and_prints_are_returned_only",),
    ),
    Mutant(
        "log records of teachers reach handlers",
        "models/isolation.py",
        "logging.Logger.callHandlers = logged ",
        "logging.Logger.callHandlers = handled ",
        (f"{QUIET}::test_warnings_logs_and_prints_are_returned_only",),
    ),
    Mutant(
        "teachers share the generator of numpy",
        "models/isolation.py",
        "np.random.set_bit_generator(np.random.MT19937(seed))",
        "np.random.get_bit_generator()",
        (SHARED,),
    ),
    Mutant(
        "all teachers draw alike from Python",
        "models/isolation.py",
        "        random.seed(seed)\n",
        "        pass\n",
        (f"{DRAWS}::test_two_teachers_draw_different_numbers",),
    ),
    Mutant(
        "all teachers draw alike from torch",
        "models/isolation.py",
        "            torch.manual_seed(seed)\n",
        "            pass\n",
        (f"{DRAWS}::test_two_teachers_draw_different_numbers",),
    ),
    Mutant(
        "Python's generator is not put back",
        "models/isolation.py",
        "        random.setstate(python)\n",
        "",
        (f"{DRAWS}::test_caller_keeps_its_global_generators",),
    ),
    Mutant(
        "torch's generator is not put back",
        "models/isolation.py",
        "            torch.set_rng_state(cpu)\n",
        "",
        (f"{DRAWS}::test_caller_keeps_its_global_generators",),
    ),
    Mutant(
        "the CPU-time limit is not enforced",
        "models/isolation.py",
        "        if working and left <= 0:\n",
        "        if False:\n",
        (f"{QUIET}::test_endless_fit_ends_at_its_limit",),
    ),
    Mutant(
        "a label that is no class trains a teacher",
        "models/training.py",
        "    usable = y >= 0\n",
        "    usable = y >= -1\n",
        ("tests/teachers/test_ensemble.py::test_row_without_class_trains_no_teacher",),
    ),
    Mutant(
        "no teacher is tried on made-up rows",
        "models/named.py",
        "        if reason:\n",
        "        if False:\n",
        (f"{DRY}::test_misconfigured_teacher_is_refused_with_reason",),
    ),
    Mutant(
        "the trial fits on private rows",
        "engines/teachers/engine.py",
        "dry_fit(teacher, pool, n_classes=run.task.n_classes, rows=rows",
        "dry_fit(teacher, run.task.rows(self.form), n_classes=run.task.n_classes, rows=rows",
        (f"{DRY}::test_trial_uses_public_points_only",),
    ),
    Mutant(
        "a dead worker ends the run",
        "models/workers.py",
        "                yield key, _alone(function, left.pop(key), folder, retries)",
        "                raise LostWorkersError(str(key))",
        ("tests/teachers/test_engines.py::test_loky_gives_up_only_task_that_kills_workers",),
    ),
    Mutant(
        "the published pairing is not shown",
        "paper/voting.py",
        'return as_published(weighting(ensemble, given, rule="algorithm2", mechanism=mechanism))',
        'return weighting(ensemble, given, rule="algorithm2", mechanism=mechanism)',
        (f"{VOTINGS}::test_published_pairing_overspends_strict_budgets",),
    ),
    Mutant(
        "budgets ignore the index of the data",
        "data/frames.py",
        "return np.asarray(array[places])",
        "return array",
        (f"{MISALIGNED}::test_shuffled_budgets_reach_the_people_who_gave_them",),
    ),
    Mutant(
        "small groups join a looser group",
        "people/grouping.py",
        "stricter = (epsilon <= epsilon[place]) & (delta <= delta[place]) & (sizes > 0)",
        "stricter = (epsilon >= epsilon[place]) & (delta >= delta[place]) & (sizes > 0)",
        ("tests/people/test_merging.py",),
    ),
    Mutant(
        "merged groups count with their largest budget",
        "people/grouping.py",
        'home[own] = own[first[np.searchsorted(first, np.arange(len(own)), side="right") - 1]]',
        "home[own] = own[-1]",
        ("tests/people/test_merging.py",),
    ),
    Mutant(
        "repeated index labels are matched all the same",
        "data/frames.py",
        "if not labels.is_unique:",
        "if False:",
        (f"{MISALIGNED}::test_shuffled_budgets_of_repeated_labels_are_refused",),
    ),
    # What is called public.
    Mutant(
        "a copy of the private rows is a pool",
        "data/overlap.py",
        "if copies >= LEAST and copies > len(rows) / 2:",
        "if copies >= LEAST and copies > len(rows):",
        (POOL,),
    ),
    Mutant(
        "overlap keeps its guarantee",
        "engines/base.py",
        "found = result.overlapping() if self.task.overlap else result",
        "found = result",
        (POOL,),
    ),
    Mutant(
        "people of the private file may be in the pool",
        "data/overlap.py",
        "        if len(shared):",
        "        if len(shared) > 10**9:",
        ("tests/data/test_overlap.py",),
    ),
    Mutant(
        "private rows decide the schema",
        "data/sources.py",
        "chosen = people.table.take(own.public)",
        "chosen = people.table",
        (CELLS,),
    ),
    Mutant(
        "values of private rows in a list of categories decide a kind",
        "data/schema.py",
        "for place in np.unique(index).tolist()]",
        "for place in range(len(values))]",
        (CELLS,),
    ),
    Mutant(
        "an absurd private number reaches a teacher",
        "data/schema.py",
        "scaled = np.clip(found, self.low, self.high)",
        "scaled = found.copy()",
        (CELLS, "tests/data/test_schema.py"),
    ),
    Mutant(
        "a label that is no class is another class",
        "data/columns.py",
        "return np.where(found < len(classes), found, -1)",
        "return np.where(found < len(classes), found, 0)",
        ("tests/data/test_files.py",),
    ),
    # Ballots: weights, sums, one charge and one draw.
    Mutant(
        "ballot priced without the root of two",
        "engines/ballots/design.py",
        "return terms.meter.vector_cost(sensitivity=weight, sigma=SIGMA)",
        "return terms.meter.vector_cost(sensitivity=weight / math.sqrt(2), sigma=SIGMA)",
        (f"{LAW}::test_exact_law_reaches_but_never_passes_delta",),
    ),
    Mutant(
        "weight not divided by the root of partitions",
        "engines/ballots/design.py",
        'root = math.sqrt(check_count("partitions", partitions))',
        'root = check_count("partitions", partitions) ** 0',
        (f"{LAW}::test_exact_law_reaches_but_never_passes_delta",),
    ),
    Mutant(
        "ballot cost without the root of partitions",
        "engines/ballots/design.py",
        "root * (units * GRID) for account, units",
        "(units * GRID) for account, units",
        (DESIGN,),
    ),
    Mutant(
        "weight of a ballot below its root of partitions",
        "engines/ballots/design.py",
        "weight * (1 + _UP) for account, weight",
        "weight for account, weight",
        (f"{DESIGN}::test_stated_weight_covers_the_exact_root",),
    ),
    Mutant(
        "weight of a ballot rounded up past the budget",
        "engines/ballots/design.py",
        "math.floor(share * weight / root / GRID) for name, weight in weights.items()}\n    for name, entry in held",
        "math.ceil(share * weight / root / GRID) for name, weight in weights.items()}\n    for name, entry in {}",
        (f"{DESIGN}::test_no_design_costs_more_than_any_budget",),
    ),
    Mutant(
        "rest of the budget spent on full cells",
        "engines/ballots/design.py",
        "share = min(1.0, FULL * m * SIGMA / total) if total > 0 else 1.0",
        "share = 1.0",
        (f"{DESIGN}::test_rest_of_budgets_stays_in_the_accounts",),
    ),
    Mutant(
        "ballot weights ignore earlier spending",
        "engines/ballots/design.py",
        "entry.limit - (spent or {}).get(name, np.zeros(entry.meter.width))",
        "entry.limit",
        (f"{DESIGN}::test_spent_budget_reduces_the_weight_by_id",),
    ),
    Mutant(
        "ballot weights paired by position",
        "engines/ballots/counting.py",
        "by_group = np.array([design.units[group.id] for group in people.groups], dtype=np.int64)",
        "by_group = np.array(list(design.units.values()), dtype=np.int64)",
        (f"{COUNTING}::test_weights_follow_people_by_group_id",),
    ),
    Mutant(
        "mean weight for everybody",
        "engines/ballots/counting.py",
        "    return by_group[people.group_of_person]",
        "    return np.full(people.n_people, int(by_group[people.group_of_person].mean()))",
        (f"{COUNTING}::test_weights_follow_people_by_group_id",),
    ),
    Mutant(
        "rows of a person summed",
        "engines/ballots/counting.py",
        "parts = units[who] * times // rows[who]",
        "parts = units[who] * times",
        (f"{COUNTING}::test_two_ballots_differ_by_at_most_two",),
    ),
    Mutant(
        "share of rows rounded up",
        "engines/ballots/counting.py",
        "parts = units[who] * times // rows[who]",
        "parts = -(-units[who] * times // rows[who])",
        (f"{COUNTING}::test_every_entry_is_rounded_down",),
    ),
    Mutant(
        "unreadable rows cast a vote",
        "engines/ballots/counting.py",
        "        usable &= readable\n",
        "        pass\n",
        (f"{COUNTING}::test_unreadable_rows_cast_no_vote_but_others_of_the_person_do",),
    ),
    Mutant(
        "unreadable rows refused visibly",
        "engines/ballots/release.py",
        "        readable[part] = maps.features.readable(rows)\n",
        "        readable[part] = maps.features.readable(rows)\n        assert readable[part].all()\n",
        (f"{RELEASE}::test_missing_ballots_change_no_public_figure",),
    ),
    Mutant(
        "withdrawn people keep their ballots",
        "engines/ballots/counting.py",
        "    return np.where(gone[people.person_of_row], -1, y)",
        "    return np.asarray(y)",
        (f"{COUNTING}::test_withdrawn_people_leave_an_empty_slot",),
    ),
    Mutant(
        "withdrawn people of a run keep their ballots",
        "engines/ballots/engine.py",
        "withdrawn=[str(people.ids[index]) for index in allocation.withdrawn],",
        "withdrawn=[],",
        (f"{RUN_BALLOTS}::test_withdrawal_empties_ballot_and_changes_no_public_figure",),
    ),
    Mutant(
        "standard ballots weigh what everybody's own budget affords",
        "engines/ballots/design.py",
        "    if variant == BASELINE:\n",
        "    if False:\n",
        (f"{RUN_BALLOTS}::test_standard_ballots_use_the_strictest_budget",),
    ),
    Mutant(
        "weights of ballots are public whatever the history",
        "release/results.py",
        '"weight": None if self.teachers is None else self.weight,',
        '"weight": self.weight,',
        (f"{RUN_BALLOTS}::test_private_history_hides_weights_of_ballots",),
    ),
    Mutant(
        "private text that is no Unicode is refused",
        "data/overlap.py",
        '.encode(errors="surrogatepass")',
        ".encode()",
        ("tests/data/test_overlap.py::test_text_that_is_no_unicode_is_hashed",),
    ),
    Mutant(
        "a site sends ballots of other rows in the same cells",
        "parties/sums.py",
        'sent = f"{cells.fingerprint} {exchange.array_sha256(total)}"',
        "sent = cells.fingerprint",
        (f"{SITE_BALLOTS}::test_ballots_of_changed_rows_need_again",),
    ),
    Mutant(
        "ballots are charged before their student is tried",
        "pipeline.py",
        "            options.pupil.try_on(task, settings)\n",
        "            pass\n",
        ("tests/test_classifier_ballots.py::test_student_that_cannot_learn_is_refused_before_charging",),
    ),
    Mutant(
        "spent budgets release ballots of noise",
        "engines/ballots/release.py",
        "    design.check_useful(private=bool(book.private_history))\n",
        "",
        (f"{RELEASE}::test_second_run_with_spent_budgets_is_refused",),
    ),
    Mutant(
        "same noise for all classes of a cell",
        "engines/ballots/counting.py",
        'noise.normal("ballots", names, n_classes).reshape(histogram.shape)',
        'np.repeat(noise.normal("ballots", names, 1), n_classes, axis=1).reshape(histogram.shape)',
        (f"{COUNTING}::test_noise_is_independent_and_has_the_stated_deviation",),
    ),
    Mutant(
        "a review of ballots repeats the student's guess",
        "engines/ballots/counting.py",
        "mass * (guess + KEPT * (self.scores / mass - cell_means))",
        "mass * guess",
        (f"{COUNTING}::test_review_corrects_a_guess_that_contradicts_its_cell",),
    ),
    Mutant(
        "a review of ballots forgets the student's guess",
        "engines/ballots/counting.py",
        "mass * (guess + KEPT * (self.scores / mass - cell_means))",
        "self.scores",
        (f"{COUNTING}::test_review_tells_points_of_one_cell_apart",),
    ),
    Mutant(
        "half the noise on ballots",
        "engines/ballots/counting.py",
        "drawn = SIGMA * noise.normal",
        "drawn = SIGMA / 2 * noise.normal",
        (f"{COUNTING}::test_noise_is_independent_and_has_the_stated_deviation",),
    ),
    Mutant(
        "ballots drawn again on resume",
        "engines/ballots/release.py",
        "    if stored is not None:\n        r, m, _ =",
        "    if stored is not None and False:\n        r, m, _ =",
        (f"{RELEASE}::test_second_call_returns_the_stored_draw",),
    ),
    Mutant(
        "ledger accepts a second draw of ballots",
        "ledger/base.py",
        'if charge.scope == scope == "run" for key in charge.keys}',
        'if charge.scope == scope == "run" for key in ()}',
        (f"{RELEASE}::test_ledger_refuses_a_second_histogram_of_a_run",),
    ),
    Mutant(
        "ballots released before they are charged",
        "engines/ballots/release.py",
        "    charge_ballots(book, design, drawn, seeded=source.seeded)\n    return",
        "    return",
        (RELEASE,),
    ),
    Mutant(
        "ballots cast elsewhere drawn again",
        "engines/ballots/given.py",
        "    if stored is None:\n",
        "    if stored is None or True:\n",
        (f"{LABEL_BALLOTS}::test_labelling_again_uses_the_stored_draw",),
    ),
    Mutant(
        "ballots labelled again are a new run",
        "engines/ballots/given.py",
        "mark = fingerprint(self.total, ",
        "mark = fingerprint(self.cells, self.total, ",
        (f"{LABEL_BALLOTS}::test_labelling_again_uses_the_stored_draw",),
    ),
    Mutant(
        "ballots cast elsewhere are not charged",
        "engines/ballots/given.py",
        "        charge_ballots(book, replace(ballots.design, terms=book.terms), stored, seeded=noise.seeded)\n",
        "",
        (LABEL_BALLOTS,),
    ),
    Mutant(
        "sum above the declared units accepted",
        "engines/ballots/given.py",
        "        if sum(table.ravel().tolist()) > most:",
        "        if False:",
        (f"{GIVEN}::test_sum_may_reach_but_not_pass_declared_units",),
    ),
    Mutant(
        "negative ballots accepted",
        "engines/ballots/given.py",
        "    if int(ballots.min()) < 0:\n",
        "    if False:\n",
        (f"{GIVEN}::test_unusable_file_is_refused_by_name",),
    ),
    Mutant(
        "units above the budget accepted",
        "engines/ballots/design.py",
        "if not 0 <= units[name] <= most:",
        "if not 0 <= units[name]:",
        (f"{GIVEN}::test_units_up_to_the_whole_budget_are_accepted_only",),
    ),
    Mutant(
        "group's sum of ballots checked against all units",
        "engines/ballots/given.py",
        "check_sum(own, most=most[name])",
        "check_sum(own, most=sum(most.values()))",
        (f"{GIVEN}::test_unusable_file_is_refused_by_name",),
    ),
    Mutant(
        "units given to groups by position",
        "engines/ballots/given.py",
        "    return dict(zip(ids, units.tolist(), strict=True))",
        "    return dict(zip(sorted(ids), units.tolist(), strict=True))",
        (f"{GIVEN}::test_sums_per_group_are_added_in_any_order",),
    ),
    Mutant(
        "site's sum of ballots above its declaration accepted",
        "parties/sums.py",
        "most = sum(group.people * cells.manifest.units[group.id] for group in declared.groups)",
        "most = sum(g.people * cells.manifest.units[g.id] for site in cells.manifest.sites for g in site.groups)",
        (f"{SITE_BALLOTS}::test_sum_above_the_declaration_of_a_site_is_refused",),
    ),
    Mutant(
        "same site's ballots merged twice",
        "parties/merge.py",
        "        if before.site == file.site:\n",
        "        if False:\n",
        (f"{SITE_BALLOTS}::test_same_site_twice_is_refused",),
    ),
    Mutant(
        "same site declared twice",
        "parties/sums.py",
        "        if before.site == declared.site:\n",
        "        if False:\n",
        (f"{SITE_BALLOTS}::test_same_site_twice_is_refused",),
    ),
    Mutant(
        "ballots for other cells merged",
        "parties/sums.py",
        "    if manifest.cells != cells.fingerprint:\n",
        "    if False:\n",
        (f"{SITE_BALLOTS}::test_file_that_cannot_be_a_site_sum_is_refused",),
    ),
    Mutant(
        "ballots under a larger declaration merged",
        "parties/sums.py",
        "    if manifest.groups != declared.groups:\n",
        "    if False:\n",
        (f"{SITE_BALLOTS}::test_file_that_cannot_be_a_site_sum_is_refused",),
    ),
    Mutant(
        "changed ballots under an old hash accepted",
        "parties/sums.py",
        'if exchange.array_sha256(arrays["ballots"]) != manifest.ballots:',
        "if False:",
        (f"{SITE_BALLOTS}::test_altered_ballots_are_detected",),
    ),
    Mutant(
        "site casts ballots for cells of another declaration",
        "parties/sums.py",
        "if (counted.queries, counted.groups) != (declared.queries, declared.groups):",
        "if False:",
        (f"{SITE_BALLOTS}::test_site_refuses_cells_of_another_declaration",),
    ),
    Mutant(
        "site casts ballots for every cells file",
        "parties/sums.py",
        "        record.check(sent, again=again)\n",
        "",
        (f"{SITE_BALLOTS}::test_ballots_for_other_cells_need_again",),
    ),
    Mutant(
        "sites' groups of people matched by position",
        "parties/sums.py",
        "np.argsort(order)[people.group_of_person]",
        "people.group_of_person",
        (f"{SITE_BALLOTS}::test_sites_together_equal_one_site_to_the_last_bit",),
    ),
    Mutant(
        "ballots merged anew begin a new ledger",
        "engines/ballots/given.py",
        "return self.maps or fingerprint(self.total)",
        "return fingerprint(self.total)",
        (f"{PARTY_BALLOTS}::test_other_merge_of_the_same_cells_finds_its_ledger",),
    ),
    Mutant(
        "ballots forgotten in carried costs",
        "ledger/carry.py",
        "total = total + number * price(",
        "total = total + 0 * number * price(",
        (f"{RELEASE}::test_carried_ballots_cost_the_whole_vector_under_any_bound",),
    ),
    Mutant(
        "carried ballots at the price of a label",
        "ledger/carry.py",
        "return meter.vector_cost(sensitivity=sensitivity, sigma=release.sigma)",
        "return meter.worst_label(sensitivity=sensitivity, sigma=release.sigma)",
        (f"{RELEASE}::test_carried_ballots_cost_the_whole_vector_under_any_bound",),
    ),
    Mutant(
        "cells depend on the block of rows",
        "public/features.py",
        "    return np.clip(np.rint(np.nan_to_num(values",
        "    return np.clip((np.nan_to_num(values",
        ("tests/public/test_features.py::test_any_private_row_becomes_a_point_on_the_grid",),
    ),
    Mutant(
        "learnt features depend on the order of a sum",
        "public/integers.py",
        ").round().clip(0, TOP)",
        ").clip(0, TOP)",
        ("tests/public/test_exact.py::test_sums_are_exact_in_any_precision_and_order",),
    ),
    Mutant(
        "learnt features with sums beyond exact numbers",
        "public/integers.py",
        "not most.max() <= _EXACT",
        "not most.max() <= 4 * _EXACT",
        ("tests/public/test_exact.py::test_net_with_inexact_sums_is_refused",),
    ),
    Mutant(
        "learnt features scaled by the block of rows",
        "public/integers.py",
        "norm = np.sqrt(np.square(sums).sum(axis=1, keepdims=True))",
        "norm = np.sqrt(np.square(sums).sum() / len(sums))",
        ("tests/public/test_exact.py::test_features_of_an_image_do_not_depend_on_others",),
    ),
    # Noisy counts: one draw, rounded, at the price of the vector, once per query.
    Mutant(
        "label of a second draw beside the counts",
        "engines/teachers/aggregators.py",
        "labels[passed] = released.argmax(axis=1)",
        "labels[passed] = (counts[passed] + self.label_noise(chosen, counts.shape[1], noise)).argmax(axis=1)",
        (f"{COUNTS}::test_noise_is_drawn_once_for_label_and_counts",),
    ),
    Mutant(
        "counts of a second draw beside the label",
        "engines/teachers/aggregators.py",
        "released = in_steps(noisy, sigma",
        "released = in_steps(counts[passed] + self.label_noise(chosen, counts.shape[1], noise), sigma",
        (f"{COUNTS}::test_noise_is_drawn_once_for_label_and_counts",),
    ),
    Mutant(
        "label read off the doubles behind the counts",
        "engines/teachers/aggregators.py",
        "labels[passed] = released.argmax(axis=1)",
        "labels[passed] = noisy.argmax(axis=1)",
        (f"{COUNTS}::test_tie_of_rounded_counts_goes_to_lower_class",),
    ),
    Mutant(
        "counts without noise",
        "engines/teachers/aggregators.py",
        "released = in_steps(noisy, sigma",
        "released = in_steps(counts[passed], sigma",
        (f"{COUNTS_LAW}::test_released_counts_follow_their_exact_law",),
    ),
    Mutant(
        "noisy counts leave as doubles",
        "release/noise.py",
        "return np.clip(np.rint(noisy / (sigma / STEPS)), -_LARGEST, _LARGEST).astype(np.int64)",
        "return noisy / (sigma / STEPS)",
        (f"{COUNTS}::test_label_and_counts_come_from_one_draw",),
    ),
    Mutant(
        "bits of the doubles leave as whole numbers",
        "release/noise.py",
        "return np.clip(np.rint(noisy / (sigma / STEPS)), -_LARGEST, _LARGEST).astype(np.int64)",
        "return np.ascontiguousarray(noisy).view(np.int64)",
        (f"{COUNTS}::test_no_noisy_double_leaves_the_process",),
    ),
    Mutant(
        "noisy counts on a finer grid than stated",
        "release/noise.py",
        "STEPS = 8  #",
        "STEPS = 1 << 40  #",
        (f"{COUNTS}::test_label_and_counts_come_from_one_draw",),
    ),
    Mutant(
        "half the sensitivity for a vector of counts",
        "accounting/bounds.py",
        "label = self.vector_cost(sensitivity=sensitivity, sigma=sigma)",
        "label = self.vector_cost(sensitivity=np.asarray(sensitivity) / 2, sigma=sigma)",
        (
            f"{COUNTS_LAW}::test_exact_law_of_label_and_counts_stays_within_delta",
            f"{COUNTS}::test_weighting_charges_each_weight_for_the_vector",
        ),
    ),
    Mutant(
        "sensitivity 1 for counts of teachers that take turns",
        "engines/teachers/costs.py",
        "vector = meter.vector_cost(sensitivity=tally.sensitivity, sigma=sigma)",
        "vector = meter.vector_cost(sensitivity=panel.own_sensitivities[panel.account_group], sigma=sigma)",
        (f"{COUNTS}::test_vanishing_charges_teachers_that_took_part",),
    ),
    Mutant(
        "counts released under every bound",
        "engines/teachers/costs.py",
        "if mechanism.counts and not meter.definition.releases_counts:",
        "if False:",
        (f"{COUNTS}::test_counts_are_refused_under_other_bounds",),
    ),
    Mutant(
        "every bound says that it covers counts",
        "accounting/bounds.py",
        "releases_counts: bool = False",
        "releases_counts: bool = True",
        (f"{COUNTS}::test_counts_are_refused_under_other_bounds",),
    ),
    Mutant(
        "counts released behind a ptr test",
        "engines/teachers/tested.py",
        "    check_supported(_UNIT, aggregator.mechanism)\n",
        "",
        (f"{COUNTS}::test_counts_are_refused_behind_a_ptr_test",),
    ),
    Mutant(
        "counts with Laplace noise",
        "engines/teachers/aggregators.py",
        'if self.counts and self.noise != "gaussian":',
        "if False:",
        (f"{COUNTS}::test_counts_are_refused_without_gaussian_noise",),
    ),
    Mutant(
        "aggregator releases counts unasked",
        "engines/teachers/aggregators.py",
        'if self.mechanism.counts and "counts" not in self.takes:',
        "if False:",
        (f"{COUNTS}::test_aggregator_that_says_nothing_releases_no_counts",),
    ),
    Mutant(
        "carried counts at the price of a label",
        "engines/teachers/loop.py",
        '= "vector" if self.counts else "argmax"',
        '= "argmax"',
        (f"{COUNTS}::test_carried_counts_cost_the_whole_vector_under_any_bound",),
    ),
    Mutant(
        "counts forgotten in carried costs",
        "ledger/carry.py",
        "int(np.count_nonzero(here & charge.drawn(draw)))",
        'int(np.count_nonzero(here & charge.drawn(draw))) * (draw.mechanism != "vector")',
        (f"{COUNTS}::test_later_run_opens_at_the_vectors_price",),
    ),
    Mutant(
        "a budget that changes its privacy filter",
        "ledger/carry.py",
        "if filters and new.fixes_order != old.fixes_order:",
        "if False:",
        ("tests/ledger/test_people.py::test_people_stay_with_their_first_privacy_filter",),
    ),
    Mutant(
        "nameless accounts that change their privacy filter",
        "ledger/carry.py",
        "_refuse_other_filter(entry, (releases[place] for place in own))",
        "pass",
        (f"{COUNTS}::test_later_run_opens_at_the_vectors_price",),
    ),
    Mutant(
        "label without counts is drawn again",
        "engines/teachers/loop.py",
        "for name, kept in self.store.items()}",
        "for name, kept in self.store.items() if name in self.before.noisy_votes}",
        (f"{COUNTS}::test_label_without_counts_is_never_drawn_again",),
    ),
    Mutant(
        "ledger answers a query with and without counts",
        "ledger/base.py",
        "if again or len(set(charge.keys)) < len(charge.keys):",
        "if len(set(charge.keys)) < len(charge.keys):",
        ("tests/ledger/test_durable.py::test_query_is_answered_with_or_without_counts_once",),
    ),
    Mutant(
        "ledger takes a label that its counts contradict",
        "release/answers.py",
        "np.array_equal(self.labels[given], counts.argmax(axis=1))",
        "len(given) == len(counts)",
        (f"{CONTRACT}::test_counts_that_contradict_their_charge_are_refused",),
    ),
    Mutant(
        "ledger takes counts that are not rounded",
        "release/answers.py",
        "if counts.dtype != np.int64 or counts.ndim",
        "if counts.ndim",
        (f"{CONTRACT}::test_counts_that_contradict_their_charge_are_refused",),
    ),
    Mutant(
        "the hash does not cover noisy counts",
        "ledger/chain.py",
        "        return value.hex()\n",
        '        return ""\n',
        ("tests/ledger/test_tampering.py::test_edited_ledger_is_refused_with_advice_on_opening",),
    ),
    Mutant(
        "stored counts take the sigma of the run that asks",
        "engines/teachers/loop.py",
        'step=answers["sigma"] / STEPS if self.counts',
        'step=(answers["sigma"] > 0) * self.aggregator.mechanism.sigma / STEPS if self.counts',
        (f"{COUNTS}::test_stored_counts_keep_the_sigma_of_their_draw",),
    ),
    # The ledger belongs to the people.
    Mutant(
        "text of a whole float is another person",
        "people/ids.py",
        r'_WHOLE = re.compile(r"(-?\d+)\.0+", re.ASCII)',
        r'_WHOLE = re.compile(r"(-?\d+)\.0+x", re.ASCII)',
        (f"{IDS}::test_ids_in_another_form_have_no_second_budget",),
    ),
    Mutant(
        "both forms of an accent are two people",
        "people/ids.py",
        'text = unicodedata.normalize("NFC", value).strip()',
        "text = value.strip()",
        (f"{IDS}::test_both_forms_of_an_accent_are_one_person",),
    ),
    Mutant(
        "strangers are welcome on a ledger",
        "ledger/admission.py",
        "if 2 * len(strangers) > len(here) and not self.new_people:",
        "if len(strangers) > len(here) and not self.new_people:",
        (f"{IDS}::test_mostly_unknown_people_need_an_answer",),
    ),
    Mutant(
        "protected people may become pool or test data",
        "ledger/admission.py",
        "(protected & frozenset(self.unprotected), ",
        "(protected & frozenset(), ",
        (f"{PROTECTED}::test_other_split_is_refused_before_training",),
    ),
    Mutant(
        "pool or test data may become protected",
        "ledger/admission.py",
        "(bare & (self.counted or {}).keys(), ",
        "(bare & set(), ",
        (f"{PROTECTED}::test_public_people_cannot_become_protected",),
    ),
    Mutant(
        "benchmark begins a ledger in silence",
        "runs/ledgers.py",
        "return config.seed is not None or config.data.file is None",
        "return config.seed is not None or config.benchmark or config.data.file is None",
        (f"{FORGOTTEN}::test_benchmark_beside_earlier_charges_is_stated",),
    ),
    Mutant(
        "statement of a repeated run forgets earlier costs",
        "report/statement.py",
        "    elif statement.spent:\n",
        "    elif False:\n",
        (f"{FORGOTTEN}::test_statement_of_repeated_run_tells_what_was_spent",),
    ),
    Mutant(
        "people without ids are any rows",
        "ledger/admission.py",
        "if self.rows and (strangers or known - here):",
        "if self.rows and strangers and known - here:",
        (f"{FORGOTTEN}::test_data_without_ids_is_known_by_its_path",),
    ),
    Mutant(
        "labels in another file begin another ledger",
        "cli/charging.py",
        "choose_ledger(ledger, beside=votes, pool=pool,",
        "choose_ledger(ledger, beside=out, pool=None,",
        (f"{FORGOTTEN}::test_labelling_to_other_file_names_spends_nothing_more",),
    ),
    Mutant(
        "another folder begins another ledger",
        "runs/ledgers.py",
        "return config.seed is not None or config.data.file is None",
        "return config.ledger is None",
        (f"{FORGOTTEN}::test_second_run_in_another_folder_is_refused",),
    ),
    Mutant(
        "renamed data begins another ledger",
        "ledger/finding.py",
        "return next(iter(knowing), usual)",
        "return usual",
        (f"{FORGOTTEN}::test_renamed_and_corrected_data_finds_its_ledger",),
    ),
    Mutant(
        "a mistyped ledger name begins another ledger",
        "ledger/finding.py",
        "if other.path != target and (lost or",
        "if other.path == target and (lost or",
        (f"{FORGOTTEN}::test_mistyped_ledger_name_begins_no_ledger",),
    ),
    Mutant(
        "seeded runs spend people's budgets",
        "runs/ledgers.py",
        "return config.seed is not None or config.data.file is None",
        "return config.data.file is None",
        (f"{FORGOTTEN}::test_seeded_runs_spend_nobodys_budget",),
    ),
    Mutant(
        "the head beside a ledger is not read",
        "ledger/durable.py",
        "isinstance(head, str) else head, kept_head(path)]",
        "isinstance(head, str) else head]",
        ("tests/ledger/test_tampering.py::test_older_copy_is_refused_by_expected_head",),
    ),
    Mutant(
        "heads of other runs are not read",
        "runs/ledgers.py",
        ", heads=heads_beside(folder, path))",
        ")",
        (f"{RUN_LEDGERS}::test_rolled_back_shared_ledger_is_refused",),
    ),
    Mutant(
        "a new ledger for the same people is not reported",
        "runs/ledgers.py",
        ", replaces=chosen.replaces)",
        ")",
        (f"{FORGOTTEN}::test_fresh_ledger_is_stated_in_the_report",),
    ),
    Mutant(
        "larger budgets need no answer",
        "ledger/admission.py",
        "(group.epsilon > old.epsilon or group.delta > old.delta)",
        "(group.epsilon < old.epsilon or group.delta > old.delta)",
        ("tests/attacks/test_10_larger_budgets.py::test_tenfold_budgets_are_refused_without_an_answer",),
    ),
    Mutant(
        "every run chooses its Rényi orders",
        "ledger/durable.py",
        "kept = keep_orders(terms, roster.counted, contents.runs, opening.parent)",
        "kept = tuple(terms)",
        ("tests/attacks/test_12_renyi_order.py::test_person_keeps_the_order_under_a_smaller_budget",),
    ),
    Mutant(
        "an account is limited at its best order",
        "ledger/records.py",
        "return bool(within.all() if self.meter.fixes_order else within.any())",
        "return bool(within.any())",
        ("tests/ledger/test_orders.py::test_account_is_limited_at_every_members_order",),
    ),
    Mutant(
        "new people bring their own order into an account",
        "ledger/carry.py",
        "if person in known:\n            found[account][known[person]] = None",
        "found[account][known.get(person, 2.0)] = None",
        ("tests/ledger/test_orders.py::test_account_is_limited_at_every_members_order",),
    ),
    Mutant(
        "label mixes kinds of noise",
        "ledger/records.py",
        "if recorded is not None and recorded != asked:",
        "if recorded is None and recorded != asked:",
        ("tests/attacks/test_16_mixed_noise.py::test_label_refuses_the_other_kind_of_noise",),
    ),
    Mutant(
        "noisy descent: replacing counted as removing",
        "paper/compare/descent.py",
        "return np.asarray(2.0 * clip * np.asarray(weight",
        "return np.asarray(1.0 * clip * np.asarray(weight",
        (DESCENT,),
    ),
    Mutant(
        "noisy descent: weights for one step of many",
        "paper/compare/descent.py",
        "* sigma / (2.0 * settings.clip * math.sqrt(settings.steps)))",
        "* sigma / (2.0 * settings.clip))",
        (DESCENT,),
    ),
    Mutant(
        "noisy descent: gradients not clipped",
        "paper/compare/descent.py",
        "shrink = clip / np.maximum(norms, clip)",
        "shrink = np.ones_like(norms)",
        (DESCENT,),
    ),
    Mutant(
        "noisy descent: rows of a person add up",
        "paper/compare/descent.py",
        "row_weight = weight[person] / n_rows[person]",
        "row_weight = weight[person]",
        (DESCENT,),
    ),
    Mutant(
        "noisy descent: the same noise at every step",
        "paper/compare/descent.py",
        "source.normal(_PURPOSE, [str(step)], exact.size)",
        'source.normal(_PURPOSE, ["0"], exact.size)',
        (DESCENT,),
    ),
    Mutant(
        "noisy descent: noise halved",
        "paper/compare/descent.py",
        "in_steps(exact + _SIGMA * drawn",
        "in_steps(exact + 0.5 * drawn",
        (DESCENT,),
    ),
    Mutant(
        "individual DP-SGD: everybody the mean clip norm",
        "paper/compare/dpsgd.py",
        "clips = tuple(setting.clip / (value * mean) for value in needed)",
        "clips = tuple(setting.clip for value in needed)",
        (DPSGD,),
    ),
    # What an audit would overlook.
    Mutant(
        "an audit of a run without a guarantee is called public",
        "audit/auditing.py",
        'private=real and (use_stored or stated["kind"] != "releasable"),',
        "private=real and use_stored,",
        (f"{AUDITING}::test_audit_of_run_without_guarantee_is_private",),
    ),
    Mutant(
        "an audit believes the stated noise",
        "audit/teachers.py",
        "limits = {measured.kind: measured.most for measured in noise}",
        "limits = {measured.kind: measured.stated for measured in noise}",
        (f"{AUDITING}::test_halved_noise_of_labels_is_found",),
    ),
    Mutant(
        "an audit compares with the promise alone",
        "audit/auditing.py",
        "(attack.charged is not None and attack.reached > attack.charged)",
        "False",
        (f"{AUDITING}::test_uncharged_checks_are_found",),
    ),
    Mutant(
        "an audit takes the person who moves least",
        "audit/teachers.py",
        "worst = own[int(np.argmax(moved[own]))]",
        "worst = own[int(np.argmin(moved[own]))]",
        (f"{AUDITING}::test_two_teachers_with_one_person_are_found",),
    ),
    Mutant(
        "an audit overlooks noise that repeats",
        "audit/law.py",
        " and uncorrelated(values[:half], values[half : 2 * half])",
        "",
        (f"{AUDITING}::test_noise_that_repeats_in_every_run_is_found",),
    ),
    Mutant(
        "an audit takes a raised budget for the promise",
        "audit/auditing.py",
        "+ [policy.get(group.id, np.inf)]",
        "+ [np.inf]",
        (f"{AUDITING}::test_budget_above_the_policy_is_found",),
    ),
    Mutant(
        "an audit reads the allocation of real people",
        "audit/auditing.py",
        "use_stored = attacks.real_people and (on_real_people or not real)",
        "use_stored = attacks.real_people",
        (f"{AUDITING}::test_run_of_people_is_audited_without_their_files",),
    ),
    Mutant(
        "predictions of private rows may lie in a public folder",
        "runs/folder.py",
        "place.is_relative_to((run",
        "not place.is_relative_to((run",
        ("tests/cli/test_predict.py::test_predictions_are_refused_in_public_folders",),
    ),
    Mutant(
        "letters name an ε for seeded runs",
        "report/statement.py",
        "    if statement.seeded or statement.overlap:\n        why = (",
        "    if False:\n        why = (",
        ("tests/report/test_letter.py::test_letter_gives_one_reason_for_its_kind",),
    ),
    Mutant(
        "the card of a student promises without a guarantee",
        "students/card.py",
        'if not promise["publishable"]:',
        "if False:",
        ("tests/cli/test_run.py::test_seeded_run_publishes_nothing_and_says_so",),
    ),
    Mutant(
        "a pool that the student cannot learn from is charged",
        "models/training.py",
        "if is_frame(X) and not allowed and",
        "if False and",
        ("tests/test_classifier_ballots.py::test_missing_public_values_are_refused_by_their_place",),
    ),
)

GUARD = """
import os
import pathlib

import ipate
import paper
import pytest


def pytest_sessionstart():
    wanted = pathlib.Path(os.environ["IPATE_MUTANT_SOURCE"]).resolve()
    for package in (ipate, paper):
        if wanted not in pathlib.Path(package.__file__).resolve().parents:
            pytest.exit(f"the tests import {package.__file__}, not the copy", returncode=9)
    if ipate.__mutant__ != os.environ["IPATE_MUTANT"]:
        pytest.exit("the copy is not the mutant", returncode=9)
"""


@dataclass(frozen=True)
class Run:
    """How the tests took it: pytest's exit code, the first test that failed, what it printed."""

    code: int
    first: str
    seconds: float
    output: str


def place(mutant: Mutant, root: Path) -> Path:
    """Return the file that a mutant patches in a copy of the repository."""
    return root / mutant.file if mutant.file.startswith("paper/") else root / "src" / "ipate" / mutant.file


def mutate(mutant: Mutant, root: Path) -> str:
    """Return the text of the mutant's file with the patch; refuse a pattern that isn't there exactly once."""
    text = place(mutant, root).read_text(encoding="utf-8")
    found = text.count(mutant.old)
    if found != 1:
        raise ValueError(f"mutant {mutant.name!r}: its pattern stands {found} times in {mutant.file}, not once")
    return text.replace(mutant.old, mutant.new)


def run_tests(mutant: Mutant | None, tests: Iterable[str]) -> Run:
    """Run tests against a copy of the source, with the mutant's patch or unchanged."""
    name = UNCHANGED if mutant is None else mutant.name
    with tempfile.TemporaryDirectory(prefix="ipate-mutant-") as folder:
        copy = Path(folder, "src")
        for part in ("src", "paper"):
            shutil.copytree(ROOT / part, Path(folder, part), ignore=shutil.ignore_patterns("__pycache__"))
        if mutant is not None:
            place(mutant, Path(folder)).write_text(mutate(mutant, Path(folder)), encoding="utf-8")
        with (copy / "ipate" / "__init__.py").open("a", encoding="utf-8") as file:
            file.write(f"\n__mutant__ = {name!r}\n")
        Path(folder, "mutant_guard.py").write_text(GUARD, encoding="utf-8")
        environment = os.environ | {
            "PYTHONPATH": os.pathsep.join([str(copy), folder]),
            "PYTHONDONTWRITEBYTECODE": "1",
            "IPATE_MUTANT": name,
            "IPATE_MUTANT_SOURCE": folder,
            "PYTHONSAFEPATH": "1",  # else the current folder, which holds paper, comes before the copy
            "HYPOTHESIS_STORAGE_DIRECTORY": str(Path(folder, "hypothesis")),
            "OMP_NUM_THREADS": "1",
            "OPENBLAS_NUM_THREADS": "1",
        }
        command = [
            sys.executable,
            "-m",
            "pytest",
            "-p",
            "mutant_guard",
            "-p",
            "no:cacheprovider",
            "-q",
            "-o",
            "pythonpath=tests",
        ]
        command += ["--tb=no", "--hypothesis-seed=0", *(["-x"] if mutant is not None else []), *tests]
        start = time.perf_counter()
        try:
            done = subprocess.run(
                command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False, timeout=LONGEST
            )
        except subprocess.TimeoutExpired:
            return Run(-1, "", time.perf_counter() - start, f"no end after {LONGEST} s")
    output = done.stdout + done.stderr
    failed = re.search(r"^(?:FAILED|ERROR) (.+?)(?: - .*)?$", output, re.MULTILINE)
    return Run(done.returncode, failed.group(1) if failed else "", time.perf_counter() - start, output)


def judge(mutant: Mutant) -> tuple[bool, str]:
    """Return whether the mutant died, and its row of the table."""
    run = run_tests(mutant, mutant.tests)
    died = run.code == FAILED and bool(run.first)
    verdict = run.first.removeprefix("tests/") if died else "SURVIVED"
    if run.code not in (PASSED, FAILED):
        verdict = f"DID NOT RUN (exit {run.code}): {run.output.strip().splitlines()[-1]}"
    return died, f"{mutant.name:<48} {run.seconds:6.1f} s  {verdict}"


def chosen(names: list[str] | None) -> tuple[Mutant, ...]:
    """Return the mutants with these names, or all."""
    if not names:
        return MUTANTS
    unknown = sorted(set(names) - {mutant.name for mutant in MUTANTS})
    if unknown:
        raise SystemExit(f"no mutant is called {unknown[0]!r}: --list shows them")
    return tuple(mutant for mutant in MUTANTS if mutant.name in names)


def main() -> int:
    """Run the mutants and print the table; 0 if all died."""
    parser = argparse.ArgumentParser(description="Break the privacy code on purpose; tests must notice.")
    parser.add_argument("--list", action="store_true", help="name the mutants and stop")
    parser.add_argument("--only", action="append", metavar="NAME", help="run this mutant (may be repeated)")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="how many run at a time")
    options = parser.parse_args()
    mutants = chosen(options.only)
    if options.list:
        print("\n".join(f"{mutant.name:<48} {mutant.file}" for mutant in mutants))
        return 0
    for mutant in mutants:
        mutate(mutant, ROOT)
    tests = {test for mutant in mutants for test in mutant.tests}
    whole = {test for test in tests if "::" not in test}
    tests = whole | {test for test in tests if test.split("::")[0] not in whole}
    missing = sorted({test.split("::")[0] for test in tests if not (ROOT / test.split("::")[0]).is_file()})
    if missing:
        print(f"not there: {', '.join(missing)}")
        return 1
    baseline = run_tests(None, sorted(tests))
    if baseline.code != PASSED:
        print(f"the tests fail without any mutant, so they prove nothing: {baseline.first}\n{baseline.output}")
        return 1
    print(f"{'unchanged':<48} {baseline.seconds:6.1f} s  all pass", flush=True)
    deaths = []
    with ThreadPoolExecutor(options.jobs) as pool:
        for died, row in pool.map(judge, mutants):
            deaths.append(died)
            print(row, flush=True)
    print(f"{sum(deaths)} of {len(deaths)} mutants died")
    return 0 if all(deaths) else 1


if __name__ == "__main__":
    sys.exit(main())
