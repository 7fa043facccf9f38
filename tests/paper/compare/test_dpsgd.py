import dp_accounting
import numpy as np
import pytest
from dp_accounting.pld import PLDAccountant

from ipate.errors import InputError
from paper.compare import dpsgd

SETTING = dpsgd.Setting(model="logistic", share=0.2, steps=40, clip=0.5, rate=1.0)
NEEDED = {0.5: 8.0, 1.0: 4.0, 3.0: 1.6}


@pytest.fixture
def known(monkeypatch):
    monkeypatch.setattr(dpsgd, "noise_multiplier", lambda epsilon, delta, share, steps: NEEDED[epsilon])


@pytest.mark.usefixtures("known")
def test_every_group_has_its_own_multiplier():
    noise = dpsgd.individual_noise([0.5, 1.0, 3.0], [540, 370, 90], delta=1e-5, setting=SETTING)
    assert noise.multipliers() == pytest.approx((8.0, 4.0, 1.6))
    assert np.average(noise.clips, weights=[540, 370, 90]) == pytest.approx(SETTING.clip)


@pytest.mark.usefixtures("known")
def test_one_budget_is_plain_dpsgd():
    noise = dpsgd.individual_noise([1.0], [1000], delta=1e-5, setting=SETTING)
    assert noise.clips == pytest.approx((SETTING.clip,))
    assert noise.deviation == pytest.approx(4.0 * SETTING.clip)


def test_missing_opacus_gives_an_install_hint(monkeypatch):
    monkeypatch.setattr(dpsgd, "available", lambda: False)
    dpsgd.noise_multiplier.cache_clear()
    with pytest.raises(InputError, match=r"ipate\[bench\]"):
        dpsgd.noise_multiplier(1.0, 1e-5, 0.1, 10)


@pytest.mark.filterwarnings("ignore")
def test_groups_spend_their_budgets_by_two_accountants():
    pytest.importorskip("opacus")
    budgets = [0.5, 1.0, 3.0]
    noise = dpsgd.individual_noise(budgets, [540, 370, 90], delta=1e-5, setting=SETTING)
    for own, epsilon, stated in zip(
        noise.multipliers(), budgets, dpsgd.spent_by_group(noise, delta=1e-5, setting=SETTING), strict=True
    ):
        accountant = PLDAccountant()
        step = dp_accounting.PoissonSampledDpEvent(SETTING.share, dp_accounting.GaussianDpEvent(own))
        accountant.compose(step, SETTING.steps)
        assert 0.98 * epsilon < accountant.get_epsilon(1e-5) <= 1.001 * epsilon
        assert 0.97 * epsilon < stated <= 1.01 * epsilon


@pytest.mark.filterwarnings("ignore")
def test_clipped_gradients_respect_every_persons_norm():
    pytest.importorskip("opacus")
    X, y = np.array([[50.0, 0.0], [0.0, 50.0]]), np.array([0, 1])
    setting = dpsgd.Setting(model="logistic", share=1.0, steps=1, clip=1.0, rate=1.0)
    model = dpsgd.train(X, y, clips=np.array([0.1, 0.4]), deviation=1e-9, setting=setting, n_classes=2, seed=0)
    weight, bias = (p.detach().numpy() for p in model.parameters())
    for column, clip in ((0, 0.1), (1, 0.4)):  # both rows have gradients far above their norms; the mean is over 2
        assert np.linalg.norm(weight[:, column]) == pytest.approx(clip / 2, rel=1e-3)
    assert np.linalg.norm(bias) < 0.01


@pytest.mark.filterwarnings("ignore")
def test_empty_batch_adds_noise_all_the_same():
    pytest.importorskip("opacus")
    X, y = np.zeros((3, 2)), np.array([0, 1, 0])
    setting = dpsgd.Setting(model="logistic", share=1e-9, steps=1, clip=1.0, rate=1e-9)
    model = dpsgd.train(X, y, clips=np.ones(3), deviation=1.0, setting=setting, n_classes=2, seed=0)
    assert all(float(p.abs().max()) > 0.01 for p in model.parameters())
