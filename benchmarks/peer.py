"""The peer: a transformer-lens native attention-only model, and the same model as our `Weights`."""

from __future__ import annotations

import torch

from headway.model.config import ModelConfig
from headway.model.weights import Weights


def native(config: ModelConfig):
    """A transformer-lens 4.3 native model of these sizes; it knows learned positions and has biases on q, k, v, o."""
    from transformer_lens.config import TransformerBridgeConfig
    from transformer_lens.model_bridge import TransformerBridge

    sizes = {n: getattr(config, n) for n in ("n_layers", "n_heads", "d_model", "d_head", "d_vocab", "n_ctx")}
    kind = {"none": None, "layer": "LN"}[config.norm]
    return TransformerBridge.boot_native(
        TransformerBridgeConfig(**sizes, attn_only=True, normalization_type=kind, device="cpu", seed=0)
    )


def as_weights(model, config: ModelConfig) -> Weights:
    """The native model's tensors in our convention. Its wrappers put `_original_component` into the names."""
    named = {k.replace("_original_component.", ""): t for k, t in model.original_model.state_dict().items()}
    heads = (config.n_layers, config.n_heads, config.d_head)

    def stack(name: str) -> torch.Tensor:
        return torch.stack([named[f"layers.{layer}.{name}"] for layer in range(config.n_layers)])

    tensors = {f"W_{n.upper()}": stack(f"attn.{n}.weight").view(*heads, config.d_model) for n in "qkv"}
    tensors |= {f"b_{n.upper()}": stack(f"attn.{n}.bias").view(heads) for n in "qkv"}
    tensors["W_O"] = stack("attn.o.weight").unflatten(2, (config.n_heads, config.d_head)).transpose(1, 2)
    tensors["b_O"] = stack("attn.o.bias")
    tensors |= {"W_E": named["tok_embed.weight"].T, "W_pos": named["pos.weight"].T}
    tensors |= {"W_U": named["head.weight"], "b_U": named.get("head.bias")}
    if config.norm == "layer":
        tensors |= {"norm_gain": stack("ln1.weight"), "norm_bias": stack("ln1.bias")}
        tensors |= {"final_gain": named["ln_out.weight"], "final_bias": named["ln_out.bias"]}
    return Weights(config=config, **{name: t.detach() for name, t in tensors.items() if t is not None})
