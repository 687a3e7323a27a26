"""Room for large tensors: of the asked shape and type, writable, alive as long as the tensor is, never shared."""

from __future__ import annotations

import gc

import pytest
import torch

from headway.model import room as module
from headway.model.forward import logits, run
from headway.model.room import room
from support.random_models import random_weights

CPU = torch.device("cpu")


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_large_room_holds_what_is_written_into_it(dtype: torch.dtype):
    first, second = room((3, 1024, 1025), dtype, CPU), room((3, 1024, 1025), dtype, CPU)
    first.fill_(2)
    second.fill_(3)
    part = first[1]
    del first
    gc.collect()
    assert part.shape == (1024, 1025)
    assert part.dtype == dtype
    assert bool((part == 2).all())
    assert bool((second == 3).all())


def test_a_run_whose_scores_take_huge_pages_agrees_with_the_fast_pass():
    weights = random_weights(n_ctx=600, positions="rotary", rotary_dims=2)
    tokens = torch.randint(weights.config.d_vocab, (2, 600), generator=torch.Generator().manual_seed(0))
    recording = run(weights, tokens)
    assert recording.scores[0].nbytes >= 4 << 20
    assert recording.scores[0].data_ptr() != recording.patterns[0].data_ptr()
    torch.testing.assert_close(recording.logits, logits(weights, tokens), rtol=1e-9, atol=1e-9)
    assert bool(recording.scores[0].triu(1).isneginf().sum() == 2 * weights.config.n_heads * 600 * 599 // 2)


def test_room_given_back_is_used_again_but_not_while_any_part_of_it_is_held(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(module, "_SPARE", {})
    first = room((2, 1024, 1031), torch.float32, CPU)
    part, where = first[1, :5], first.data_ptr()
    part.fill_(7)
    del first
    gc.collect()
    other = room((2, 1024, 1031), torch.float32, CPU)
    other.fill_(1)
    assert other.data_ptr() != where and bool((part == 7).all())
    shared = part.numpy()
    del part
    gc.collect()
    assert not module._SPARE and bool((shared == 7).all()), "numpy holds it too"
    del shared
    gc.collect()
    assert room((2, 1024, 1031), torch.float32, CPU).data_ptr() == where
    assert room((2, 1024, 1033), torch.float32, CPU).data_ptr() != where


def test_no_more_is_kept_than_the_limit(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(module, "_SPARE", {})
    monkeypatch.setattr(module, "_MOST", 10 << 20)
    several = [room((1024, 1024), torch.float32, CPU) for _ in range(5)]
    del several
    gc.collect()
    assert [len(kept) for kept in module._SPARE.values()] in ([2], [])  # 4 MiB each; none without the system's call
