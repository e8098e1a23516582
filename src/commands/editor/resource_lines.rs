//! Describes a resource that a text mentions, by the compiled Specs of the stacks of the file.

use konverge_base::{
    error::UserError,
    model::{
        ResourceId,
        reference::{MARK, Targets},
        spec::{Resource, RuntimeKind, object_key, terraform_type},
        text::{first_few, truncate, visible},
    },
};
use konverge_lsp::ResourceView;
use konverge_secrets::redact;
use serde_json::Value;

use super::{reached_stacks::ReachedStacks, saved_state::SavedState};

/// The maximum number of ids in a list.
const MOST_IDS: usize = 10;

/// The longest value that is shown, in bytes.
const LONGEST_VALUE: usize = 200;

/// Finds the resource that a text mentions, in the nearest stack that has it.
///
/// # Errors
/// No stack compiles.
pub(super) async fn find(
    saved: &SavedState,
    reached: &ReachedStacks,
    mention: &str,
) -> Result<Option<ResourceView>, UserError> {
    let mut failure = None;
    let specs = saved
        .compilers
        .for_revision(&saved.head)
        .specs(&reached.nearest)
        .await;
    let mut compiled = 0;
    for (stack, spec) in reached.nearest.iter().zip(specs) {
        match spec {
            Ok(spec) => {
                compiled += 1;
                let resources = redact::resources(&spec.resources, &saved.run.secrets);
                if let Some((id, lines)) = describe(&resources, mention) {
                    let stack = stack.id.clone();
                    return Ok(Some(ResourceView { id, stack, lines }));
                }
            }
            Err(error) => failure = Some(error),
        }
    }
    match failure.filter(|_| compiled == 0) {
        Some(failure) => Err(redact::failure(&failure.error, &saved.run.secrets)),
        None => Ok(None),
    }
}

/// Returns the mentioned resource and its description in lines.
fn describe(resources: &[Resource], mention: &str) -> Option<(ResourceId, Vec<String>)> {
    let (id, path) = if mention.starts_with(MARK) {
        let targets: Targets = resources.iter().map(|resource| &resource.id).collect();
        let reference = targets.scan(mention).ok()?.into_iter().next()?;
        (reference.target, Some(reference.path))
    } else {
        (mention.parse().ok()?, None)
    };
    let resource = resources.iter().find(|resource| resource.id == id)?;
    let mut lines = vec![kind_line(resource)];
    lines.extend(path.map(|path| value_line(resource, &path)));
    lines.extend(id_line("depends on", resource.depends_on.iter()));
    let needed_by = resources.iter().filter(|other| other.depends_on.contains(&id));
    lines.extend(id_line("needed by", needed_by.map(|other| &other.id)));
    let lines = lines.iter().map(|line| visible(line)).collect();
    Some((id, lines))
}

fn kind_line(resource: &Resource) -> String {
    match resource.runtime {
        RuntimeKind::Kubernetes => {
            let key = object_key(&resource.attributes);
            let is_named = resource
                .attributes
                .get("metadata")
                .is_some_and(|meta| meta.get("namespace").is_some());
            let object = format!("{} {}", key.kind, key.name);
            if is_named {
                format!("{object} in the namespace {}", key.namespace)
            } else {
                object
            }
        }
        RuntimeKind::Terraform => {
            let kind = terraform_type(&resource.id, &resource.extensions).unwrap_or("a resource");
            format!("{kind} of Terraform")
        }
    }
}

fn value_line(resource: &Resource, path: &[String]) -> String {
    let mut value = resource.attributes.get(&path[0]);
    for part in &path[1..] {
        value = value.and_then(|value| match value {
            Value::Array(items) => items.get(part.parse::<usize>().ok()?),
            other => other.get(part),
        });
    }
    let path = path.join(".");
    match value {
        Some(value) => format!("{path}: {}", truncate(&value.to_string(), LONGEST_VALUE)),
        None => format!("{path}: known after the apply"),
    }
}

fn id_line<'a>(what: &str, ids: impl Iterator<Item = &'a ResourceId>) -> Option<String> {
    let ids: Vec<_> = ids.map(ResourceId::as_str).collect();
    if ids.is_empty() {
        return None;
    }
    Some(format!("{what} {}", first_few(ids.into_iter(), MOST_IDS)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn resources() -> Vec<Resource> {
        let all = json!([
            {"id": "v1:Namespace:shop", "type": "Kubernetes",
             "attributes": {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop"}}},
            {"id": "v1:Service:shop:web", "type": "Kubernetes",
             "attributes": {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "web", "namespace": "shop"},
                            "spec": {"ports": [{"port": 80}]}},
             "dependsOn": ["v1:Namespace:shop"]},
            {"id": "hashicorp:local:local_file:a", "type": "Terraform", "attributes": {"content": "x"},
             "dependsOn": ["v1:Service:shop:web"]},
        ]);
        serde_json::from_value(all).unwrap()
    }

    #[test]
    fn a_mention_is_a_resource_of_the_spec_or_nothing() {
        let said = |mention: &str| describe(&resources(), mention).map(|(_, lines)| lines.join("; "));
        for (mention, expected) in [
            (
                "v1:Namespace:shop",
                Some("Namespace shop; needed by v1:Service:shop:web"),
            ),
            (
                "v1:Service:shop:web",
                Some(
                    "Service web in the namespace shop; depends on v1:Namespace:shop; needed by hashicorp:local:local_file:a",
                ),
            ),
            (
                "hashicorp:local:local_file:a",
                Some("local_file of Terraform; depends on v1:Service:shop:web"),
            ),
            ("v1:Service:shop:wbe", None),
            ("v1:Service", None),
            ("$kusion_path.v1:Service:shop:wbe.spec", None),
        ] {
            assert_eq!(said(mention).as_deref(), expected, "{mention}");
        }
        for (mention, value) in [
            (
                "$kusion_path.v1:Service:shop:web.spec.ports[0].port",
                "spec.ports.0.port: 80",
            ),
            (
                "$kusion_path.v1:Service:shop:web.status.ip",
                "status.ip: known after the apply",
            ),
        ] {
            assert!(
                said(mention).unwrap().contains(value),
                "{mention}: {:?}",
                said(mention)
            );
        }
    }
}
