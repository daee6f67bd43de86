"""Operations of torch that are written out as plainer ones when a module is traced, so that no rule is needed."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch._decomp import get_decompositions

__all__ = ["table"]

OFF = -math.inf
AS_TORCH = (  # what torch itself writes out well
    *("addcdiv", "addcmul", "addmm", "addr", "baddbmm", "clamp_max"),
    *("float_power", "frobenius_norm", "ger", "glu", "gru_cell", "hardtanh", "inner", "linalg_matmul"),
    *("linalg_multi_dot", "linalg_norm", "linalg_vecdot", "linalg_vector_norm", "lstm_cell", "masked_fill", "mish"),
    *("norm", "outer", "pixel_shuffle", "pixel_unshuffle", "relu6", "repeat", "rnn_relu_cell", "rnn_tanh_cell", "roll"),
    *("rsub", "t", "take_along_dim", "tensordot", "tile", "tril", "triu", "unbind"),
)


def _scaled(x: Any, weight: Any, bias: Any) -> Any:
    """weight x + bias, as far as they are there."""
    x = x if weight is None else x * weight
    return x if bias is None else x + bias


def _standard(x: Any, dims: Sequence[int], eps: float, centred: bool = True) -> Any:
    """(x - mean) / sqrt(variance + eps) over some axes; without the mean if it is not centred."""
    x = x - x.mean([*dims], keepdim=True) if centred else x
    return x / torch.sqrt(x.square().mean([*dims], keepdim=True) + eps)


def layer_norm(
    x: Any, shape: Sequence[int], weight: Any = None, bias: Any = None, eps: float = 1e-5, cudnn: bool = True
) -> Any:
    """nn.LayerNorm."""
    return _scaled(_standard(x, range(-len(shape), 0), eps), weight, bias)


def rms_norm(x: Any, shape: Sequence[int], weight: Any = None, eps: float | None = None) -> Any:
    """nn.RMSNorm."""
    eps = torch.finfo(x.dtype).eps if eps is None else eps
    return _scaled(_standard(x, range(-len(shape), 0), eps, False), weight, None)


def group_norm(x: Any, groups: int, weight: Any = None, bias: Any = None, eps: float = 1e-5, cudnn: bool = True) -> Any:
    """nn.GroupNorm: channels in groups, with all positions."""
    parts = x.reshape(x.shape[0], groups, x.shape[1] // groups, *x.shape[2:])
    made = _standard(parts, range(2, parts.dim()), eps).reshape(x.shape)
    return _scaled(made, *(_column(given, x) for given in (weight, bias)))


def batch_norm(
    x: Any, weight: Any, bias: Any, mean: Any, variance: Any, training: bool, momentum: float, eps: float, *_: Any
) -> Any:
    """nn.BatchNorm: by its fixed statistics in evaluation mode, else by those of the batch."""
    if training or mean is None:
        made = _standard(x, [k for k in range(x.dim()) if k != 1], eps)
    else:
        made = (x - _column(mean, x)) / _column(torch.sqrt(variance + eps), x)
    return _scaled(made, *(_column(given, x) for given in (weight, bias)))


def _column(given: Any, x: Any) -> Any:
    """Numbers of channels on the axis of channels."""
    return None if given is None else given.reshape(-1, *[1] * (x.dim() - 2))


def attention(
    q: Any,
    k: Any,
    v: Any,
    mask: Any = None,
    dropout: float = 0.0,
    is_causal: bool = False,
    *,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Any:
    """softmax(q k^T scale + mask) v."""
    if dropout:
        return torch.dropout(q, dropout, True)  # which is refused
    if enable_gqa:
        k, v = (x.repeat_interleave(q.shape[-3] // x.shape[-3], -3) for x in (k, v))
    score = q @ k.transpose(-1, -2) * (q.shape[-1] ** -0.5 if scale is None else scale)
    if is_causal:
        mask = torch.arange(score.shape[-1]) <= torch.arange(score.shape[-2])[:, None]
    if mask is not None:
        score = torch.where(mask, score, OFF) if mask.dtype == torch.bool else score + mask
    made = score.softmax(-1) @ v
    return made.transpose(-3, -2).contiguous().transpose(-3, -2) if made.dim() > 3 else made  # strides as they were


def _spread(x: Any, dims: Any = None, unbiased: Any = True, keepdim: bool = False, *, correction: Any = 1) -> Any:
    """The variance over axes."""
    dims = range(x.dim()) if dims is None else [dims] if isinstance(dims, int) else dims
    off = int(unbiased) if correction == 1 else 0 if correction is None else correction
    size = math.prod(x.shape[dim] for dim in dims)
    return (x - x.mean([*dims], keepdim=True)).square().sum([*dims], keepdim=keepdim) * (1 / (size - off))


def _of_correction(x: Any, dims: Any = None, *, correction: Any = None, keepdim: bool = False) -> Any:
    return _spread(x, dims, True, keepdim, correction=1 if correction is None else correction)


def _beside_mean(spread: Callable[..., Any]) -> Callable[..., Any]:
    """A measure of spread, and the mean over the same axes."""

    def apply(x: Any, dims: Any = None, *more: Any, **options: Any) -> tuple[Any, Any]:
        keep = options.get("keepdim", len(more) > 1 and more[1])
        return spread(x, dims, *more, **options), x.mean(dims, keepdim=keep)

    return apply


def _repeated(x: Any, repeats: int, dim: int | None = None, **_: Any) -> Any:
    """Each entry of an axis several times in a row."""
    x, dim = (x.flatten(), 0) if dim is None else (x, dim % x.dim())
    shape = [*x.shape]
    return x.unsqueeze(dim + 1).expand(*shape[: dim + 1], repeats, *shape[dim + 1 :]).flatten(dim, dim + 1)


def _cut(x: Any, sizes: Sequence[int], dim: int = 0) -> list[Any]:
    """An axis in consecutive parts."""
    return [x.narrow(dim, sum(sizes[:k]), size) for k, size in enumerate(sizes)]


def _written_over(x: Any, given: Any, dim: int = 0, start: Any = None, end: Any = None, step: int = 1) -> Any:
    """A tensor in which a part of an axis is another one."""
    size = x.shape[dim]
    first, last, _ = slice(start, end).indices(size)
    if step > 1:
        raise ValueError("every so many entries are written over: join parts by torch.stack")
    return torch.cat([x.narrow(dim, 0, first), given, x.narrow(dim, last, size - last)], dim)


def _split(x: Any, size: int, dim: int = 0) -> list[Any]:
    whole = x.shape[dim]
    return _cut(x, [min(size, whole - start) for start in range(0, whole, size)], dim)


def _padded(x: Any, pad: Sequence[int], mode: str = "constant", value: float | None = None) -> Any:
    """A number before and behind the entries of the last axes."""
    if mode != "constant":
        raise ValueError(f"padding of mode {mode}: use zeros, or torch.cat with parts of the tensor")
    for k in range(len(pad) // 2):
        dim, shape = x.dim() - 1 - k, [*x.shape]
        low, high = pad[2 * k : 2 * k + 2]
        x = x.narrow(dim, max(-low, 0), shape[dim] + min(low, 0) + min(high, 0))
        sides = [x.new_full([*shape[:dim], max(s, 0), *shape[dim + 1 :]], value or 0.0) for s in (low, high)]
        x = torch.cat([sides[0], x, sides[1]], dim)
    return x


def _flipped(x: Any, dims: Sequence[int]) -> Any:
    """Axes from their last entry to their first."""
    for dim in dims:
        x = x.index_select(dim, torch.arange(x.shape[dim] - 1, -1, -1))
    return x


def _cumulated(x: Any, dim: int, **_: Any) -> Any:
    """Sums of all entries up to each."""
    size, kind = x.shape[dim], x.dtype if x.is_floating_point() else torch.int64
    before = torch.ones(size, size, dtype=kind).triu()
    return (x.transpose(dim, -1)[..., None] * before).sum(-2).transpose(dim, -1)


def _picked(x: Any, given: Sequence[Any]) -> Any:
    """Entries by several lists, or by a list of several dimensions, as entries of one axis by one list."""
    places = [k for k, entries in enumerate(given) if entries is not None]
    first, last = places[0], places[-1] + 1
    lists = torch.broadcast_tensors(*given[first:last]) if len(places) == last - first else ()
    if not lists or any(entries.dtype == torch.bool for entries in lists) or (len(lists) == lists[0].dim() == 1):
        return NotImplemented  # which its rule reads
    row = torch.zeros_like(lists[0])
    for entries, size in zip(lists, x.shape[first:last], strict=True):
        row = row * size + entries % size
    made = x.flatten(first, last - 1).index_select(first, row.flatten())
    return made.reshape(*x.shape[:first], *row.shape, *x.shape[last:])


def _masked(x: Any, given: Sequence[Any], value: Any, *_: Any) -> Any:
    """A number where a mask is true."""
    if len(given) > 1 or given[0].dtype != torch.bool or value.numel() > 1:
        return NotImplemented
    return torch.where(given[0].reshape(*given[0].shape, *[1] * (x.dim() - given[0].dim())), value.reshape(()), x)


def _at(ids: Any, size: int, like: Any) -> Any:
    """Ones where an index is 0, 1, .., on an axis of their own at the front."""
    return (ids.unsqueeze(0) == torch.arange(size).reshape(-1, *[1] * ids.dim())).to(like.dtype)


def _gathered(x: Any, dim: int, ids: Any, **_: Any) -> Any:
    """Entries of an axis by fixed places, which may differ along other axes, as in DeBERTa."""
    moved = x.transpose(0, dim).unsqueeze(1)
    return (_at(ids.transpose(0, dim), x.shape[dim], x) * moved).sum(0).transpose(0, dim)


def _scattered(x: Any, dim: int, ids: Any, given: Any, **_: Any) -> Any:
    """Entries added to those of an axis at fixed places, as messages along the edges of a graph are."""
    ids = ids if ids.dim() == given.dim() else ids.reshape([-1 if k == dim % x.dim() else 1 for k in range(x.dim())])
    moved = (_at(ids.transpose(0, dim), x.shape[dim], given) * given.transpose(0, dim).unsqueeze(0)).sum(1)
    return x + moved.transpose(0, dim)


def _in_groups(kind: Callable[..., Any]) -> Callable[..., Any]:
    """Convolutions of several groups of channels, side by side; of one channel each they have a rule."""

    def apply(x: Any, weight: Any, bias: Any = None, *options: Any) -> Any:
        groups = options[3] if len(options) > 3 else 1
        if groups in (1, x.shape[1]):
            return NotImplemented
        biases = [None] * groups if bias is None else bias.chunk(groups)
        parts = zip(x.chunk(groups, 1), weight.chunk(groups), biases, strict=True)
        return torch.cat([kind(*part, *options[:3]) for part in parts], 1)

    return apply


def _threshold(x: Any, least: float, value: float) -> Any:
    """x where it is above a number, and a value elsewhere."""
    return torch.clamp(x, min=least) if least == value else torch.where(x > least, x, value)


def _mask(x: Any) -> Any:
    """Where numbers are not 0."""
    return x if x.dtype == torch.bool else x != 0


def table() -> dict[Any, Callable[..., Any]]:
    """What is written out as what."""
    aten = torch.ops.aten
    packets, known = [getattr(aten, name) for name in AS_TORCH], torch.export.default_decompositions()
    return {
        **{op: known[op] for op in known if getattr(op, "overloadpacket", None) in packets},
        **get_decompositions(packets),
        aten.absolute.default: torch.abs,
        aten.arctan.default: torch.atan,
        aten.concatenate.default: torch.cat,
        aten.expm1.default: lambda x: x.exp() - 1,
        aten.log1p.default: lambda x: (1 + x).log(),
        aten.negative.default: torch.neg,
        aten.special_erf.default: torch.erf,
        aten.special_expit.default: torch.sigmoid,
        aten.special_softmax.default: torch.softmax,
        aten.layer_norm.default: layer_norm,
        aten.rms_norm.default: rms_norm,
        aten.group_norm.default: group_norm,
        aten.batch_norm.default: batch_norm,
        aten.instance_norm.default: lambda x, weight, bias, mean, variance, use, momentum, eps, *_: (
            group_norm(x, x.shape[1], weight, bias, eps)
            if use
            else batch_norm(x, weight, bias, mean, variance, False, momentum, eps)
        ),
        aten._native_batch_norm_legit_no_training.default: lambda x, weight, bias, mean, variance, momentum, eps: (
            batch_norm(x, weight, bias, mean, variance, False, momentum, eps),
            x.new_zeros(0),
            x.new_zeros(0),
        ),
        aten.scaled_dot_product_attention.default: attention,
        aten.var.default: lambda x, unbiased=True: _spread(x, None, unbiased),
        aten.var.dim: _spread,
        aten.var.correction: _of_correction,
        aten.std.default: lambda x, unbiased=True: _spread(x, None, unbiased).sqrt(),
        aten.std.dim: lambda *args: _spread(*args).sqrt(),
        aten.std.correction: lambda *args, **options: _of_correction(*args, **options).sqrt(),
        aten.var_mean.dim: _beside_mean(_spread),
        aten.var_mean.correction: _beside_mean(_of_correction),
        aten.std_mean.dim: _beside_mean(lambda *args, **options: _spread(*args, **options).sqrt()),
        aten.std_mean.correction: _beside_mean(lambda *args, **options: _of_correction(*args, **options).sqrt()),
        aten.lerp.Scalar: lambda x, end, weight: x + weight * (end - x),
        aten.lerp.Tensor: lambda x, end, weight: x + weight * (end - x),
        aten.logaddexp.default: lambda x, y: y + torch.nn.functional.softplus(x - y),
        aten.log2.default: lambda x: x.log() / math.log(2),
        aten.log10.default: lambda x: x.log() / math.log(10),
        aten.erfc.default: lambda x: 1 - torch.erf(x),
        aten.exp2.default: lambda x: (x * math.log(2)).exp(),
        aten.log_softmax.int: lambda x, dim, dtype=None: x - x.logsumexp(dim, keepdim=True),
        aten.pad.default: _padded,
        aten.constant_pad_nd.default: lambda x, pad, value=0: _padded(x, pad, "constant", value),
        aten.cumsum.default: _cumulated,
        aten.index.Tensor: _picked,
        aten.index_put.default: _masked,
        aten.cosine_similarity.default: lambda x, y, dim=1, eps=1e-8: (
            torch.nn.functional.normalize(x, dim=dim, eps=eps) * torch.nn.functional.normalize(y, dim=dim, eps=eps)
        ).sum(dim),
        aten.gather.default: _gathered,
        aten.scatter_add.default: _scattered,
        aten.index_add.default: _scattered,
        aten.conv1d.default: _in_groups(torch.conv1d),
        aten.conv2d.default: _in_groups(torch.conv2d),
        aten.flip.default: _flipped,
        aten.swapaxes.default: torch.transpose,
        aten.numpy_T.default: lambda x: x.permute([*reversed(range(x.dim()))]),
        aten.mT.default: lambda x: x.transpose(-1, -2),
        aten.adjoint.default: lambda x: x.transpose(-1, -2),
        aten.copy.default: lambda x, given, *_: given.to(x.dtype).expand(x.shape),
        aten.slice_scatter.default: _written_over,
        aten.select_scatter.default: lambda x, given, dim, k: _written_over(
            x, given.unsqueeze(dim), dim, k % x.shape[dim], k % x.shape[dim] + 1
        ),
        aten.nan_to_num.default: lambda x, *_: x,
        **{
            op: lambda x, count, dim=0: _split(x, -(-x.shape[dim] // count), dim)
            for op in (aten.chunk.default, aten.unsafe_chunk.default)
        },
        aten.split.Tensor: _split,
        aten.unsafe_split.Tensor: _split,
        aten.split_with_sizes.default: _cut,
        aten.hstack.default: lambda parts: torch.cat(parts, min(parts[0].dim() - 1, 1)),
        aten.vstack.default: lambda parts: torch.cat([part if part.dim() > 1 else part.unsqueeze(0) for part in parts]),
        aten.stack.default: lambda parts, dim=0: torch.cat([part.unsqueeze(dim) for part in parts], dim),
        aten.repeat_interleave.self_int: _repeated,
        aten.hardswish.default: lambda x: x * torch.clamp(x / 6 + 0.5, 0, 1),
        aten.threshold.default: _threshold,
        aten.sgn.default: torch.sign,
        aten.fmax.default: torch.maximum,
        aten.fmin.default: torch.minimum,
        aten.logical_and.default: lambda x, other: _mask(x) & _mask(other),
        aten.logical_or.default: lambda x, other: _mask(x) | _mask(other),
    }
