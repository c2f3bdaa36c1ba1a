"""One case the way it is usually done: a Python process that imports, builds, runs on CPU and target, compares.

`python fresh_process.py LIST CASE_ID TARGET FOLDER`. The named baseline of versus_fresh_process.py. It
uses the harness's own functions for each step, so that the two differ in organisation only.
"""

from __future__ import annotations

import os
import sys
import warnings
from pathlib import Path


def main() -> None:
    """Run the case and exit 0 if it passes, 1 if not."""
    from harness import targets
    from harness.plan import from_ids
    from model_lists import load_list

    list_path, case_id, target_name, folder = sys.argv[1:]
    (case,) = from_ids([case_id], load_list(list_path))
    target = targets.resolve(target_name)
    os.environ.update(target.environment(Path(folder)))
    for private in ("TORCH_TPU_TIER2_COMPILATION_CACHE", "TORCHINDUCTOR_CACHE_DIR"):
        os.environ.pop(private, None)  # nobody keeps compiled programs by default
    warnings.simplefilter("ignore")
    target.preload()

    import torch

    from harness import inputs, models
    from harness.cases import Mode, Verdict
    from harness.execution import outputs, phases, reference
    from harness.numerics.judge import judge

    torch.set_num_threads(1)
    built = models.build(case.entry, Path(folder) / "checkpoint", 0)
    model = models.load(case.entry, built.folder, case.dtype, "cpu")
    made = inputs.make(case.entry, model.config, built.folder, case.profile, 0)
    truth = models.load_truth(case.entry, built.folder, case.dtype)
    known, sick = reference.compute(model, truth, made, phase=case.phase, dtype=case.dtype, seed=0)
    with target.entered(case.mode):
        runner = models.load(case.entry, built.folder, case.dtype, target.device_type, **target.load_options())
        if case.mode is Mode.COMPILED:
            runner = target.compile(runner)
        given = phases.moved(inputs.cast(made, case.dtype), target.device_type)
        returned = outputs.leaves(phases.run(case.phase, runner, given, 0))
        returned = {path: leaf.cpu() for path, leaf in returned.items()}
    verdict = judge(known.truth, known.cpu, returned, known.hidden).verdict
    sys.exit(sick is not None or verdict is not Verdict.PASS)


if __name__ == "__main__":
    main()
