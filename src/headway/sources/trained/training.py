"""`train`: from a recipe and a text to a model with its card."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from pathlib import Path
from types import NoneType
from typing import Any

import numpy as np
import torch
from torch.nn.functional import cross_entropy

from headway.errors import ShapeProblem, TextProblem, UsageError, check_kind, check_path, counted
from headway.model.archive import save
from headway.model.forward import logits
from headway.model.weights import Weights, check_weights
from headway.provenance import Provenance
from headway.sources.trained.bpe import train_bpe
from headway.sources.trained.corpus import SPLITS, Corpus, standard_library
from headway.sources.trained.data import Windows, encode_files
from headway.sources.trained.loop import Progress, Training, initial_state, optimise
from headway.sources.trained.recipes import RECIPES, Recipe
from headway.sources.trained.run_folder import RunFolder
from headway.sources.trained.stopping import resume_command, told_how_to_go_on
from headway.tokens.tokenizer import Tokenizer

_LOG_EVERY = 50  # steps between lines of the log
_GLANCE = 128  # windows of validation text read at each snapshot


def train(
    recipe: Recipe,
    out: str | Path,
    *,
    corpus: Corpus | None = None,
    resume: bool = False,
    on_progress: Callable[[Progress], None] | None = None,
    on_snapshot: Callable[[int, Weights], None] | None = None,
) -> Weights:
    """Train a small model on plain text and leave it, with its checkpoints, in the folder `out`.

    corpus: default the running Python's standard library source. resume: go on with the run in `out`, if there is one,
    bit for bit as if it had never stopped; recipe and text then come from the run. on_snapshot(step, weights) is called
    where weights are kept. Raises Interrupted after Ctrl-C with everything saved, or before the first step with nothing
    begun; UsageError when `out` holds something else, or a run in another precision than torch's default dtype.
    """
    check_kind(recipe, Recipe, "what to train", expected="a Recipe", next_step="recipe('two-layer') makes one")
    check_kind(corpus, (Corpus, NoneType), "text to train on", expected="a Corpus", next_step="read_corpus(paths)")
    check_path(out, "the folder of a run")
    folder = RunFolder(Path(out))
    tell: Callable[[Progress], None] = on_progress or (lambda _: None)
    with told_how_to_go_on(out, lambda: _resuming(recipe, out)):
        begun = resume and folder.exists
        if not begun:
            folder.require_empty()  # before minutes go into reading the text
        folder.check_place()
        if not begun:
            _start(folder, recipe, corpus, tell)
        recipe = Recipe.from_dict(folder.about()["recipe"])
        return _go_on(folder, tell, on_snapshot)


def _go_on(
    folder: RunFolder, on_progress: Callable[[Progress], None], on_snapshot: Callable[[int, Weights], None] | None
) -> Weights:
    """From where the run in the folder stands to its finished model."""
    folder.make()
    about = folder.about()
    _check_precision(about.get("dtype"), folder.path)
    recipe = Recipe.from_dict(about["recipe"])
    tokenizer = Tokenizer.from_json(about["tokenizer"], where=str(folder.path / "run.json"))
    ids = folder.ids()
    state = folder.load_state(initial_state(recipe, recipe.config(_bos(tokenizer))))
    if state.step:
        _check_precision(_dtype_name(state.tensors["W_E"].dtype), folder.path)
    training = Training(recipe, recipe.config(_bos(tokenizer)), state)
    windows = Windows(ids["training"], recipe.n_ctx, _bos(tokenizer), recipe.seed)

    def keep(step: int, weights: Weights) -> None:
        described = _describe(weights, recipe, tokenizer, step)
        save(described, folder.snapshot_path(step))
        folder.log(step=step, validation=held_out_loss(described, ids["validation"], windows=_GLANCE))
        if on_snapshot is not None:
            on_snapshot(step, described)

    recent: list[float] = []
    for loss in optimise(training, windows, save=folder.save_state, on_snapshot=keep, on_progress=on_progress):
        recent.append(loss)
        if training.step % _LOG_EVERY == 0:
            folder.log(step=training.step, training=sum(recent) / len(recent))
            recent.clear()
    return _finish(folder, training.snapshot(), about, ids)


def held_out_loss(weights: Weights, ids: np.ndarray, windows: int | None = None) -> float:
    """Mean next-token loss in nats over windows of n_ctx tokens, each behind its own BOS.

    The windows tile the row of ids; `windows` limits how many are read, evenly spread. Every token counts once.
    """
    check_weights(weights)
    if not isinstance(ids, np.ndarray) or ids.ndim != 1 or ids.dtype.kind not in "iu":
        got = f"{ids.shape} {ids.dtype}" if isinstance(ids, np.ndarray) else type(ids).__name__
        raise ShapeProblem("held-out ids", expected="an array of whole numbers, (n,)", got=got)
    c = weights.config
    bos = [c.bos] if c.bos is not None else []
    n = c.n_ctx
    starts = range(0, len(ids) - n + 1, n)
    if not starts:
        raise TextProblem("held-out text too short", expected=f"at least n_ctx={n} tokens", got=len(ids))
    if windows is not None and windows < len(starts):
        starts = [starts[i * len(starts) // windows] for i in range(windows)]
    total = 0.0
    with torch.no_grad():
        for group in (starts[i : i + 16] for i in range(0, len(starts), 16)):
            targets = torch.from_numpy(np.stack([ids[a : a + n] for a in group]))
            lead = torch.tensor([bos] * len(targets), dtype=torch.int64).reshape(len(targets), -1)
            rows = torch.cat((lead, targets), dim=1)[:, :-1]
            wanted = targets if bos else targets[:, 1:]
            total += float(
                cross_entropy(
                    logits(weights, rows.to(weights.device)).flatten(0, 1), wanted.flatten().to(weights.device)
                )
            ) * len(targets)
    return total / len(starts)


def _check_precision(begun: str | None, out: Path) -> None:
    """Raise UsageError where going on would round what was trained, or pretend to a precision it never had."""
    here = _dtype_name(torch.get_default_dtype())
    if begun is not None and begun != here:
        raise UsageError(
            "a run goes on in the precision it was begun in",
            where=str(out),
            expected=f"--dtype {begun}",
            got=f"--dtype {here}",
        )


def _resuming(recipe: Recipe, out: str | Path) -> str:
    """The command line that goes on with this run as it runs now."""
    dtype, device = _dtype_name(torch.get_default_dtype()), torch.get_default_device().type
    return resume_command(recipe.name, out, dtype=dtype, device=device)


def _dtype_name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def _start(folder: RunFolder, recipe: Recipe, given: Corpus | None, tell: Callable[[Progress], None]) -> None:
    def doing(what: str) -> None:
        tell(Progress(0, recipe.steps, math.nan, math.nan, math.nan, what))

    if given is None:
        doing("reading the standard library")
    corpus = given or standard_library()
    doing(f"making a tokenizer from {counted(len(corpus.files), 'file')}")
    tokenizer = train_bpe((text for _, text in corpus.split("training")), recipe.d_vocab)
    doing("encoding the text")
    ids = {part: encode_files(corpus.split(part), tokenizer) for part in SPLITS}
    _check_lengths(ids, recipe, tokenizer)
    about = {
        "recipe": recipe.to_dict(),
        "corpus": {
            "description": corpus.description,
            "licence": corpus.licence,
            "hash": corpus.hash,
            "files": len(corpus.files),
            "tokens": {part: len(ids[part]) for part in SPLITS},
        },
        "tokenizer": tokenizer.to_json(),
        "dtype": _dtype_name(torch.get_default_dtype()),
    }
    folder.start(about, ids)


def _check_lengths(ids: Mapping[str, np.ndarray], recipe: Recipe, tokenizer: Tokenizer) -> None:
    """Raise TextProblem now for what would fail at the first snapshot: a split too short for one window."""
    Windows(ids["training"], recipe.n_ctx, _bos(tokenizer), recipe.seed)
    for part in SPLITS[1:]:
        if len(ids[part]) < recipe.n_ctx:
            raise TextProblem(
                f"{part} text too short",
                expected=f"at least n_ctx={recipe.n_ctx} tokens",
                got=len(ids[part]),
                next_step="Give more text",
            )


def _finish(folder: RunFolder, weights: Weights, about: Mapping[str, Any], ids: Mapping[str, np.ndarray]) -> Weights:
    recipe = Recipe.from_dict(about["recipe"])
    tokenizer = Tokenizer.from_json(about["tokenizer"])
    described = _describe(weights, recipe, tokenizer, recipe.steps)
    card = {
        "tokens_seen": recipe.steps * recipe.batch * recipe.n_ctx,
        "losses": {part: round(held_out_loss(described, ids[part], windows=512), 4) for part in SPLITS},
        "torch": str(torch.__version__).split("+")[0],
        "rebuild": _command(recipe, about["corpus"]["description"]),
    }
    carried = folder.carried(_bos(tokenizer), **card)
    finished = described.replace(carried=carried)
    save(finished, folder.model_path)
    return finished


def _command(recipe: Recipe, corpus: str) -> str:
    """The command line that trains this model again."""
    usual = RECIPES.get(recipe.name, recipe)
    options = "" if "standard library" in corpus else " --text TEXT"
    options += f" --tokens {recipe.tokens}" if recipe.tokens != usual.tokens else ""
    options += f" --seed {recipe.seed}" if recipe.seed != usual.seed else ""
    return f"headway train {recipe.name}{options} -o RUN"


def _describe(weights: Weights, recipe: Recipe, tokenizer: Tokenizer, step: int) -> Weights:
    provenance = Provenance(source=f"trained {recipe.name}", options={"step": step}, seed=recipe.seed)
    return weights.replace(tokenizer=tokenizer, provenance=provenance).check_finite()


def _bos(tokenizer: Tokenizer) -> int:
    bos = tokenizer.bos
    if bos is None:
        raise TextProblem("the tokenizer has no <|bos|>", next_step="Train one with headway")
    return bos
