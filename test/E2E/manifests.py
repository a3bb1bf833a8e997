"""Checks that manifests are what the API servers of clusters take: by the models of Kubeflow's trainer
2.3.0 (kubeflow-trainer-api, which has those of JobSet and of Kubernetes too), and for MPIJob
v2beta1, which no package has, by the members and words of its definition."""
import enum
from typing import Annotated, Dict, Optional

from kubeflow_trainer_api import models
from pydantic import BaseModel, ConfigDict, Field

MODELS = {("v1", "Service"): models.IoK8sApiCoreV1Service,
          ("v1", "ConfigMap"): models.IoK8sApiCoreV1ConfigMap,
          ("jobset.x-k8s.io/v1alpha2", "JobSet"): models.JobsetV1alpha2JobSet,
          ("trainer.kubeflow.org/v1alpha1", "TrainingRuntime"):
              models.TrainerV1alpha1TrainingRuntime,
          ("trainer.kubeflow.org/v1alpha1", "TrainJob"): models.TrainerV1alpha1TrainJob}
Count = Annotated[int, Field(strict=True, ge=0)]


class Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


def words(name, *values):
    return enum.StrEnum(name, {value: value for value in values})


class ReplicaSpec(Strict):
    replicas: Optional[Count] = None
    template: dict
    restartPolicy: Optional[Annotated[
        words("RestartPolicy", "Always", "OnFailure", "Never", "ExitCode"),
        Field(strict=False)]] = None


class SchedulingPolicy(Strict):
    minAvailable: Optional[Count] = None
    queue: Optional[str] = None
    minResources: Optional[dict] = None
    priorityClass: Optional[str] = None
    scheduleTimeoutSeconds: Optional[Count] = None


class RunPolicy(Strict):
    cleanPodPolicy: Optional[Annotated[words("CleanPodPolicy", "None", "Running", "All"),
                                       Field(strict=False)]] = None
    ttlSecondsAfterFinished: Optional[Count] = None
    activeDeadlineSeconds: Optional[Count] = None
    backoffLimit: Optional[Count] = None
    schedulingPolicy: Optional[SchedulingPolicy] = None
    suspend: Optional[bool] = None
    managedBy: Optional[str] = None


class MpiJobSpec(Strict):
    slotsPerWorker: Optional[Annotated[int, Field(strict=True, ge=1)]] = None
    runLauncherAsWorker: Optional[bool] = None
    runPolicy: Optional[RunPolicy] = None
    mpiReplicaSpecs: Dict[Annotated[words("Replica", "Launcher", "Worker"),
                                    Field(strict=False)], ReplicaSpec]
    sshAuthMountPath: Optional[str] = None
    launcherCreationPolicy: Optional[Annotated[
        words("LauncherCreation", "AtStartup", "WaitForWorkersReady"),
        Field(strict=False)]] = None
    mpiImplementation: Optional[Annotated[words("Mpi", "OpenMPI", "Intel", "MPICH"),
                                          Field(strict=False)]] = None


def differences(given, kept, path):
    """Places that a model does not know, or has changed."""
    if isinstance(given, dict):
        for name, value in given.items():
            if not isinstance(kept, dict) or name not in kept:
                yield f"{path}.{name} is unknown"
            else:
                yield from differences(value, kept[name], f"{path}.{name}")
    elif isinstance(given, list):
        if not isinstance(kept, list) or len(given) != len(kept):
            yield f"{path} has another length"
        else:
            for k, (one, other) in enumerate(zip(given, kept, strict=True)):
                yield from differences(one, other, f"{path}[{k}]")
    elif given != kept or isinstance(given, bool) != isinstance(kept, bool):
        yield f"{path} is {given!r}, and read as {kept!r}"


def check_model(model, document, path):
    read = model.from_dict(document)
    wrong = list(differences(document, read.to_dict(), path))
    if wrong:
        raise ValueError("; ".join(wrong))


def pod_templates(value):
    """All templates of pods in a document."""
    if isinstance(value, dict):
        if "containers" in value.get("spec", {}):
            yield value
        for inner in value.values():
            yield from pod_templates(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from pod_templates(inner)


def check_pods(document):
    """Checks what the API server asks of pods beyond types."""
    for template in pod_templates(document):
        spec = template["spec"]
        names = [volume["name"] for volume in spec["volumes"]]
        if len(set(names)) != len(names):
            raise ValueError(f"volumes {names}")
        for container in spec["containers"]:
            paths = [mount["mountPath"] for mount in container["volumeMounts"]]
            if len(set(paths)) != len(paths) or \
                    not {mount["name"] for mount in container["volumeMounts"]} <= set(names):
                raise ValueError(f"mounts {container['volumeMounts']} of {names}")
            if not all(isinstance(word, str) for word in container["command"]):
                raise ValueError(f"command {container['command']}")


def check(document):
    """An error if a cluster would refuse the document, or read it as another."""
    key = document.get("apiVersion"), document.get("kind")
    if key == ("kubeflow.org/v2beta1", "MPIJob"):
        MpiJobSpec.model_validate(document["spec"])
        if set(document) != {"apiVersion", "kind", "metadata", "spec"}:
            raise ValueError(f"members {set(document)}")
        for replica in document["spec"]["mpiReplicaSpecs"].values():
            check_model(models.IoK8sApiCoreV1PodTemplateSpec, replica["template"], "template")
        check_model(models.IoK8sApimachineryPkgApisMetaV1ObjectMeta, document["metadata"],
                    "metadata")
    else:
        check_model(MODELS[key], document, key[1])
    check_pods(document)
