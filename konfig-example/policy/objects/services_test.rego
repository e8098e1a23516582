package services_test

import data.services

service(labels, type) := {"kind": "Service", "metadata": {"name": "web", "labels": labels}, "spec": {"type": type}}

test_a_public_load_balancer_needs_its_label if {
	count(services.deny_public) == 1 with input as service({}, "LoadBalancer")
	count(services.deny_public) == 1 with input as service({"example.com/public": "no"}, "LoadBalancer")
	count(services.deny_public) == 0 with input as service({"example.com/public": "true"}, "LoadBalancer")
}

test_another_service_needs_none if {
	count(services.deny_public) == 0 with input as service({}, "ClusterIP")
}
