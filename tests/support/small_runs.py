"""A training run small enough for tests: a made-up text, a tokenizer of 280 tokens, twelve steps."""

from __future__ import annotations

from typing import Any

import numpy as np

from headway.sources.trained.corpus import Corpus
from headway.sources.trained.recipes import Recipe, recipe

STEPS = 12
WORDS = [
    "the",
    "cat",
    "dog",
    "sat",
    "on",
    "a",
    "mat",
    "and",
    "then",
    "ran",
    "to",
    "its",
    "bowl",
    "under",
    "some",
    "tree",
    "while",
    "birds",
    "sang",
    "loudly",
]


def small_text(seed: int, words: int = 400) -> str:
    """Sentences of random words, repetitive enough for byte pairs to merge."""
    draw = np.random.default_rng(seed)
    chosen = zip(draw.choice(WORDS, words), draw.choice(["", "", ",", ".\n"], words), strict=True)
    return " ".join(f"{word}{mark}" for word, mark in chosen)


def small_corpus(files: int = 6) -> Corpus:
    """Six files, so that splits are the last two and the rest."""
    return Corpus(tuple((f"{i}.txt", small_text(i)) for i in range(files)), "made up", "none")


def small_recipe(name: str = "two-layer", **changes: Any) -> Recipe:
    """A recipe of STEPS steps with three snapshots."""
    sizes: dict[str, Any] = {"n_heads": 2, "d_model": 16, "d_head": 8, "d_vocab": 280, "n_ctx": 16, "batch": 2}
    return recipe(name, **{**sizes, "tokens": STEPS * 2 * 16, "snapshots": 3, **changes})
