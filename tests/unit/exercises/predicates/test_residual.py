"""Exercise 1's caveats with their numbers (exercises.md C1, C2), and mutations of its references."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from headway.exercises import checking
from headway.exercises.givens import given
from headway.exercises.references import reference

check: Any = checking.check


def both():
    terms = reference("1c", given("1c"))
    return terms["W_OV1"], terms["W_OV2"]


def shift(n: int):
    """The pattern of a previous-token head: position 0 attends to itself."""
    A = torch.diag(torch.ones(n - 1, dtype=torch.float64), -1)
    A[0, 0] = 1
    return A


def test_the_one_token_term_has_rank_eight_and_acts_as_seven_on_empty_relays():
    W1, W2 = both()
    empty = torch.eye(16, dtype=torch.float64)[:, [d for d in range(16) if not 8 <= d <= 11]]
    assert int(torch.linalg.matrix_rank(W1 + W2)) == 8
    assert int(torch.linalg.matrix_rank((W1 + W2) @ empty)) == 7
    assert int(torch.linalg.matrix_rank(W2 @ W1)) == 1


def test_a_relay_that_is_not_empty_adds_what_the_previous_token_had_there():
    W1, W2 = both()
    x = torch.randn(6, 16, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    A = shift(6)
    after = x + A @ x @ W1.T
    out = A @ after @ W2.T
    torch.testing.assert_close(out[5, 15], x[3, 0] + x[4, 8])


def test_positions_0_and_1_see_position_0_again():
    A = shift(5)
    two_back = A @ A
    assert two_back[1].tolist() == [1, 0, 0, 0, 0] == two_back[0].tolist() and two_back[4].tolist() == [0, 0, 1, 0, 0]


@pytest.mark.parametrize("id", ["1a", "1b"])
@pytest.mark.parametrize("name", ["W_V", "W_O"])
@pytest.mark.parametrize(
    "change", [torch.zeros_like, torch.neg, lambda W: W.roll(1, 0), lambda W: W.flip(1), lambda W: 2 * W]
)
def test_a_mutated_reference_fails_or_is_the_same_head(id: str, name: str, change: Any):
    right = reference(id, given(id))
    answer = {**right, name: change(right[name])}
    same = torch.allclose(answer["W_O"] @ answer["W_V"], right["W_O"] @ right["W_V"])
    verdict = check(id, **answer)
    # 1b has many right answers: one that differs must still keep the two heads' bargain, which 1d's terms check.
    virtual = answer["W_O"] @ answer["W_V"] @ both()[0]
    fair = (
        id == "1b" and float(virtual.max()) == 1 and int(torch.linalg.matrix_rank(answer["W_O"] @ answer["W_V"])) == 4
    )
    assert verdict.passed == same or (verdict.passed and fair)


@pytest.mark.parametrize("id", ["1a", "1b"])
def test_values_beyond_float64_are_said_to_be(id: str):
    right = reference(id, given(id))
    verdict = check(id, **{name: 1e200 * W for name, W in right.items()})
    assert (verdict.reason, verdict.facts["name"]) == ("NONFINITE", "W_OV")


def test_later_parts_use_the_learners_own_earlier_ones():
    mine = {"W_V": torch.zeros(4, 16), "W_O": torch.zeros(16, 4)}
    for f, (read, written) in enumerate({4: 12, 5: 13, 6: 14, 9: 15}.items()):
        mine["W_V"][f, read] = mine["W_O"][written, f] = 1.0
    W1, W2 = both()[0], mine["W_O"].double() @ mine["W_V"].double()
    assert check("1c", earlier={"1b": mine}, W_OV1=W1, W_OV2=W2).passed
    assert not check("1c", W_OV1=W1, W_OV2=W2).passed


# Own second heads, read -> written, with the ranks of W1 + W2 by hand: copies that land on one dim coincide, and what
# reads the relay (8 to 11) counts for nothing where those dims start empty.
OWN = {
    "dims of their own": ({4: 12, 5: 13, 6: 14, 9: 15}, 8, 7),
    "one onto dim 9": ({4: 9, 5: 13, 6: 14, 8: 15}, 7, 6),
    "three onto dims 8 to 10": ({4: 8, 5: 9, 6: 10, 11: 15}, 5, 4),
    "all onto dims 8 to 11": ({4: 8, 5: 9, 6: 10, 8: 11}, 4, 4),
    "the relay onto itself": ({4: 12, 5: 13, 6: 14, 8: 8}, 7, 7),
    "onto dims that head 1 reads": ({4: 0, 5: 1, 6: 2, 8: 3}, 8, 7),
}


@pytest.mark.parametrize("name", OWN)
def test_ranks_are_those_of_the_learners_own_heads(name: str):
    pairs, whole, empty = OWN[name]
    e = torch.eye(16, dtype=torch.float64)
    mine = {"W_V": e[list(pairs)], "W_O": e[:, list(pairs.values())]}
    assert check("1b", **mine).passed
    W1, W2 = both()[0], mine["W_O"] @ mine["W_V"]
    for rank in range(1, 10):
        answer = {"two_token": W2 @ W1, "one_token": W1 + W2, "rank_two_token": 1, "rank_one_token": rank}
        verdict = check("1d", earlier={"1b": mine}, **answer)
        assert verdict.passed == (rank in {whole, empty}), rank
        if verdict.passed:
            (facts,) = (note.facts for note in verdict.notes if note.code == "ONE_TOKEN")
            assert facts == ({"rank": whole, "empty": empty} if empty != whole else {"rank": whole})
            assert f"is {whole}" in " ".join(verdict.note_texts("en"))
        else:
            assert (verdict.reason, verdict.facts["name"]) == ("RANK", "rank_one_token")


def test_a_mixture_of_the_fresh_dims_keeps_its_ranks():
    e = torch.eye(16, dtype=torch.float64)
    mix = torch.tensor([[1.0, 1, 0], [0, 1, 1], [1, 0, 1]], dtype=torch.float64)
    mine = {"W_V": torch.cat((mix @ e[4:7], e[8:9])), "W_O": e[:, 12:16]}
    W1, W2 = both()[0], mine["W_O"] @ mine["W_V"]
    passed = [
        check(
            "1d", earlier={"1b": mine}, two_token=W2 @ W1, one_token=W1 + W2, rank_two_token=1, rank_one_token=rank
        ).passed
        for rank in (6, 7, 8, 9)
    ]
    assert passed == [False, True, True, False]
