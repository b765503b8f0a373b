#!/usr/bin/env bash
# Measures a workload, decides whether it got slower, and writes the outputs of the step.  Bad input
# ends the script; any other verdict is the output `code`, with which the last step ends.
set -euo pipefail

refuse() {
  echo "::error::$1"
  exit 2
}

# The two commits of an event.  The base of a pull request moves on, so A...B names the commit where
# the branch began.
span() {
  if [ -n "$COMMITS" ]; then
    echo "$COMMITS"
  elif [[ $BASE =~ ^0+$ ]]; then
    echo "origin/$DEFAULT_BRANCH...$HEAD" # the first push of a branch
  else
    echo "$BASE...$HEAD"
  fi
}

[[ $NAME =~ ^[A-Za-z0-9][A-Za-z0-9_.-]*$ ]] ||
  refuse "name has letters, digits, '_', '.' and '-', not '$NAME'"
[[ $MODE =~ ^(check|ab)$ ]] || refuse "mode is check or ab, not '$MODE'"
[[ $RUNS =~ ^([1-9][0-9]*)?$ ]] || refuse "runs is a number of at least 1, not '$RUNS'"
if [ "$MODE" = ab ] && [ -z "$COMMITS$BASE" ]; then
  refuse "this event has no earlier commit: give the input commits, A..B"
fi
given=$(xargs --no-run-if-empty --max-args=1 printf '%s\n' <<<"$ARGUMENTS") ||
  refuse "arguments has a quote without its end"

report="$RUNNER_TEMP/$NAME"
store="$report/store"
rm -rf "$report"
mkdir -p "$report"
words=(--store "$store" --fail-on "$FAIL_ON" --json "$report/perfpipe.json"
  --md "$report/perfpipe.md" --html "$report/perfpipe.html" --junit "$report/junit.xml")
if [ "$ALLOW_NOT_COMPARABLE" = true ]; then words+=(--allow-not-comparable); fi
while IFS= read -r word; do
  if [ -n "$word" ]; then words+=("$word"); fi
done <<<"$given"

code=0
if [ "$MODE" = check ]; then
  "$PERFPIPE" gate baseline show "$BASELINE" # before anything is measured
  for ((run = 1; run <= ${RUNS:-5}; run++)); do
    "$PERFPIPE" run "$WORKLOAD" --collector timing --no-report --store "$store" || code=$?
    if [ "$code" = 2 ]; then exit 2; fi
  done
  names=()
  for run in "$store"/runs/*/; do names+=("$(basename "$run")"); done
  "$PERFPIPE" check "${names[@]}" --baseline "$BASELINE" "${words[@]}" || code=$?
else
  words+=(--git "$(span)")
  if [ -n "$RUNS" ]; then words+=(--rounds "$RUNS"); fi
  if [ -n "$CALIBRATION" ]; then words+=(--calibration "$CALIBRATION"); fi
  if [ -n "$BUILD" ]; then words+=(--build "$BUILD"); fi
  "$PERFPIPE" ab "$WORKLOAD" "${words[@]}" || code=$?
fi

echo "code=$code" >>"$GITHUB_OUTPUT"
echo "report=$report" >>"$GITHUB_OUTPUT"
if [ -f "$report/perfpipe.json" ]; then
  python3 - "$report/perfpipe.json" >>"$GITHUB_OUTPUT" <<'END'
import json, sys
found = json.load(open(sys.argv[1]))
print(f"verdict={found['verdict']}\naction={found['action']}")
END
  cat "$report/perfpipe.md" >>"$GITHUB_STEP_SUMMARY"
fi
