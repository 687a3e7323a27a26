from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from headway.errors import BadInput, ConfigProblem, ShapeProblem, TokenProblem
from headway.model.carried import Carried
from support.unchecked import as_users_run_it

IDS = np.array([0, 3, 2, 3, 2, 1])


def test_the_table_holds_the_counts():
    carried = Carried(np.array([[0, 3, 2], [3, 2, 4], [1, 7, 2]]), IDS, IDS[:0], {"licence": "free"})
    table = carried.bigram_table(5)
    wanted = torch.zeros(5, 5, dtype=torch.float64)
    wanted[0, 3], wanted[3, 2], wanted[2, 4] = 1, 7, 2
    assert torch.equal(table, wanted)
    carried.check_vocabulary(5)
    with pytest.raises(TokenProblem, match=r"bigrams ids; expected 0 .. d_vocab-1=3, got 0 .. 4"):
        carried.check_vocabulary(4)


@pytest.mark.parametrize("name", ["validation", "heldout"])
@pytest.mark.parametrize("bad", [-1, 5])
def test_ids_outside_the_vocabulary_are_refused(name: str, bad: int):
    parts: dict[str, Any] = {"validation": IDS, "heldout": IDS} | {name: np.array([1, bad])}
    with pytest.raises(TokenProblem, match=f"{name} ids"):
        Carried(np.zeros((3, 0), dtype=np.int64), **parts).check_vocabulary(5)


@pytest.mark.parametrize("shape", [(2, 4), (4, 3)])
def test_counts_have_three_rows(shape: tuple[int, int]):
    with as_users_run_it(), pytest.raises(ShapeProblem, match="first token, next token, count"):
        Carried(np.zeros(shape, dtype=np.int64), IDS, IDS)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("validation", IDS.astype(float)),
        ("heldout", IDS[None]),
        ("heldout", [1, 2]),
        ("validation", IDS > 1),
        ("bigrams", np.ones((3, 2))),
    ],
)
def test_what_is_no_row_of_ids_is_refused(name: str, value: Any):
    parts: dict[str, Any] = {"bigrams": np.zeros((3, 0), dtype=np.int64), "validation": IDS, "heldout": IDS}
    with as_users_run_it(), pytest.raises(ShapeProblem, match=f"carried {name}; expected whole numbers"):
        Carried(**{**parts, name: value})


def test_negative_counts_and_cards_without_fields_are_refused():
    with pytest.raises(BadInput, match="counts >= 0, got -2"):
        Carried(np.array([[0], [1], [-2]]), IDS, IDS)
    with as_users_run_it(), pytest.raises(ConfigProblem, match="a card; expected named fields, got int"):
        Carried(np.zeros((3, 0), dtype=np.int64), IDS, IDS, 5)  # type: ignore[arg-type]
