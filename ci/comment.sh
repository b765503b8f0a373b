#!/usr/bin/env bash
# Comments on the pull request.  The verdict does not depend on whether the site accepts the comment:
# the token of a pull request from a fork cannot write, and the site may not answer.
set -euo pipefail

"$PERFPIPE" gate comment "$REPORT/perfpipe.md" --name "$NAME" --number "$PULL_REQUEST" ||
  echo "::warning::The comment could not be posted; the job summary has the same text."
