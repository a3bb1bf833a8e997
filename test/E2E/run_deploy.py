#!/usr/bin/env python3
"""`partita deploy`: manifests that clusters take, and pods that train on when one is lost.

usage: run_deploy.py PARTITA [--only TEXT] [--ssh]

Two small models under six plans each, for each kind of cluster: what is written is checked as the
API servers would, and becomes pods of namespaces (cluster.py), whose very commands train. A pod of
ranks is killed, then the one that starts them is told to go; the losses are those of a run that
nothing happened to. Of Slurm, its commands are stood in for.
"""
import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time

import numpy as np

import cluster
import tier
import training_models

SEED, STEPS = 5, 160
#: Ranks of a host, arguments of compile, members of the specification.
DP = ["--mesh", "dp=2", "--mode", "data-parallel"]
PLANS = {"dp": (1, DP, {}), "tp": (1, ["--mesh", "tp=2"], {}),
         "dp-tp": (2, ["--mesh", "dp=2,tp=2"], {}),
         **{f"zero{level}": (1, DP, {"optimizer_parallel": {
             "enable": True, "threshold_kb": 0, "level": level}}) for level in (1, 2, 3)}}
#: Steps take some milliseconds, so that a run can be met in their midst.
MODELS = {"gpt2-tiny": (lambda path: training_models.transformer(path, 8, 64, 96), "tokens",
                        "head"),
          "resnet18-tiny": (lambda path: training_models.convolutional(path, 256), "x", "fc")}
#: Rows are evaluated beside the steps of the first model.
EVALUATES = {"gpt2-tiny"}
KINDS = ["mpijob", "jobset", "trainjob", "slurm", "hosts"]


class Work:
    def __init__(self, partita, folder):
        self.partita, self.folder, self.losses = partita, folder, {}
        for name, (write, feed, _) in MODELS.items():
            inputs, labels, classes = write(f"{folder}/{name}.onnx")
            draw = np.random.default_rng(SEED)
            parts = [inputs[feed](draw) for _ in range(4)]
            np.savez(f"{folder}/{name}.npz", **{feed: np.concatenate(parts)},
                     labels=draw.integers(0, classes, (4 * labels[0], *labels[1:])))

    def run(self, *words, status=0):
        done = subprocess.run([self.partita, *words], capture_output=True, text=True,
                              timeout=120)
        if done.returncode != status:
            raise RuntimeError(f"{words} ended with {done.returncode}: {done.stderr}")
        return done.stdout

    def bundle(self, model, plan):
        """The folder of the bundle, and the losses of a run that nothing happens to."""
        path = f"{self.folder}/{model}-{plan}"
        if path in self.losses:
            return path, self.losses[path]
        _, arguments, more = PLANS[plan]
        spec = {"loss": {"kind": "softmax_cross_entropy", "of": MODELS[model][2],
                         "labels": "labels", "axis": -1},
                "optimizer": {"kind": "adamw", "lr": 0.003}, "evaluate": model in EVALUATES,
                **more}
        with open(f"{path}.json", "w") as file:
            json.dump(spec, file)
        self.run("compile", f"{self.folder}/{model}.onnx", "-o", path, "--train",
                 f"{path}.json", *arguments)
        self.run("run", path, "--data", f"{self.folder}/{model}.npz", "--steps", str(STEPS),
                 "--seed", "7", "--log", f"{path}.jsonl",
                 *evaluation_of(model, f"{self.folder}/{model}.npz"))
        self.losses[path] = losses_of(f"{path}.jsonl")
        return path, self.losses[path]

    def deploy(self, bundle, model, plan, words, place, out):
        options = ["--data", f"{place['data']}", "--steps", str(STEPS), "--seed", "7",
                   "--checkpoint-dir", f"{place['shared']}/checkpoints", "--save-every", "5",
                   "--log", f"{place['shared']}/log.jsonl", "--timeout", "20",
                   *evaluation_of(model, place["data"])]
        if model in EVALUATES:
            options += ["--keep-best", "model"]
        self.run("deploy", bundle, *words, "--name", "train", "--ranks-per-host",
                 str(PLANS[plan][0]), "--restarts", "3", "-o", out, "--", *options)


def evaluation_of(model, data):
    return ["--eval", data, "--eval-every", "40"] if model in EVALUATES else []


def losses_of(path):
    with open(path) as file:
        return [(line["step"], line["loss"], line.get("eval_loss"))
                for line in map(json.loads, file)]


def check_best(model, expected, checkpoints):
    """The generation that evaluated best has its second name, whatever happened."""
    if model not in EVALUATES:
        return
    evaluated = {step: loss for step, _, loss in expected if loss is not None}
    best = min(evaluated, key=evaluated.get)
    with open(f"{checkpoints}/best-model/manifest.json") as file:
        found = json.load(file)["step"]
    if sorted(evaluated) != [40, 80, 120, 160] or found != best:
        raise RuntimeError(f"evaluated were {evaluated}, best-model is of step {found}")


def wait_for(what, holds, pods):
    end = time.time() + 240
    while not holds():
        if time.time() > end or any(pod.process.poll() is not None for pod in pods):
            raise RuntimeError(f"no {what} within four minutes, or a pod ended before")
        time.sleep(0.005)


def lines_of(path):
    if not os.path.exists(path):
        return 0
    with open(path) as file:
        return file.read().count("\n")


def same_losses(name, path, expected):
    actual = losses_of(path)
    if actual != expected:
        at = next((k for k, (a, b) in enumerate(zip(actual, expected)) if a != b),
                  min(len(actual), len(expected)))
        raise RuntimeError(f"{name}: {len(actual)} of {len(expected)} lines, the first other "
                           f"is {actual[at:at + 1]} for {expected[at:at + 1]}")


def disturb(there, job, log):
    """Trains while a pod of ranks is lost and the one that starts them has to go. The ends of
    launchers."""
    for pod in job.workers:
        there.start(pod)
    for pod in job.workers:
        there.wait_ready(pod)
    ends, disturbed = [], set()
    while True:
        there.start(job.launcher)
        if "kill" not in disturbed:
            disturbed.add("kill")
            wait_for("step 20", lambda: lines_of(log) >= 20, [job.launcher])
            lost = job.workers[-1]
            there.kill(lost)
            there.wait(lost)
            there.start(lost)
            wait_for("second start", lambda: "goes on behind" in there.text(job.launcher),
                     [job.launcher])
            before = lines_of(log)
            wait_for("new step", lambda: lines_of(log) > before, [job.launcher])
            there.kill(job.launcher, signal.SIGTERM)
        ends.append(there.wait(job.launcher))
        what = job.next(ends[-1])
        if what in ("done", "failed"):
            return ends, what
        if what == "all":
            for pod in job.workers:
                there.kill(pod)
                there.wait(pod)
                there.start(pod)


def check_kubernetes(work, model, plan, kind, folder, runs):
    import yaml

    import manifests
    bundle, expected = work.bundle(model, plan)
    shared, data = f"{folder}/shared", f"{folder}/data"
    os.makedirs(shared)
    os.makedirs(data)
    os.link(f"{work.folder}/{model}.npz", f"{data}/train.npz")
    more = ["--ssh-keys", "keys"] if kind == "jobset" else []
    work.deploy(bundle, model, plan, ["--kubernetes", kind, "--image", "registry.example/partita:1",
                               "--mount", f"models/{os.path.basename(bundle)}:/bundle:ro",
                               "--mount", "shared:/shared", "--mount", "data:/data:ro", *more],
                {"data": "/data/train.npz", "shared": "/shared"}, f"{folder}/job.yaml")
    with open(f"{folder}/job.yaml") as file:
        documents = list(yaml.safe_load_all(file))
    for document in documents:
        manifests.check(document)
    if not runs:
        return
    volumes = {"models": work.folder, "shared": shared, "data": data}
    job = cluster.KINDS[kind](documents, volumes, folder)
    there = cluster.Cluster(f"{folder}/pods", os.path.dirname(work.partita), job.domain,
                            work.has_ssh)
    if work.has_ssh:
        os.chown(shared, 1000, 1000)
    for pod in (*job.workers, job.launcher):
        there.address(pod.name)
    log = f"{shared}/log.jsonl"
    try:
        ends, what = disturb(there, job, log)
        if (ends, what) != ([143, 0], "done"):
            raise RuntimeError(f"launchers ended with {ends}, the job has {what}")
        same_losses(kind, log, expected)
        check_best(model, expected, f"{shared}/checkpoints")
        # An error is not tried again, or does not begin.
        os.remove(f"{data}/train.npz")
        started = time.time()
        for _ in range(10):
            there.start(job.launcher)
            what = job.next(there.wait(job.launcher))
            if what == "failed":
                break
        if what != "failed" or time.time() - started > 20 or \
                losses_of(log) != expected:
            raise RuntimeError(f"an error was tried again: {there.text(job.launcher)}")
    except Exception as error:
        texts = "\n".join(f"== {pod.name}\n{there.text(pod)[-3000:]}"
                          for pod in (*job.workers, job.launcher) if pod.process)
        raise RuntimeError(f"{model}, {plan}, {kind}: {error}\n{texts}") from error
    finally:
        there.end()


SCONTROL = """#!/bin/sh
case "$1 $2" in
"show hostnames") echo "$3" | tr ',' '\\n' ;;
"show job") echo "   JobState=$(cat {folder}/state) Reason=None" ;;
requeue*) echo "$2" >>{folder}/requeued ;;
esac
"""


def check_script(work, model, plan, kind, folder, runs):
    """Slurm and hosts: pods are the hosts, and the script runs in one more."""
    bundle, expected = work.bundle(model, plan)
    slots = PLANS[plan][0]
    words = ["--slurm"] if kind == "slurm" else ["--hostfile", "node-0", "node-1"]
    os.makedirs(f"{folder}/shared")
    place = {"data": f"{work.folder}/{model}.npz", "shared": f"{folder}/shared"}
    work.deploy(bundle, model, plan, words, place, f"{folder}/job.sh")
    shell = "bash" if kind == "slurm" else "sh"
    subprocess.run([shell, "-n", f"{folder}/job.sh"], check=True)
    with open(f"{folder}/job.sh") as file:
        text = file.read()
    if kind == "slurm" and not {f"#SBATCH --ntasks-per-node={slots}", "#SBATCH --nodes=2",
                                "#SBATCH --requeue", "#SBATCH --signal=B:TERM@30",
                                "#SBATCH --cpus-per-task=1"} <= set(text.splitlines()):
        raise RuntimeError(text)
    if not runs:
        return
    with open(f"{folder}/state", "w") as file:
        file.write("RUNNING")
    os.makedirs(f"{folder}/bin")
    with open(f"{folder}/bin/scontrol", "w") as file:
        file.write(SCONTROL.format(folder=folder))
    os.chmod(f"{folder}/bin/scontrol", 0o755)
    there = cluster.Cluster(f"{folder}/pods",
                            f"{folder}/bin:{os.path.dirname(work.partita)}")
    mounts = [(work.folder, work.folder, False)]
    nodes = [cluster.Pod(f"node-{k}", ["/image/sshd", "-p", "2222"], {}, mounts)
             for k in (0, 1)]
    script = cluster.Pod("batch", [shell, f"{folder}/job.sh"],
                         {"SLURM_JOB_ID": "17", "SLURM_JOB_NODELIST": "node-0,node-1"}, mounts)
    for pod in (*nodes, script):
        there.address(pod.name)

    class Job:
        workers, launcher = nodes, script

        @staticmethod
        def next(status):
            if status == 0:
                return "done"
            if kind == "slurm" and not os.path.exists(f"{folder}/requeued"):
                return "failed"
            return "launcher"
    try:
        ends, what = disturb(there, Job, f"{folder}/shared/log.jsonl")
        if (ends, what) != ([143, 0], "done"):
            raise RuntimeError(f"scripts ended with {ends}: {what}")
        same_losses(kind, f"{folder}/shared/log.jsonl", expected)
        check_best(model, expected, f"{folder}/shared/checkpoints")
    except Exception as error:
        texts = "\n".join(f"== {pod.name}\n{there.text(pod)[-3000:]}"
                          for pod in (*nodes, script) if pod.process)
        raise RuntimeError(f"{model}, {plan}, {kind}: {error}\n{texts}") from error
    finally:
        there.end()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("partita")
    parser.add_argument("--ssh", action="store_true",
                        help="with this machine's sshd and ssh, as the user of the image")
    parser.add_argument("--only", default="", help="cases that have this text")
    arguments = parser.parse_args()
    pods = os.environ.get("PARTITA_TEST_CLUSTER") == "1" or cluster.can_have_pods()
    if pods:
        cluster.enter_network()
    else:
        print("no namespaces can be made here: what is written is checked, and not run",
              flush=True)
    # On a disk that others use, most of the time would go into generations.
    memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    with tempfile.TemporaryDirectory(dir=memory) as folder:
        work = Work(os.path.abspath(arguments.partita), folder)
        work.has_ssh = arguments.ssh
        os.chmod(folder, 0o755)
        cases = tier.sample("deploy", [(model, plan) for plan in PLANS for model in MODELS],
                            kind=lambda case: case[0])
        # The quick tier runs a kind of Kubernetes' and the batch system's, each with one plan.
        run = tier.sample("deploy-pods", [kind for kind in KINDS if kind != "hosts"],
                          kind=lambda it: it in cluster.KINDS)
        for number, kind in enumerate(KINDS):
            for k, (model, plan) in enumerate(cases):
                if arguments.only not in f"{model} {plan} {kind}":
                    continue
                begun = time.time()
                case = f"{folder}/case-{model}-{plan}-{kind}"
                os.makedirs(case)
                check = check_kubernetes if kind in cluster.KINDS else check_script
                runs = pods and (not tier.is_quick() or
                                 kind in run and number % len(cases) == k)
                check(work, model, plan, kind, case, runs)
                print(f"{model}, {plan}: {kind}{' in pods' if runs else ''}, "
                      f"{time.time() - begun:.1f} s", flush=True)


if __name__ == "__main__":
    sys.exit(main())
