"""The Markdown page of a result; every figure in it is computed from the JSON.

    python validation/page.py RESULT.json [MORE.json …] [--merged ALL.json] > PAGE.md

Of several results of one machine a later stage replaces an earlier one, unless it failed.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import record
from stats import ratios, spread

Result = dict[str, Any]
NEAR = 0.25  # nats: two steps of a bf16 logit between 16 and 32
REJECT = 0.001
TITLES = {
    "incident": "The incident",
    "kernels": "Kernels",
    "text": "Text",
    "sampling": "Samples",
    "speed": "Tokens a second, batch 1",
    "batch": "Batches",
    "large": "A 7B-class target",
    "mla": "An MLA target",
}


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def numbers(values: Iterable[Any]) -> str:
    """1, 2 and 3, without the "and"."""
    return ", ".join(str(value) for value in values)


def ratio(values: Sequence[float]) -> str:
    middle, least, most = spread(values)
    return f"{middle:.2f}x ({least:.2f} to {most:.2f})"


def graphs(shares: Iterable[dict[str, int]]) -> str:
    """Of decode lines in the logs, those with a CUDA graph."""
    rows = list(shares)
    yes = sum(row["true"] for row in rows)
    return f"{yes} of {yes + sum(row['false'] for row in rows)}"


def incident(found: Result, _: Result) -> list[str]:
    if found["died"] and found["message"]:
        return [f"The series without its graph patch, budget 32, dies with `{found['message']}`."]
    return [f"Without its graph patch: died {found['died']}, message {found['message']}."]


def kernels(found: Result, _: Result) -> list[str]:
    wrong = len(found["failures"])
    said = [f"{found['cases']} random cases on {found['device']}: {wrong} differ from torch's."]
    if not found["times"]:
        return said
    names = ("build", "mask", "walk", "together", "together_launched", "top_k", "top_k_torch")
    sizes = sorted({row["batch"] for row in found["times"]})
    first, last = sizes[0], sizes[-1]
    by = {(row["budget"], row["batch"]): row for row in found["times"]}
    rows = [
        [
            str(budget),
            *(f"{by[budget, first][n]['median_us']:.1f} / {by[budget, last][n]['median_us']:.1f}"
              for n in names),
        ]
        for budget in sorted({budget for budget, _ in by})
    ]  # fmt: skip
    said.append(
        f"Median microseconds by events, inside a graph except where it says launched, at batch "
        f"{first} / {last} and {found['times'][0]['seq_len']} tokens of context:"
    )
    header = ["budget", "build", "mask", "walk", "the three", "the three, launched", "top-k",
              "torch's top-k"]  # fmt: skip
    return [*said, table(header, rows)]


def judged(tally: Result) -> str:
    """Divergences in a few words, for a cell."""
    gaps = [row["gap"] for row in tally["diverged"] if row["gap"] is not None]
    if not tally["diverged"]:
        return "none"
    ranks = [row["rank"] for row in tally["diverged"]]
    unknown = sum(rank is None for rank in ranks)
    known = max((rank for rank in ranks if rank is not None), default=0)
    over = sum(gap > NEAR for gap in gaps)
    words = f"{len(ranks)}, gap up to {max(gaps):.3f}" if gaps else f"{len(ranks)}"
    words += f", {over} over {NEAR}; rank up to {known}"
    return words + (f", {unknown} unranked" if unknown else "")


def accepted(tally: Result, kind: str = "") -> float | None:
    """Tokens a step, of one kind of prompt or of all; None where there were none."""
    rows = [row for name, row in tally["kinds"].items() if kind in {"", name}]
    steps = sum(row["steps"] for row in rows)
    return sum(row["tokens"] for row in rows) / steps if steps else None


def text(found: Result, _: Result) -> list[str]:
    servers = found["servers"]
    count = found["prompts"]
    said = [
        f"{count} prompts of {found['tokens']} tokens, greedy, against the plain server's text one "
        "at a time. `gap` is how far, in nats, the plain server's logprobs put the token taken "
        "below the best at the first divergence (bf16 logits come in steps of 0.125 and less):",
        table(
            ["server", "equal", "diverged, alone", "diverged, four at once", "graph", "KV held"],
            [
                [
                    name,
                    f"{row['alone']['equal']} of {count}",
                    judged(row["alone"]),
                    judged(row["four_at_once"]) if "four_at_once" in row else "",
                    graphs([row["cuda_graph"]]) if "cuda_graph" in row else "",
                    str(row.get("used_tokens", "")),
                ]
                for name, row in servers.items()
            ],
        ),
        "`graph`: decode lines with `cuda graph: True`. `KV held`: slots in use at the end.",
    ]
    for name, both in found.get("graphs_on_off", {}).items():
        gaps = [row["gap"] for row in both["differ"] if row["gap"] is not None]
        words = f"Graphs on and off, {name}: {both['equal']} of {count} texts equal"
        if both["differ"]:
            words += f"; of the {len(both['differ'])} others {len(gaps)} part where the plain "
            words += f"text still agrees, gap up to {max(gaps):.3f}" if gaps else "text agrees"
        said.append(words + ".")
    return [*said, "Accept length, tokens a verify step, alone:", _lengths(servers)]


def _lengths(servers: Result) -> str:
    drafting = [name for name in servers if name != "plain"]
    linear = accepted(servers["dflash"]["alone"]) if "dflash" in servers else None
    totals = {name: accepted(servers[name]["alone"]) for name in drafting}
    steps = {
        name: sum(row["steps"] for row in servers[name]["alone"]["kinds"].values())
        for name in drafting
    }
    rows = [["all", *(_figure(totals[name]) for name in drafting)]]
    if linear:
        over = [f"{value / linear:.2f}x" if value else "" for value in totals.values()]
        rows.append(["over DFLASH", *over])
    rows.append(["verify steps", *(str(steps[name]) for name in drafting)])
    kinds = {kind: None for name in drafting for kind in servers[name]["alone"]["kinds"]}
    if len(kinds) > 1:
        rows += [
            [kind, *(_figure(accepted(servers[name]["alone"], kind)) for name in drafting)]
            for kind in kinds
        ]
    return table(["", *drafting], rows)


def _figure(value: float | None, digits: int = 2) -> str:
    return "" if value is None else f"{value:.{digits}f}"


def sampling(found: Result, _: Result) -> list[str]:
    said = [
        f"Temperature 1, {found['count']} samples a set ({found['few']} where one at a time or "
        "greedy). Two-sample chi-square of the first tokens' joint distribution against the "
        "plain server's first set, outcomes expected below 5 pooled; p-values:"
    ]
    rows = []
    for dtype, prompts in found["tests"].items():
        for number, windows in enumerate(prompts, start=1):
            for window, tests in windows.items():
                case = f"{dtype}, prompt {number}, tokens {window}"
                rows.append([case, *(_p(test) for test in tests.values())])
                names = list(tests)
    if not rows:
        return [*said, "No test ran."]
    return [
        *said,
        table(["", *names], rows),
        "In brackets: degrees of freedom. The greedy set and the set at another temperature must "
        f"be rejected (p below {REJECT}), the others must not.",
    ]


def _p(test: Result) -> str:
    shown = f"{test['p']:.3f}" if test["p"] >= REJECT else f"{test['p']:.0e}"
    return f"{shown} ({test['freedom']})"


def speed(found: Result, entry: Result) -> list[str]:
    options = entry["options"]
    rows = []
    for group in found["groups"]:
        rates = group.get("tokens_per_s", {})
        for name, values in rates.items():
            middle, least, most = spread(values)
            over = ""
            if name != "dflash" and "dflash" in rates:
                over = ratio(ratios(values, rates["dflash"]))
            shown = f"{middle:.0f} ({least:.0f} to {most:.0f})"
            length = "" if name == "plain" else f"{group['accept_len'][name]:.2f}"
            rows.append([name, shown, over, length])
    return [
        f"{options['speed_prompts']} prompts of {options['speed_tokens']} tokens, "
        f"{options['repeats']} repeats, the servers in a new order each; ratios to DFLASH within "
        "the same group and repeat. Median and range:",
        table(["server", "tok/s", "over DFLASH", "tokens a step"], rows),
    ]


def _sizes(groups: Sequence[Result], measure: str, *, less: bool) -> str:
    """A row a server and a column a batch; DDTREE's with its ratio to the group's DFLASH."""
    sizes = list({size: None for group in groups for size in group.get("sizes", {})})
    rows = []
    for group in groups:
        names = list({n: None for size in group.get("sizes", {}).values() for n in size})
        for name in names:
            cells = []
            for size in sizes:
                at = group["sizes"].get(size, {})
                values = at.get(name, {}).get(measure, [])
                cells.append(_cell(name, values, at.get("dflash", {}).get(measure, []), less=less))
            rows.append([name, *cells])
    return table(["server", *(f"batch {size}" for size in sizes)], rows)


def _cell(name: str, values: list[float], linear: list[float], *, less: bool) -> str:
    if not values:
        return ""
    middle = statistics.median(values)
    shown = f"{middle:.2f}" if less else f"{middle:.0f}"
    if name == "dflash" or not linear:
        return shown
    return f"{shown}: {ratio(ratios(values, linear))}"


def batch(found: Result, entry: Result) -> list[str]:
    options = entry["options"]
    return [
        f"n requests at once, all to {options['batch_tokens']} tokens, "
        f"{options['batch_repeats']} repeats; median, and ratio to DFLASH (median and range). "
        "Tokens a second:",
        _sizes(found["groups"], "tokens_per_s", less=False),
        "Milliseconds a step:",
        _sizes(found["groups"], "ms_per_step", less=True),
    ]


def large(found: Result, entry: Result) -> list[str]:
    options = entry["options"]
    return [
        f"A Llama-shaped target of random weights (hidden {found['hidden']}, {found['layers']} "
        f"layers) and a drafter of five such layers, {options['large_tokens']} tokens, "
        f"{options['large_repeats']} repeats. Milliseconds a step of the target, drafting "
        "included, and ratio to DFLASH (median and range); the text means nothing:",
        _sizes([found], "ms_per_step", less=True),
        f"Decode lines with `cuda graph: True`: {graphs(found['cuda_graph'].values())}."
        if "cuda_graph" in found
        else "",
    ]


def _left(stages: Result) -> list[str]:
    """Stages without figures, by name, and servers that did not come up."""
    lines = []
    missing = [title for name, title in TITLES.items() if name not in stages]
    if missing:
        lines.append(f"**Not run**: {numbers(missing)}.")
    for name, entry in stages.items():
        if "error" in entry:
            lines.append(f"**Failed**: {TITLES[name]}: `{entry['error'].splitlines()[-1]}`.")
        elif entry.get("running"):
            lines.append(f"**Cut off**: {TITLES[name]}.")
        groups = entry["result"].get("groups", [])
        lines += [
            f"**Did not come up** in {TITLES[name]}: {numbers(found['failed'])}."
            for found in [entry["result"], *groups]
            if "failed" in found
        ]
    return lines


RENDER: dict[str, Callable[[Result, Result], list[str]]] = {
    "incident": incident,
    "kernels": kernels,
    "text": text,
    "sampling": sampling,
    "speed": speed,
    "batch": batch,
    "large": large,
    "mla": text,
}


def _pair(pair: Result) -> str:
    target, draft = pair["target"], pair["draft"]
    return (
        f"Target {target['architectures'][0]} of {target['num_hidden_layers']} layers, hidden "
        f"{target['hidden_size']}; a DFLASH drafter of {draft['num_hidden_layers']} layers, block "
        f"{draft['block_size']}."
    )


def render(result: Result, name: str) -> str:
    """The page; `name` is the JSON file's."""
    stages = result["stages"]
    parts = [
        "# DDTREE on a GPU",
        f"What ran, with its figures; [{name}]({name}) has all of them, and the options of each "
        f"stage. {result['machine']['gpu']}. {_pair(result['pair'])} All servers of a comparison "
        "were up on the card at once with the same flags, and where time is measured they were "
        "asked in turns.",
    ]
    for stage, title in TITLES.items():
        if stage in stages and stages[stage]["result"]:
            entry = stages[stage]
            parts.append(f"## {title}")
            try:
                parts += RENDER[stage](entry["result"], entry)
            except (KeyError, IndexError, ValueError) as missing:
                parts.append(f"Incomplete: {missing!r} is missing.")
            of = f" of {entry['commit']}" if entry["commit"] else ""
            parts.append(f"_{entry.get('seconds', 'cut off after unknown')} s{of}._")
    parts += _left(stages)
    parts.append(
        "Not to be had on such a host at all: sm_120, tensor parallelism over PCIe, Kimi K2.6 and "
        "its drafter. To run it: `validation/README.md`."
    )
    return "\n\n".join(part for part in parts if part) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("results", nargs="+", type=Path)
    parser.add_argument("--merged", type=Path, help="write the results as one here")
    arguments = parser.parse_args()
    result = record.merge([record.load(path) for path in arguments.results])
    name = (arguments.merged or arguments.results[-1]).name
    if arguments.merged:
        record.save(arguments.merged, result)
    sys.stdout.write(render(result, name))


if __name__ == "__main__":
    main()
