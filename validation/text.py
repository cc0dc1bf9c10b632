"""Greedy text of every server against the plain one's, and what it took to make it."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import compare
from lab import HERE, Found, Lab, Pair, pick, prompts
from servers import Server, generate

Prompts = list[tuple[str, Any]]
TOPS = 5  # logprobs recorded at each place, so that the token taken is nearly always among them
GROUP = 4


def text(lab: Lab, found: Found) -> None:
    """The small pair at every budget."""
    options = lab.arguments
    eager = [f"{options.eager}-eager"] if options.eager else []
    specs = ["plain", "dflash", *map(str, options.budgets), *eager]
    _compare(lab, found, lab.small, specs, prompts(options.prompts), tokens=options.tokens)


def mla(lab: Lab, found: Found) -> None:
    """A tiny target with multi-head latent attention, as Kimi's."""
    folder = lab.arguments.mla or lab.work / "mla"
    if not (folder / "target" / "config.json").exists():
        lab.say("making the MLA pair")
        subprocess.run([sys.executable, str(HERE / "mla.py"), str(folder)], check=True)
    pair = Pair(folder / "target", folder / "draft")
    chosen = [("tiny", prompt) for prompt in _mla_prompts(folder)[: lab.arguments.mla_prompts]]
    specs = ["plain", "dflash", *lab.arguments.mla_specs]
    _compare(lab, found, pair, specs, chosen, tokens=lab.arguments.mla_tokens)


def _mla_prompts(folder: Path) -> list[Any]:
    given = folder / "prompts.json"
    if given.exists():
        return list(json.loads(given.read_text(encoding="utf-8")))
    corpus = HERE.parent / "opsctl" / "lab" / "tiny" / "corpus.txt"
    words = corpus.read_text(encoding="utf-8").split()
    return [" ".join(words[at : at + 12]) for at in range(0, len(words) - 12, 12)]


def _compare(
    lab: Lab, found: Found, pair: Pair, specs: Sequence[str], chosen: Prompts, *, tokens: int
) -> None:
    """All servers at once: nothing here is a matter of speed, and a server's text is its own."""
    found |= {"prompts": len(chosen), "tokens": tokens, "servers": {}}
    with lab.up([lab.server(spec, pair) for spec in specs], found) as servers:
        plain = pick(servers, "plain")
        with ThreadPoolExecutor(len(servers)) as pool:
            asked = pool.map(lambda server: _alone(lab, server, chosen, tokens), servers)
            answers = dict(zip([server.name for server in servers], asked, strict=True))
            references = answers[plain.name]
            for server in servers:
                tally = compare.Tally()
                for number, (kind, _) in enumerate(chosen):
                    answer = answers[server.name][number]
                    tally.add(kind, number, references[number], answer)
                found["servers"][server.name] = {"alone": tally.to_json()}
            found["graphs_on_off"] = _on_off(answers, references)
            lab.keep()
            grouped = pool.map(lambda server: _grouped(server, chosen, tokens), servers)
            for server, results in zip(servers, grouped, strict=True):
                tally = compare.Tally()
                for number, answer in enumerate(results):
                    tally.add(chosen[number][0], number, references[number], answer)
                found["servers"][server.name]["four_at_once"] = tally.to_json()
        lab.say(f"{GROUP} at once: done")
        for server in servers:
            row = found["servers"][server.name]
            row["cuda_graph"] = server.graph_share()
            row["used_tokens"] = server.used_tokens()
        lab.say("the pools are " + ("whole" if _whole(found) else "NOT whole"))


def _whole(found: Found) -> bool:
    return all(row["used_tokens"] == 0 for row in found["servers"].values())


def _alone(lab: Lab, server: Server, chosen: Prompts, tokens: int) -> list[compare.Answer]:
    options = {}
    if server.name == "plain":
        options = {"return_logprob": True, "top_logprobs_num": TOPS}
    found = [generate(server, prompt, tokens, **options) for _, prompt in chosen]
    lab.say(f"{server.name}: {len(found)} prompts alone")
    return found


def _grouped(server: Server, chosen: Prompts, tokens: int) -> list[compare.Answer]:
    """The prompts four at a time, each four begun together."""
    found: list[compare.Answer] = []
    with ThreadPoolExecutor(GROUP) as pool:
        for start in range(0, len(chosen), GROUP):
            group = [prompt for _, prompt in chosen[start : start + GROUP]]
            found += pool.map(lambda prompt: generate(server, prompt, tokens), group)
    return found


def _on_off(
    answers: dict[str, list[compare.Answer]], references: list[compare.Answer]
) -> dict[str, Any]:
    """Each server without graphs beside the same one with them, text by text."""
    found = {}
    for name, without in answers.items():
        graphs = name.removesuffix("-eager")
        if graphs == name or graphs not in answers:
            continue
        pairs = zip(references, answers[graphs], without, strict=True)
        judged = [compare.judge_two(*three) for three in pairs]
        found[graphs] = {
            "equal": sum(row is None for row in judged),
            "differ": [{"prompt": i, **row} for i, row in enumerate(judged) if row is not None],
        }
    return found
