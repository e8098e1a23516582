//! The kinds that a cluster may have, as far as the repository shows.

use std::collections::BTreeSet;

use serde_json::json;

use konverge_base::{
    error::UserError,
    model::{RepoPath, spec::Spec},
};
use konverge_engine::spec::{
    self,
    schema::{BuiltIn, CrdSchemas, SchemaFit, fit},
};
use konverge_run::{OpenRevision, compiler};

/// The kinds of Kubernetes, and of the CustomResourceDefinitions of all projects.
pub(super) struct KnownKinds {
    built_in: BuiltIn,
    crds: CrdSchemas,
}

impl KnownKinds {
    /// Reads the definitions of a revision.
    ///
    /// # Errors
    /// A file cannot be read.
    pub(super) fn load(workspace: &OpenRevision) -> Result<Self, UserError> {
        let stacks = workspace.layout.stacks.iter();
        let projects: BTreeSet<&RepoPath> = stacks.map(|stack| &stack.project_folder).collect();
        let mut crds = CrdSchemas::default();
        for project in projects {
            for file in compiler::crds(workspace, project)? {
                let mut alone = Spec::default();
                // Ignore an error: a file without objects is reported for its own stacks.
                let _ = spec::append_crds(&mut alone, std::slice::from_ref(&file));
                alone.resources.iter().for_each(|crd| crds.add(&crd.attributes));
            }
        }
        Ok(Self {
            built_in: BuiltIn::new(),
            crds,
        })
    }

    /// Returns true if a cluster may have a kind. The Spec itself may define it. A kind in a group outside of
    /// Kubernetes may be defined elsewhere.
    pub(super) fn has(&self, spec: &Spec, api_version: Option<&str>, kind: &str) -> bool {
        if self.built_in.has_kind(kind) || self.crds.has_kind(kind) {
            return true;
        }
        let mut own = CrdSchemas::default();
        spec.resources.iter().for_each(|crd| own.add(&crd.attributes));
        let is_foreign = |api_version: &str| {
            let object = json!({"apiVersion": api_version, "kind": kind});
            let object = object.as_object().cloned().unwrap_or_default();
            fit(&object, &[], &self.built_in) == SchemaFit::Unknown
        };
        own.has_kind(kind) || api_version.is_some_and(is_foreign)
    }
}
