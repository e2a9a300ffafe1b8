"""The arithmetic of a BERT encoder on numpy arrays of one text.

What belongs here: pure functions of arrays, float32 in and out, without weights files or tokens.
Sources: Vaswani et al., "Attention Is All You Need" (2017); Hendrycks and Gimpel, "Gaussian Error
Linear Units" (2016); Ba et al., "Layer Normalization" (2016).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]

# erfc(z) exp(z^2) as a ratio of polynomials in z, lowest power first: a weighted least-squares fit
# of our own over [0, 5], within 2e-8 of erfc. All terms are positive, so nothing cancels in
# float32.
_ERFC_ABOVE = tuple(np.float32(c) for c in (1.0, 0.5246595765032215, 0.14147290936820758))
_ERFC_BELOW = tuple(
    np.float32(c)
    for c in (
        1.0,
        1.6530402472991703,
        1.006695143214606,
        0.2354024574672044,
        0.0014867727837260308,
    )
)
_SQRT_HALF = np.float32(math.sqrt(0.5))


class LayerWeights(NamedTuple):
    """Weights of one layer; matrices have shape (inputs, outputs).

    Query, key and value share one matrix, and the query part is already divided by the square root
    of the head size.
    """

    qkv_weight: Floats
    qkv_bias: Floats
    out_weight: Floats
    out_bias: Floats
    attention_gain: Floats
    attention_shift: Floats
    up_weight: Floats
    up_bias: Floats
    down_weight: Floats
    down_bias: Floats
    output_gain: Floats
    output_shift: Floats


def erfc(z: Floats) -> Floats:
    """Complementary error function for 0 <= z < 1e9; absolute error below 3e-7."""
    result = _polynomial(z, _ERFC_ABOVE)
    result /= _polynomial(z, _ERFC_BELOW)
    exponent = z * z
    np.negative(exponent, out=exponent)
    result *= np.exp(exponent, out=exponent)
    return result


def gelu(x: Floats) -> Floats:
    """Return x times the standard normal distribution of x: the exact, not the tanh, GELU.

    Written as max(x, 0) - |x|/2 erfc(|x|/sqrt 2), which loses no digits for negative x: the error
    is below 2e-7 for |x| <= 4 and below 2 units in the last place beyond.
    """
    magnitude = np.abs(x)
    tail = erfc(magnitude * _SQRT_HALF)
    tail *= magnitude
    tail *= np.float32(0.5)
    result = np.maximum(x, np.float32(0.0))
    result -= tail
    return result


def _polynomial(x: Floats, coefficients: Sequence[np.float32]) -> Floats:
    result = x * coefficients[-1]
    for coefficient in coefficients[-2:0:-1]:
        result += coefficient
        result *= x
    result += coefficients[0]
    return result


def layer_norm(x: Floats, gain: Floats, shift: Floats, epsilon: float) -> Floats:
    """Scale each row of x to mean 0 and variance 1, then apply gain and shift, in place.

    Args:
        x: Shape (tokens, hidden); overwritten and returned.
        gain: Shape (hidden,).
        shift: Shape (hidden,).
        epsilon: Added to the variance.
    """
    width = np.float32(x.shape[1])
    x -= x.sum(axis=1, keepdims=True) / width
    variance = np.einsum("ij,ij->i", x, x) / width
    x *= (np.float32(1.0) / np.sqrt(variance + np.float32(epsilon)))[:, None]
    x *= gain
    x += shift
    return x


def attention(x: Floats, layer: LayerWeights, heads: int) -> Floats:
    """Return multi-head self-attention of x, shape (tokens, hidden), before the residual."""
    tokens, hidden = x.shape
    qkv = x @ layer.qkv_weight
    qkv += layer.qkv_bias
    query, key, value = qkv.reshape(tokens, 3, heads, hidden // heads).transpose(1, 2, 0, 3)
    scores = query @ key.transpose(0, 2, 1)
    scores -= scores.max(axis=2, keepdims=True)
    np.exp(scores, out=scores)
    scores /= scores.sum(axis=2, keepdims=True)
    context = np.empty((tokens, heads, hidden // heads), dtype=np.float32)
    np.matmul(scores, value, out=context.transpose(1, 0, 2))
    result = context.reshape(tokens, hidden) @ layer.out_weight
    result += layer.out_bias
    return result


def encoder_layer(x: Floats, layer: LayerWeights, heads: int, epsilon: float) -> Floats:
    """Return one post-norm transformer layer of x, shape (tokens, hidden)."""
    attended = attention(x, layer, heads)
    attended += x
    attended = layer_norm(attended, layer.attention_gain, layer.attention_shift, epsilon)
    inner = attended @ layer.up_weight
    inner += layer.up_bias
    result = gelu(inner) @ layer.down_weight
    result += layer.down_bias
    result += attended
    return layer_norm(result, layer.output_gain, layer.output_shift, epsilon)
