# Who deletes data asks the SRE team: they may override exactly this finding. The input is the plan of a stack.
package deletions

# What holds data, by its kind; and whatever the plan itself says loses data.
data_kinds := {"PersistentVolumeClaim", "StatefulSet", "Namespace", "aws_s3_bucket", "aws_db_instance"}

loses_data(resource) if resource.dataLoss

loses_data(resource) if {
	resource.action in {"delete", "replace"}
	resource.kind in data_kinds
}

deny contains {"msg": msg, "resource": resource.id} if {
	some resource in input.resources
	loses_data(resource)
	msg := sprintf("%s of %s loses what is stored in it: a member of the SRE team has to agree", [resource.action, resource.id])
}
