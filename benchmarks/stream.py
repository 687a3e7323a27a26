"""(f) The 100 largest of 50,257 x 50,257 entries of an OV circuit, d_head 64, against a bare pass and against holding it.

    .venv-bench/bin/python benchmarks/stream.py [--rounds N] [--vocabulary N]

Random factors, float32. "Bare tiled product": the same matrix product, tile by tile of 1024 x 4096, into one buffer, and
nothing else: 2 n^2 d_head operations. "Materialise, topk": the whole matrix (10 GB), topk of its rows, then of those (one
topk over all entries takes 40 GB more). Lognormal: rows and columns times exp(0.5 x a Gaussian), as different as tokens'
norms are. Peaks are above the factors, of a process each.
"""

from __future__ import annotations

import argparse
import subprocess
import sys

import torch
from timing import interleaved, peak_megabytes, show

from headway.algebra.largest import top_entries
from headway.algebra.low_rank import LowRank
from headway.algebra.stream import tiles

RANK, TOP = 64, 100
MOST = {"Gaussian factors": 1.1, "lognormal norms": 0.15}
MEGABYTES = 300


def factors(n: int, kind: str) -> LowRank:
    """[n, 64] x [64, n], with norms nearly alike or lognormal."""
    left, right = torch.randn(n, RANK), torch.randn(RANK, n)
    if kind == "lognormal norms":
        left, right = left * (0.5 * torch.randn(n, 1)).exp(), right * (0.5 * torch.randn(1, n)).exp()
    return LowRank(left, right)


def bare(product: LowRank) -> None:
    """Every tile, multiplied and forgotten."""
    for _ in tiles(product):
        pass


def materialised(product: LowRank) -> torch.Tensor:
    """The peer: the whole matrix, topk of each row, and of those."""
    return product.dense(max_elements=2**62).topk(TOP).values.flatten().topk(TOP).values


def peak_of(n: int, kind: str) -> float:
    """Megabytes that the search takes above what was there with the factors made and torch warm."""
    command = [sys.executable, __file__, "--peak", kind, "--vocabulary", str(n)]
    return float(subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()[-1])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--vocabulary", type=int, default=50_257)
    parser.add_argument("--peak", choices=list(MOST), help=argparse.SUPPRESS)
    options = parser.parse_args()
    torch.manual_seed(0)
    if options.peak:
        product = factors(options.vocabulary, options.peak)
        top_entries(factors(2048, options.peak), TOP)
        before = peak_megabytes()
        top_entries(product, TOP)
        print(peak_megabytes() - before)
        return 0
    # First, for a process is told the peak of the one that started it as its own.
    peaks = {kind: peak_of(options.vocabulary, kind) for kind in MOST}
    products = {kind: factors(options.vocabulary, kind) for kind in MOST}
    whole = materialised(products["Gaussian factors"]).double()
    found = top_entries(products["Gaussian factors"], TOP).values
    worst = float((found - whole).abs().max())
    held = worst <= 1e-3
    print(f"largest difference from the materialised values: {worst:.1e} (its own float32 rounding)")
    contestants = {kind: lambda p=product: top_entries(p, TOP) for kind, product in products.items()}
    contestants |= {
        "bare tiled product": lambda: bare(products["Gaussian factors"]),
        "materialise, topk": lambda: materialised(products["Gaussian factors"]),
    }
    medians = interleaved(contestants, rounds=options.rounds, warmup=1)
    show(f"top {TOP} of {options.vocabulary:,}^2 entries, rank {RANK}", medians, "Gaussian factors", {})
    for kind, most in MOST.items():
        ratio, peak = medians[kind] / medians["bare tiled product"], peaks[kind]
        good = ratio <= most and peak <= MEGABYTES
        held &= good
        print(
            f"  {kind}: {ratio:.3f} of the bare product (bound {most}), {peak:.0f} MB above the factors "
            f"(bound {MEGABYTES}): {'holds' if good else 'FAILS'}"
        )
    return 0 if held else 1


if __name__ == "__main__":
    sys.exit(main())
