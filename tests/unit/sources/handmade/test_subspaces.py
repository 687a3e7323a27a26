from __future__ import annotations

import pytest
import torch

from headway.errors import ShapeProblem, UnknownName, UsageError
from headway.sources.handmade.subspaces import Space, orthogonal

SIZES = {"content": 4, "position": 2, "out": 3}


def skewed() -> Space:
    """Bases that are neither orthogonal nor normed, and lean on each other."""
    random = torch.Generator().manual_seed(3)
    bases = {n: torch.randn(12, k, generator=random, dtype=torch.float64) for n, k in SIZES.items()}
    bases["position"] = bases["position"] + 0.8 * bases["content"][:, :2]
    return Space(12, bases)


@pytest.mark.parametrize(
    "space",
    [Space.allocate(SIZES), Space.allocate(SIZES, d_model=14, seed=1), Space.allocate(SIZES, seed=5), skewed()],
    ids=["axes", "wide", "rotated", "skewed"],
)
def test_reading_inverts_writing_and_sees_nothing_else(space: Space):
    for a, m in SIZES.items():
        for b, n in SIZES.items():
            wanted = torch.eye(m) if a == b else torch.zeros(m, n)
            torch.testing.assert_close(space.read(a) @ space.write(b), wanted.double(), rtol=0, atol=1e-12)
    assert space.sizes == SIZES and space.write("out").shape == (space.d_model, 3)


def test_the_transpose_would_not_do_in_a_skewed_basis():
    space = skewed()
    mixed = space.write("position").T @ space.write("content")
    assert float(mixed.abs().max()) > 0.5


def test_allocated_bases_are_orthonormal():
    for seed in (None, 0, 7):
        space = Space.allocate(SIZES, d_model=11, seed=seed)
        joined = torch.cat([space.write(n) for n in SIZES], dim=1)
        torch.testing.assert_close(joined.T @ joined, torch.eye(9, dtype=torch.float64))
        assert all(torch.allclose(space.read(n), space.write(n).T) for n in SIZES)
    on_axes = Space.allocate(SIZES).write("position")
    assert bool(((on_axes == 0) | (on_axes == 1)).all())
    rotated = Space.allocate(SIZES, seed=0).write("position")
    assert float(rotated.abs().max()) < 0.95, "no axis stands out"


def test_the_seed_decides():
    one, same, other = (Space.allocate(SIZES, seed=s) for s in (4, 4, 5))
    assert torch.equal(one.write("content"), same.write("content"))
    assert not torch.allclose(one.write("content"), other.write("content"))
    assert Space.allocate(SIZES, seed=4, dtype=torch.float32).write("out").dtype == torch.float32


def test_orthogonal_matrices_are_orthogonal_and_of_both_kinds():
    signs = {round(float(torch.linalg.det(orthogonal(5, seed)))) for seed in range(12)}
    assert signs == {-1, 1}
    q = orthogonal(6, 2)
    torch.testing.assert_close(q @ q.T, torch.eye(6, dtype=torch.float64))


def test_more_than_fits_is_refused_by_name():
    with pytest.raises(UsageError, match=r"d_model=8, got content 4 \+ position 2 \+ out 3"):
        Space.allocate(SIZES, d_model=8)
    with pytest.raises(UsageError, match=r"'position'.*at least 1"):
        Space.allocate({"content": 4, "position": 0})
    full = Space.allocate(SIZES)
    with pytest.raises(UsageError, match="do not fit"):
        full.with_basis("more", torch.ones(9, 1, dtype=torch.float64))


def test_a_clash_names_both_subspaces():
    space = Space.allocate(SIZES, d_model=12, seed=0)
    inside = space.write("position") @ torch.tensor([[1.0], [2.0]], dtype=torch.float64)
    with pytest.raises(UsageError, match=r"'v' lies within.*nearest to 'position' \(largest cosine 1.000\)"):
        space.with_basis("v", inside)


def test_a_clash_of_three_without_any_clash_of_two():
    e = torch.eye(4, dtype=torch.float64)
    with pytest.raises(UsageError, match="'c' lies within the span"):
        Space(4, {"a": e[:, :1], "b": e[:, 1:2], "c": e[:, :1] + e[:, 1:2]})


def test_a_basis_must_be_independent_and_fit():
    with pytest.raises(UsageError, match="'a' is not independent"):
        Space(4, {"a": torch.ones(4, 2, dtype=torch.float64)})
    with pytest.raises(ShapeProblem, match=r"'a'; expected .d_model=5, k"):
        Space(5, {"a": torch.ones(4, 1)})


def test_names():
    space = Space.allocate(SIZES, d_model=12)
    with pytest.raises(UnknownName, match="Did you mean position"):
        space.read("positions")
    with pytest.raises(UsageError, match="'out' exists already"):
        space.with_basis("out", torch.ones(12, 1, dtype=torch.float64))
    more = space.with_basis("v", torch.eye(12, dtype=torch.float64)[:, 10:])
    assert more.sizes == {**SIZES, "v": 2} and "v" not in space.sizes
    assert repr(space) == "Space(12: content 4, position 2, out 3)"
    assert Space(3, {}).sizes == {}
