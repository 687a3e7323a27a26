"""`headway compose --measure`: the tables of the functions, on a model whose one composition is known."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from headway.apps.cli.app import main
from headway.circuits.components import component_composition_scores
from headway.circuits.composition import composition_scores, tight_composition_scores
from headway.circuits.cyclic import cyclic_scores
from headway.circuits.kernel import projection_kernel
from headway.circuits.token_basis import token_basis_composition_scores
from headway.circuits.token_terms import token_term_scores
from headway.model.archive import save
from headway.model.weights import Weights
from headway.sources.handmade.induction import induction_model
from headway.sources.open import load
from support.composed import among_others

MEASURES = {
    "frobenius": composition_scores,
    "tight": tight_composition_scores,
    "components": component_composition_scores,
    "kernel": projection_kernel,
    "cyclic": cyclic_scores,
    "terms": token_term_scores,
}


def planted() -> Weights:
    return among_others(induction_model(d_vocab=40, n_ctx=16).weights)


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(save(planted(), tmp_path_factory.mktemp("compose") / "m.safetensors"))


def rows(capsys: pytest.CaptureFixture[str], *words: str) -> list[dict[str, Any]]:
    assert main(["compose", *words, "--json", "--quiet"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["schema"] == "headway/compose@1"
    return document["rows"]


@pytest.mark.parametrize("measure", MEASURES)
def test_each_measure_is_the_table_of_its_function_and_the_planted_pair_leads(
    path: str, capsys: pytest.CaptureFixture[str], measure: str
) -> None:
    found = rows(capsys, path, "--measure", measure, "--via", "K", "--dtype", "float64")
    expected = MEASURES[measure](planted(), via="K").rows()
    assert json.loads(json.dumps(expected)) == found
    assert (found[0]["reader"], found[0]["writer"]) == ("L1H0", "L0H0")


def test_the_basis_of_tokens(capsys: pytest.CaptureFixture[str]) -> None:
    found = rows(capsys, "zoo:two-layer", "--measure", "tokens", "--reader", "L1H4")
    assert found == token_basis_composition_scores(load("zoo:two-layer"), reader="L1H4").rows()


def test_shares_of_a_recording_are_read_from_a_text(capsys: pytest.CaptureFixture[str]) -> None:
    found = rows(capsys, "zoo:two-layer", "--measure", "data", "--reader", "L1H4", "--via", "K")
    assert {row["reader"] for row in found} == {"L1H4"} and {row["via"] for row in found} == {"K"}
    assert sum(row["share"] for row in found) == pytest.approx(1, abs=1e-4)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("--text", "README.md"), "--measure data with it"),
        (("--measure", "data", "--offset", "2"), "no --offset or --processing"),
        (("--measure", "terms", "--via", "V"), "--via Q or --via K"),
        (("--measure", "frobenious"), "frobenious"),
    ],
)
def test_what_does_not_go_together_is_refused_before_the_model_is_opened(
    capsys: pytest.CaptureFixture[str], words: tuple[str, ...], says: str
) -> None:
    assert main(["compose", "no-such-model", *words]) == 2
    shown = capsys.readouterr()
    assert says in shown.err and "no such model" not in shown.err and shown.out == ""


def test_the_cyclic_score_says_what_it_is_not(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compose", "zoo:two-layer", "--measure", "cyclic", "--top", "1"]) == 0
    assert "not composition" in capsys.readouterr().err


def test_a_basis_of_tokens_that_does_not_exist_is_a_typed_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = save(induction_model(d_vocab=9).weights, tmp_path / "few.safetensors")
    assert main(["compose", str(path), "--measure", "tokens"]) == 1
    assert "singular" in capsys.readouterr().err
