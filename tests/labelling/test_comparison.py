"""Several bounds on the same votes: each is that of `account_for`, and a private one makes the whole private."""

import numpy as np
import pytest

from ipate import Mechanism, Meter, Panel, account_for, compare_bounds, plot_costs
from ipate.accounting.bounds import BOUNDS
from ipate.engines.teachers.reference import Simulator
from ipate.errors import InputError
from ipate.report.figures import PRIVATE

VOTES = Simulator(accuracy=0.8, queries=12, seed=3).votes(n_teachers=40, n_classes=3)
PANEL = Panel.from_votes(VOTES, [("strict", 1.0, 1e-5, 1.0), ("open", 3.0, 1e-5, 2.0)])
MECHANISM = Mechanism(sigma=9, check_sigma=12, threshold=20)


@pytest.fixture(scope="module")
def comparison():
    return compare_bounds(VOTES, PANEL, MECHANISM)


def test_every_bound_with_cost_by_query_is_compared(comparison):
    assert set(comparison.audits) == set(BOUNDS) - {"ptr"}
    assert comparison.groups == ("strict", "open")


def test_each_audit_is_that_of_account_for(comparison):
    for name, audit in comparison.audits.items():
        own = account_for(VOTES, PANEL, MECHANISM, Meter(name))
        assert (audit.guarantee, audit.queries, audit.answered) == (own.guarantee, own.queries, own.answered)
        assert [group.cost for group in audit.groups] == pytest.approx([group.cost for group in own.groups])


def test_history_ends_at_cost_of_the_audit(comparison):
    for name, audit in comparison.audits.items():
        history = comparison.history[name]
        assert history.shape == (12, 2)
        assert np.all(np.diff(history, axis=0) >= 0)
        assert history[-1] == pytest.approx([group.cost for group in audit.groups])
        assert comparison.rows(name)[-1] == (11, "open", history[-1, 1])


def test_one_private_bound_makes_comparison_private(comparison):
    assert not comparison.publishable
    assert compare_bounds(VOTES, PANEL, MECHANISM, bounds=["gdp", "sup"]).publishable
    assert not compare_bounds(VOTES, PANEL, MECHANISM, bounds=["gdp", "tight"]).publishable
    assert not compare_bounds(VOTES, PANEL, MECHANISM, bounds=["gdp"], stopped_by="other").publishable


def test_laplace_noise_is_compared_under_its_bounds():
    found = compare_bounds(VOTES, PANEL, Mechanism(sigma=30, noise="laplace"))
    assert set(found.audits) == {"loose", "gdp", "tight"}


def test_no_bounds_are_refused_by_name():
    with pytest.raises(InputError, match="bounds is empty"):
        compare_bounds(VOTES, PANEL, MECHANISM, bounds=[])


def test_private_figure_says_so_and_is_closed(comparison, tmp_path):
    plot_costs(comparison, tmp_path / "all.svg")
    plot_costs(compare_bounds(VOTES, PANEL, MECHANISM, bounds=["gdp"]), tmp_path / "gdp.svg")
    assert PRIVATE in (tmp_path / "all.svg").read_text(encoding="utf-8")
    assert PRIVATE not in (tmp_path / "gdp.svg").read_text(encoding="utf-8")
    assert (tmp_path / "all.svg").stat().st_mode & 0o077 == 0


def test_figure_has_line_per_bound_and_budget(comparison, tmp_path):
    figure = plot_costs(comparison, tmp_path / "costs.svg", log=True)
    assert "mathdefault" not in (tmp_path / "costs.svg").read_text(encoding="utf-8")  # ticks are plain numbers
    for column, axes in enumerate(figure.axes):
        lines = {line.get_label(): line for line in axes.get_lines()}
        assert set(lines) == {*comparison.audits, "budget"}
        assert lines["gdp"].get_ydata()[-1] == comparison.history["gdp"][-1, column]
        assert (lines["gdp"].get_linestyle(), lines["exact"].get_linestyle()) == ("-", "--")


def test_figure_of_unknown_format_is_refused(comparison, tmp_path):
    with pytest.raises(InputError, match=r"must end in \.svg, \.png, \.pdf"):
        plot_costs(comparison, tmp_path / "costs.doc")
    assert not list(tmp_path.iterdir())
