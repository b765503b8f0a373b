#!/usr/bin/env bash
# Installs perfpipe into a virtual environment, unless there is one.
set -euo pipefail

if [ -z "$PERFPIPE" ]; then
  PERFPIPE="$VENV/bin/perfpipe"
  if ! "$PERFPIPE" --version >/dev/null 2>&1; then
    rm -rf "$VENV"
    python3 -m venv "$VENV"
    pip=("$VENV/bin/python" -m pip --quiet --disable-pip-version-check)
    if [ "$KIND" = gate ]; then
      "${pip[@]}" install --requirement "$GITHUB_ACTION_PATH/ci/requirements.txt"
      "${pip[@]}" install --no-deps "$GITHUB_ACTION_PATH"
    else
      "${pip[@]}" install "$GITHUB_ACTION_PATH"
    fi
    "${pip[@]}" uninstall --yes setuptools pip # which are not needed any more
  fi
fi
"$PERFPIPE" --version
echo "perfpipe=$PERFPIPE" >>"$GITHUB_OUTPUT"
