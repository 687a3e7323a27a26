"""The forward pass again, written from the definitions in plain loops over numpy numbers: one row, one number at a time.

Nothing here is shared with `headway.model.forward`, so that agreement means something. Positions count the tokens of the
row; a padded row is compared with the naive pass over its real tokens alone.
"""

from __future__ import annotations

import cmath
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from headway.model.weights import Weights


@dataclass
class Naive:
    """Streams [layer + 1][pos, d_model], scores and patterns [layer][head, dst, src], results, scales, logits."""

    streams: list[np.ndarray]
    scores: list[np.ndarray]
    patterns: list[np.ndarray]
    results: list[np.ndarray]
    scales: list[np.ndarray]
    logits: np.ndarray


def naive_run(
    weights: Weights,
    row: Sequence[int],
    edit: Mapping[str, np.ndarray] | None = None,
    scales: Sequence[np.ndarray] | None = None,
) -> Naive:
    """One row. edit: what stands at a site instead of what was computed. scales: 1/sigma at each read, given."""
    c, n, edit = weights.config, len(row), edit or {}
    t = {name: tensor.detach().double().numpy() for name, tensor in weights.tensors().items()}
    x = np.stack([t["W_E"][:, token] + (t["W_pos"][:, i] if "W_pos" in t else 0) for i, token in enumerate(row)])
    streams, scores, patterns, results, used = [x], [], [], [], []
    for layer in range(c.n_layers):
        given = None if scales is None else scales[layer]
        s = np.full((c.n_heads, n, n), -np.inf)
        a = np.zeros((c.n_heads, n, n))
        written = np.zeros((c.n_heads, n, c.d_model))
        for head in range(c.n_heads):
            site = f"L{layer}H{head}."
            kv = head * c.n_kv_heads // c.n_heads
            reads = {part: edit.get(site + part, x) for part in "QKV"}
            q = [_project(weights, t, ("Q", layer, head), reads["Q"][i], i, _scale(given, i)) for i in range(n)]
            k = [_project(weights, t, ("K", layer, kv), reads["K"][i], i, _scale(given, i)) for i in range(n)]
            v = [_project(weights, t, ("V", layer, kv), reads["V"][i], i, _scale(given, i)) for i in range(n)]
            for i in range(n):
                for j in range(i + 1):
                    s[head, i, j] = c.attn_scale * sum(a * b for a, b in zip(q[i], k[j], strict=True))
                    if site + "scores" in edit:
                        s[head, i, j] = edit[site + "scores"][i, j]
                a[head, i] = _softmax(s[head, i])
            if site + "pattern" in edit:
                a[head] = edit[site + "pattern"]
            for i in range(n):
                mixed = sum(a[head, i, j] * v[j] for j in range(n))
                written[head, i] = t["W_O"][layer, head] @ mixed
            if site + "result" in edit:
                written[head] = edit[site + "result"]
        used.append(np.array([_norm(weights, t, layer, x[i], _scale(given, i))[1] for i in range(n)]))
        x = x + written.sum(0) + (t["b_O"][layer] if "b_O" in t else 0)
        for kind, value in ((streams, x), (scores, s), (patterns, a), (results, written)):
            kind.append(value)
    final, given = edit.get("logits", x), None if scales is None else scales[c.n_layers]
    reads = [_norm(weights, t, c.n_layers, final[i], _scale(given, i)) for i in range(n)]
    used.append(np.array([scale for _, scale in reads]))
    logits = np.stack([t["W_U"] @ read + t.get("b_U", 0) for read, _ in reads])
    return Naive(streams, scores, patterns, results, used, logits)


def _scale(given: np.ndarray | None, i: int) -> float | None:
    return None if given is None else float(given[i])


def _project(
    weights: Weights, t: dict[str, np.ndarray], which: tuple[str, int, int], x: np.ndarray, i: int, scale: float | None
) -> np.ndarray:
    """q, k or v of one position."""
    part, layer, head = which
    read, _ = _norm(weights, t, layer, x, scale)
    out = t[f"W_{part}"][layer, head] @ read
    if part != "V" and weights.config.positions == "shortformer":
        out = out + t.get(f"W_{part}_pos", t[f"W_{part}"])[layer, head] @ _sinusoid(weights, i)
    if f"b_{part}" in t:
        out = out + t[f"b_{part}"][layer, head]
    return out if part == "V" else _turn(weights, out, i)


def _norm(
    weights: Weights, t: dict[str, np.ndarray], layer: int, x: np.ndarray, scale: float | None
) -> tuple[np.ndarray, float]:
    c = weights.config
    if c.norm == "none":
        return x, 1.0
    last = layer == c.n_layers
    gain = t.get("final_gain") if last else t["norm_gain"][layer] if "norm_gain" in t else None
    bias = t.get("final_bias") if last else t["norm_bias"][layer] if "norm_bias" in t else None
    if c.norm == "layer":
        x = x - sum(x) / len(x)
    if scale is None:
        scale = 1 / math.sqrt(sum(value * value for value in x) / len(x) + c.norm_eps)
    read = x * scale * (1 if gain is None else gain)
    return (read if bias is None else read + bias), scale


def _softmax(scores: np.ndarray) -> np.ndarray:
    if np.isneginf(scores).all():
        return np.zeros_like(scores)
    weights = np.array([0.0 if np.isneginf(s) else math.exp(s - scores.max()) for s in scores])
    return weights / weights.sum()


def _sinusoid(weights: Weights, m: int) -> np.ndarray:
    c, d = weights.config, weights.config.d_model
    even = d + d % 2
    angle: Any = [m * c.position_base ** (-2 * (dim // 2) / even) for dim in range(d)]
    wave = [math.sin(angle[dim]) if dim % 2 == 0 else math.cos(angle[dim]) for dim in range(d)]
    return c.position_amplitude * np.array(wave)


def _turn(weights: Weights, x: np.ndarray, m: int) -> np.ndarray:
    """Rotary as multiplication by e^(i m theta_f) on complex pairs."""
    c, out = weights.config, x.astype(float).copy()
    for f in range(c.rotary_dims // 2):
        a, b = (f, f + c.rotary_dims // 2) if c.rotary_pairs == "halves" else (2 * f, 2 * f + 1)
        theta = c.position_base ** (-2 * f / c.rotary_dims)
        turned = complex(x[a], x[b]) * cmath.exp(1j * m * theta)
        out[a], out[b] = turned.real, turned.imag
    return out
