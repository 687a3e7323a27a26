from __future__ import annotations

import torch

from headway.exercises.blocks import close, copy_problem, copying, dims_text, used


def test_close_is_relative_to_what_is_wanted():
    wanted = torch.tensor([1e-8, 0.0])
    assert close(wanted * (1 + 1e-7), wanted) and not close(wanted * (1 + 1e-5), wanted)
    assert close(torch.zeros(2), torch.zeros(2)) and not close(torch.full((2,), 1e-12), torch.zeros(2))
    assert not close(torch.zeros(2), torch.zeros(3))


def test_used_dims_and_their_names():
    W = torch.zeros(5, 5)
    W[4, 1] = W[2, 3] = 1
    assert used(W, 0, 1.0) == [1, 3] and used(W, 1, 1.0) == [2, 4]
    assert [dims_text(d) for d in ([1], [1, 2], [1, 2, 3], [1, 3, 4])] == [
        "dim 1", "dims 1, 2", "dims 1 to 3", "dims 1, 3, 4"]  # fmt: skip


def test_every_problem_of_a_copy_on_other_dims():
    pairs = {0: 3, 1: 4}
    right = copying(pairs, 6)
    assert copy_problem(right, pairs) is None
    assert copy_problem(0 * right, pairs) == ("ZERO", {})
    assert copy_problem(right.T, pairs)[0] == "WRONG_WRITE"  # type: ignore[index]
    assert copy_problem(3 * right, pairs) == ("SCALE", {"factor": 3.0})
    assert copy_problem(right[[0, 1, 2, 4, 3, 5]], pairs) == ("ORDER", {})
