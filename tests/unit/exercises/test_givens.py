"""What the learner is given: rows that read, columns that write, more of the same, and an earlier part's view."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from headway.errors import UnknownName, UsageError
from headway.exercises import givens
from headway.exercises.givens import as_part, given

longer: Any = givens.longer
BOTH = pytest.mark.parametrize("hidden", [False, True], ids=["visible", "hidden"])


@BOTH
def test_directions_are_oblique_and_rows_are_their_duals(hidden: bool):
    g = given("2e", hidden=hidden)
    x = g.streams()
    waves = torch.stack((g.u_cos @ x.mT, g.u_sin @ x.mT))  # [cos or sin, n, k, token] after stacking
    m = torch.arange(g.n).double()
    for f, (alpha, size) in enumerate(zip(g.alpha.tolist(), g.amplitude.tolist(), strict=True)):
        assert torch.allclose(waves[0, :, f], size * (alpha * m).cos()[:, None].expand(-1, g.n_tokens), atol=1e-10)
        assert torch.allclose(waves[1, :, f], size * (alpha * m).sin()[:, None].expand(-1, g.n_tokens), atol=1e-10)
    assert (g.v @ x.mT).abs().max() < 1e-10
    assert torch.allclose(g.v @ g.v_write, torch.eye(8).double(), atol=1e-10)
    assert (g.v.T - g.v_write).abs().max() > 0.02  # to read is not to write
    content = g.u_content @ x.mT
    assert torch.allclose(content.norm(dim=1), torch.ones(g.n, g.n_tokens).double(), atol=1e-10)
    assert list(g.amplitude) == sorted(g.amplitude, reverse=True)


def test_longer_data_have_the_same_bases():
    here = given("2c")
    more = longer(here)
    assert more is not None and (more.n, more.n_tokens) == (20, 12)
    assert torch.equal(more.u_cos, here.u_cos) and torch.equal(more.tokens[:8], here.tokens)
    assert torch.allclose(more.positions[:12], here.positions)
    assert longer(given("2d")).n == given("2d").n  # its best penalty depends on n
    assert longer(given("2c", hidden=True)) is None


def test_an_earlier_part_is_seen_on_the_same_stream():
    late = longer(given("2f"))
    part = as_part(late, "2c")
    assert (part.id, part.n, part.d_head) == ("2c", 20, 4)
    assert torch.equal(part.tokens, late.tokens)
    assert as_part(late, "2f") is late


def test_sizes_and_names_that_do_not_exist():
    g = given("2e")
    assert [g.axis(name) for name in ("d_model", "d_head", "n", "n_tokens", "m", "k", "two_k")] == [
        32,
        8,
        12,
        8,
        8,
        4,
        8,
    ]
    with pytest.raises(AttributeError, match="gives no 'W_Q'"):
        _ = g.W_Q
    with pytest.raises(UnknownName, match="Did you mean"):
        given("2cc")
    with pytest.raises(UsageError, match="0 or more"):
        given("2c", seed=-1)
