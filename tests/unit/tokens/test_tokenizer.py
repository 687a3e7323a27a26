"""A byte-level BPE tokenizer trained in the test, and every way of asking it wrongly."""

from __future__ import annotations

import copy
import json
import os
import subprocess
import sys

import numpy as np
import pytest

from headway.errors import FileProblem, TextProblem, TokenProblem, UnknownName
from headway.tokens import Tokenizer
from headway.tokens.tokenizer import _check_text

TEXTS = [
    "def find(self, text):\n\treturn self.text\n",
    "the cat sat on the mat, the café\n",
    "import os\nimport sys\n",
] * 4
STRANGE = "naïve 日本語 🙂\u202e\x00 <|bos|> tabs\t\tand\r\nlines  "


@pytest.fixture(scope="module")
def tok() -> Tokenizer:
    import tokenizers
    from tokenizers import decoders, models, pre_tokenizers, trainers

    backend = tokenizers.Tokenizer(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=300,
        special_tokens=["<|bos|>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    backend.train_from_iterator(TEXTS, trainer)
    return Tokenizer.from_json(backend.to_str(pretty=True))


def test_text_comes_back_exactly(tok: Tokenizer) -> None:
    for text in (*TEXTS[:3], STRANGE, ""):
        ids = tok.encode(text)
        assert tok.decode(ids) == text
        assert b"".join(tok.token_bytes(i) for i in ids) == text.encode()
    assert tok.encode_many([TEXTS[0], TEXTS[1]]) == [tok.encode(TEXTS[0]), tok.encode(TEXTS[1])]


def test_decoding_agrees_with_the_package(tok: Tokenizer) -> None:
    import tokenizers

    backend = tokenizers.Tokenizer.from_str(tok.to_json())
    ids = list(range(tok.d_vocab))
    assert tok.decode(ids) == backend.decode(ids, skip_special_tokens=False)
    assert tok.encode(TEXTS[1]) == backend.encode(TEXTS[1]).ids


def test_special_token_typed_in_a_text_is_text(tok: Tokenizer) -> None:
    assert tok.bos == 0
    assert tok.bos not in tok.encode("<|bos|>")
    assert tok.decode([tok.bos, *tok.encode("the")]) == "<|bos|>the"
    assert tok.label(tok.bos) == "<|bos|>" and tok.token_bytes(tok.bos) == b"<|bos|>"


def test_equal_by_json_whatever_its_layout(tok: Tokenizer) -> None:
    again = Tokenizer.from_json(json.dumps(json.loads(tok.to_json()), indent=3))
    assert again == tok and hash(again) == hash(tok)
    assert copy.deepcopy(tok) == tok
    assert repr(tok) == "Tokenizer(300 tokens)"


def test_labels_show_whitespace_and_partial_characters(tok: Tokenizer) -> None:
    assert tok.label(tok.find(" the")) == "·the"
    assert tok.label(tok.find("\n")) == "⏎"
    broken = tok.encode("日")
    assert tok.labels(broken) == ["<0xE6>", "<0x97>", "<0xA5>"]
    assert tok.decode(broken[:2]) == "\N{REPLACEMENT CHARACTER}"


def test_find_by_text_label_and_id(tok: Tokenizer) -> None:
    the = tok.find(" the")
    assert tok.find("·the") == the == tok.find(f"#{the}")
    assert tok.find("<|bos|>") == 0
    assert tok.decode([tok.find("<0xE6>")]) == "\N{REPLACEMENT CHARACTER}"


def test_every_token_is_found_by_its_bytes(tok: Tokenizer) -> None:
    for i in range(tok.d_vocab):
        assert tok.find(tok.token_bytes(i).decode("utf-8", errors="surrogateescape")) == i


def test_find_says_what_the_text_encodes_to_and_what_is_near(tok: Tokenizer) -> None:
    with pytest.raises(UnknownName) as caught:
        tok.find(" THE")
    assert "4 tokens: " in str(caught.value.got) and "T (#52)" in str(caught.value.got)
    assert "·the" in str(caught.value.next_step)
    with pytest.raises(UnknownName, match=r"Did you mean .*import"):
        tok.find("improt")
    with pytest.raises(UnknownName, match="no token at all"):
        tok.find("")
    with pytest.raises(UnknownName, match="not text"):
        tok.find("\ud800")


def test_an_ambiguous_label_is_refused_with_the_ids() -> None:
    vocab = {"a b": 0, "a·b": 1, "c": 2, "a\u00b7 b": 3, "a \u00b7b": 4}
    tok = Tokenizer.from_json(json.dumps({"model": {"type": "WordLevel", "vocab": vocab, "unk_token": "c"}}))
    assert tok.find("a·b") == 1  # exact text comes before labels
    with pytest.raises(UnknownName, match=r"label of 2 tokens.*#3 or #4"):
        tok.find("a··b")


@pytest.mark.parametrize("wrong", [-1, 300, 10**9])
def test_ids_outside_the_vocabulary(tok: Tokenizer, wrong: int) -> None:
    for ask in (tok.label, tok.token_bytes, lambda i: tok.decode([i])):
        with pytest.raises(TokenProblem, match="0 to 299"):
            ask(wrong)
    with pytest.raises(TokenProblem, match="0 to 299"):
        tok.find("#300")


@pytest.mark.parametrize("wrong", [1.5, "the", None])
def test_ids_that_are_no_numbers(tok: Tokenizer, wrong: object) -> None:
    with pytest.raises(TokenProblem, match="whole number"):
        tok._checked(wrong)


def test_ids_may_come_from_arrays(tok: Tokenizer) -> None:
    ids = np.array(tok.encode(TEXTS[1]))
    assert tok.decode(ids) == TEXTS[1]
    assert tok.label(ids[0]) == tok.label(int(ids[0]))


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"model": {"type": "Nonsense"}}', '{"model": 3}'])
def test_bad_json_is_a_file_problem(text: str) -> None:
    with pytest.raises(FileProblem, match=r"tokenizer\.json: not a tokenizer"):
        Tokenizer.from_json(text, where="tokenizer.json")


def test_what_is_not_text_is_refused(tok: Tokenizer) -> None:
    with pytest.raises(TextProblem, match="position 1"):
        tok.encode("a\ud800")
    for wrong in (b"bytes", None):
        with pytest.raises(TextProblem, match="a text is a str"):
            _check_text(wrong)


def test_padding_and_truncation_in_the_file_are_switched_off(tok: Tokenizer) -> None:
    import tokenizers

    backend = tokenizers.Tokenizer.from_str(tok.to_json())
    backend.enable_truncation(3)
    backend.enable_padding(length=50)
    assert Tokenizer.from_json(backend.to_str()).encode(TEXTS[0]) == tok.encode(TEXTS[0])


def test_added_tokens_are_text_and_not_byte_letters() -> None:
    import tokenizers
    from tokenizers import AddedToken

    document = {
        "model": {"type": "BPE", "vocab": {"a": 0, "\u0120": 1}, "merges": []},
        "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True},
    }
    backend = tokenizers.Tokenizer.from_str(json.dumps({"version": "1.0", **document}))
    backend.add_tokens([AddedToken("é", special=False), AddedToken("   ", special=False)])
    tok = Tokenizer.from_json(backend.to_str())
    assert [tok.token_bytes(i) for i in range(4)] == [b"a", b" ", "é".encode(), b"   "]
    assert tok.encode("aé   a") == [0, 2, 3, 0] and tok.decode([0, 2, 3, 0]) == "aé   a"


def test_gaps_in_the_ids_are_empty_tokens() -> None:
    tok = Tokenizer.from_json('{"model": {"type": "WordLevel", "vocab": {"a": 0, "b": 3}, "unk_token": "a"}}')
    assert tok.d_vocab == 4 and tok.label(2) == "" and tok.find("b") == 3 and tok.decode([0, 1, 3]) == "ab"


def test_no_hub_client_and_no_torch_is_imported(tok: Tokenizer) -> None:
    code = (
        "import sys; from headway.tokens import Tokenizer; "
        "assert 'tokenizers' not in sys.modules, 'imported before use'; "
        "tok = Tokenizer.from_json(sys.stdin.read()); ids = tok.encode('the cat'); "
        "print(tok.decode(ids), sorted({'huggingface_hub', 'transformers', 'torch'} & set(sys.modules)))"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    done = subprocess.run(
        [sys.executable, "-c", code], input=tok.to_json(), capture_output=True, text=True, env=environment, check=False
    )
    assert done.stdout.strip() == "the cat []", done.stderr
