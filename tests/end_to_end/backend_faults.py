"""Faults that end a process, or what it says, put into the backend in the process of a case.

Those that only give wrong results are in the catalogue, `tests/faults`.
"""

import itertools
import os
import signal
import time

import torch
from torch._dynamo.backends.registry import lookup_backend

_LIBRARY = torch.library.Library("aten", "IMPL")


def _override(op, kernel):
    _LIBRARY.impl(op, kernel, "PrivateUse1", allow_override=True)


def gelu_crashes():
    _override("gelu", lambda x, *, approximate="none": os.kill(os.getpid(), signal.SIGSEGV))


def gelu_hangs():
    _override("gelu", lambda x, *, approximate="none": time.sleep(1000))


def gelu_exits():
    _override("gelu", lambda x, *, approximate="none": os._exit(3))


def gelu_out_of_memory():
    def gelu(x, *, approximate="none"):
        raise RuntimeError("RESOURCE_EXHAUSTED: the TPU ran out of memory while awaiting the materialization of value")

    _override("gelu", gelu)


def gelu_error_is_no_text():
    """Lone surrogates, which no encoder takes, and more characters than fit into a message."""

    def gelu(x, *, approximate="none"):
        raise RuntimeError("\udcff" * 100_000)

    _override("gelu", gelu)


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


def sums_are_added_in_any_order():
    """Nothing wrong: partial sums of a product are added in the order they arrive, as atomic additions do it."""
    calls = itertools.count()

    def linear(x, weight, bias=None):
        third = max(1, x.shape[-1] // 3)
        parts = [torch.matmul(a, b.mT) for a, b in zip(x.split(third, -1), weight.split(third, -1), strict=True)]
        first = next(calls) % len(parts)
        total = sum(parts[first:] + parts[:first])
        return total if bias is None else total + bias

    _override("linear", linear)
