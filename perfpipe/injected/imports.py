"""Runs helpers after the modules that they are for are imported; see sitecustomize.py."""

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

#: The helper, unless the launch names another one.
HELPER = os.environ.get("PERFPIPE_INJECT_HELPER", "observe.py")

#: Modules, and the function that runs after each is imported, if the helper has it.
AFTER = {
    "torch": "after_torch",
    "torch.nn.modules.module": "after_modules",
    "torch._dynamo.eval_frame": "after_dynamo",
    "transformers.generation.stopping_criteria": "after_stopping",
    "jax": "after_jax",
}


class Finder:
    """Finds no module itself; runs functions after the loader that another finder returned."""

    def __init__(self, folder: str, loader: "Any") -> None:
        self._folder, self._loader = folder, loader
        self._helper: "dict[str, Any]" = {}
        self._more: "dict[str, list[Any]]" = {}  # by module: functions that helpers asked for

    def find_spec(self, name: str, path: "Any" = None, target: "Any" = None) -> "Any":
        """Return what the other finders return, with a loader that also runs the functions."""
        if name not in AFTER and name not in self._more:
            return None
        try:
            for finder in list(sys.meta_path):
                find = getattr(finder, "find_spec", None)
                spec = find(name, path, target) if finder is not self and find else None
                if spec is not None:
                    self._run_after(name, spec.loader)
                    return spec
        except Exception:  # Python asks the other finders next
            pass
        return None

    def after(self, name: str, function: "Any") -> None:
        """Run a function once after a module is imported: now, if it is."""
        module = sys.modules.get(name)
        if module is None:
            self._more.setdefault(name, []).append(function)
            if self not in sys.meta_path:
                sys.meta_path.insert(0, self)
        elif getattr(getattr(module, "__spec__", None), "_initializing", False):
            _when_initialized(module, function)
        else:
            function(module)

    def load(self, name: str) -> "dict[str, Any]":
        """Run a file of this folder; return its globals, which begin with `after` and `load`."""
        code = self._loader("perfpipe", os.path.join(self._folder, name)).get_code("perfpipe")
        # Without __name__: torch.compile imports the module that a function's globals name.
        names = {"after": self.after, "load": self.load}
        exec(code, names)
        return names

    def _run_after(self, name: str, loader: "Any") -> None:
        """Let a loader run the functions of a module, once, after it has executed the module."""
        execute = loader.exec_module

        def exec_module(module: "Any") -> None:
            if module.__name__ != name:  # a loader of several modules
                execute(module)
                return
            del loader.exec_module
            execute(module)
            self._run(name, module)

        loader.exec_module = exec_module

    def _run(self, name: str, module: "Any") -> None:
        """Run the functions of a module; if one fails, the module stays as it is."""
        function, functions = AFTER.pop(name, None), self._more.pop(name, [])
        if not AFTER and not self._more and self in sys.meta_path:
            sys.meta_path.remove(self)
        if function is not None:
            try:
                self._helper = self._helper or self.load(HELPER)
                functions.insert(0, self._helper.get(function))
            except Exception:
                pass
        for function in functions:
            try:
                if function is not None:
                    function(module)
            except Exception:
                pass


def _when_initialized(module: "Any", function: "Any") -> None:
    """Run a function when the import of a module, which has begun, ends."""
    spec = module.__spec__
    kind = type(spec)

    class Spec(kind):  # type: ignore[misc, valid-type]
        def __setattr__(self, name: str, value: "Any") -> None:
            object.__setattr__(self, name, value)
            if name == "_initializing" and not value:
                object.__setattr__(self, "__class__", kind)
                try:
                    if sys.modules.get(module.__name__) is module:
                        function(module)
                except Exception:
                    pass

    spec.__class__ = Spec


def install(folder: str, loader: "Any") -> None:
    """Observe imports; `folder` has the helpers, and `loader` is the class that loads them."""
    # Shows perfpipe that a Python of the program ran the start-up file.
    started = os.path.join(os.environ["PERFPIPE_INJECT_DIR"], "started")
    os.close(os.open(started, os.O_WRONLY | os.O_CREAT, 0o600))
    sys.meta_path.insert(0, Finder(folder, loader))
