//! The artifact of a stack: the files that a controller applies, and what they say of themselves.

use std::collections::BTreeMap;

use konverge_base::{
    error::{ErrorKind, UserError},
    model::{
        ResourceId, StackId,
        spec::{Resource, Spec},
    },
    yaml,
};
use konverge_config::DeliveryTool;
use konverge_export::{Bundle, BundleRequest, ExportTarget, Exported, LeaveOut, export};
use konverge_publish::Artifact;
use konverge_report::json;

/// What each export says of itself.
const DOCUMENT: &str = "konverge.json";

/// The artifact of an export. It depends on the Spec alone: it does not name the commit.
pub fn artifact(exported: &Exported) -> Artifact {
    let mut document = exported.document.clone();
    document.commit = None;
    let mut files = exported.files.clone();
    files.insert(DOCUMENT.to_owned(), json::document(&document).into_bytes());
    let annotations = [
        (
            "org.opencontainers.image.revision",
            format!("spec@blake3:{}", document.spec_digest),
        ),
        ("org.opencontainers.image.title", document.stack.to_string()),
    ];
    let annotations = annotations.map(|(name, value)| (name.to_owned(), value));
    Artifact::new(&files, &annotations.into())
}

/// The objects of a stack as they are delivered.
pub(crate) struct DeliveredFiles {
    pub artifact: Artifact,
    /// The files by path.
    pub files: Vec<String>,
    /// Each object with the values of its references.
    pub objects: BTreeMap<ResourceId, Resource>,
    /// The objects with annotations that protect them from Konverge alone.
    pub unprotected: Vec<ResourceId>,
}

/// The files of the objects of a stack. Their owner is marked as an apply marks it.
///
/// # Errors
/// What the tool cannot carry, by name.
pub(crate) fn delivered_files(
    stack: &StackId,
    tool: DeliveryTool,
    mut resources: Vec<Resource>,
) -> Result<DeliveredFiles, UserError> {
    let target = match tool {
        DeliveryTool::Argocd => ExportTarget::ArgoCd(None),
        DeliveryTool::Flux => ExportTarget::Flux(None),
    };
    let ids: std::collections::BTreeSet<_> = resources.iter().map(|one| one.id.clone()).collect();
    for resource in &mut resources {
        // What Terraform makes is there already.
        resource.depends_on.retain(|id| ids.contains(id));
        konverge_kubernetes::mark_owner(&mut resource.attributes, stack);
    }
    let spec = Spec {
        resources,
        ..Spec::default()
    };
    let bundle = Bundle::new(&BundleRequest {
        stack,
        commit: None,
        spec: &spec,
        leave_out: LeaveOut::default(),
        target: target.name(),
    })?;
    let exported = export(&bundle, &target)?;
    let wanted: BTreeMap<_, _> = spec.resources.iter().map(|one| (&one.id, one)).collect();
    let mut objects = BTreeMap::new();
    for object in exported.document.levels.iter().flatten() {
        // What the controller reads, with what the export adds.
        let text = exported
            .files
            .get(&object.file)
            .map(|text| String::from_utf8_lossy(text));
        let body = yaml::from_long_str(&text.unwrap_or_default()).map_err(|error| {
            let what = format!("internal error: `{}` was not written as YAML: {error}", object.id);
            UserError::new(ErrorKind::Internal, what)
        })?;
        if let Some(resource) = wanted.get(&object.id) {
            objects.insert(object.id.clone(), resource.with(body));
        }
    }
    Ok(DeliveredFiles {
        objects,
        artifact: artifact(&exported),
        files: exported.files.keys().cloned().collect(),
        unprotected: exported.document.unprotected.clone(),
    })
}
