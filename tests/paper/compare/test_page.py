from pathlib import Path

import pytest

from paper.compare import sentences
from paper.compare.kept import Kept, cell_key
from paper.compare.methods import METHODS
from paper.compare.outcome import Outcome
from paper.compare.page import KEPT, make_page
from paper.compare.verdicts import Board, beats, lead
from paper.compare.worlds import BUDGETS, SPECS

ROOT = Path(__file__).parents[3]
RESULTS = ROOT / "docs" / "results"
MIX = "54/37/9% at 1/2/3"


def runs_of(mean: float | None, *, groups: tuple[float, ...] | None = None) -> dict[str, dict]:
    """Five runs around a mean."""
    return {
        str(seed): Outcome(accuracy=None if mean is None else mean + shift, groups=groups, seconds=1.0).json()
        for seed, shift in enumerate((-0.2, -0.1, 0.0, 0.1, 0.2))
    }


def made(**means: float | None) -> Kept:
    """Results of all methods on digits: 50% where nothing is said, None for no label."""
    kept = Kept()
    for method in METHODS.values():
        for budget in ("1", MIX):
            if method.runs_on(SPECS["digits"]) and budget in method.budgets_on(SPECS["digits"]):
                groups = (80.0, 81.0, 82.0) if budget == MIX else None
                mean = means.get(method.name.replace("-", "_"), 50.0)
                kept.runs[cell_key(method.name, "digits", budget)] = runs_of(mean, groups=groups)
    return kept


def test_same_results_give_same_files(tmp_path):
    kept = made(ballots=85.0, descent=84.0, teachers=None)
    kept.write(tmp_path / KEPT)
    files = []
    for folder in ("one", "two"):
        page = make_page(Kept.read(tmp_path / KEPT))
        files.append([path.read_bytes() for path in page.write(tmp_path / folder, command="x")])
    assert files[0] == files[1]
    assert len(files[0]) == 3


def test_clear_lead_wins_and_noise_ties():
    kept = made(ballots=85.0, descent=84.0)
    kept.runs[cell_key("dpsgd", "digits", "1")] = {
        str(seed): Outcome(accuracy=value).json() for seed, value in enumerate((90.0, 80.0, 84.0, 86.0, 83.0))
    }
    cell = Board.of(kept).cells["digits", "1"]
    assert [row.method.name for row in cell.winners] == ["ballots", "dpsgd"]
    assert cell.measured
    first, second = cell.row("ballots"), cell.row("descent")
    assert lead(first, second)[0] == pytest.approx(1.0)
    assert beats(first, second)
    assert not beats(second, first)


def test_one_run_has_no_verdict():
    kept = made(ballots=85.0, descent=84.0)
    kept.runs = {key: {"0": own["0"]} for key, own in kept.runs.items()}
    assert not Board.of(kept).cells["digits", "1"].measured
    assert "**85" not in make_page(kept).markdown("x")


def test_cell_that_lacks_a_method_has_no_verdict():
    kept = made(ballots=85.0)
    assert Board.of(kept).cells["digits", "1"].measured
    del kept.runs[cell_key("dpsgd", "digits", "1")]
    assert not Board.of(kept).cells["digits", "1"].measured


def test_method_without_label_is_never_best():
    page = make_page(made(ballots=70.0, teachers=None)).markdown("x")
    assert "| ipate teachers | no label |" in page
    assert "**70.0 ± 0.2**" in page


def test_losses_of_ipate_are_stated():
    text = " ".join(sentences.findings(Board.of(made(ballots=80.0, descent=84.0))))
    assert "ipate loses on Digits, 1,100 people at 1: its better engine is 4.0 points behind noisy" in text


def noisy(mean):
    """Five runs with a large spread around a mean."""
    shifts = (-20.0, 20.0, -10.0, 10.0, 0.0)
    return {str(seed): Outcome(accuracy=mean + shift).json() for seed, shift in enumerate(shifts)}


def test_loss_to_steady_rival_is_not_hidden_by_noisy_one():
    kept = made(ballots=80.0, descent=84.0)
    kept.runs[cell_key("dpsgd", "digits", "1")] = noisy(85.0)
    text = " ".join(sentences.findings(Board.of(kept)))
    assert "at 1: its better engine is 4.0 points behind noisy gradient descent" in text


def test_ahead_of_every_rival_means_each_of_them():
    kept = made(ballots=80.0, descent=79.0)
    assert (
        "is ahead of every rival beyond noise in 1 of these 1 pairs, by up to 1.0"
        in sentences.headline(Board.of(kept))[1]
    )
    kept.runs[cell_key("dpsgd", "digits", "1")] = noisy(78.0)  # below descent in the mean, and tied with ballots
    assert "ahead of every rival" not in " ".join(sentences.headline(Board.of(kept)))


def test_individual_rows_show_every_group():
    page = make_page(made(ballots=85.0)).markdown("x")
    assert "| 85.0 ± 0.2 *tied* (80.0 / 81.0 / 82.0) |" in page


def test_every_row_names_its_neighbours():
    page = make_page(made(ballots=85.0, dpsgd=84.0)).json("x")
    (table,) = (t for t in page["tables"] if t["title"] == "Digits, 1,100 people: one ε for everybody")
    assert table["rows"]["ipate ballots"]["promise if"] == "a person is replaced"
    assert table["rows"]["DP-SGD, Opacus"]["promise if"] == "a person is added or removed"


def test_figure_adapts_to_dark_pages():
    (figure,) = make_page(made(ballots=85.0)).figures.values()
    assert "prefers-color-scheme: dark" in figure


def test_committed_page_is_that_of_its_results(tmp_path):
    page = make_page(Kept.read(RESULTS / KEPT))
    for path in page.write(tmp_path, command="python -m paper compare"):
        if path.suffix != ".svg":  # another version of matplotlib draws other bytes
            assert path.read_text("utf-8") == (RESULTS / path.name).read_text("utf-8")


def test_readme_repeats_the_sentences_of_the_figure():
    readme = (ROOT / "README.md").read_text("utf-8")
    for sentence in sentences.headline(Board.of(Kept.read(RESULTS / KEPT))):
        assert sentence in readme


def test_sentence_on_images_states_runs_spread_and_ties():
    board = Board.of(Kept.read(RESULTS / KEPT))
    sentence = sentences.headline(board)[-1]
    assert "mean ± standard deviation of 3 runs" in sentence
    for cell in board.of_data(SPECS["mnist"], individual=False):
        for row in cell.winners:
            assert f"{row.spread.mean:.1f} ± {row.spread.sd:.1f}" in sentence
        assert f"{' = '.join(map(sentences.short, cell.winners))} at {cell.budget}" in sentence


def test_every_budget_of_the_issue_is_there():
    assert [mix.epsilon for mix in BUDGETS.values() if not mix.individual] == [
        (0.1,),
        (0.3,),
        (pytest.approx(0.6931, rel=1e-3),),
        (1.0,),
        (3.0,),
    ]
