//! An Application of the Open Application Model for KubeVela: one component for each level, in sequence.

use serde_json::{Value, json};

use crate::{
    bundle::{Bundle, refuse},
    document::Document,
    edges::{positions, sorted_by_kind},
    error::{ExportError, ExportRefusal, Why},
    exported::{Exported, Files, unknown_values},
    names::stack_slug,
    object_text::document_text,
};

const TARGET: &str = "oam";

/// The maximum size of an object in bytes: etcd's limit, minus a reserve for fields that the controller adds.
const MOST: usize = 1_300_000;

pub(crate) fn export(bundle: &Bundle) -> Result<Exported, ExportError> {
    const FILE: &str = "application.yaml";
    let application = application(bundle);
    let size = application.to_string().len();
    let mut refusals = unknown_values(bundle, &|_| false);
    if size > MOST {
        let largest = bundle
            .objects
            .iter()
            .max_by_key(|object| document_text(&json!(object.body)).len());
        refusals.extend(largest.map(|object| ExportRefusal {
            id: object.id.clone(),
            why: Why::TooLarge(size, MOST),
        }));
    }
    refuse(bundle, TARGET, refusals)?;
    let files = Files::from([(FILE.to_owned(), document_text(&application).into_bytes())]);
    // A component is created after the one before it, but KubeVela has no health check for `k8s-objects` and so
    // does not wait until it is ready.
    let at = positions(bundle);
    let document = Document::new(
        bundle,
        TARGET,
        &|edge| sorted_by_kind(edge, bundle.objects[at[&edge.from]].kind(), true),
        &|_| FILE.to_owned(),
    );
    Ok(Exported { files, document })
}

fn application(bundle: &Bundle) -> Value {
    let mut components: Vec<Value> = Vec::new();
    for level in bundle.levels() {
        let objects: Vec<_> = level.iter().map(|object| &object.body).collect();
        let mut component = json!({
            "name": format!("level-{:03}", level[0].level),
            "type": "k8s-objects",
            "properties": {"objects": objects},
        });
        if let Some(before) = components.last() {
            component["dependsOn"] = json!([before["name"]]);
        }
        components.push(component);
    }
    json!({
        "apiVersion": "core.oam.dev/v1beta1",
        "kind": "Application",
        "metadata": {"name": stack_slug(&bundle.stack), "namespace": "default"},
        "spec": {"components": components},
    })
}
