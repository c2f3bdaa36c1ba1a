"""Run in a process of its own: what each fault of the catalogue does to its examples on the emulated device, as JSON.

`python fault_probes.py MODE CACHE [ID]...`. One object a line for each fault that acts in the mode: `shown` and
`spared` say whether its two examples gave another result with the fault than without (None where it has no such
example), `restored` whether they gave the old one again afterwards, `calls` how often it acted.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any


def main() -> None:
    """Probe the named faults, or all that act in the mode."""
    from harness import targets
    from harness.cases import Mode, Phase

    mode, cache, names = Mode(sys.argv[1]), Path(sys.argv[2]), sys.argv[3:]
    target = targets.resolve("tpu-emulated")
    os.environ.update(target.environment(cache))
    target.preload()

    import catalogue
    import torch

    torch.set_num_threads(1)

    def compiled(function: Any) -> Any:
        torch._dynamo.reset()
        return target.compile(function)

    def result(fault: catalogue.Fault, example: catalogue.Example) -> Any:
        if mode is not Mode.COMPILED:
            return _plain(example(draw))
        if Phase.TRAIN in fault.phases:
            catalogue.form = compiled
            return _plain(example(draw))
        example(draw)  # so that all it draws is there when it is captured
        with torch.no_grad():
            return _plain(compiled(example)(draw))

    with target.entered(mode):
        draw = catalogue.Draw(target.device_type)
        for name, fault in catalogue.every_fault().items():
            if mode not in fault.modes or (names and name not in names):
                continue
            told: dict[str, Any] = {"fault": name}
            try:
                before = [result(fault, example) for example in (fault.shows, fault.spares)]
                count = target.counters()
                with fault.inside():
                    during = [result(fault, fault.spares), _outcome(lambda: result(fault, fault.shows))]  # noqa: B023
                told["executed"] = target.counters().programs_executed - count.programs_executed
                told["compiled"] = target.counters().programs_compiled - count.programs_compiled
                after = [result(fault, example) for example in (fault.shows, fault.spares)]
                told |= {"shown": during[1] != before[0], "spared": during[0] == before[1]}
                told |= {"restored": after == before, "calls": fault.calls}
                told["said"] = during[1] if isinstance(during[1], str) else ""
            except Exception as error:  # noqa: BLE001 - the boundary of a process: an error is a result
                told["error"] = f"{type(error).__name__}: {error}"[:2000]
            print(json.dumps(told), flush=True)


def _outcome(run: Any) -> Any:
    try:
        return run()
    except NotImplementedError as error:
        return str(error)


def _plain(value: Any) -> Any:
    """A result in a form that can be compared to the last bit: device, dtype, shape and bytes of each tensor."""
    import torch

    if isinstance(value, torch.Tensor):
        host = value.detach().cpu().clone(memory_format=torch.contiguous_format)
        kind = (value.device.type, str(value.dtype), tuple(value.shape))
        return (*kind, host.flatten().view(torch.uint8).numpy().tobytes())
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return value


if __name__ == "__main__":
    main()
