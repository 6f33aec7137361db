# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# Sourced by setup, demo and check: runs a stage, prints its time, keeps its output in build/log.

# stage NAME COMMAND...: a line with NAME and the seconds COMMAND took. Its output goes to
# build/log/NAME.log, and its end to the terminal if it fails, which ends the script with its code.
stage() {
  local name=$1 log begin code=0
  shift
  mkdir -p build/log
  log=build/log/${name// /-}.log
  begin=$EPOCHREALTIME
  [[ -t 1 ]] && printf '  %-24s ...\r' "$name"
  # A child shell, so that `set -e` holds in functions too: it is off wherever a status is tested.
  set +e
  (set -e; "$@") >"$log" 2>&1 </dev/null
  code=$?
  set -e
  printf '  %-24s %6.1f s%s\n' "$name" "$(seconds_since "$begin")" \
    "$( ((code)) && echo "  failed, see $log")"
  if ((code)); then
    tail -n "${LATHE_LOG_LINES:-60}" "$log" >&2
    exit "$code"
  fi
}

seconds_since() {
  awk -v b="$1" -v e="$EPOCHREALTIME" 'BEGIN { printf "%.1f", e - b }'
}
