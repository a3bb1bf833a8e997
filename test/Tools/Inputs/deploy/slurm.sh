#!/bin/bash
#SBATCH --job-name=step
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=2
#SBATCH --cpus-per-task=1
#SBATCH --mem=493M
#SBATCH --output=step-%j.log
#SBATCH --open-mode=append
#SBATCH --requeue
#SBATCH --signal=B:TERM@65
hosts=$(mktemp)
trap 'rm -f "$hosts"' EXIT
scontrol show hostnames "$SLURM_JOB_NODELIST" | sed 's/$/ slots=2/' >"$hosts"
# A run that starts again does not wait for the cores of what it has lost.
export SLURM_OVERLAP=1
trap 'kill -TERM "$run"' TERM INT
partita run /home/me/step --data /home/me/train.npz --steps 1000 --checkpoint-dir /home/me/checkpoints --save-every 10min --grace 60 --resume --restarts 5 --hostfile "$hosts" &
run=$!
status=0
wait "$run" || status=$?
# A signal ends the wait, and not the run.
while kill -0 "$run" 2>/dev/null; do
  status=0
  wait "$run" || status=$?
done
# 75: a rank or host was lost, at most 5 times; 143, 130: stopped behind a generation.
# A job that its user has cancelled is not running any more.
again=no
case $status in
  75) if [ "${SLURM_RESTART_COUNT:-0}" -lt 5 ]; then again=yes; fi ;;
  143|130) again=yes ;;
esac
if [ $again = yes ] && scontrol show job "$SLURM_JOB_ID" | grep -q JobState=RUNNING; then
  scontrol requeue "$SLURM_JOB_ID"
fi
exit $status
