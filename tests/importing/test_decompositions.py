"""Operations that are written out as plainer ones give the same numbers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed: modules are not imported")

from tensorprog.importing.decompositions import table  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")
F = torch.nn.functional
PLACES, MASK = torch.tensor([2, 0, 0, 1]), torch.tensor([True, False, True])
CELLS = {name: getattr(torch.nn, name)(4, 4) for name in ("LSTMCell", "GRUCell", "RNNCell")}
CONV, IMAGE = torch.nn.Conv1d(4, 8, 2, groups=2), torch.nn.Conv2d(4, 4, 1, groups=2)


def changed(x: Any) -> Any:
    x = x.clone()
    x[0, MASK] = 7.0
    return x


SAME: dict[str, Callable[[Any, Any], Any]] = {  # of two tensors (2, 3, 4)
    "outer": lambda x, y: torch.outer(x[0, 0], y[0, 0]) + torch.ger(y[0, 1], x[0, 1]),
    "several matrices": lambda x, y: torch.linalg.multi_dot([x[0], y[0].T, x[1]]),
    "tensordot": lambda x, y: torch.tensordot(x, y, ([1, 2], [1, 2])),
    "spread beside the mean": lambda x, y: sum(torch.var_mean(x, -1, unbiased=False)) + sum(torch.std_mean(y, 2)),
    "between": lambda x, y: torch.lerp(x, y, 0.3) + torch.lerp(x, y, y.sigmoid()),
    "added": lambda x, y: torch.addcmul(x, y, y, value=0.5) + torch.addcdiv(x, y, y.exp()),
    "functions": lambda x, y: torch.logaddexp(x, y) + x.exp2() + y.erfc() + y.exp().log2() + y.exp().log10(),
    "angles": lambda x, y: F.cosine_similarity(x[:, :, None], y[:, None], dim=-1),
    "instances": lambda x, y: F.instance_norm(x),
    "entries by lists": lambda x, y: x[:, PLACES.view(2, 2)].sum() + x[torch.tensor([[1], [0]]), PLACES] @ y[0].T,
    "the diagonal": lambda x, y: x[..., torch.arange(3), torch.arange(3)],
    "gathered": lambda x, y: (
        x.gather(1, PLACES.view(1, 4, 1).expand(2, 4, 4)) + x.take_along_dim(PLACES.view(1, 4, 1), -2)
    ),
    "added at places": lambda x, y: (
        x.index_add(-2, PLACES[:3], y) + x.scatter_add(1, PLACES[:3, None].expand(2, 3, 4), y)
    ),
    "masked": lambda x, y: changed(x),
    "side by side": lambda x, y: torch.hstack([x, y]) + torch.vstack([x, y])[:2].tile(1, 2, 1),
    "convolutions in groups": lambda x, y: (
        CONV(x.transpose(1, 2)).sum() + IMAGE(y.transpose(1, 2)[None, 0, :, :, None])
    ),
    **{name: lambda x, y, cell=cell: cell(x[0]) for name, cell in CELLS.items()},
}


class Every(torch.nn.Module):  # type: ignore[misc]
    def forward(self, x: Any, y: Any) -> Any:
        return {name: act(x, y) for name, act in SAME.items()}


def test_plainer_operations_are_the_same() -> None:
    x, y = torch.randn(2, 2, 3, 4, generator=torch.Generator().manual_seed(1)).unbind()
    made = torch.export.export(Every().eval(), (x, y), strict=False).run_decompositions(table())
    for name, found in made.module()(x, y).items():
        torch.testing.assert_close(found, SAME[name](x, y), msg=lambda text, name=name: f"{name}: {text}")
