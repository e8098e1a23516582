//! Which cluster a resource goes to.

use serde_json::Value;

use crate::{
    error::{ErrorKind, UserError},
    model::{
        ClusterName,
        spec::{Resource, RuntimeKind},
    },
};

pub(super) fn cluster_of(
    resource: &Resource,
    stack: Option<&ClusterName>,
) -> Result<Option<ClusterName>, UserError> {
    if resource.runtime != RuntimeKind::Kubernetes {
        return Ok(None);
    }
    match resource.extensions.get("cluster") {
        None | Some(Value::Null) => Ok(stack.cloned()),
        Some(Value::String(name)) => name.parse().map(Some).map_err(|error| {
            UserError::new(
                ErrorKind::Spec,
                format!("extension `cluster` of `{}`: {error}", resource.id),
            )
            .hint("it is a name defined in `konverge.yaml` under `clusters`")
        }),
        Some(_) => Err(UserError::new(
            ErrorKind::Spec,
            format!("extension `cluster` of `{}` is not a text", resource.id),
        )),
    }
}
