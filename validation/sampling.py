"""Samples of DDTREE and of the plain server: are they of one distribution?

Many short requests with one prompt at temperature 1; the first tokens of each are one outcome, and
two sets of outcomes are compared by a chi-square test. The first token is drawn at prefill by both,
so one test leaves it out. Two sets of the plain server are the control, and sets that
must be rejected (greedy; another temperature) show that the test has the power to.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

from lab import CHAT, Found, Lab
from servers import Server, generate
from stats import two_samples

# Of SmolLM2-135M-Instruct's answers these have few likely beginnings.
PROMPTS = (
    CHAT.format("Pick a colour: red, green or blue.") + "My colour is",
    CHAT.format("Answer yes or no: is it raining?") + "Answer:",
)
AT_ONCE = 8  # no more than the CUDA graphs hold
FEW = 4  # one at a time is slow, so there are this many times fewer of these
WINDOWS = ((1, 2), (1, 3), (2, 3))
Outcome = tuple[int, ...]


def draw(
    server: Server, prompt: str, count: int, tokens: int, *, temperature: float = 1, at_once: int
) -> list[Outcome]:
    """`count` samples of `tokens` tokens, `at_once` requests in a call, one call at a time."""
    found: list[Outcome] = []
    for start in range(0, count, at_once):
        batch = [prompt] * min(at_once, count - start)
        answers = generate(server, batch, tokens, temperature=temperature, ignore_eos=True)
        found += [tuple(answer["output_ids"]) for answer in answers]
    return found


def tests(samples: dict[str, list[Outcome]], window: tuple[int, int]) -> dict[str, Any]:
    """Every set against the set `plain`, by the tokens of `window` (first and last, from 1)."""
    kept = slice(window[0] - 1, window[1])
    cut = {name: [sample[kept] for sample in rows] for name, rows in samples.items()}
    first = cut.pop("plain")
    return {name: two_samples(first, rows) for name, rows in cut.items()}


def sampling(lab: Lab, found: Found) -> None:
    """found["tests"][dtype][prompt][window][set] is a test against plain.

    float32 is free of bf16's noise, by which a logit depends on the shape of the batch; many
    samples can see that. "plain, one at a time" is the plain server at another shape, as a
    measure of it.
    """
    options = lab.arguments
    tree = f"ddtree-{options.sampling_budget}"
    found |= {"count": options.samples, "few": options.samples // FEW, "tree": tree}
    found |= {"prompts": list(PROMPTS), "tests": {}}
    servers = {
        (dtype, spec): lab.server(spec, lab.small, f"--dtype={dtype}", label=f"-{dtype}")
        for dtype in options.sampling_dtypes
        for spec in ("plain", str(options.sampling_budget))
    }
    with lab.up(list(servers.values()), found) as alive, ThreadPoolExecutor(len(servers)) as pool:
        whole = [
            dtype
            for dtype in options.sampling_dtypes
            if all(server in alive for (known, _), server in servers.items() if known == dtype)
        ]
        if not whole:
            raise RuntimeError("no dtype has both its servers")
        for number, prompt in enumerate(PROMPTS, start=1):
            drawn = {
                key: pool.submit(_sets, lab, server, key[1], prompt)
                for key, server in servers.items()
                if key[0] in whole
            }
            for dtype in whole:
                samples: dict[str, list[Outcome]] = {}
                for (known, _), future in drawn.items():
                    if known == dtype:
                        samples |= future.result()
                found["tests"].setdefault(dtype, []).append(
                    {f"{a} to {b}": tests(samples, (a, b)) for a, b in WINDOWS}
                )
            lab.say(f"prompt {number} of {len(PROMPTS)}")
            lab.keep()
        found["cuda_graph"] = {server.tag: server.graph_share() for server in alive}


def _sets(lab: Lab, server: Server, spec: str, prompt: str) -> dict[str, list[Outcome]]:
    """The sets of samples that one server gives."""
    options = lab.arguments
    count, few, tokens = options.samples, options.samples // FEW, options.sampling_tokens
    hotter = options.power_temperature

    def take(count: int, at_once: int = AT_ONCE, temperature: float = 1) -> list[Outcome]:
        return draw(server, prompt, count, tokens, temperature=temperature, at_once=at_once)

    if spec == "plain":
        found = {
            "plain": take(count),
            "plain again": take(count),
            "plain, one at a time": take(few, at_once=1),
            f"plain at {hotter}": take(count, temperature=hotter),
        }
    else:
        name = f"ddtree-{spec}"
        found = {
            name: take(count),
            f"{name}, one at a time": take(few, at_once=1),
            f"{name}, greedy": take(few, temperature=0),
        }
    lab.say(f"{server.tag}: {len(found)} sets")
    return found
