//! Files for Argo CD: objects with sync waves, and the Application that delivers them.

use serde_json::{Value, json};

use konverge_base::model::GroupKind;
use konverge_engine::spec::graph::Edge;

use crate::{
    bundle::{Bundle, BundleObject, refuse},
    document::{Document, Holds},
    edges::{KindOrder, positions, sorted_by_kind, waves},
    error::ExportError,
    exported::{Exported, Files, level_file, obeyed_annotations, unknown_values},
    names::stack_slug,
    object_text::{document_text, object_text},
    options::DeliverySource,
};

const TARGET: &str = "argocd";

/// The annotation that sets the sync wave of an object.
const WAVE: &str = "argocd.argoproj.io/sync-wave";

/// Annotations that change how Argo CD handles an object. They include Helm's hooks, which Argo CD also obeys.
const OBEYED: [&str; 5] = [
    WAVE,
    "argocd.argoproj.io/hook",
    "argocd.argoproj.io/hook-delete-policy",
    "helm.sh/hook",
    "helm.sh/hook-weight",
];

/// The groups and kinds with a built-in health check in Argo CD. Objects of other kinds are healthy as soon as they
/// exist. Argo CD's Lua checks for third-party kinds are not included, because they change with each release.
const HEALTH: [GroupKind<'static>; 12] = [
    GroupKind::PERSISTENT_VOLUME_CLAIM,
    GroupKind::POD,
    GroupKind::SERVICE,
    GroupKind::CUSTOM_RESOURCE_DEFINITION,
    GroupKind::API_SERVICE,
    GroupKind::DAEMON_SET,
    GroupKind::DEPLOYMENT,
    GroupKind::REPLICA_SET,
    GroupKind::STATEFUL_SET,
    GroupKind::HORIZONTAL_POD_AUTOSCALER,
    GroupKind::JOB,
    GroupKind::INGRESS,
];

/// Returns true if Argo CD waits until the object is ready before it starts the next wave.
fn has_health(object: &BundleObject) -> bool {
    HEALTH.contains(&object.kind())
}

pub(crate) fn export(bundle: &Bundle, source: Option<&DeliverySource>) -> Result<Exported, ExportError> {
    let mut refusals = unknown_values(bundle, &|_| false);
    refusals.extend(obeyed_annotations(bundle, &OBEYED));
    refuse(bundle, TARGET, refusals)?;
    let (at, waves) = (positions(bundle), waves(bundle));
    let mut files = Files::new();
    for (index, (object, wave)) in bundle.objects.iter().zip(&waves).enumerate() {
        // Without the annotation an object is in the first wave.
        let text = match wave {
            0 => object_text(&object.body),
            wave => object_text(&object.annotated(WAVE, wave.to_string())),
        };
        files.insert(level_file(bundle, index), text.into_bytes());
    }
    if let Some(source) = source {
        let application = document_text(&application(bundle, source));
        files.insert("delivery/application.yaml".to_owned(), application.into_bytes());
    }
    let document = Document::new(
        bundle,
        TARGET,
        &|edge| {
            let (from, to) = (at[&edge.from], at[&edge.to]);
            let kinds = (bundle.objects[from].kind(), bundle.objects[to].kind());
            if waves[from] < waves[to] {
                if has_health(&bundle.objects[from]) {
                    Ok(Holds::Ready)
                } else {
                    sorted_by_kind(edge, kinds.0, true)
                }
            } else {
                let is_before = edge.kind == Edge::Order && KindOrder::ArgoCd.is_before(kinds.0, kinds.1);
                sorted_by_kind(edge, kinds.0, is_before)
            }
        },
        &|at| level_file(bundle, at),
    );
    Ok(Exported { files, document })
}

fn application(bundle: &Bundle, source: &DeliverySource) -> Value {
    let destination = match &bundle.cluster {
        Some(cluster) => json!({"name": cluster, "namespace": "default"}),
        None => json!({"server": "https://kubernetes.default.svc", "namespace": "default"}),
    };
    json!({
        "apiVersion": "argoproj.io/v1alpha1",
        "kind": "Application",
        "metadata": {"name": stack_slug(&bundle.stack), "namespace": source.namespace},
        "spec": {
            "project": "default",
            "source": {
                "repoURL": source.url,
                "targetRevision": source.revision.as_deref().unwrap_or("HEAD"),
                "path": source.join("."),
                // `konverge.json` and this file are not manifests.
                "directory": {"recurse": true, "include": "manifests/*"},
            },
            "destination": destination,
            "syncPolicy": {"syncOptions": ["ServerSideApply=true"]},
        },
    })
}
