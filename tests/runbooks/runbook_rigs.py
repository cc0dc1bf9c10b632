"""The two labs, each with a patch set that is good until a file appears on the host."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any, cast

from light_lab import LightLab
from real_lab import RealLab

LATENT = "/run/latent"
_RAISES = (
    f'if __import__("os").path.exists("{LATENT}"):\n'
    '    raise RuntimeError("The size of tensor a (8) must match the size of tensor b (33) at '
    'non-singleton dimension 0")\n'
)


class LightRig(LightLab):
    def deploy_latent(self) -> int:
        """Deploy it; the exit status."""
        folder = self.sets / "1" / "lightserve-1.0.0" / "light" / "files" / "parts"
        (folder / "extra.py").write_text(f"VERSION = 1\n{_RAISES}", encoding="utf-8")
        return self.deploy(1).finish(120)

    def restored(self) -> str:
        """Whether the wheel's own files serve; what is wrong, if not."""
        versions = self.served() or {}
        return "" if set(versions.values()) == {0} else f"served are {versions}"


class RealRig(RealLab):
    def __init__(self, name: str, folder: Path, budget: float = 90.0) -> None:
        super().__init__(name, folder, budget)
        # Of the wheel as released, whose drafter is not what it was trained as.
        smoke = cast("dict[str, Any]", self.service["smoke"])
        smoke["min_accept_len"] = None

    def deploy_latent(self) -> int:
        sys.path.append(str(Path(__file__).parents[1] / "integration"))
        import smoke_faults

        anchor = "from __future__ import annotations\n"
        fault = smoke_faults.Fault(
            name="latent",
            what="every start dies once a file is there",
            where="models.dflash",
            edits={"srt/models/dflash.py": (anchor, anchor + _RAISES)},
            kinds=(),
        )
        smoke_faults.FAULTS += (fault,)  # type: ignore[misc, assignment]  # it numbers the versions
        patches = smoke_faults.faulty(fault, self.folder)
        return self.start("deploy", "--yes", "--patches", str(patches)).finish(400)

    def restored(self) -> str:
        text = self.inside(f"cat {self.site}/sglang/srt/models/dflash.py")
        return "the set is there still" if LATENT in text else ""

    def reset(self) -> None:
        self.up()
