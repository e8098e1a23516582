package pods_test

import data.pods

deployment(container) := {"kind": "Deployment", "spec": {"template": {"spec": {"containers": [container]}}}}

good := {"name": "web", "image": "ghcr.io/example/web:1.2.3", "resources": {"limits": {"memory": "64Mi"}}}

test_a_good_pod_passes if {
	count(pods.deny_latest) == 0 with input as deployment(good)
	count(pods.deny_limits) == 0 with input as deployment(good)
	count(pods.deny_privileged) == 0 with input as deployment(good)
}

test_a_tag_that_moves_is_denied if {
	every image in ["web", "web:latest", "localhost:5000/web"] {
		count(pods.deny_latest) == 1 with input as deployment(object.union(good, {"image": image}))
	}
}

test_a_digest_passes if {
	image := "ghcr.io/example/web@sha256:5f70bf18a086007016e948b04aed3b82103a36bea41755b6cddfaf10ace3c6ef"
	count(pods.deny_latest) == 0 with input as deployment(object.union(good, {"image": image}))
}

test_a_container_without_a_limit_is_denied if {
	count(pods.deny_limits) == 1 with input as deployment(object.remove(good, ["resources"]))
}

test_an_init_container_counts if {
	job := {"kind": "CronJob", "spec": {"jobTemplate": {"spec": {"template": {"spec": {
		"containers": [good],
		"initContainers": [{"name": "init", "image": "web:latest"}],
	}}}}}}
	count(pods.deny_latest) == 1 with input as job
	count(pods.deny_limits) == 1 with input as job
}

test_a_privileged_container_is_denied if {
	count(pods.deny_privileged) == 1 with input as deployment(object.union(good, {"securityContext": {"privileged": true}}))
}

test_the_network_of_the_node_is_denied if {
	count(pods.deny_privileged) == 1 with input as {"kind": "Pod", "spec": {"hostNetwork": true, "containers": [good]}}
}
