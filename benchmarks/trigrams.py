"""(g) Joint top-100 skip-trigrams of one head: of the packaged one-layer model, and of one with 50,257 tokens, d_head 64.

    .venv-bench/bin/python benchmarks/trigrams.py [--rounds N] [--vocabulary N]

There are vocabulary^3 triples (1.3e14). The search passes over the scores twice and over the OV circuit once, tile by
tile: 3 x 2 n^2 d_head operations and 2 n^2 exponentials; "bare passes" are those three tiled products and nothing else.
"""

from __future__ import annotations

import argparse
import subprocess
import sys

import torch
from timing import interleaved, peak_megabytes, show

from headway.algebra.stream import tiles
from headway.circuits.ov import ov_circuit
from headway.circuits.qk import qk_circuit
from headway.circuits.trigrams import skip_trigrams
from headway.model.config import ModelConfig
from headway.model.weights import AXES, REQUIRED, Weights
from headway.sources.open import load

TOP = 100
SECONDS = {"the packaged one-layer model, L0H3": 2.0, "vocabulary of a real model": 60.0}


def random_model(vocabulary: int) -> Weights:
    """One layer, two heads of 64 in d_model 768: scores of order one, as after training."""
    sizes = {"n_layers": 1, "n_heads": 2, "d_model": 768, "d_head": 64, "n_ctx": 1024, "bos": 0}
    config = ModelConfig(d_vocab=vocabulary, positions="none", **sizes)
    random = torch.Generator().manual_seed(0)
    shapes = {name: [getattr(config, axis) for axis in AXES[name]] for name in REQUIRED}
    return Weights(
        config=config,
        **{name: torch.randn(shape, generator=random) * shape[-1] ** -0.5 for name, shape in shapes.items()},
    )


def bare_passes(weights: Weights) -> None:
    """Scores twice, OV once."""
    for product in (qk_circuit(weights, "L0H0"), qk_circuit(weights, "L0H0"), ov_circuit(weights, "L0H0")):
        for _ in tiles(product):
            pass


def peak_of(vocabulary: int) -> float:
    """Megabytes that one search takes above the model, in a process of its own."""
    command = [sys.executable, __file__, "--peak", "--vocabulary", str(vocabulary)]
    return float(subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()[-1])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--vocabulary", type=int, default=50_257)
    parser.add_argument("--peak", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.peak:
        model = random_model(options.vocabulary)
        before = peak_megabytes()
        skip_trigrams(model, "L0H0", k=TOP)
        print(peak_megabytes() - before)
        return 0
    peak = peak_of(options.vocabulary)
    zoo, model = load("zoo:one-layer"), random_model(options.vocabulary)
    ours = dict(
        zip(
            SECONDS,
            (lambda: skip_trigrams(zoo, "L0H3", k=TOP), lambda: skip_trigrams(model, "L0H0", k=TOP)),
            strict=True,
        )
    )
    large = list(SECONDS)[1]
    medians = interleaved(ours | {"bare passes": lambda: bare_passes(model)}, rounds=options.rounds, warmup=1)
    show(f"top {TOP} of a head's skip-trigrams, {options.vocabulary:,} tokens", medians, large, {})
    held = True
    for name, most in SECONDS.items():
        good = medians[name] <= most
        held &= good
        print(f"  {name}: {medians[name]:.2f} s (bound {most:g} s): {'holds' if good else 'FAILS'}")
    print(f"  {medians[large] / medians['bare passes']:.2f} of the bare passes; {peak:.0f} MB above the model")
    return 0 if held else 1


if __name__ == "__main__":
    sys.exit(main())
