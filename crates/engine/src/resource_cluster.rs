//! Determines the cluster of a resource.

use serde_json::Value;

use konverge_base::{
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
            UserError::from_error(ErrorKind::Spec, error)
                .context(format!("extension `cluster` of `{}`", resource.id))
                .hint("set the extension to a name that `konverge.yaml` defines under `clusters`")
        }),
        Some(_) => Err(UserError::new(
            ErrorKind::Spec,
            format!("extension `cluster` of `{}` is not a string", resource.id),
        )),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Map, json};

    use super::*;

    fn of(runtime: RuntimeKind, extension: Option<Value>) -> Result<Option<ClusterName>, UserError> {
        let extensions = extension.map(|value| ("cluster".to_owned(), value));
        let resource = Resource {
            extensions: extensions.into_iter().collect(),
            ..Resource::new("v1:ConfigMap:shop:a".parse().unwrap(), runtime, Map::new())
        };
        cluster_of(&resource, Some(&"main".parse().unwrap()))
    }

    #[test]
    fn a_resource_goes_to_the_cluster_of_its_extension_or_else_of_its_stack() {
        let kubernetes = |extension| of(RuntimeKind::Kubernetes, extension).unwrap();
        let main = Some("main".parse().unwrap());
        assert_eq!(kubernetes(None), main);
        assert_eq!(kubernetes(Some(Value::Null)), main);
        assert_eq!(kubernetes(Some(json!("edge"))), Some("edge".parse().unwrap()));
        for wrong in [json!(1), json!("not a name")] {
            let refusal = of(RuntimeKind::Kubernetes, Some(wrong)).unwrap_err();
            assert!(refusal.message.contains("v1:ConfigMap:shop:a"), "{refusal:?}");
        }
        assert_eq!(of(RuntimeKind::Terraform, Some(json!("edge"))).unwrap(), None);
    }
}
