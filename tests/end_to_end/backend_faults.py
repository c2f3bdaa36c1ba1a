"""Faults put into the real backend, in the process of a case, through the registered kernels of its operators."""

import itertools
import os
import signal
import time

import torch
from torch._dynamo.backends.registry import lookup_backend

_LIBRARY = torch.library.Library("aten", "IMPL")


def _override(op, kernel):
    _LIBRARY.impl(op, kernel, "PrivateUse1", allow_override=True)


def gelu_by_tanh():
    """The approximation in place of the exact function: off by at most 5e-4."""

    def gelu(x, *, approximate="none"):
        return 0.5 * x * (1 + torch.tanh(0.7978845608 * (x + 0.044715 * x * x * x)))

    _override("gelu", gelu)


def gelu_is_nan():
    _override("gelu", lambda x, *, approximate="none": x * float("nan"))


def gelu_missing():
    def gelu(x, *, approximate="none"):
        raise NotImplementedError("operator 'aten::gelu' is not implemented for TPU. Please file a feature request")

    _override("gelu", gelu)


def gelu_crashes():
    _override("gelu", lambda x, *, approximate="none": os.kill(os.getpid(), signal.SIGSEGV))


def gelu_hangs():
    _override("gelu", lambda x, *, approximate="none": time.sleep(1000))


def gelu_out_of_memory():
    def gelu(x, *, approximate="none"):
        raise RuntimeError("RESOURCE_EXHAUSTED: the TPU ran out of memory while awaiting the materialization of value")

    _override("gelu", gelu)


def gelu_exits():
    _override("gelu", lambda x, *, approximate="none": os._exit(3))


def loads_on_cpu():
    """`device_map` is ignored and the model stays on the host, as happens with a device that a loader does not know."""
    from transformers import PreTrainedModel

    original = PreTrainedModel.from_pretrained.__func__

    def from_pretrained(cls, *args, device_map=None, **options):
        return original(cls, *args, device_map="cpu", **options)

    PreTrainedModel.from_pretrained = classmethod(from_pretrained)


def compiles_nothing():
    torch.compile = lambda model, **options: model


def gelu_error_is_no_text():
    """Lone surrogates, which no encoder takes, and more characters than fit into a message."""

    def gelu(x, *, approximate="none"):
        raise RuntimeError("\udcff" * 100_000)

    _override("gelu", gelu)


def gelu_is_right_but_not_its_slope():
    """What a forward pass sees is right; gradients are those of the approximation."""

    def gelu_backward(grad, x, *, approximate="none"):
        a, b = 0.7978845608, 0.044715
        t = torch.tanh(a * (x + b * x * x * x))
        return grad * (0.5 * (1 + t) + 0.5 * x * (1 - t * t) * a * (1 + 3 * b * x * x))

    _override("gelu_backward", gelu_backward)


def one_token_is_cached_wrongly():
    """A text's keys and values are right; those of a single token that joins a cache are off by little."""

    def cat(tensors, dim=0):
        parts = [x for x in tensors if x.dim() > 1 or x.numel()]
        if len(parts) == 2 and parts[0].dim() == 4 and dim == -2 and parts[1].shape[dim] == 1:
            parts[1] = parts[1] * 1.001
        shape = list(parts[0].shape)
        shape[dim] = sum(x.shape[dim] for x in parts)
        whole, at = parts[0].new_empty(shape), 0
        for x in parts:
            whole.narrow(dim, at, x.shape[dim]).copy_(x)
            at += x.shape[dim]
        return whole

    _override("cat", cat)


def gelu_is_by_tanh_where_compiled():
    """A rewrite of the captured graph that the uncompiled model does not go through."""
    original = torch.compile

    def compile(model, *, backend, **options):
        known = backend if callable(backend) else lookup_backend(backend)

        def rewriting(graph, examples, **more):
            for node in graph.graph.nodes:
                if getattr(node.target, "__name__", "") == "gelu":
                    node.kwargs = {"approximate": "tanh"}
            graph.recompile()
            return known(graph, examples, **more)

        return original(model, backend=rewriting, **options)

    torch.compile = compile


def gelu_differs_from_run_to_run():
    calls = itertools.count()
    _override("gelu", lambda x, *, approximate="none": torch.relu(x) * (1 + 0.01 * (next(calls) % 7)))


def next_best_experts():
    """Ranks from one on are taken for ranks from zero on."""

    def topk(x, k, dim=-1, largest=True, sorted=True):
        values, indices = torch.sort(x, dim=dim, descending=largest)
        return values.narrow(dim, 1, k).contiguous(), indices.narrow(dim, 1, k).contiguous()

    _override("topk", topk)
