"""Every item of the study equals its known answer on the hand-made induction model."""

from __future__ import annotations

import dataclasses
import math
import os
import signal
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from headway.errors import ShapeProblem, TextProblem, UsageError, WriteProblem
from headway.model.carried import Carried
from headway.model.weights import Weights
from headway.sources.handmade.induction import induction_model
from headway.studies.heads import head_atlas
from headway.studies.report import Report, report_model, write_report
from headway.studies.texts import StudyText, study_text
from headway.tables.files import read_table
from support.random_models import random_weights
from support.unchecked import as_users_run_it

D_VOCAB, N_CTX, LEAK = 20, 64, 1e-3


def repeated_text(windows: int, seed: int) -> np.ndarray:
    """Windows of a permutation of all 19 tokens, three times and a bit: from the second copy on, all is known."""
    random = np.random.default_rng(seed)
    rows = [np.tile(random.permutation(np.arange(1, D_VOCAB)), 4)[:N_CTX] for _ in range(windows)]
    return np.concatenate(rows)


def chain(n: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """A Markov chain over tokens 1 .. 19 in which each token has two successors, 3/4 and 1/4; and its pair counts."""
    random = np.random.default_rng(seed)
    ids, state = [], 1
    for _ in range(n):
        state = (2 * state if random.random() < 0.75 else 2 * state + 1) % (D_VOCAB - 1) + 1
        ids.append(state)
    row = np.array(ids)
    pairs, counts = np.unique(row[:-1] * D_VOCAB + row[1:], return_counts=True)
    return row, np.stack((pairs // D_VOCAB, pairs % D_VOCAB, counts))


def weights() -> Weights:
    return induction_model(d_vocab=D_VOCAB, n_ctx=N_CTX, leak=LEAK).weights


@cache
def study() -> Report:
    training, bigrams = chain(60_000, 0)
    carried = Carried(bigrams, chain(6_000, 1)[0], chain(6_000, 2)[0])
    text = StudyText(repeated_text(24, 3), "repeated permutations")
    assert training.size == 60_000
    return report_model(weights().replace(carried=carried), text, name="hand-made")


def rows(name: str) -> list[dict]:
    return study().tables[name].rows()


def test_nothing_is_missing() -> None:
    assert study().missing == {}


def test_heads_have_their_kinds_and_scores() -> None:
    previous, induction = rows("heads")
    assert previous["kind"] == "previous-token" and previous["previous_token"] >= 1 - LEAK
    assert induction["kind"] == "induction" and induction["prefix_matching"] >= 1 - 3 * LEAK
    assert induction["prefix_matching_text"] >= 1 - 3 * LEAK
    assert induction["copying"] == pytest.approx(1, abs=1e-6)
    # L0H0 writes where W_U does not read: its eigenvalues are all zero, and 0 / 0 is null, never a silent 0.
    assert previous["copying"] is None and previous["flag"]
    # 19 of 64 queries of a text window (BOS and the first copy) find nothing and rest on BOS.
    assert induction["bos"] == pytest.approx(19 / 63, abs=0.02)


def test_composition_is_the_derived_one() -> None:
    scores = {row["via"]: row["score"] for row in rows("composition")}
    # W_QK reads `previous` with 19 equal singular values, W_OV writes it with 19: sqrt(19) / (sqrt(19) sqrt(19)).
    assert scores["K"] == pytest.approx(1 / math.sqrt(D_VOCAB - 1), abs=1e-6)
    assert scores["Q"] == pytest.approx(0, abs=1e-6) and scores["V"] == pytest.approx(0, abs=1e-6)


def test_the_induction_circuit_is_found_whole() -> None:
    (circuit,) = rows("induction-circuits")
    assert (circuit["reader"], circuit["writer"], circuit["complete"]) == ("L1H0", "L0H0", True)
    assert circuit["margin"] is None and "no margin" in circuit["flag"]


def test_order_one_gives_all_there_is() -> None:
    zero, one, two = rows("importance")
    assert zero["loss"] == pytest.approx(math.log(D_VOCAB), abs=1e-9) and zero["reduction"] == pytest.approx(
        0, abs=1e-9
    )
    assert two["reduction"] == pytest.approx(0, abs=1e-9)
    # From the second copy on the next token is known; before, the model guesses uniformly.
    known = (N_CTX - 19 - 0) / N_CTX
    assert one["loss"] <= (1 - known) * math.log(D_VOCAB) * 1.05 + 0.05
    assert one["n_terms"] == 2 and two["n_terms"] == 1
    assert study().tables["importance"].meta["remainder"] < 1e-9


def test_loss_along_the_context_falls_when_the_text_repeats() -> None:
    losses = [row["loss"] for row in rows("loss-by-position")]
    assert losses[5] == pytest.approx(math.log(D_VOCAB), rel=0.05) and max(losses[20:]) < 0.01
    (score,) = rows("in-context-score")
    assert score["in_context_score"] == pytest.approx(-math.log(D_VOCAB), abs=0.1)


def test_induction_gain_is_what_order_is_worth() -> None:
    (gain,) = rows("induction-gain")
    assert gain["loss_repeated"] < 0.01
    # On shuffled text the head says, confidently, the wrong token: worse than a uniform guess.
    assert gain["induction_gain"] > math.log(D_VOCAB)


def test_direct_path_is_uniform_and_the_tables_know_the_chain() -> None:
    losses = {row["table"]: row["heldout_loss"] for row in rows("direct-path")}
    entropy = -(0.75 * math.log(0.75) + 0.25 * math.log(0.25))
    assert losses["direct path"] == pytest.approx(math.log(D_VOCAB), abs=1e-6)
    assert losses["smoothed bigrams"] == pytest.approx(entropy, abs=0.1)


def test_summary_says_it_in_words() -> None:
    text = "\n".join(study().summary)
    assert "previous-token L0H0; induction L1H0" in text
    assert "L1H0 reads through its keys what L0H0 wrote" in text and "complete" in text


def test_report_is_written_whole(tmp_path: Path) -> None:
    page = write_report(study(), tmp_path / "report")
    html = page.read_text(encoding="utf-8")
    assert "Induction circuits" in html and "<script" not in html
    for name, table in study().tables.items():
        assert read_table(tmp_path / "report" / "tables" / f"{name}.parquet").rows() == table.rows()


def test_report_into_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "report").write_text("mine")
    with pytest.raises(WriteProblem, match="cannot be made"):
        write_report(study(), tmp_path / "report")
    assert (tmp_path / "report").read_text() == "mine"


def test_the_circuits_of_the_known_model_in_the_report() -> None:
    tables, said = study().tables, " ".join(study().summary)
    best = tables["induction-scatter"].rows()[0]
    assert (best["reader"], best["writer"]) == ("L1H0", "L0H0") and best["corner"] == pytest.approx(1)
    assert "By weights alone, L1H0 through L0H0 is nearest to induction" in said
    assert {r["head"]: r["verdict"] for r in tables["copying-compared"].rows()}["L1H0"] == "copies"
    assert "By every measure these heads copy: L1H0" in said
    keys = [r for r in tables["data-share"].rows() if (r["reader"], r["via"]) == ("L1H0", "K")]
    assert keys[0]["source"] == "L0H0" and keys[0]["share"] > 0.5
    assert [r["path"] for r in tables["virtual-heads"].rows()] == ["L0H0-L1H0"]
    assert {r["writer"] for r in tables["write-shares"].rows()} == {"token", "position", "L0H0", "L1H0"}
    assert "trigram-cost" in study().missing or "kip-trigram bugs cost" in said


def test_without_text_or_counts_the_rest_is_studied() -> None:
    report = report_model(weights())
    of_text = {"patterns on text", "importance", "loss-by-position", "in-context-score", "data-share"}
    assert set(report.missing) == {*of_text, "direct-path", "trigram-bugs", "trigram-cost"}
    of_weights = {"heads", "composition", "induction-circuits", "induction-gain", "induction-scatter", "virtual-heads"}
    of_weights |= {"copying-compared", "skip-trigrams", "write-shares", "memory", "space-overlaps", "stream-components"}
    assert set(report.tables) == of_weights
    assert "no text" in report.tables["heads"].rows()[0]["flag"]


def test_the_words_of_a_report_without_text_hold_no_null() -> None:
    report = report_model(weights())
    said = " ".join([*report.summary, *(f"{name} {value}" for name, value in report.page.facts)])
    assert "None" not in said and "nan" not in said and "By path order" not in said
    assert "Not studied: direct-path (the model carries no bigram counts of its training text)." in said
    assert (
        "Not studied: patterns on text, importance, loss-by-position, in-context-score, data-share (this model has"
        in said
    )
    assert "loss, nats" not in dict(report.page.facts)


@pytest.mark.parametrize(
    ("carried", "why"),
    [
        (Carried(np.zeros((3, 0), dtype=np.int64), chain(90, 1)[0], chain(90, 2)[0]), "carries no bigram counts"),
        (Carried(chain(90, 0)[1], np.zeros(0, dtype=np.int64), chain(90, 2)[0]), "shorter than one window"),
        (Carried(chain(90, 0)[1], chain(90, 1)[0], np.zeros(0, dtype=np.int64)), "shorter than one window"),
    ],
    ids=["no bigrams", "no validation", "no held-out text"],
)
def test_what_a_model_does_not_carry_is_left_out_and_said(carried: Carried, why: str) -> None:
    report = report_model(weights().replace(carried=carried))
    assert "direct-path" not in report.tables and why in report.missing["direct-path"]
    assert why in " ".join(report.summary)
    (direct,) = [section for section in report.page.sections if section.title.startswith("Direct path")]
    assert any(why in note for note in direct.notes) and not direct.figures


@pytest.mark.parametrize("study", [report_model, head_atlas])
@pytest.mark.parametrize(
    ("text", "error", "says"),
    [
        (lambda: "some words", UsageError, r"not a text to study.*got str.*study_text"),
        (lambda: [1, 2, 3], UsageError, "not a text to study.*got list"),
        (lambda: StudyText(np.array([1, 2]), "short"), TextProblem, "at least 64 tokens .*got 2 tokens"),
        (lambda: StudyText(np.zeros(0, dtype=np.int64), "empty"), TextProblem, "got 0 tokens"),
        (lambda: StudyText(np.zeros(99), "floats"), ShapeProblem, "float64"),
    ],
    ids=["words", "ids", "short", "empty", "floats"],
)
def test_a_text_that_cannot_be_studied_is_one_sentence(
    study: Any, text: Any, error: type[Exception], says: str
) -> None:
    with as_users_run_it(), pytest.raises(error, match=says):
        study(weights(), text())


@pytest.mark.parametrize("study", [report_model, head_atlas, study_text])
def test_a_model_is_given_not_named(study: Any) -> None:
    with as_users_run_it(), pytest.raises(UsageError, match=r"not a model.*'zoo:two-layer'.*headway\.load"):
        study("zoo:two-layer")


def test_a_model_without_a_tokenizer_can_read_no_text() -> None:
    with pytest.raises(TextProblem, match="tokenizer"):
        study_text(weights())


def test_zero_heads_are_flagged_not_nan() -> None:
    w = weights()
    zeroed = dataclasses.replace(w, W_V=w.W_V * torch.tensor([0.0, 1.0], dtype=w.dtype)[:, None, None, None])
    report = report_model(zeroed)
    assert all(row["score"] is None and "L0H0" in row["flag"] for row in report.tables["composition"].rows())


CHILD = """
import os, signal, sys
from pathlib import Path
from headway.sources.handmade import induction_model
from headway.studies.report import report_model, write_report

left, rename = int(sys.argv[2]), os.replace

def cut(source, target):
    global left
    left -= 1
    if left < 0:
        Path(source).write_bytes(Path(source).read_bytes()[:50])
        os.kill(os.getpid(), signal.SIGKILL)
    rename(source, target)

os.replace = cut
write_report(report_model(induction_model(d_vocab=9, n_ctx=12).weights), sys.argv[1])
"""


@pytest.mark.parametrize("renames", [0, 2, 4])
def test_a_killed_report_leaves_whole_files_only(tmp_path: Path, renames: int) -> None:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-c", CHILD, str(tmp_path), str(renames)]
    child = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert child.returncode == -signal.SIGKILL, child.stderr
    whole = sorted((tmp_path / "tables").glob("*.parquet"))
    assert len(whole) == renames and not (tmp_path / "report.html").exists()
    assert all(read_table(path).rows() is not None for path in whole)


def test_a_model_without_layers_is_said_to_have_none() -> None:
    bare = random_weights(n_layers=0, n_heads=0, n_kv_heads=0, biases="none")
    said = " ".join(report_model(bare).summary)
    assert "A model with no layers" in said
    assert "skip-trigrams, use of the stream, composition, induction-circuits (the model has no heads)." in said
