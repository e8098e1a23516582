# What a pod may be. The input is one Kubernetes object, as conftest gets manifests.
package pods

spec := input.spec.template.spec if input.kind in {"Deployment", "StatefulSet", "DaemonSet", "ReplicaSet", "Job"}

spec := input.spec.jobTemplate.spec.template.spec if input.kind == "CronJob"

spec := input.spec if input.kind == "Pod"

containers contains container if {
	some kind in ["containers", "initContainers", "ephemeralContainers"]
	some container in spec[kind]
}

# A tag that moves is another program tomorrow. A digest never moves.
moves(image) if endswith(image, ":latest")

moves(image) if {
	not contains(image, "@")
	name := split(image, "/")[count(split(image, "/")) - 1]
	not contains(name, ":")
}

deny_latest contains {"msg": msg, "path": "/spec"} if {
	some container in containers
	moves(container.image)
	msg := sprintf("container %s: the tag of %s moves: name a version or a digest", [container.name, container.image])
}

deny_limits contains {"msg": msg, "path": "/spec"} if {
	some container in containers
	not container.resources.limits.memory
	msg := sprintf("container %s has no memory limit", [container.name])
}

deny_privileged contains {"msg": msg, "path": "/spec"} if {
	some container in containers
	container.securityContext.privileged
	msg := sprintf("container %s is privileged: it is root on the node", [container.name])
}

deny_privileged contains {"msg": msg, "path": "/spec"} if {
	some field in ["hostNetwork", "hostPID", "hostIPC"]
	spec[field]
	msg := sprintf("%s gives the pod what belongs to the node", [field])
}
