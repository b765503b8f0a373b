"""A package called torch, of what perfpipe's start-up file touches: most tests need no PyTorch."""

from __future__ import annotations

from pathlib import Path

_FILES = {
    "__init__.py": """
        __version__ = "2.fake"
        from torch import nn, optim
        class cuda:
            is_initialized = staticmethod(lambda: False)
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


def write_torch(folder: Path) -> None:
    """Write the package into a folder."""
    for name, text in _FILES.items():
        path = folder / "torch" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        lines = text.splitlines()
        path.write_text("\n".join(line.removeprefix(" " * 8) for line in lines))
