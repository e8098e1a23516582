//! Validates rendered Kubernetes objects against the schemas of their kinds: the built-in ones, and the CRDs
//! of the repository, from a project's `crd/` or rendered themselves.

use std::collections::{BTreeMap, BTreeSet};

use konverge_base::{
    error::UserError,
    model::{
        RepoPath,
        lint::{Diagnostic, LintRule},
        spec::{Resource, RuntimeKind, Spec},
        stack::Stack,
    },
};
use konverge_engine::spec::{
    self,
    schema::{BuiltIn, CrdSchemas, SchemaFit, fit},
};
use konverge_run::{OpenRevision, RunContext, compiler};

/// The schemas of all kinds.
struct Schemas {
    built_in: BuiltIn,
    /// The schemas of all projects: another project may define the kind of a custom resource.
    repository: CrdSchemas,
    /// The names of kinds without a schema.
    unknown: BTreeSet<String>,
}

/// Validates the compiled Specs, with the CRDs of their projects.
pub(super) fn check(
    run: &RunContext,
    workspace: &OpenRevision,
    printed: Vec<(&Stack, Spec)>,
) -> Result<Vec<Diagnostic>, UserError> {
    let mut remarks = Vec::new();
    if printed.is_empty() {
        return Ok(remarks);
    }
    let mut schemas = Schemas {
        built_in: BuiltIn::new(),
        repository: CrdSchemas::default(),
        unknown: BTreeSet::new(),
    };
    let checked: BTreeSet<&RepoPath> = printed.iter().map(|(stack, _)| &stack.project_folder).collect();
    let mut files: BTreeMap<RepoPath, Spec> = BTreeMap::new();
    let projects: BTreeSet<&RepoPath> = workspace
        .layout
        .stacks
        .iter()
        .map(|stack| &stack.project_folder)
        .collect();
    for project in projects {
        for file in compiler::crds(workspace, project)? {
            let mut alone = Spec::default();
            // Ignore an error: a file without objects was already reported for its stacks.
            let _ = spec::append_crds(&mut alone, std::slice::from_ref(&file));
            alone
                .resources
                .iter()
                .for_each(|crd| schemas.repository.add(&crd.attributes));
            if checked.contains(project) {
                files.insert(file.0, alone);
            }
        }
    }
    for (_, spec) in &printed {
        spec.resources
            .iter()
            .for_each(|crd| schemas.repository.add(&crd.attributes));
    }
    for (file, spec) in &files {
        remarks.extend(schemas.remarks(file, spec, &CrdSchemas::default()));
    }
    for (stack, spec) in &printed {
        let mut own = CrdSchemas::default();
        spec.resources.iter().for_each(|crd| own.add(&crd.attributes));
        let crds = files
            .iter()
            .filter(|(file, _)| file.is_within(&stack.project_folder));
        for crd in crds.flat_map(|(_, spec)| &spec.resources) {
            own.add(&crd.attributes);
        }
        remarks.extend(schemas.remarks(&place(stack), spec, &own));
    }
    if !schemas.unknown.is_empty() {
        let unknown: Vec<String> = schemas.unknown.into_iter().collect();
        run.notes.note(&format!(
            "no schema is known for {}: add their CustomResourceDefinitions to the crd/ folder of a project",
            unknown.join(", ")
        ));
    }
    Ok(remarks)
}

impl Schemas {
    /// Returns the diagnostics for the objects of a Spec, at a file.
    fn remarks(&mut self, file: &RepoPath, spec: &Spec, own: &CrdSchemas) -> Vec<Diagnostic> {
        let mut remarks = Vec::new();
        let kubernetes = |resource: &&Resource| resource.runtime == RuntimeKind::Kubernetes;
        for resource in spec.resources.iter().filter(kubernetes) {
            remarks.extend(self.remarks_of(file, resource, own));
        }
        remarks
    }

    fn remarks_of(&mut self, file: &RepoPath, resource: &Resource, own: &CrdSchemas) -> Vec<Diagnostic> {
        let object = &resource.attributes;
        let text = |key: &str| {
            object
                .get(key)
                .and_then(serde_json::Value::as_str)
                .unwrap_or_default()
        };
        let version = self.built_in.version();
        let remark = |message: &str, hint: &str| {
            let message = format!("{}: {message}", resource.id);
            Diagnostic::new(file, LintRule::Schema, &message).hint(hint)
        };
        let (faults, hint) = match fit(object, &[own, &self.repository], &self.built_in) {
            SchemaFit::Unknown => {
                self.unknown
                    .insert(format!("{} {}", text("apiVersion"), text("kind")));
                return Vec::new();
            }
            SchemaFit::OtherVersion => {
                let message = format!(
                    "`{}` is not an API version of Kubernetes {version}",
                    text("apiVersion")
                );
                let hint = "if the cluster serves this API version, ignore this warning: the preview asks the cluster";
                return vec![remark(&message, hint).warning()];
            }
            SchemaFit::Defined(faults) => (
                faults,
                "compared with the CustomResourceDefinition in this repository".to_owned(),
            ),
            SchemaFit::BuiltIn(faults) => (
                faults,
                format!(
                    "compared with Kubernetes {version}; if your clusters have another version, `--skip schema` disables this check"
                ),
            ),
        };
        let violation = |fault: spec::schema::Violation| match fault.path.as_str() {
            "" => remark(&fault.message, &hint),
            path => remark(&format!("{path}: {}", fault.message), &hint),
        };
        faults.into_iter().map(violation).collect()
    }
}

/// Returns the file of a stack for its diagnostics: the last of its entries in its own folder. A rendered object has no
/// line of its own.
fn place(stack: &Stack) -> RepoPath {
    let entries = stack.compile.as_ref().map(|setup| setup.entries.as_slice());
    let paths = entries.unwrap_or_default().iter().rev().map(|entry| &entry.path);
    let own = |path: &&RepoPath| path.is_within(&stack.folder) && **path != stack.folder;
    let last = paths.clone().find(own);
    last.cloned().unwrap_or_else(|| stack.manifest.clone())
}
