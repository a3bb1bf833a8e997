#!/bin/sh
# Starts the run on its hosts, over ssh. Started again, the run goes on.
hosts=$(mktemp)
trap 'rm -f "$hosts"' EXIT
cat >"$hosts" <<'end of hosts'
node1 slots=3
node2 slots=2
end of hosts
trap 'kill -TERM "$run"' TERM INT
partita run /home/me/step --data '/home/me/it'\''s.npz' --steps 1000 --checkpoint-dir /home/me/checkpoints --resume --restarts 3 --hostfile "$hosts" &
run=$!
status=0
wait "$run" || status=$?
# A signal ends the wait, and not the run.
while kill -0 "$run" 2>/dev/null; do
  status=0
  wait "$run" || status=$?
done
exit $status
