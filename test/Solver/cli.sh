#!/usr/bin/env bash
# partita-solve as a user sees it: one JSON object or one sentence, never both.
#   cli.sh PATH-OF-PARTITA-SOLVE
set -u
solve=$1
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
failed=0

# expect NAME EXIT-CODE PATTERN: stdout must match on success, stderr otherwise.
expect() {
  local out code shown
  "$solve" "$folder/p.json" "${@:4}" > "$folder/out" 2> "$folder/err"
  code=$?
  if ((code == 0)); then shown=$folder/out; else shown=$folder/err; fi
  if ((code != $2)) || ! grep -Eq "$3" "$shown"; then
    echo "FAILED $1: exit $code: $(head -c 300 "$shown")"
    failed=1
  fi
  if ((code != 0)) && [[ -s $folder/out ]]; then
    echo "FAILED $1: output beside an error"
    failed=1
  fi
  if (($(wc -l < "$shown") != 1)); then
    echo "FAILED $1: not one line"
    failed=1
  fi
}

problem() {
  printf '{"problem": {"nodes": {"intervals": [[0, 2], [1, 3]], "costs": [[1, 5], [2, 4]],
    "usages": [[6, 1], [6, 2]]}, "edges": {"nodes": [[0, 1]], "costs": [%s]},
    "usage_limit": %s}}' "$1" "$2" > "$folder/p.json"
}

problem "[0, 1, 1, 0]" 8
expect "an answer" 0 '^\{"solution": \[0, 1\], "cost": 6, "lower_bound": 6, "proved": true, "seconds": [0-9.]+, "work": [0-9]+\}$'
for form in cat "gzip -c"; do
  $form "$folder/p.json" | "$solve" - | grep -q '"cost": 6' ||
    { echo "FAILED standard input by $form"; failed=1; }
done
expect "an answer by work" 0 '"cost": 6' --work 10 --threads 1
problem "[0, 1, 1, 0]" 2
expect "too little memory" 1 'infeasible: at time step 1 every answer needs at least 3 bytes, the limit is 2'
problem "[0, 1, 1000000000000000000, 1000000000000000000]" 7
expect "pairs and memory clash" 1 'infeasible: .*memory limit of 7 bytes'
problem "[1000000000000000000, 1000000000000000000, 1000000000000000000, 1000000000000000000]" 8
expect "clash" 1 'infeasible: the forbidden choices and pairs of variables 0 and 1 leave no answer'
problem "[0, 1, 1]" 8
expect "sizes" 1 'edge 0: 3 costs, expected 2 x 2'
problem "[0, 1, 1, 0]" 0
expect "limit 0" 1 'usage_limit: expected an integer from 1'
# Two copies of one node; both in their large choice do not fit.
classes() {
  printf '{"problem": {"nodes": {"intervals": [[0, 2], [0, 2]], "costs": [[1, 5], [1, 5]],
    "usages": [[6, 1], [6, 1]]}, "usage_limit": %s, "classes": [%s]}}' "$1" "$2" > "$folder/p.json"
}
classes 8 '{"copies": [[0], [1]]}'
expect "one run" 0 '"solution": \[1, 1\], "cost": 10, "lower_bound": 10, "proved": true'
classes 8 '{"copies": [[0], [1]], "runs": 2}'
expect "two runs" 0 '"cost": 6, "lower_bound": 6, "proved": true'
classes 1 '{"copies": [[0], [1]]}'
expect "tied and too little memory" 1 'infeasible: at time step 0 every answer needs at least 2 bytes'
classes 8 '{"copies": [[0], [1, 0]]}'
expect "unlike copies" 1 'class 0, copy 1: 2 variables, expected 1 as in copy 0$'
echo '{"problem": ' > "$folder/p.json"
expect "cut short" 1 'not valid JSON: the file ends in line 2'
echo 'hello' > "$folder/p.json"
expect "not JSON" 1 'not valid JSON'
echo '{"problem": {"nodes": {"intervals": [], "costs": [], "usages": []}}}' > "$folder/p.json"
expect "no variables" 1 'the problem is empty'
rm "$folder/p.json"
expect "no file" 1 'cannot open'
exit $failed
