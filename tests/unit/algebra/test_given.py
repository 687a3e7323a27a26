"""What is no tensor of real numbers and no whole number, here and in every function that asks for one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from headway.algebra.given import real_tensor, whole_number
from headway.algebra.null import anisotropy, check_seed, composition_null, copying_null, eigenvalue_ratio, haar_frame
from headway.algebra.subspace import column_basis, expected_overlap, overlap, principal_angles
from headway.errors import HeadwayError, ShapeProblem, UsageError
from support.unchecked import as_users_run_it

EYE = torch.eye(4)
ONES = torch.ones(2, 4)


def test_real_numbers_pass_in_at_least_float32():
    for given, wanted in ((torch.float16, torch.float32), (torch.bfloat16, torch.float32)):
        assert real_tensor(torch.ones(3, dtype=given), "here", "[n]").dtype == wanted
    kept = torch.ones(3, dtype=torch.float64)
    assert real_tensor(kept, "here", "[n]") is kept


@pytest.mark.parametrize("value", [[1.0], 1.0, None, torch.ones(2).long(), torch.ones(2) > 0, EYE.to(torch.complex64)])
def test_everything_else_is_refused(value: object):
    with pytest.raises(ShapeProblem, match=r"here: not a tensor of real numbers; expected floating-point \[n\]"):
        real_tensor(value, "here", "[n]")


@pytest.mark.parametrize("value", [1, True, 3.0, "3", None, 2**63])
def test_what_is_no_whole_number_is_refused(value: object):
    assert whole_number(2, "steps", least=2) == 2
    with pytest.raises(UsageError, match="there: steps; expected a whole number >= 2"):
        whole_number(value, "steps", least=2, where="there")


CASES: dict[str, tuple[Callable[..., Any], type[HeadwayError], str]] = {
    "basis list": (lambda: column_basis([[1.0]]), ShapeProblem, "column_basis.*got list"),  # type: ignore[arg-type]
    "basis rtol": (lambda: column_basis(EYE, rtol="small"), UsageError, "rtol.*'small'"),  # type: ignore[arg-type]
    "angles list": (lambda: principal_angles([[1.0]], EYE), ShapeProblem, "principal_angles"),  # type: ignore[arg-type]
    "overlap whole": (lambda: overlap(EYE, EYE.long()), ShapeProblem, "overlap.*int64"),
    "overlap stacks": (lambda: overlap(EYE.expand(2, 4, 4), EYE.expand(3, 4, 4)), ShapeProblem, "do not broadcast"),
    "expected": (lambda: expected_overlap("1", 1, 3), UsageError, "d_s; expected a whole"),  # type: ignore[arg-type]
    "frame": (lambda: haar_frame(3.0, 1, torch.Generator()), UsageError, "haar_frame: d;"),  # type: ignore[arg-type]
    "trace": (lambda: anisotropy("1", 1.0, 2), ShapeProblem, "got str"),  # type: ignore[arg-type]
    "dimension": (lambda: composition_null(0.1, 0.1, 2.5), UsageError, "dimensions.*got 2.5"),  # type: ignore[arg-type]
    "ratio": (lambda: eigenvalue_ratio([1.0]), ShapeProblem, "eigenvalue_ratio.*got list"),  # type: ignore[arg-type]
    "between": (lambda: copying_null([[1.0]], ONES, ONES, seed=0), ShapeProblem, "copying_null"),  # type: ignore[arg-type]
    "draws": (lambda: copying_null(EYE, ONES, ONES, draws=2.5, seed=0), UsageError, "draws"),  # type: ignore[arg-type]
    "seed text": (lambda: copying_null(EYE, ONES, ONES, seed="0"), UsageError, "a seed"),  # type: ignore[arg-type]
    "seed": (lambda: check_seed(2**64), UsageError, r"a seed; expected a whole number >= 0 and < 2\^63"),
}


@pytest.mark.parametrize("name", CASES)
def test_one_typed_sentence(name: str):
    call, kind, words = CASES[name]
    with as_users_run_it(), pytest.raises(kind, match=words):
        call()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_nulls_of_half_precision_are_those_of_the_rounded_numbers(dtype: torch.dtype):
    """Sums and squares of these overflow float16."""
    values = torch.full((300,), 300.0, dtype=dtype)
    assert float(eigenvalue_ratio(values)) == 1
    found = anisotropy(torch.tensor(300.0, dtype=dtype), torch.tensor(30000.0, dtype=dtype), 5)
    assert float(found) == pytest.approx(float(torch.tensor(30000.0, dtype=dtype)) / 90000 - 0.2, rel=1e-5)
    between, spectra = torch.randn(4, 4, generator=torch.Generator().manual_seed(0)).to(dtype), ONES[:, :3].to(dtype)
    exact = copying_null(between.double(), spectra.double(), spectra.double(), draws=3, seed=0)
    assert torch.equal(copying_null(between, spectra, spectra, draws=3, seed=0), exact)
