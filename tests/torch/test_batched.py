"""A batched net equals T single models: forwards, backwards, and after an optimiser step; random streams."""

import numpy as np
import pytest

pytest.importorskip("torch.nn", reason="needs torch: pip install 'ipate[torch]'")

import torch
from torch.nn import functional

from ipate.torch.batched import AUGMENT, INIT, BatchedNet, affine_maps, moved, stream_keys, uniform_rows
from ipate.torch.nets import NETS, PRESETS, Augmentation, Dropout, single

T, B, CLASSES = 3, 6, 4
IMAGES = {"paper-mnist": (1, 12, 12), "small": (1, 12, 12), "vgg": (3, 16, 16), "vgg-plain": (3, 16, 16)} | {
    "average": (1, 12, 12)
}


def pair(name, conv):
    """Return a batched net and single models with the same weights, without dropout, whose draws differ."""
    image = IMAGES[name]
    net = BatchedNet(NETS[name], T, image=image, n_classes=CLASSES, conv=conv)
    net.start(7, range(T))
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():  # the norms and biases of a new net are all equal, which would hide mix-ups
        for parameter in net.parameters():
            parameter.add_(0.1 * torch.rand(parameter.shape, generator=generator))
    models = []
    for t in range(T):
        model = single(NETS[name], image=image, n_classes=CLASSES)
        state = {key: value[t].clone() for key, value in net.state_dict().items()}
        model.load_state_dict({**model.state_dict(), **state})
        models.append(model)
    for module in [*net.modules(), *(m for model in models for m in model.modules())]:
        if hasattr(module, "p"):
            module.p = 0.0
    return net, models, torch.rand(T, B, *image, generator=generator)


def side_by_side(x):
    return x.transpose(0, 1).reshape(x.shape[1], -1, *x.shape[3:])


@pytest.mark.parametrize("conv", ["grouped", "matmul", "first"])
@pytest.mark.parametrize("name", list(NETS))
@pytest.mark.parametrize("training", [True, False])
def test_batched_forward_pass_equals_single_models(name, conv, training):
    net, models, x = pair(name, conv)
    net.train(training)
    together = net(side_by_side(x))
    for t, model in enumerate(models):
        alone = model.train(training)(x[t])
        torch.testing.assert_close(together[t], alone, rtol=1e-4, atol=1e-5)
        for key, value in model.state_dict().items():
            if "running" in key:
                torch.testing.assert_close(net.state_dict()[key][t], value, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("name", list(NETS))
def test_shared_images_need_no_copies(name):
    net, models, x = pair(name, "grouped")
    net.eval()
    together = net(x[0])
    for t, model in enumerate(models):
        torch.testing.assert_close(together[t], model.eval()(x[0]), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("conv", ["grouped", "matmul", "first"])
@pytest.mark.parametrize("name", list(NETS))
def test_batched_optimiser_step_equals_single_models(name, conv):
    net, models, x = pair(name, conv)
    y = torch.arange(T * B).view(T, B) % CLASSES
    rate = 1e-2
    # plain SGD here: Adam's first step is the gradient's sign, which amplifies rounding where it is near 0
    together = torch.optim.SGD(net.parameters(), lr=rate)
    functional.cross_entropy(net(side_by_side(x)).flatten(0, 1), y.flatten(), reduction="none").sum().div(B).backward()
    together.step()
    for t, model in enumerate(models):
        alone = torch.optim.SGD(model.parameters(), lr=rate)
        functional.cross_entropy(model(x[t]), y[t]).backward()
        alone.step()
        for key, value in model.named_parameters():
            gradient = dict(net.named_parameters())[key].grad[t]
            torch.testing.assert_close(gradient, value.grad, rtol=1e-4, atol=1e-5 * float(value.grad.abs().max() + 1))
            torch.testing.assert_close(net.state_dict()[key][t], value.data, rtol=1e-4, atol=1e-6)


def test_nets_match_the_papers_table():
    paper = single(NETS["paper-mnist"], image=(1, 28, 28), n_classes=10)
    assert sum(p.numel() for p in paper.parameters()) == 320 + 64 + 540_900 + 200 + 1_010
    assert [type(layer).__name__ for layer in paper] == [
        "Conv2d",
        "ReLU",
        "BatchNorm2d",
        "MaxPool2d",
        "Flatten",
        "Linear",
        "ReLU",
        "BatchNorm1d",
        "Linear",
    ]
    vgg = single(NETS["vgg"], image=(3, 32, 32), n_classes=10)
    assert sum(p.dim() > 1 for p in vgg.parameters()) == 7
    small = PRESETS["small"]
    assert [layer.p for layer in small.net.layers if isinstance(layer, Dropout)] == [0.3]
    assert (small.label_smoothing, small.steps, small.batch_size) == (0.1, 1000, 32)


def test_initial_weights_follow_laws_and_differ_between_teachers():
    net = BatchedNet(NETS["paper-mnist"], 2, image=(1, 28, 28), n_classes=10)
    net.start(3, [0, 1])
    dense, last = net[5].weight.detach(), net[8].weight.detach()
    for weight, bound in [(dense, (6 / 5408) ** 0.5), (last, (6 / 110) ** 0.5)]:
        assert float(weight.abs().max()) <= bound
        assert float(weight.abs().max()) > 0.95 * bound
        assert float(weight.std()) == pytest.approx(bound / 3**0.5, rel=0.05)
        assert float(weight.mean()) == pytest.approx(0, abs=0.05 * bound)
        assert not torch.equal(weight[0], weight[1])


# Random streams and augmentation


def test_random_streams_are_uniform_and_distinct():
    keys = stream_keys(0, list(range(50)), INIT, 0)
    drawn = uniform_rows(keys, 2000).numpy()
    assert drawn.min() >= 0
    assert drawn.max() < 1
    assert drawn.mean() == pytest.approx(0.5, abs=0.005)
    assert drawn.var() == pytest.approx(1 / 12, rel=0.01)
    assert np.abs(np.corrcoef(drawn) - np.eye(50)).max() < 0.12
    assert abs(np.corrcoef(drawn[:, 1:].ravel(), drawn[:, :-1].ravel())[0, 1]) < 0.01
    every = {int(k) for p in (1, 2, 3) for s in (0, 1) for k in stream_keys(s, list(range(50)), p)}
    assert len(every) == 300


def splitmix64(value):
    """Return the finaliser of splitmix64 (Steele, Lea and Flood, 2014) of a Python integer, as an unsigned one."""
    value %= 1 << 64
    value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) % (1 << 64)
    value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) % (1 << 64)
    return value ^ (value >> 31)


@pytest.mark.parametrize("seed", [0, 7, 2**32 - 1, 2**63 - 1, 2**63, 2**64 + 5])
def test_random_streams_are_those_of_splitmix64(seed):
    step = 0x9E3779B97F4A7C15
    keys = stream_keys(seed, [0, 3, 249], INIT, 6)
    for teacher, key, drawn in zip([0, 3, 249], keys.tolist(), uniform_rows(keys, 20).tolist(), strict=True):
        wanted = splitmix64(seed + step)
        for part in (teacher, INIT, 6):
            wanted = splitmix64(wanted ^ splitmix64((part + 1) * step))
        assert key % (1 << 64) == wanted
        assert drawn == [(splitmix64(wanted + counter * step) >> 40) / (1 << 24) for counter in range(20)]


def test_random_stream_depends_on_its_teacher_alone():
    alone = uniform_rows(stream_keys(5, [3], AUGMENT), 10)
    among = uniform_rows(stream_keys(5, [9, 3, 1], AUGMENT), 10)
    assert torch.equal(alone[0], among[1])


MAPS = {"start": 0, "steps": 4, "batch_size": 5, "image": (1, 9, 9)}


def test_affine_maps_respect_ranges_and_step_blocks():
    given = Augmentation(degrees=7.5, shift=0.07)
    keys = stream_keys(0, [0, 1, 2], AUGMENT)
    maps = affine_maps(given, keys=keys, **MAPS)
    assert maps.shape == (4, 15, 2, 3)
    angles = torch.rad2deg(torch.atan2(maps[..., 1, 0], maps[..., 0, 0]))
    assert 5 < float(angles.abs().max()) <= 7.5
    assert 0.1 < float(maps[..., 2].abs().max()) <= 0.14
    later = affine_maps(given, keys=keys, **{**MAPS, "start": 2, "steps": 2})
    assert torch.equal(later, maps[2:])
    third = affine_maps(given, keys=keys[2:], **MAPS)
    assert torch.equal(third[:, :, :, :], maps.view(4, 5, 3, 2, 3)[:, :, 2])


def test_zero_augmentation_leaves_images_unchanged():
    maps = affine_maps(Augmentation(), keys=stream_keys(0, [0], 2), **MAPS)
    image = torch.rand(5, 1, 9, 9)
    torch.testing.assert_close(moved(image, maps[0]), image, rtol=1e-4, atol=1e-5)


def test_shift_moves_the_stated_number_of_pixels():
    image = torch.zeros(1, 1, 10, 10)
    image[0, 0, 4, 4] = 1
    maps = torch.tensor([[[1.0, 0, 0.2], [0, 1, 0]]])  # 10% of the width: one pixel to the left
    torch.testing.assert_close(moved(image, maps)[0, 0, 4, 3], torch.tensor(1.0), rtol=1e-4, atol=1e-4)


def test_augmentation_of_one_image_changes_no_other():
    images = torch.rand(10, 1, 9, 9)
    maps = affine_maps(
        Augmentation(degrees=12, shift=0.1, scale=0.12, shear=0.15), keys=stream_keys(0, [0, 1], 2), **MAPS
    )
    whole = moved(images, maps[0])
    changed = images.clone()
    changed[3] = 7
    again = moved(changed, maps[0])
    others = [i for i in range(10) if i != 3]
    assert torch.equal(again[others], whole[others])
    assert not torch.equal(again[3], whole[3])
    assert len({tuple(m.flatten().tolist()) for m in maps[0]}) == 10
