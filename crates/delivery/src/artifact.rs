//! The artifact of a stack: the files that the delivery controller applies, and the document that describes them.

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

/// The file of each export that describes the export.
const DOCUMENT: &str = "konverge.json";

/// Creates the artifact of an export. It depends only on the Spec, so it does not contain the commit.
pub fn artifact(exported: &Exported) -> Artifact {
    let mut document = exported.document.clone();
    document.commit = None;
    let mut files = exported.files.clone();
    files.insert(DOCUMENT.to_owned(), json::document(&document).into_bytes());
    let revision = format!("spec@blake3:{}", document.spec_digest);
    let annotations = [
        ("org.opencontainers.image.revision", revision),
        ("org.opencontainers.image.title", document.stack.to_string()),
    ];
    let annotations = annotations.map(|(name, value)| (name.to_owned(), value));
    Artifact::new(&files, &annotations.into())
}

/// The objects of a stack in the form in which they are delivered.
pub(crate) struct DeliveredFiles {
    pub artifact: Artifact,
    exported: Exported,
    wanted: Vec<Resource>,
    /// The objects whose annotations protect them from Konverge, but not from the delivery controller.
    pub unprotected: Vec<ResourceId>,
}

impl DeliveredFiles {
    /// Returns the paths of the files.
    pub(crate) fn paths(&self) -> impl Iterator<Item = &String> {
        self.exported.files.keys()
    }

    /// Returns each object as the controller reads it, with the values of its references and the additions of the
    /// export.
    ///
    /// # Errors
    /// Internal error: a file is not YAML.
    pub(crate) fn objects(&self) -> Result<BTreeMap<ResourceId, Resource>, UserError> {
        let wanted: BTreeMap<_, _> = self.wanted.iter().map(|one| (&one.id, one)).collect();
        let mut objects = BTreeMap::new();
        for object in self.exported.document.levels.iter().flatten() {
            let text = self.exported.files.get(&object.file);
            let text = text.map(|text| String::from_utf8_lossy(text)).unwrap_or_default();
            let body = yaml::from_long_str(&text).map_err(|error| {
                let what = format!("internal error: `{}` was not written as YAML: {error}", object.id);
                UserError::new(ErrorKind::Internal, what).with_resource(&object.id)
            })?;
            if let Some(resource) = wanted.get(&object.id) {
                objects.insert(object.id.clone(), resource.with(body));
            }
        }
        Ok(objects)
    }
}

/// Exports the objects of a stack. Each object names the stack as its owner, as after an apply.
///
/// # Errors
/// The tool cannot deliver some of the objects; the error names them.
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
        // Terraform resources are applied before the delivery, so a dependency on them is already met.
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
        in_clear: &[],
        target: target.name(),
    })?;
    let exported = export(&bundle, &target)?;
    Ok(DeliveredFiles {
        artifact: artifact(&exported),
        unprotected: exported.document.unprotected.clone(),
        exported,
        wanted: spec.resources,
    })
}
