"""(c) All composition scores of a 12-layer 12-head model, against transformer-lens' three `all_composition_scores`.

    .venv-bench/bin/python benchmarks/composition.py [--rounds N]

d_model 768, d_head 64, random weights, float32, no norm: both score the same matrices, and must agree before anything
is timed. Ours has the reversed scores, nulls and percentiles in its time too. "Bare products" are those of the plain
factored route: one [768, 768] x [768, 768] for each via and each pair of layers that may compose, no norm taken, no
reversed pair. "Tile products" are the fewer that ours makes instead (see headway.circuits.absorbed), for orientation.
Peaks are those of whole processes that make the model and score it once. The peer needs about 9 GB.
"""

from __future__ import annotations

import argparse
import subprocess
import sys

import torch
from peer import as_weights, native
from timing import interleaved, peak_megabytes, show

from headway.circuits import composition_scores
from headway.model.config import ModelConfig
from headway.model.weights import AXES, REQUIRED, Weights

LAYERS, HEADS, D_MODEL, D_HEAD = 12, 12, 768, 64
CONFIG = ModelConfig(
    n_layers=LAYERS, n_heads=HEADS, d_model=D_MODEL, d_head=D_HEAD, d_vocab=1000, n_ctx=128, positions="learned"
)
VIAS = ("Q", "K", "V")
MOST_MEGABYTES = 1000


def random_weights() -> Weights:
    """The same shapes as the peer's model, made without it."""
    tensors = {n: 0.02 * torch.randn([getattr(CONFIG, axis) for axis in AXES[n]]) for n in (*REQUIRED, "W_pos")}
    return Weights(config=CONFIG, **tensors)


def lens_scores(model: object) -> dict[str, torch.Tensor]:
    """[writer layer, writer head, reader layer, reader head] for each via."""
    with torch.no_grad():
        return {via: model.all_composition_scores(via).scores for via in VIAS}


def check_agreement(ours: Weights, model: object) -> float:
    """The largest difference of any score; also that the peer has no other pairs."""
    theirs = lens_scores(model)
    worst = 0.0
    for row in composition_scores(ours).rows():
        (w_layer, w_head), (r_layer, r_head) = (
            map(int, row[end].removeprefix("L").split("H")) for end in ("writer", "reader")
        )
        worst = max(worst, abs(row["score"] - float(theirs[row["via"]][w_layer, w_head, r_layer, r_head])))
    return worst


def bare_products(rows: torch.Tensor, columns: torch.Tensor) -> None:
    """[layer, head x d_head, d_model] times [layer, d_model, head x d_head], readers with every earlier layer."""
    for _ in VIAS:
        for reader in range(LAYERS):
            for writer in range(reader):
                rows[reader] @ columns[writer]


def tile_products(matrices: torch.Tensor, tile: int = 128) -> None:
    """Tiles of Gram matrices of four sides, and all pairs of heads from each: [head, d_head, d_model]."""
    starts = range(0, D_MODEL, tile)
    for i in starts:
        for j in (start for start in starts if start >= i):
            flat = [(matrices[..., i : i + tile].mT @ matrices[..., j : j + tile]).flatten(1) for _ in range(4)]
            for reader in flat[1:]:
                reader @ flat[0].mT


def peak_of(who: str) -> float:
    """Peak resident megabytes of a process of its own that scores once."""
    done = subprocess.run([sys.executable, __file__, "--peak", who], check=True, capture_output=True, text=True)
    return float(done.stdout.split()[-1])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--peak", choices=["headway", "transformer-lens"], help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.peak:
        if options.peak == "headway":
            composition_scores(random_weights())
        else:
            lens_scores(native(CONFIG))
        print(peak_megabytes())
        return 0
    peaks = {who: peak_of(who) for who in ("headway", "transformer-lens")}
    model = native(CONFIG)
    ours = as_weights(model, CONFIG)
    difference = check_agreement(ours, model)
    if difference > 1e-5:
        raise SystemExit(f"the two disagree by {difference}")
    print(f"{torch.get_num_threads()} threads; largest difference of scores: {difference:.1e}")
    rows = torch.ones(LAYERS, HEADS * D_HEAD, D_MODEL)
    columns = rows.mT.contiguous()
    heads = torch.ones(LAYERS * HEADS, D_HEAD, D_MODEL)
    turns = {
        "headway, all three": lambda: composition_scores(ours),
        "bare products": lambda: bare_products(rows, columns),
        "tile products": lambda: tile_products(heads),
        "transformer-lens, all three": lambda: lens_scores(model),
    }
    held = show(
        "composition scores",
        interleaved(turns, rounds=options.rounds, warmup=0),  # the agreement check has warmed both up
        "headway, all three",
        {"transformer-lens, all three": 20.0, "bare products": 0.5},
    )
    for who, megabytes in peaks.items():
        print(f"  peak of {who:26} {megabytes:10.0f} MB")
    if peaks["headway"] > MOST_MEGABYTES:
        print(f"  bound {MOST_MEGABYTES} MB: FAILS")
        held = False
    return 0 if held else 1


if __name__ == "__main__":
    sys.exit(main())
