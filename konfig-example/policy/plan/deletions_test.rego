package deletions_test

import data.deletions

plan(action, kind, loss) := {"resources": [{"id": "x", "action": action, "kind": kind, "dataLoss": loss}]}

test_a_deletion_of_data_is_denied if {
	count(deletions.deny) == 1 with input as plan("delete", "PersistentVolumeClaim", false)
	count(deletions.deny) == 1 with input as plan("replace", "StatefulSet", false)
	count(deletions.deny) == 1 with input as plan("replace", "Deployment", true)
}

test_what_holds_no_data_passes if {
	count(deletions.deny) == 0 with input as plan("delete", "ConfigMap", false)
	count(deletions.deny) == 0 with input as plan("update", "StatefulSet", false)
}
