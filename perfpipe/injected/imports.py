"""Runs helpers after the modules that they are for are imported; see sitecustomize.py."""

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

#: The helper, unless the launch names another one.
HELPER = os.environ.get("PERFPIPE_INJECT_HELPER", "observe.py")

#: Modules, and the function of the helper that runs after each is imported.
AFTER = {
    "torch": "after_torch",
    "torch.nn.modules.module": "after_modules",
    "torch._dynamo.eval_frame": "after_dynamo",
}


class Finder:
    """Finds no module itself; runs a helper after the loader that another finder returned."""

    def __init__(self, folder: str, loader: "Any") -> None:
        self._folder, self._loader = folder, loader
        self._helper: "dict[str, Any]" = {}

    def find_spec(self, name: str, path: "Any" = None, target: "Any" = None) -> "Any":
        """Return what the other finders return, with a loader that also runs the helper."""
        if name not in AFTER:
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

    def _run_after(self, name: str, loader: "Any") -> None:
        """Let a loader run the helper of a module, once, after it has executed the module."""
        execute = loader.exec_module

        def exec_module(module: "Any") -> None:
            if module.__name__ != name:  # a loader of several modules
                execute(module)
                return
            del loader.exec_module
            execute(module)
            try:
                self._run(name, module)
            except Exception:  # the module stays as it is
                pass

        loader.exec_module = exec_module

    def _run(self, name: str, module: "Any") -> None:
        function = AFTER.pop(name)
        if not AFTER:
            sys.meta_path.remove(self)
        if not self._helper:
            code = self._loader("perfpipe", os.path.join(self._folder, HELPER)).get_code("perfpipe")
            # Without __name__: torch.compile imports the module that a function's globals name.
            exec(code, self._helper)
        self._helper[function](module)


def install(folder: str, loader: "Any") -> None:
    """Observe imports; `folder` has the helpers, and `loader` is the class that loads them."""
    # Shows perfpipe that a Python of the program ran the start-up file.
    started = os.path.join(os.environ["PERFPIPE_INJECT_DIR"], "started")
    os.close(os.open(started, os.O_WRONLY | os.O_CREAT, 0o600))
    sys.meta_path.insert(0, Finder(folder, loader))
