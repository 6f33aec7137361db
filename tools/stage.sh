# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# Sourced by setup, demo and check: runs a stage, prints its time, keeps its output in build/log.

# stage NAME COMMAND...: a line with NAME, the seconds COMMAND took, and those of all processors. Its
# output goes to build/log/NAME.log, and its end to the terminal if it fails, which ends the script with
# its code.
stage() {
  local name=$1 log begin cpu code=0
  shift
  mkdir -p build/log
  read_cpu_seconds
  cpu=$cpu_seconds
  log=build/log/${name// /-}.log
  begin=$EPOCHREALTIME
  [[ -t 1 ]] && printf '  %-24s ...\r' "$name"
  # A child shell, so that `set -e` holds in functions too: it is off wherever a status is tested.
  set +e
  (set -e; "$@") >"$log" 2>&1 </dev/null
  code=$?
  set -e
  read_cpu_seconds
  printf '  %-24s %6.1f s  %6.1f CPU s%s\n' "$name" "$(seconds_since "$begin")" \
    "$(awk -v b="$cpu" -v e="$cpu_seconds" 'BEGIN { print e - b }')" \
    "$( ((code)) && echo "  failed, see $log")"
  if ((code)); then
    tail -n "${LATHE_LOG_LINES:-60}" "$log" >&2
    exit "$code"
  fi
}

# cpu_seconds: of all commands that this shell has waited for. Not for use in $(...), a shell of its own.
read_cpu_seconds() {
  times >build/log/times
  cpu_seconds=$(awk 'NR == 2 { for (i = 1; i <= 2; ++i) { split($i, part, /[ms]/); sum += 60 * part[1] + part[2] }
                               print sum }' build/log/times)
}

seconds_since() {
  awk -v b="$1" -v e="$EPOCHREALTIME" 'BEGIN { printf "%.1f", e - b }'
}
