"""Packages called torch and transformers, of what injected files touch: most tests need neither."""

from __future__ import annotations

from pathlib import Path

_FILES = {
    "__init__.py": """
        __version__ = "2.fake"
        from torch import nn, optim
        class cuda:
            is_initialized = is_available = staticmethod(lambda: False)
        class _C: pass
        class jit:
            is_tracing = staticmethod(lambda: False)
    """,
    "nn/__init__.py": "from torch.nn.modules.module import Module, Parameter",
    "nn/modules/__init__.py": "",
    "nn/modules/module.py": """
        class Parameter:
            def __init__(self, size):
                self.size = size
            def numel(self):
                return self.size
        class Module:
            _compiled_call_impl = None
            def __init__(self, size=0, **children):
                self._modules = children
                self.own = [Parameter(size)] if size else []
            def parameters(self):
                yield from self.own
                for child in self._modules.values():
                    yield from child.parameters()
            def modules(self):
                yield self
                for child in self._modules.values():
                    yield from child.modules()
            def forward(self, x):
                for child in self._modules.values():
                    x = child(x)
                return x
            def _call_impl(self, *args, **kwargs):
                return self.forward(*args, **kwargs)
            def _wrapped_call_impl(self, *args, **kwargs):
                if self._compiled_call_impl is not None:
                    return self._compiled_call_impl(*args, **kwargs)
                else:
                    return self._call_impl(*args, **kwargs)
            __call__ = _wrapped_call_impl
    """,
    "optim/__init__.py": "from torch.optim.optimizer import Optimizer",
    "optim/optimizer.py": """
        _hooks = []
        def register_optimizer_step_post_hook(hook):
            _hooks.append(hook)
        class Optimizer:
            def __init__(self, params):
                self.param_groups = [{"params": list(params)}]
            def step(self):
                for hook in _hooks:
                    hook(self, (), {})
    """,
}

#: What a program needs: a clock that advances by 1 ms each time, a model, a loss and an optimizer.
PROGRAM = """
import itertools, time
time.perf_counter_ns = itertools.count(0, 1_000_000).__next__
import torch
class Net(torch.nn.Module): pass
class Loss(torch.nn.Module): pass
net = Net(layer=torch.nn.Module(10, inner=torch.nn.Module(5)))
loss, optimizer = Loss(), torch.optim.Optimizer(net.parameters())
def train(steps, model=net):
    for _ in range(steps):
        assert loss(model(1)) == 1
        optimizer.step()
"""


#: The part of transformers that says when it generates a token, and a model that does.
_TRANSFORMERS = {
    "__init__.py": "",
    "generation/__init__.py": "",
    "generation/stopping_criteria.py": """
        import torch
        class StoppingCriteriaList(list):
            def __call__(self, input_ids, scores):
                return len(input_ids) >= scores
    """,
    "generation/utils.py": """
        import torch
        from transformers.generation.stopping_criteria import StoppingCriteriaList
        class GenerationMixin:
            generation_config = None
            def generate(self, ids, generation_config=None, new=4, **kwargs):
                criteria, most = StoppingCriteriaList(), len(ids) + new
                while True:
                    ids = [*ids, self(1)]
                    if criteria(ids, most):
                        return ids
        class Model(GenerationMixin, torch.nn.Module):
            pass
    """,
}


def write_torch(folder: Path) -> None:
    """Write the packages into a folder."""
    files = {"torch": _FILES, "transformers": _TRANSFORMERS}
    for package, name, text in ((p, n, t) for p, own in files.items() for n, t in own.items()):
        path = folder / package / name
        path.parent.mkdir(parents=True, exist_ok=True)
        lines = text.splitlines()
        path.write_text("\n".join(line.removeprefix(" " * 8) for line in lines))
