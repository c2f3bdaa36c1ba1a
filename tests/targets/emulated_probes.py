"""Run as a script by test_targets_emulated: preloads the emulated target once and forks a child per probe.

Prints one JSON object: probe name -> what its function returned, or {"error": text} or {"status": wait status}.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
from pathlib import Path

from harness.cases import Mode
from harness.execution import randomness
from harness.targets import resolve

target = resolve("tpu-emulated")
os.environ.update(target.environment(Path(sys.argv[1])))
target.preload()

import torch  # noqa: E402
import transformers  # noqa: E402
from torch.nn import functional as F  # noqa: E402

from harness.execution.first_bad import Checking, Findings  # noqa: E402

torch.set_num_threads(1)
torch.manual_seed(0)


def distance(function, *inputs) -> float | str:
    """Largest difference between the device and the CPU over all outputs; text where shapes or dtypes differ."""
    actual, expected = function(*(x.to("tpu") for x in inputs)), function(*inputs)
    if isinstance(actual, torch.Tensor):
        actual, expected = [actual], [expected]
    worst = 0.0
    for a, e in zip(actual, expected, strict=True):
        if a.device.type != "tpu" or a.shape != e.shape or a.dtype != e.dtype:
            return f"{a.device} {tuple(a.shape)} {a.dtype} instead of {tuple(e.shape)} {e.dtype}"
        if e.numel():
            worst = max(worst, (a.cpu().double() - e.double()).abs().max().item())
    return worst


def counting():
    zero = target.counters()
    target.prove()
    one = target.counters()
    x = torch.randn(3, 5).to("tpu")
    for _ in range(4):
        x = x + 1
    target.synchronize()
    two = target.counters()
    return [[c.programs_executed, c.programs_requested, c.programs_compiled] for c in (zero, one, two)]


def attention():
    q, k, v = torch.randn(3, 2, 4, 6, 8).unbind()
    mask = torch.ones(6, 6, dtype=torch.bool).tril()
    with target.entered(Mode.STRICT_EAGER):
        return [
            distance(F.scaled_dot_product_attention, q, k, v),
            distance(lambda q, k, v, m: F.scaled_dot_product_attention(q, k, v, attn_mask=m), q, k, v, mask),
        ]


def draws():
    """Whether the device has the CPU's numbers, for every way to draw, before and after it is asked to."""

    def ways(device):
        x, p = torch.zeros(2, 3, device=device), torch.full((2, 3), 0.4, device=device)
        seeded = torch.Generator(device).manual_seed(3)
        yield "rand", lambda: torch.rand(2, 3, device=device)
        yield "randn", lambda: torch.randn(2, 3, device=device, dtype=torch.bfloat16)
        yield "randn_like", lambda: torch.randn_like(x)
        yield "randint", lambda: torch.randint(2, 9, (4,), device=device)
        yield "randperm", lambda: torch.randperm(7, device=device)
        yield "normal", lambda: torch.normal(x, p)
        yield "normal of a scalar", lambda: torch.normal(1.0, p)
        yield "bernoulli", lambda: torch.bernoulli(p)
        yield "bernoulli_", lambda: x.clone().bernoulli_(0.3)
        yield "multinomial", lambda: torch.multinomial(p, 2)
        yield "uniform_", lambda: x.clone().uniform_(-1, 2)
        yield "exponential_", lambda: x.clone().exponential_(2.0)
        yield "trunc_normal_", lambda: torch.nn.init.trunc_normal_(x.clone())
        yield "a part", lambda: x.clone().t()[1:].normal_()
        yield "a generator", lambda: torch.rand(5, generator=seeded, device=device)
        yield "the generator again", lambda: torch.rand(5, generator=seeded, device=device)

    def drawn(device):
        for name, draw in ways(device):
            torch.manual_seed(5)
            yield name, [draw().cpu(), torch.rand(2)]  # and so much of the CPU's numbers is used up

    def equal():
        here, there = dict(drawn("cpu")), dict(drawn("tpu"))
        return {name: all(map(torch.equal, here[name], there[name])) for name in here}

    before = equal()
    randomness.draw_on_cpu("tpu")
    return [before, equal()]


def scans():
    x, ids = torch.randn(3, 7), torch.tensor([[2, 0, 1], [1, 1, 3]])
    out = torch.empty(0)
    with target.entered(Mode.STRICT_EAGER):
        return {
            "sum": distance(lambda x: x.cumsum(-1), x),
            "negative dim": distance(lambda x: x.cumsum(-2), x),
            "product": distance(lambda x: x.cumprod(1), x),
            "bool": distance(lambda x: (x > 0).cumsum(1), x),
            "int": distance(lambda x: x.cumsum(1), ids.int()),
            "dtype": distance(lambda x: x.cumsum(1, dtype=torch.float32), ids),
            "scalar": distance(lambda x: x.cumsum(0), torch.tensor(2.0)),
            "empty": distance(lambda x: x.cumsum(0), torch.zeros(0, 3)),
            "in place": distance(lambda x: x.clone().cumsum_(1), x),
            "out": distance(lambda x: torch.cumsum(x, 1, out=out.to(x.device)), x),
            "logcumsumexp": distance(lambda x: x.logcumsumexp(1), x),
            "cummax": distance(lambda x: x.cummax(1), x),
            "long": distance(lambda x: x.cumsum(1), torch.ones(2, 1000)),
            "gradient": distance(gradient_of_cumsum, x),
            "embedding bag": distance(lambda w, i: F.embedding_bag(i, w), torch.randn(4, 5), ids),
            "repeat interleave": distance(lambda x, n: x.repeat_interleave(n, 0), x, torch.tensor([1, 0, 2])),
            "masked scatter": distance(lambda x: x.masked_scatter(x > 0, x.flip(0)), x),
        }


def gradient_of_cumsum(x):
    x = x.clone().requires_grad_()
    (x.cumsum(1) ** 2).sum().backward()
    return x.grad


def small_gradient():
    return gradient_of_cumsum(torch.ones(2, 2).to("tpu")).tolist()


def zero_dimensional_index():
    x = torch.arange(5.0).to("tpu")
    return x[torch.tensor(3).to("tpu")].item()


def tiny_mixture():
    config = transformers.MixtralConfig(
        vocab_size=64,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=1,
        num_attention_heads=2,
        num_key_value_heads=1,
        num_local_experts=4,
    )
    return loaded(transformers.MixtralForCausalLM(config))


def no_mixture():
    config = transformers.BertConfig(
        vocab_size=64, hidden_size=32, intermediate_size=48, num_hidden_layers=1, num_attention_heads=2
    )
    return loaded(transformers.BertModel(config))


def loaded(model):
    """Largest difference per mode between the model, loaded as a user does, and the original on the CPU."""
    ids = torch.randint(0, 64, (2, 8))
    with tempfile.TemporaryDirectory() as folder, torch.no_grad():
        expected = model.eval()(ids)[0]
        model.save_pretrained(folder)
        errors = {}
        for mode in target.modes:
            with target.entered(mode):
                mine = type(model).from_pretrained(folder, device_map="tpu", **target.load_options()).eval()
                run = target.compile(mine) if mode is Mode.COMPILED else mine
                actual = run(ids.to("tpu"))[0]
                errors[mode] = (actual.cpu() - expected).abs().max().item()
                errors[mode + " device"] = actual.device.type
    return errors


class Small(torch.nn.Module):
    def forward(self, x):
        return (x @ x.mT).softmax(-1).cumsum(0)[1:]


def compiled_again():
    x = torch.arange(12.0).view(3, 4) / 7
    with target.entered(Mode.COMPILED), torch.no_grad():
        actual = target.compile(Small())(x.to("tpu")).cpu()
        plugin_compiles = target.counters().programs_compiled
    wait_for_cache()
    return [(actual - Small()(x)).abs().max().item(), plugin_compiles]


def wait_for_cache():
    """Entries are written in the background; every program that was locked gets one."""
    for _ in range(200):
        if all(lock.with_suffix(".bin").exists() for lock in Path(sys.argv[1]).rglob("*.lock")):
            return
        time.sleep(0.05)


def damaged_cache():
    for entry in Path(sys.argv[1]).rglob("*.bin"):
        entry.write_bytes(entry.read_bytes()[:100])
    return compiled_again()


def modes_and_precision():
    seen = []
    before = torch.get_float32_matmul_precision(), os.environ["TORCHINDUCTOR_CACHE_DIR"]
    for mode in target.modes:
        with target.entered(mode):
            seen.append(
                [
                    torch.get_float32_matmul_precision(),
                    torch.tpu.eager_mode.name,
                    Path(os.environ["TORCHINDUCTOR_CACHE_DIR"]).name,
                ]
            )
    return [seen, before == (torch.get_float32_matmul_precision(), os.environ["TORCHINDUCTOR_CACHE_DIR"])]


def diagnosed(function):
    """Verdict and text of the error that `function` provokes on the device."""
    try:
        with target.entered(Mode.STRICT_EAGER):
            function()
            target.synchronize()
    except (RuntimeError, NotImplementedError) as error:
        return [target.diagnose(str(error), None), str(error)]
    return ["nothing raised", ""]


def unsupported_operator():
    x = torch.ones(2).to("tpu")
    return diagnosed(lambda: torch.logaddexp(x, x).cpu())


def missing_factorisation():
    x = torch.eye(2).to("tpu")
    return diagnosed(lambda: torch.linalg.inv(x).cpu())


def missing_grouped_matmul():
    a, b = torch.ones(8, 16).bfloat16().to("tpu"), torch.ones(2, 16, 8).bfloat16().to("tpu")
    ends = torch.tensor([3, 8], dtype=torch.int32).to("tpu")
    return diagnosed(lambda: F.grouped_mm(a, b, offs=ends).cpu())


def missing_fused_attention():
    from torch.nn.attention import SDPBackend, sdpa_kernel

    def fused():
        with sdpa_kernel([SDPBackend.FLASH_ATTENTION, SDPBackend.OVERRIDEABLE]):
            q = torch.ones(1, 2, 128, 128).to("tpu")
            F.scaled_dot_product_attention(q, q, q, is_causal=True).cpu()

    return diagnosed(fused)


def forked_after_client():
    target.prove()
    return in_child(lambda: diagnosed(lambda: (torch.ones(2).to("tpu") + 1).cpu()))


def description():
    return target.describe()


def pooling():
    """What the search for a bad operator says of right pooling in each number of dimensions, and of a wrong one."""

    def searched(pool, *shape):
        findings = Findings()
        x = torch.randn(shape).to("tpu")
        with Checking(findings, lambda: "", lambda *_: None, target.on_cpu()):
            pool(x, 3, stride=2, padding=1, ceil_mode=True)
        return [[bad.operator for bad in findings.bad], dict(findings.unchecked), findings.checked > 0]

    with target.entered(Mode.STRICT_EAGER), torch.no_grad():
        told = [
            searched(F.max_pool1d, 2, 3, 8),
            searched(F.max_pool2d, 2, 3, 8, 8),
            searched(F.max_pool3d, 2, 3, 8, 8, 8),
        ]
        library = torch.library.Library("tpu", "IMPL")
        library.impl(
            "_max_pool2d",
            lambda x, *window: F.avg_pool2d(x, *window[:3], window[4]),
            "PrivateUse1",
            allow_override=True,
        )
        return [*told, searched(F.max_pool2d, 2, 3, 8, 8)]


def in_child(probe):
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(reader)
        try:
            result = probe()
        except Exception as error:  # noqa: BLE001 - a process boundary: the parent reports it
            result = {"error": f"{type(error).__name__}: {error}"}
        with os.fdopen(writer, "w") as pipe:
            json.dump(result, pipe)
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as pipe:
        text = pipe.read()
    _, status = os.waitpid(pid, 0)
    return json.loads(text) if text else {"status": status}


PROBES = {
    "description": description,
    "pooling": pooling,
    "counting": counting,
    "attention": attention,
    "scans": scans,
    "draws": draws,
    "zero-dimensional index": zero_dimensional_index,
    "mixture of experts": tiny_mixture,
    "no experts": no_mixture,
    "compiled first": compiled_again,
    "compiled second": compiled_again,
    "compiled third": compiled_again,
    "damaged cache": damaged_cache,
    "modes and precision": modes_and_precision,
    "unsupported operator": unsupported_operator,
    "missing factorisation": missing_factorisation,
    "missing grouped matmul": missing_grouped_matmul,
    "missing fused attention": missing_fused_attention,
    "forked after client": forked_after_client,
}

if __name__ == "__main__":
    results = {name: in_child(probe) for name, probe in PROBES.items()}
    results["gradients in children"] = [in_child(small_gradient) for _ in range(20)]
    print(json.dumps(results))
