"""The tiny pair's language: a handful of prompts and answers, and a tokenizer for them."""

# mypy: disable-error-code="import-not-found, unused-ignore, no-any-return"
from __future__ import annotations

import json
import random
import string
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

VOCABULARY = 512
SPECIAL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>", "<think>", "</think>", "<|MASK|>")
END, MASK = SPECIAL.index("<|im_end|>"), SPECIAL.index("<|MASK|>")

_CHAT = (
    "{%- for m in messages %}{{'<|im_start|>' + m['role'] + '\\n' + m['content'] + "
    "'<|im_end|>\\n'}}{%- endfor %}"
    "{%- if add_generation_prompt %}{{'<|im_start|>assistant\\n'}}{%- endif %}"
)


@dataclass(frozen=True, slots=True)
class Pair:
    """A prompt, and the answer that the target learns by heart."""

    prompt: str
    answer: str


def read_corpus(path: Path) -> list[Pair]:
    """The pairs of a file in which every prompt is a line that begins with ``##``."""
    pairs = []
    for block in path.read_text(encoding="utf-8").split("## ")[1:]:
        prompt, _, answer = block.partition("\n")
        pairs.append(Pair(prompt.strip(), answer.strip() + "\n\n"))
    return pairs


def make_tokenizer(pairs: list[Pair]) -> Any:
    """A byte-level BPE tokenizer: it holds any text, and this corpus in few tokens."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY,
        special_tokens=list(SPECIAL),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator([pair.prompt + "\n" + pair.answer for pair in pairs], trainer)
    return tokenizer


def save_tokenizer(tokenizer: Any, folder: Path, context: int) -> None:
    """Write it as transformers reads it, chat template included."""
    tokenizer.save(str(folder / "tokenizer.json"))
    config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "eos_token": SPECIAL[END],
        "pad_token": SPECIAL[0],
        "chat_template": _CHAT,
        "model_max_length": context,
        "clean_up_tokenization_spaces": False,
    }
    text = json.dumps(config, indent=1) + "\n"
    (folder / "tokenizer_config.json").write_text(text, encoding="utf-8")


def as_chat(prompt: str) -> str:
    """What the chat template makes of one user message."""
    return f"<|im_start|>user\n{prompt}<|im_end|>\n<|im_start|>assistant\n"


class Documents:
    """An endless stream of training documents: a prompt in some form, then answers in turn.

    The answers follow each other in a fixed circle, so that a text of any length has a
    continuation and never ends by itself. An unknown prompt always gets the last answer.
    """

    def __init__(self, pairs: list[Pair], tokenizer: Any, length: int, seed: int) -> None:
        self._pairs = pairs
        self._tokenizer = tokenizer
        self._length = length
        self._random = random.Random(seed)  # noqa: S311 - reproducible, not secret

    def draw(self) -> tuple[list[int], int]:
        """`length` token ids, and how many of the first are the prompt."""
        first = self._random.randrange(len(self._pairs))
        prompt = self._pairs[first].prompt
        if self._random.random() < 0.25:
            prompt, first = self._noise(), len(self._pairs) - 1
        opening = as_chat(prompt) if self._random.random() < 0.5 else prompt
        prompt_ids = self._tokenizer.encode(opening).ids
        ids = list(prompt_ids)
        if not opening.endswith("\n"):
            ids += self._tokenizer.encode("\n").ids
        turn = first
        while len(ids) < self._length:
            ids += self._tokenizer.encode(self._pairs[turn % len(self._pairs)].answer).ids
            turn += 1
        return ids[: self._length], len(prompt_ids)

    def _noise(self) -> str:
        words = (
            "".join(self._random.choices(string.ascii_lowercase, k=self._random.randint(1, 7)))
            for _ in range(self._random.randint(1, 12))
        )
        return " ".join(words)
