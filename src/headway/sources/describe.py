"""What `inspect` says of a model: its sizes and choices, what it carries, and which analyses apply and why."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from headway.errors import counted
from headway.model.config import ModelConfig
from headway.model.header import Header
from headway.tables.table import Column, Table
from headway.version import VERSION

COLUMNS = {
    "section": Column("model, file, card, or analyses"),
    "name": Column("the property or the analysis"),
    "value": Column("its value; for an analysis whether it applies"),
    "note": Column("unit and meaning; for an analysis the reason"),
}
_BIASES = ("b_Q", "b_K", "b_V", "b_O", "b_U")
_CARRIED = "carried."


def description(header: Header, path: Path) -> Table:
    """The table behind `headway inspect`, from a header alone."""
    rows = [
        *_rows("model", _model(header)),
        *_rows("file", _file(header, path)),
        *_rows("card", _card(header.card)),
        *_rows("analyses", _analyses(header)),
    ]
    meta = {
        "config": header.config.to_dict(),
        "card": dict(header.card),
        "parameters": _parameters(header),
        "dtype": _dtype(header),
        "tied": header.tied,
        "analyses": {row["name"]: row["value"] == "yes" for row in rows if row["section"] == "analyses"},
    }
    return Table.from_rows(rows, COLUMNS, replace(header.provenance, version=VERSION), meta)


def _rows(section: str, entries: Mapping[str, tuple[object, str]]) -> list[dict[str, str]]:
    return [{"section": section, "name": name, "value": str(v), "note": note} for name, (v, note) in entries.items()]


def _model(header: Header) -> dict[str, tuple[object, str]]:
    c = header.config
    natural = math.isclose(c.attn_scale, 1 / math.sqrt(c.d_head))
    biases = [name for name in _BIASES if name in header.tensors]
    affine = [name for name in ("norm_gain", "norm_bias", "final_gain", "final_bias") if name in header.tensors]
    return {
        "layers": (c.n_layers, "attention-only"),
        "heads": (c.n_heads, "query heads a layer"),
        "key/value heads": (c.n_kv_heads, "shared by groups of query heads" if c.group > 1 else "one a query head"),
        "d_model": (c.d_model, "width of the residual stream"),
        "d_head": (c.d_head, "width of a head: the largest rank of its circuits"),
        "d_vocab": (c.d_vocab, "tokens"),
        "n_ctx": (c.n_ctx, "tokens it was made for" if c.positions != "learned" else "tokens, and never more"),
        "norm": (c.norm, _norm_note(c, affine)),
        "positions": (c.positions, _position_note(c)),
        "attn_scale": (f"{c.attn_scale:.6g}", "1 / sqrt(d_head)" if natural else "times q . k, not 1 / sqrt(d_head)"),
        "biases": (", ".join(biases) or "none", "" if biases else "every bias is zero"),
        "tied": (_yes(header.tied), "W_U is W_E transposed" if header.tied else "W_E and W_U are separate"),
        "BOS": ("none" if c.bos is None else c.bos, "" if c.bos is None else "id that starts every text"),
        "parameters": (f"{_parameters(header):,}", "numbers, tied ones once, what it carries left out"),
    }


def _norm_note(c: ModelConfig, affine: list[str]) -> str:
    if c.norm == "none":
        return "heads read the stream itself"
    kind = "LayerNorm" if c.norm == "layer" else "RMSNorm"
    return f"{kind} on every read, eps {c.norm_eps:g}; " + (", ".join(affine) or "no gains or biases (or folded)")


def _position_note(c: ModelConfig) -> str:
    return {
        "none": "order enters through the causal mask alone",
        "shortformer": f"sinusoids of amplitude {c.position_amplitude:g} where W_Q and W_K read, never in the stream",
        "learned": "a table added to the stream",
        "rotary": f"{c.rotary_dims} of {c.d_head} dims turned ({c.rotary_pairs}), base {c.position_base:g}",
    }[c.positions]


def _file(header: Header, path: Path) -> dict[str, tuple[object, str]]:
    provenance = header.provenance
    carried = [name.removeprefix(_CARRIED) for name in header.tensors if name.startswith(_CARRIED)]
    sizes = {name: (header.tensors[_CARRIED + name][1] or (0,))[-1] for name in carried}
    texts = ", ".join(counted(sizes[n], f"{n} id") for n in ("validation", "heldout") if n in sizes)
    counts = counted(sizes["bigrams"], "pair") if "bigrams" in sizes else "none"
    return {
        "name": (path.name, "the file behind the reference"),
        "dtype": (_dtype(header), "precision of the weights"),
        "size": (f"{path.stat().st_size / 1e6:.2f}", "MB"),
        "processing": (provenance.processing, "what was done to the weights before they were saved"),
        "source": (provenance.source or "not said", "where they came from"),
        "seed": ("not said" if provenance.seed is None else provenance.seed, "of its initial weights and data order"),
        "weights hash": (provenance.weights, "of config and tensors"),
        "tokenizer": (_yes(header.tokenizer is not None), "text can be read" if header.tokenizer else "ids only"),
        "carried texts": (texts or "none", "token ids the model never saw in training" if texts else ""),
        "bigram counts": (counts, "of its training text" if carried else ""),
    }


def _card(card: Mapping[str, Any]) -> dict[str, tuple[object, str]]:
    """The card, one entry a row; nested entries by dotted name, lists and other values as JSON."""
    rows: dict[str, tuple[object, str]] = {}
    for name, value in card.items():
        entries = value.items() if isinstance(value, Mapping) else [("", value)]
        for inner, entry in entries:
            text = entry if isinstance(entry, str) else json.dumps(entry, ensure_ascii=False)
            rows[f"{name}.{inner}" if inner else name] = (text, "nats a token" if name == "losses" else "")
    return rows


def _analyses(header: Header) -> dict[str, tuple[object, str]]:
    c = header.config
    heads = c.n_layers * c.n_heads
    no_heads = "it has no heads"
    readable = header.tokenizer is not None or _CARRIED + "heldout" in header.tensors
    no_text = "there is no tokenizer and no carried text: pass token ids from Python"
    text = (
        "the held-out text it carries, or --text" if _CARRIED + "heldout" in header.tensors else "--text, or a sample"
    )
    rotary = c.positions == "rotary"
    rows = {
        "direct path": (
            _CARRIED + "bigrams" in header.tensors,
            "against the bigram counts it carries",
            "needs bigram counts of the training text, which the file does not carry",
        ),
        "copying": (heads > 0, "eigenvalues of W_U W_OV W_E, a head each", no_heads),
        "OV circuit in tokens": (heads > 0, "exact up to the norm" if c.norm != "none" else "exact", no_heads),
        "QK circuit in tokens": (heads > 0, _qk_note(c), no_heads),
        "QK circuit without offset": (
            heads > 0 and not rotary,
            "W_QK does not depend on the offset",
            "rotary positions turn W_QK with the offset: give one" if heads else no_heads,
        ),
        "patterns on text": (heads > 0 and readable, text, no_text if heads else no_heads),
        "prefix matching": _prefix_matching(c, heads, no_heads),
        "composition": (
            heads > 0 and c.n_layers > 1,
            "Q, K and V, every earlier head into every later one" + (", at a stated offset" if rotary else ""),
            no_heads if not heads else "needs two layers: heads of one layer do not see each other",
        ),
        "induction circuits": (heads > 0 and c.n_layers > 1, _induction_note(c), no_heads if not heads else _ONE_LAYER),
        "loss by path order": (readable, text, no_text),
        "loss along the context": (readable, text, no_text),
    }
    return {name: (_yes(applies), why if applies else why_not) for name, (applies, why, why_not) in rows.items()}


_ONE_LAYER = "needs two layers: a head that matches, and one before it that writes what to match"


def _prefix_matching(c: ModelConfig, heads: int, no_heads: str) -> tuple[bool, str, str]:
    """25 random tokens four times: enough different tokens, and room for them."""
    tokens, long_enough = (
        c.d_vocab - (c.bos is not None),
        c.positions != "learned" or c.n_ctx >= 100 + (c.bos is not None),
    )
    why_not = no_heads
    if heads and tokens < 25:
        why_not = f"draws 25 different tokens and there are {tokens}; give fewer"
    elif heads:
        why_not = f"25 tokens four times do not fit n_ctx={c.n_ctx}; give fewer"
    ceiling = "" if c.bos is not None else "; without BOS even an exact induction head stays below 1"
    return heads > 0 and tokens >= 25 and long_enough, "25 random tokens, four times" + ceiling, why_not


def _qk_note(c: ModelConfig) -> str:
    return {
        "none": "exact up to the norm" if c.norm != "none" else "exact",
        "shortformer": "its content part: sinusoids join the stream before W_Q and W_K",
        "learned": "its content part: positions are in the stream too",
        "rotary": "at one offset at a time",
    }[c.positions]


def _induction_note(c: ModelConfig) -> str:
    pointer = "" if c.positions == "learned" else "; by K-composition only, since positions are not in the stream"
    return "pairs of writer and reader, by composition and by what they attend to" + pointer


def _parameters(header: Header) -> int:
    return sum(math.prod(shape) for name, (_, shape) in header.tensors.items() if not name.startswith(_CARRIED))


def _dtype(header: Header) -> str:
    names = {"F64": "float64", "F32": "float32", "F16": "float16", "BF16": "bfloat16"}
    found = {names.get(dtype, dtype) for name, (dtype, _) in header.tensors.items() if not name.startswith(_CARRIED)}
    return " and ".join(sorted(found)) or "no tensors"


def _yes(value: bool) -> str:
    return "yes" if value else "no"
