from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from noctuary.embed.lean import LayerWeights, attention, encoder_layer, erfc, gelu, layer_norm


def _random(*shape: int, seed: int = 0) -> NDArray[np.float32]:
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def test_erfc_is_close_to_the_exact_one() -> None:
    z = np.linspace(0, 12, 200_001, dtype=np.float32)
    exact = np.array([math.erfc(float(value)) for value in z])
    assert float(np.abs(erfc(z) - exact).max()) < 3e-7


def test_gelu_is_the_exact_one_not_the_tanh_one() -> None:
    x = np.linspace(-10, 10, 200_001, dtype=np.float32)
    exact = np.array([0.5 * v * math.erfc(-v / math.sqrt(2)) for v in x.tolist()])
    error = np.abs(gelu(x) - exact)
    assert float(error[np.abs(x) <= 4].max()) < 2e-7
    assert float(error.max()) < 5e-7
    tanh = 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))
    assert float(np.abs(tanh - exact).max()) > 1e-4


def test_gelu_of_extremes() -> None:
    x = np.array([-1e8, -100, 0, 100, 1e8], dtype=np.float32)
    np.testing.assert_array_equal(gelu(x), np.array([0, 0, 0, 100, 1e8], dtype=np.float32))


def test_layer_norm_has_zero_mean_and_unit_variance() -> None:
    x = layer_norm(_random(3, 64) * 7 + 5, np.ones(64, "f4"), np.zeros(64, "f4"), 1e-12)
    np.testing.assert_allclose(x.mean(axis=1), 0, atol=1e-6)
    np.testing.assert_allclose(x.var(axis=1), 1, rtol=1e-5)


def test_layer_norm_of_a_constant_row_is_the_shift() -> None:
    shift = _random(8)
    x = layer_norm(np.full((1, 8), 3, "f4"), _random(8, seed=1), shift, 1e-12)
    np.testing.assert_array_equal(x[0], shift)


def _layer(hidden: int, inner: int) -> LayerWeights:
    shapes = [
        (hidden, 3 * hidden),
        (3 * hidden,),
        (hidden, hidden),
        (hidden,),
        (hidden,),
        (hidden,),
        (hidden, inner),
        (inner,),
        (inner, hidden),
        (hidden,),
        (hidden,),
        (hidden,),
    ]
    return LayerWeights(*(_random(*shape, seed=i) for i, shape in enumerate(shapes)))


def _naive_attention(
    x: NDArray[np.float64], layer: LayerWeights, heads: int
) -> NDArray[np.float64]:
    hidden = x.shape[1]
    size = hidden // heads
    qkv = x @ layer.qkv_weight.astype(np.float64) + layer.qkv_bias
    context = np.zeros_like(x)
    for head in range(heads):
        part = slice(head * size, (head + 1) * size)
        query, key, value = (qkv[:, i * hidden : (i + 1) * hidden][:, part] for i in range(3))
        for row in range(len(x)):
            weights = np.exp(key @ query[row])
            context[row, part] = (weights / weights.sum()) @ value
    return context @ layer.out_weight + layer.out_bias


def test_attention_equals_the_loop_over_heads_and_tokens() -> None:
    layer, x = _layer(12, 20), _random(5, 12, seed=99) * np.float32(0.2)
    expected = _naive_attention(x.astype(np.float64), layer, 3)
    np.testing.assert_allclose(attention(x, layer, 3), expected, rtol=1e-4, atol=1e-5)


def test_layer_leaves_its_input_alone() -> None:
    x = _random(5, 12, seed=99)
    before = x.copy()
    result = encoder_layer(x, _layer(12, 20), 3, 1e-12)
    np.testing.assert_array_equal(x, before)
    assert result.shape == (5, 12)
    assert result.dtype == np.float32
