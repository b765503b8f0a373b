"""The start-up file of programs that perfpipe launches: prepares helpers, and changes nothing else.

perfpipe puts the folder of this file in front of PYTHONPATH, so every Python of a program runs this
file first.  The contract of all files in this folder:

- They use the standard library only, and run on the program's Python.  Helpers need Python 3.8.  On
  older versions, including Python 2, this file does nothing.
- `sys.path` and `sys.modules` are the same as without perfpipe, so the program cannot import
  anything from here.  PYTHONPATH is not changed, so child processes, such as the ranks of torchrun,
  run this file too.
- The start-up file that this one hides, of the user or the distribution, runs as usual.  Python
  reports its errors as usual.
- Nothing is printed, and no error in these files reaches the program.
- A helper runs when the program imports the module that the helper is for.  A program that imports
  no such module runs only this file and `imports.py`.
"""

import os
import sys

_here = os.path.dirname(os.path.abspath(__file__))
sys.path[:] = [path for path in sys.path if path != _here]
sys.path_importer_cache.pop(_here, None)

try:
    if sys.version_info >= (3, 8) and os.environ.get("PERFPIPE_INJECT_DIR"):
        _loader = type(globals()["__loader__"])
        _names = {}  # type: ignore[var-annotated]
        exec(_loader("perfpipe", os.path.join(_here, "imports.py")).get_code("perfpipe"), _names)
        _names["install"](_here, _loader)
except Exception:
    pass

# Python uses the module that has this name at the end.  If there is no other start-up file, the
# import fails with the error that Python expects, and ignores, without a start-up file.
del sys.modules["sitecustomize"]
import sitecustomize  # type: ignore[import-not-found]  # noqa: E402, F401
