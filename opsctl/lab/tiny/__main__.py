"""``python -m tiny OUT``: train both models and write OUT/target and OUT/dflash."""

# mypy: disable-error-code="import-not-found, unused-ignore, no-any-return"
from __future__ import annotations

import sys
from pathlib import Path

import torch

from . import drafter, target, text

_SEED = 20
_CORPUS = Path(__file__).with_name("corpus.txt")


def say(line: str) -> None:
    """Progress, on stderr."""
    sys.stderr.write(line + "\n")


def main(out: Path) -> None:
    """Write both models. On one kind of processor the outcome is the same to the bit."""
    torch.manual_seed(_SEED)
    # Sums come out in another order with another number of threads, and more are no faster
    # for models of this size.
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    pairs = text.read_corpus(_CORPUS)
    tokenizer = text.make_tokenizer(pairs)
    say(f"tokenizer: {tokenizer.get_vocab_size()} tokens")

    def documents(length: int, seed: int) -> text.Documents:
        return text.Documents(pairs, tokenizer, length, seed)

    for name in ("target", "dflash"):
        (out / name).mkdir(parents=True, exist_ok=True)
        text.save_tokenizer(tokenizer, out / name, target.CONTEXT)
    trained = target.train(target.new_model(), documents, say)
    target.save(trained, out / "target")
    drafter.save(drafter.train(trained, documents, say), out / "dflash")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
