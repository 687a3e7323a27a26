"""`headway train RECIPE`."""

from __future__ import annotations

import json
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from headway.apps.cli.options import Compute, Output, Texts, Training
from headway.apps.cli.output import remark
from headway.errors import UsageError, counted

if TYPE_CHECKING:
    from headway.model.weights import Weights
    from headway.sources.trained.loop import Progress
    from headway.sources.trained.recipes import Recipe


def train(
    recipe: str,
    /,
    *,
    text: Texts = None,
    tokens: int | None = None,
    resume: Annotated[bool, Parameter(negative="")] = False,
    compute: Training = Training(),
    output: Output = Output(),
) -> None:
    """Train a small model from text: zero-layer, one-layer or two-layer. Ctrl-C saves; --resume goes on bit for bit.

    Parameters
    ----------
    recipe
        zero-layer, one-layer or two-layer.
    text
        Files or folders to train on; the running Python's standard library source when left out.
    tokens
        How many training tokens to see, instead of the recipe's number.
    resume
        Go on with the run in -o.
    """
    from headway.sources.trained.stopping import resume_command, told_how_to_go_on

    if resume and (text is not None or tokens is not None or compute.seed):
        raise UsageError("a resumed run keeps its own text, tokens and seed", next_step="Leave those options out")
    if tokens is not None and not 1 <= tokens < 2**63:
        raise UsageError("--tokens", expected="a whole number from 1 to 2^63 - 1", got=tokens)
    out = output.o or Path("runs") / recipe
    dtype = compute.dtype or "float32"
    with told_how_to_go_on(out, lambda: resume_command(recipe, out, dtype=dtype, device=compute.device)):
        weights = _trained(_changed(recipe, compute, tokens), out, text, resume, (compute, output))
    card = weights.carried.card if weights.carried else {}
    if output.json:
        meta = weights.provenance.to_dict()
        row = {"run": str(out), "model": str(out / "model.safetensors"), **card["losses"]}
        print(json.dumps({"schema": "headway/train@1", "meta": {**meta, "card": dict(card)}, "rows": [row]}))
    else:
        losses = ", ".join(f"{part} {loss:.3f}" for part, loss in card["losses"].items())
        print(f"{out / 'model.safetensors'}: {counted(card['tokens_seen'], 'token')}; loss in nats: {losses}")
    remark(f"Study it with: headway report {out}", output)


def _changed(name: str, compute: Compute, tokens: int | None) -> Recipe:
    from headway.sources.trained.recipes import recipe

    return recipe(name, seed=compute.seed, **({} if tokens is None else {"tokens": tokens}))


def _trained(
    recipe: Recipe, out: Path, text: list[Path] | None, resume: bool, options: tuple[Compute, Output]
) -> Weights:
    """The trained model; the folder is checked before anything is read, the device before the text is."""
    from headway.sources.trained.corpus import read_corpus
    from headway.sources.trained.training import train as run

    compute, output = options
    _check_folder(out, recipe.name, resume)
    bar = _Bar(output)
    try:
        with compute.as_default():
            if text is not None:
                remark(f"reading {', '.join(map(str, text))} ...", output)
            corpus = None if text is None else read_corpus(text)
            return run(recipe, out, corpus=corpus, resume=resume, on_progress=bar)
    finally:
        bar.close()


def _check_folder(out: Path, recipe: str, resume: bool) -> None:
    """Raise unless `out` is free and can be written, or to resume, holds a run of this recipe."""
    from headway.sources.trained.run_folder import RunFolder

    folder = RunFolder(out)
    if not resume:
        folder.require_empty()
    elif not folder.exists:
        raise UsageError("no run to go on with", where=str(out), next_step="Leave --resume out to begin one")
    elif (other := folder.about()["recipe"]["name"]) != recipe:
        raise UsageError("the run is of another recipe", where=str(out), expected=recipe, got=other)
    folder.check_place()


class _Bar:
    """Steps, loss, speed and time left on one line of stderr; a line a minute when stderr is no terminal."""

    def __init__(self, output: Output) -> None:
        self._output, self._quiet, self._last = output, output.quiet, 0.0
        self._terminal = sys.stderr.isatty()

    def __call__(self, at: Progress) -> None:
        import time

        now = time.monotonic()
        if self._quiet:
            return
        if at.doing != "training":
            remark(f"{at.doing} ...", self._output)
            return
        if now - self._last < (0.2 if self._terminal else 60) and at.step < at.steps:
            return
        self._last = now
        left = f"{at.seconds_left / 60:.0f} min" if at.seconds_left > 90 else f"{at.seconds_left:.0f} s"
        line = (
            f"step {at.step:,} of {at.steps:,}  loss {at.loss:.3f} nats  "
            f"{at.tokens_per_second:,.0f} tokens/s  {left} left"
        )
        self._say(*((f"\r\x1b[K{line}", "") if self._terminal else (line, "\n")))

    def close(self) -> None:
        if self._terminal and self._last and not self._quiet:
            self._say("", "\n")

    def _say(self, text: str, end: str) -> None:
        with suppress(OSError):  # a terminal that went away stops no training
            print(text, end=end, file=sys.stderr, flush=True)
