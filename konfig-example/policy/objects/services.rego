# A load balancer with a public address is on purpose, or it is a mistake.
package services

deny_public contains {"msg": msg, "path": "/spec/type"} if {
	input.kind == "Service"
	input.spec.type == "LoadBalancer"
	not input.metadata.labels["example.com/public"] == "true"
	msg := sprintf("Service %s gets a public address: label it example.com/public: \"true\" if that is meant", [input.metadata.name])
}
