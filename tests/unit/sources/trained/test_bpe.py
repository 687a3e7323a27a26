from __future__ import annotations

import pytest

from headway.errors import ConfigProblem, TextProblem
from headway.sources.trained.bpe import train_bpe
from support.small_runs import small_text

TOKENIZER = train_bpe([small_text(1), small_text(2)], 280)


def test_bos_bytes_and_merges():
    assert TOKENIZER.d_vocab == 280 and TOKENIZER.bos == 0 and TOKENIZER.decode([0]) == "<|bos|>"
    singles = {TOKENIZER.token_bytes(i) for i in range(1, 257)}
    assert singles == {bytes([b]) for b in range(256)}
    assert all(len(TOKENIZER.token_bytes(i)) > 1 for i in range(257, 280))


@pytest.mark.parametrize("text", ["the cat", "", "\n\t  x", "naïve ☃ 𝄞", "<|bos|>", "\x00\x7f"])
def test_every_text_has_an_encoding(text: str):
    ids = TOKENIZER.encode(text)
    assert TOKENIZER.decode(ids) == text and 0 not in ids


def test_frequent_pairs_are_merged():
    assert len(TOKENIZER.encode("the cat sat")) < len("the cat sat") / 1.5


def test_the_same_texts_give_the_same_tokenizer():
    assert train_bpe([small_text(1), small_text(2)], 280) == TOKENIZER
    assert train_bpe([small_text(3)], 280) != TOKENIZER


def test_too_little_text_is_said():
    with pytest.raises(TextProblem, match="d_vocab=280 tokens, got 25"):
        train_bpe(["ab"], 280)
    with pytest.raises(ConfigProblem, match="at least 257, got 256"):
        train_bpe([small_text(1)], 256)
