"""A forward pass of `nn.MultiheadAttention` that records its products with weights.

Torch computes all of them in one function, and no hook sees what is inside. This is the same
computation, so that a single backward pass gives the gradient of each product's output.
"""

from math import inf
from typing import Any

from torch import Tensor, nn
from torch.nn import functional

from fl_app.client.weight_products import Product, WeightRows, multiply


def attends(layer: nn.Module) -> bool:
    """Whether `attend` computes what a layer does; not with keys and values of the layer itself."""
    return type(layer) is nn.MultiheadAttention and not layer.add_zero_attn and layer.bias_k is None


def attend(
    layer: nn.MultiheadAttention,
    products: list[Product],
    query: Tensor,
    key: Tensor,
    value: Tensor,
    key_padding_mask: Tensor | None = None,
    need_weights: bool = True,
    attn_mask: Tensor | None = None,
    average_attn_weights: bool = True,
    is_causal: bool = False,
) -> tuple[Tensor, Tensor | None]:
    """Return what the layer returns for these arguments, and add its products to `products`."""
    if query.dim() != 3:
        raise ValueError(
            "privacy=sample_dp needs attention over one sequence for each sample, got a query of "
            f"shape {tuple(query.shape)}; give it as (samples, steps, features)"
        )
    q, k, v = (
        each.view(*each.shape[:2], layer.num_heads, layer.head_dim).permute(1, 2, 0, 3)
        for each in _projected(layer, products, query, key, value)
    )
    rate, weights = layer.dropout if layer.training else 0.0, None
    causal = is_causal and key_padding_mask is None and not need_weights
    mask = None if causal else _mask(q, attn_mask, key_padding_mask)
    if need_weights:
        scores = (q * layer.head_dim**-0.5) @ k.transpose(2, 3)
        weights = (scores if mask is None else scores + mask).softmax(3)
        weights = functional.dropout(weights, rate) if rate else weights
        mixed = weights @ v
        weights = weights.mean(1) if average_attn_weights else weights
    else:
        mixed = functional.scaled_dot_product_attention(q, k, v, mask, rate, causal)
    last: Any = layer.out_proj
    bias = None if last.bias is None else WeightRows(last.bias)
    joined = mixed.permute(2, 0, 1, 3).flatten(2)  # steps first in memory: dropout draws so
    output = multiply(products, WeightRows(last.weight), bias, joined)
    return output.transpose(0, 1) if layer.batch_first else output, weights


def _projected(
    layer: nn.MultiheadAttention, products: list[Product], *inputs: Tensor
) -> list[Tensor]:
    """Return queries, keys and values of all heads, each (steps, n, features)."""
    whole, bias, size = layer.in_proj_weight, layer.in_proj_bias, layer.embed_dim
    given = [each.transpose(0, 1) if layer.batch_first else each for each in inputs]
    if whole is not None and inputs[0] is inputs[1] is inputs[2]:
        both = WeightRows(whole), None if bias is None else WeightRows(bias)
        return list(multiply(products, *both, given[0]).chunk(3, 2))
    thirds = [slice(start, start + size) for start in (0, size, 2 * size)]
    if whole is not None:
        weights = [WeightRows(whole, rows) for rows in thirds]
    else:
        alone = layer.q_proj_weight, layer.k_proj_weight, layer.v_proj_weight
        weights = [WeightRows(each) for each in alone]
    return [
        multiply(products, weight, None if bias is None else WeightRows(bias, rows), each)
        for weight, rows, each in zip(weights, thirds, given, strict=True)
    ]


def _mask(q: Tensor, pairs: Tensor | None, keys: Tensor | None) -> Tensor | None:
    """Return what masks add to the scores (n or 1, heads or 1, steps or 1, steps of keys)."""
    added = None
    if pairs is not None:
        added = _additive(pairs, q)
        added = (
            added.view(*q.shape[:2], *pairs.shape[1:]) if pairs.dim() == 3 else added[None, None]
        )
    if keys is not None:
        own = _additive(keys, q)[:, None, None]
        added = own if added is None else added + own
    return added


def _additive(mask: Tensor, like: Tensor) -> Tensor:
    return mask if mask.is_floating_point() else like.new_zeros(mask.shape).masked_fill(mask, -inf)
