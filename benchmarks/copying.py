"""(e) Copying ratios of a 12-layer 12-head model, against transformer-lens' eigenvalues of W_E W_V W_O W_U.

    .venv-bench/bin/python benchmarks/copying.py [--rounds N] [--vocabulary N] [--draws N]

d_model 768, d_head 64, random weights, float32, no norm: both take eigenvalues of the same matrices, and must give the
same ratios before anything is timed. The peer's route is its own: `W_E @ FactoredMatrix(W_V, W_O) @ W_U`, `.eigenvalues`.
Ours gives each ratio twice, with W_U as it is and centred over the vocabulary, in float64. The null, which the peer does
not have, is timed apart, once, for a few draws: every draw costs the same. Peaks are those of whole processes that make
the model and score it once. At 50,257 tokens the peer needs about 5 GB.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time

import torch
from peer import as_weights, native
from timing import interleaved, peak_megabytes, show

from headway.circuits import copying_eigenvalues, copying_scores
from headway.model.config import ModelConfig
from headway.model.weights import AXES, REQUIRED, Weights

BOUND = 3.0
CLOSE = 1e-4


def config(vocabulary: int) -> ModelConfig:
    """The sizes of both models."""
    sizes = {"n_layers": 12, "n_heads": 12, "d_model": 768, "d_head": 64, "n_ctx": 128, "positions": "learned"}
    return ModelConfig(d_vocab=vocabulary, **sizes)


def random_weights(c: ModelConfig) -> Weights:
    """The same shapes as the peer's model, made without it."""
    tensors = {n: 0.02 * torch.randn([getattr(c, axis) for axis in AXES[n]]) for n in (*REQUIRED, "W_pos")}
    return Weights(config=c, **tensors)


@torch.no_grad()
def lens_ratios(model: object) -> torch.Tensor:
    """[layer, head] ratios by the peer's factored matrices."""
    from transformer_lens import FactoredMatrix

    found = (model.W_E @ FactoredMatrix(model.W_V, model.W_O) @ model.W_U).eigenvalues
    return found.sum(-1).real / found.abs().sum(-1)


def largest_difference(ours: Weights, model: object) -> float:
    """Of any ratio of the two tools."""
    rows = copying_scores(ours, draws=0, processing="raw").rows()
    return float((torch.tensor([row["copying"] for row in rows]) - lens_ratios(model).flatten()).abs().max())


def peak_of(who: str, vocabulary: int) -> float:
    """Peak resident megabytes of a process of its own that scores once."""
    command = [sys.executable, __file__, "--peak", who, "--vocabulary", str(vocabulary)]
    return float(subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()[-1])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--vocabulary", type=int, default=50_257)
    parser.add_argument("--draws", type=int, default=4)
    parser.add_argument("--peak", choices=["headway", "transformer-lens"], help=argparse.SUPPRESS)
    options = parser.parse_args()
    c = config(options.vocabulary)
    if options.peak:
        if options.peak == "headway":
            copying_scores(random_weights(c), draws=0, processing="raw")
        else:
            lens_ratios(native(c))
        print(peak_megabytes())
        return 0
    peaks = {who: peak_of(who, options.vocabulary) for who in ("headway", "transformer-lens")}
    model = native(c)
    ours = as_weights(model, c)
    difference = largest_difference(ours, model)
    if difference > CLOSE:
        raise SystemExit(f"the two disagree by {difference}")
    print(f"{torch.get_num_threads()} threads, {options.vocabulary} tokens; largest difference: {difference:.1e}")
    turns = {
        "headway, ratios": lambda: copying_scores(ours, draws=0, processing="raw"),
        "headway, all eigenvalues": lambda: copying_eigenvalues(ours, processing="raw"),
        "transformer-lens, ratios": lambda: lens_ratios(model),
    }
    medians = interleaved(turns, rounds=options.rounds, warmup=0)  # the agreement check has warmed both up
    held = show("copying", medians, "headway, ratios", {"transformer-lens, ratios": BOUND})
    start = time.perf_counter()
    copying_scores(ours, draws=options.draws, processing="raw")
    spent = (time.perf_counter() - start - medians["headway, ratios"]) / options.draws
    print(f"  each draw of the null, both ratios {spent * 1e3:10.2f} ms   (200 draws: {200 * spent:.0f} s)")
    for who, megabytes in peaks.items():
        print(f"  peak of {who:26} {megabytes:10.0f} MB")
    return 0 if held else 1


if __name__ == "__main__":
    sys.exit(main())
