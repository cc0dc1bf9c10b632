"""Requests that prove a start, and the verdict on their answers.

`quick` is two requests; `standard` and `deep` are an `Exam`, held against a baseline.
"""

from opsctl.smoke.exam import Exam, Seen
from opsctl.smoke.exam import judge as judge_exam
from opsctl.smoke.judge import judge
from opsctl.smoke.lossless import judged
from opsctl.smoke.model import CHECKS, Check, Probes, SmokeResult, UnitFacts, Verdict
from opsctl.smoke.probes import run_probes
from opsctl.smoke.resume import resume
from opsctl.smoke.server import ServerFacts
from opsctl.smoke.speculation import Thresholds, mean_accept_len
from opsctl.smoke.stages import LEVELS, Level, Ran, run_stages, stages

__all__ = [
    "CHECKS",
    "LEVELS",
    "Check",
    "Exam",
    "Level",
    "Probes",
    "Ran",
    "Seen",
    "ServerFacts",
    "SmokeResult",
    "Thresholds",
    "UnitFacts",
    "Verdict",
    "judge",
    "judge_exam",
    "judged",
    "mean_accept_len",
    "resume",
    "run_probes",
    "run_stages",
    "stages",
]
