"""(b) `run()` and `logits()` on a 12-layer 12-head attention-only model, against transformer-lens on the same weights.

    .venv-bench/bin/python benchmarks/forward.py

d_model 768, d_head 64, batch 2 of 512 tokens, LayerNorm, learned positions. Both record streams, norm scales, patterns and
logits; ours also the scores. The vocabulary is small (1,000) so that the unembedding does not hide the layers. Each of the
two comparisons has a process of its own.
"""

from __future__ import annotations

import subprocess
import sys

import torch
from peer import as_weights, native
from timing import interleaved, show

from headway.model.config import ModelConfig
from headway.model.forward import logits, run

CONFIG = ModelConfig(
    n_layers=12, n_heads=12, d_model=768, d_head=64, d_vocab=1000, n_ctx=512, norm="layer", positions="learned"
)


def recorded(name: str) -> bool:
    # hook_attn_scores is left out: in native models it is the pattern once more. We record true scores on top.
    return name.endswith(("hook_pattern", "hook_resid_pre", "hook_resid_post", "hook_scale"))


def measured(part: str) -> int:
    """One comparison: `recorded` or `logits`."""
    torch.manual_seed(0)
    model = native(CONFIG).eval()
    for parameter in model.original_model.parameters():
        torch.nn.init.normal_(parameter, std=0.02)
    ours = as_weights(model, CONFIG)
    tokens = torch.randint(0, 1000, (2, 512), generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        theirs = model(tokens)
    difference = (logits(ours, tokens) - theirs).abs().max().item()
    if difference > 1e-3 * theirs.abs().max().item():
        raise SystemExit(f"the two models disagree by {difference}")
    print(f"largest difference of logits: {difference:.1e}")

    def lens_run() -> None:
        with torch.no_grad():
            model.run_with_cache(tokens, names_filter=recorded)

    def lens_forward() -> None:
        with torch.no_grad():
            model(tokens)

    def our_logits() -> None:
        with torch.no_grad():
            logits(ours, tokens)

    if part == "recorded":
        turns = {"headway run": lambda: run(ours, tokens), "transformer-lens run_with_cache": lens_run}
        bounds = {"transformer-lens run_with_cache": 1.2}
        return 0 if show("recorded run", interleaved(turns, rounds=31), "headway run", bounds) else 1
    turns = {"headway logits": our_logits, "transformer-lens forward": lens_forward}
    bounds = {"transformer-lens forward": 2.0}
    return 0 if show("logits", interleaved(turns, rounds=31), "headway logits", bounds) else 1


def main() -> int:
    if len(sys.argv) > 1:
        return measured(sys.argv[1])
    # A process each: how fast memory is got back depends on what was freed before.
    return max(subprocess.call([sys.executable, __file__, part]) for part in ("recorded", "logits"))


if __name__ == "__main__":
    sys.exit(main())
