#!/usr/bin/env bash
# Says where perfpipe is installed, and under which key the installation is kept: a gate needs a part
# of what perfpipe can read, and --explain needs all of it.
set -euo pipefail

cd "$GITHUB_ACTION_PATH"
kind=gate
if [[ $ARGUMENTS == *--explain* ]]; then kind=full; fi
sources=(pyproject.toml ci perfpipe analysis ingest pipelines templates workloads)
state=$({
  python3 -c 'import platform, sys; print(sys.executable, sys.version, platform.platform())'
  find "${sources[@]}" -type f -not -path '*/__pycache__/*' -print0 | sort -z | xargs -0 sha256sum
} | sha256sum | cut -c 1-32)
{
  echo "kind=$kind"
  echo "key=perfpipe-$kind-$state"
  echo "venv=$RUNNER_TEMP/.perfpipe-$kind"
} >>"$GITHUB_OUTPUT"
