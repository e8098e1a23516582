//! Files for Flux: a folder for each level, and a Kustomization for each folder, which waits for the one before it.

use serde_json::{Value, json};

use crate::{
    bundle::{Bundle, refuse},
    document::{Document, Holds},
    error::ExportError,
    exported::{Exported, Files, level_file, obeyed_annotations, unknown_values},
    names::stack_slug,
    object_text::{documents_text, object_text},
    options::DeliverySource,
};

const TARGET: &str = "flux";

/// Annotations by which Flux ignores an object, applies it only once, or does not delete it.
const OBEYED: [&str; 4] = [
    "kustomize.toolkit.fluxcd.io/reconcile",
    "kustomize.toolkit.fluxcd.io/ssa",
    "kustomize.toolkit.fluxcd.io/prune",
    "kustomize.toolkit.fluxcd.io/force",
];

pub(crate) fn export(bundle: &Bundle, source: Option<&DeliverySource>) -> Result<Exported, ExportError> {
    let mut refusals = unknown_values(bundle, &|_| false);
    refusals.extend(obeyed_annotations(bundle, &OBEYED));
    refuse(bundle, TARGET, refusals)?;
    let objects = bundle.objects.iter().enumerate();
    let texts = objects.map(|(at, object)| (level_file(bundle, at), object_text(&object.body).into_bytes()));
    let mut files: Files = texts.collect();
    if let Some(source) = source {
        let delivery = documents_text(&delivery(bundle, source));
        files.insert("delivery/flux.yaml".to_owned(), delivery.into_bytes());
    }
    // Every edge leads to a higher level, and a level waits until the one before it is ready. So all edges are
    // respected.
    let document = Document::new(bundle, TARGET, &|_| Ok(Holds::Ready), &|at| {
        level_file(bundle, at)
    });
    Ok(Exported { files, document })
}

/// Returns the source and a Kustomization for each level. `postBuild.substitute` is never set, because it would
/// replace every `${x}` in the objects' data.
fn delivery(bundle: &Bundle, source: &DeliverySource) -> Vec<Value> {
    let slug = stack_slug(&bundle.stack);
    let kind = if source.is_artifact() {
        "OCIRepository"
    } else {
        "GitRepository"
    };
    let reference = match (source.is_artifact(), source.revision.as_deref()) {
        (true, tag) => json!({"tag": tag.unwrap_or("latest")}),
        (false, branch) => json!({"branch": branch.unwrap_or("main")}),
    };
    let mut documents = vec![json!({
        "apiVersion": "source.toolkit.fluxcd.io/v1",
        "kind": kind,
        "metadata": {"name": slug, "namespace": source.namespace},
        "spec": {"interval": "5m", "url": source.url, "ref": reference},
    })];
    let mut before: Option<String> = None;
    for level in bundle.levels() {
        let level = level[0].level;
        let name = format!("{slug}-{level:03}");
        let mut spec = json!({
            "interval": "10m",
            "timeout": "15m",
            "path": format!("./{}", source.join(&format!("manifests/{level:03}"))),
            "prune": true,
            "wait": true,
            "sourceRef": {"kind": kind, "name": slug},
        });
        if let Some(before) = before.replace(name.clone()) {
            spec["dependsOn"] = json!([{"name": before}]);
        }
        documents.push(json!({
            "apiVersion": "kustomize.toolkit.fluxcd.io/v1",
            "kind": "Kustomization",
            "metadata": {"name": name, "namespace": source.namespace},
            "spec": spec,
        }));
    }
    documents
}
