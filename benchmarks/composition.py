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
from timing import interleaved, peak_megabytes, show

from headway.circuits import composition_scores
from headway.model.weights import Weights

LAYERS, HEADS, D_MODEL, D_HEAD, D_VOCAB = 12, 12, 768, 64, 1000
VIAS = ("Q", "K", "V")
MOST_MEGABYTES = 1000


def weights() -> Weights:
    """Seeded random weights in our convention."""
    random = torch.Generator().manual_seed(0)

    def matrix(*shape: int) -> torch.Tensor:
        return 0.02 * torch.randn(*shape, generator=random)

    read = {name: matrix(LAYERS, HEADS, D_HEAD, D_MODEL) for name in ("W_Q", "W_K", "W_V")}
    W_O, W_E, W_U = matrix(LAYERS, HEADS, D_MODEL, D_HEAD), matrix(D_MODEL, D_VOCAB), matrix(D_VOCAB, D_MODEL)
    return Weights.from_tensors({**read, "W_O": W_O, "W_E": W_E, "W_U": W_U}, n_ctx=128)


def lens_model(ours: Weights):
    """The peer's native model with the same heads."""
    from transformer_lens.config import TransformerBridgeConfig
    from transformer_lens.model_bridge import TransformerBridge

    config = TransformerBridgeConfig(
        n_layers=LAYERS,
        n_heads=HEADS,
        d_model=D_MODEL,
        d_head=D_HEAD,
        d_vocab=D_VOCAB,
        n_ctx=128,
        attn_only=True,
        normalization_type=None,
        device="cpu",
        seed=0,
    )
    model = TransformerBridge.boot_native(config)
    with torch.no_grad():
        for layer, block in enumerate(model.blocks):
            attention = block.attn.original_component
            for name, projection in (("W_Q", "q"), ("W_K", "k"), ("W_V", "v")):
                getattr(attention, projection).weight.copy_(getattr(ours, name)[layer].flatten(0, 1))
            attention.o.weight.copy_(ours.W_O[layer].transpose(0, 1).flatten(1))
    return model


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
    ours = weights()
    if options.peak:
        if options.peak == "headway":
            composition_scores(ours)
        else:
            lens_scores(lens_model(ours))
        print(peak_megabytes())
        return 0
    peaks = {who: peak_of(who) for who in ("headway", "transformer-lens")}
    model = lens_model(ours)
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
