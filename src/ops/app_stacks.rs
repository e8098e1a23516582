//! Stacks of AppConfigurations: reads their workspaces and modules, and compiles them to Specs.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    sync::Arc,
};

use serde_json::json;

use super::{
    module_binaries::ModuleBinaries,
    module_runner::{CallContext, ModuleRunner},
};
use crate::{
    affected::WorkspaceInput,
    config::Config,
    error::{ErrorKind, UserError},
    kcl::{CompileRequest, Compiled, Pool},
    konfig::{DeclaredDependency, FileTreeView, Layout, declared_dependencies},
    kusion::{self, AppConfigurations, AppStack, KusionError, Platform, Workspace},
    model::{
        Digest, RepoPath,
        file_source::Source,
        stack::{SettingsOrder, Stack},
    },
};

/// The name of the default workspace.
const DEFAULT: &str = "default";

/// What the stacks of a revision that may hold AppConfigurations are generated from, by folder.
#[derive(Default)]
pub(super) struct AppStacks {
    stacks: BTreeMap<RepoPath, Result<AppInputs, UserError>>,
    order: SettingsOrder,
}

/// What a stack is generated from.
struct AppInputs {
    platform: Platform,
    dependencies: Vec<DeclaredDependency>,
    namespace: Option<String>,
    binaries: ModuleBinaries,
}

impl AppStacks {
    /// Reads the workspaces of a revision. An invalid file is an error of the stacks that have it.
    pub(super) fn read(tree: &FileTreeView, layout: &Layout, config: &Config) -> Self {
        let order = config.kcl.settings;
        // Kusion 0.7 did not read a stack's own kcl.mod.
        let own_package = |stack: &&Stack| {
            let root = stack
                .compile
                .as_ref()
                .ok()
                .and_then(|setup| setup.module_root.as_ref());
            order != SettingsOrder::V07 && root == Some(&stack.folder)
        };
        let mut files = WorkspaceFiles {
            tree,
            parsed: HashMap::new(),
        };
        let rules = config.rules();
        let stacks = layout.stacks.iter().filter(own_package).map(|stack| {
            let workspace = rules.for_stack(stack).workspace;
            (stack.folder.clone(), files.inputs(stack, workspace.as_deref()))
        });
        Self {
            stacks: stacks.collect(),
            order,
        }
    }

    /// The part of its workspace that concerns a stack.
    pub(super) fn workspace_input(&self, stack: &Stack) -> Option<WorkspaceInput> {
        Some(match self.stacks.get(&stack.folder)? {
            Ok(inputs) => WorkspaceInput {
                files: inputs
                    .platform
                    .file
                    .iter()
                    .chain(inputs.binaries.files())
                    .cloned()
                    .collect(),
                digest: inputs.binaries.joined(inputs.platform.digest()),
            },
            Err(failure) => WorkspaceInput {
                files: failure
                    .location
                    .iter()
                    .filter_map(|place| RepoPath::normalise(&place.file))
                    .collect(),
                digest: Digest::of_bytes(failure.message.as_bytes()),
            },
        })
    }

    /// The digests of all binaries of modules that the stacks of this revision have.
    pub(super) fn known_binaries(&self, source: &dyn Source) -> Result<HashSet<String>, UserError> {
        let mut known = HashSet::new();
        for inputs in self.stacks.values().flatten() {
            inputs.binaries.add_known(source, &mut known)?;
        }
        Ok(known)
    }

    /// Compiles a stack. AppConfigurations become a Spec.
    pub(super) async fn compile(
        &self,
        pool: &Pool,
        request: &CompileRequest,
        stack: &Stack,
        source: &dyn Source,
        modules: &ModuleRunner,
    ) -> Result<Compiled, UserError> {
        let Some(inputs) = self.stacks.get(&stack.folder).filter(|_| may_hold_apps(request)) else {
            let compiled = pool.compile(request).await?;
            return match kusion::untyped_app(&compiled.documents) {
                Some(app) => Err(self.not_own_package(app).into()),
                None => Ok(compiled),
            };
        };
        let typed = CompileRequest {
            schema_types: true,
            ..request.clone()
        };
        let compiled = pool.compile(&typed).await?;
        let Some(apps) = AppConfigurations::recognise(&compiled.documents)? else {
            return Ok(pool.compile(request).await?);
        };
        let inputs = inputs.as_ref().map_err(Clone::clone)?;
        let app_stack = AppStack {
            project: stack.names.project(),
            name: stack.names.name(),
            namespace: inputs.namespace.as_deref(),
            dependencies: &inputs.dependencies,
            platform: &inputs.platform,
        };
        let calls = kusion::foreign_calls(&apps, &app_stack)?;
        let context = CallContext {
            stack,
            dependencies: &inputs.dependencies,
            binaries: &inputs.binaries,
            request,
            source,
        };
        let (answers, said) = modules.answer(&calls, &context).await?;
        let generated = kusion::generate(&apps, &app_stack, &answers)?;
        let notes = generated.notes.iter().chain(&said);
        // A program may print a lot: what it hides is what was said last.
        let notes = notes.map(|note| format!("warning: {note}"));
        Ok(Compiled {
            documents: vec![json!({"resources": generated.spec.resources})],
            warnings: notes.chain(compiled.warnings).collect(),
        })
    }

    fn not_own_package(&self, app: &str) -> KusionError {
        KusionError::NotOwnPackage {
            app: app.to_owned(),
            why: match self.order {
                SettingsOrder::V07 => "`kcl.settings: v0.7` of konverge.yaml reads no kcl.mod of a stack",
                SettingsOrder::V090 | SettingsOrder::V091 => "its stack has no kcl.mod of its own",
            },
        }
    }
}

/// Returns true if the stack may contain AppConfigurations, so that it must be compiled with schema types.
fn may_hold_apps(request: &CompileRequest) -> bool {
    !request.packages.is_empty()
        || request
            .files
            .iter()
            .any(|(_, content)| kusion::may_hold_apps(content))
}

/// Workspace files, each read once.
struct WorkspaceFiles<'a> {
    tree: &'a FileTreeView,
    parsed: HashMap<RepoPath, Result<Option<Arc<Workspace>>, UserError>>,
}

impl WorkspaceFiles<'_> {
    fn inputs(&mut self, stack: &Stack, named: Option<&str>) -> Result<AppInputs, UserError> {
        let kcl_mod = stack.folder.child("kcl.mod");
        let text = self.text(&kcl_mod)?.unwrap_or_default();
        let dependencies = declared_dependencies(text.as_bytes()).map_err(|message| {
            UserError::new(ErrorKind::Layout, message).at(kcl_mod.to_string(), None, None)
        })?;
        let names = kusion::platform_names(&dependencies);
        let platform = self
            .workspace(stack, named)?
            .map(|workspace| workspace.platform(stack.names.project(), &names));
        let (own, project) = (
            stack.folder.child("stack.yaml"),
            stack.project_folder.child("project.yaml"),
        );
        let (own_text, project_text) = (self.text(&own)?, self.text(&project)?);
        let namespace = kusion::namespace_extension(
            (own.as_str(), own_text.as_deref().unwrap_or_default()),
            (project.as_str(), project_text.as_deref().unwrap_or_default()),
        )?;
        Ok(AppInputs {
            platform: platform.unwrap_or_default(),
            binaries: ModuleBinaries::read(self.tree, stack, &dependencies)?,
            dependencies,
            namespace,
        })
    }

    /// The workspace that a rule names, or else the one with the name of the stack, or else `default`.
    fn workspace(&mut self, stack: &Stack, named: Option<&str>) -> Result<Option<Arc<Workspace>>, UserError> {
        if let Some(name) = named {
            let no_name = || {
                UserError::new(
                    ErrorKind::Config,
                    format!("`{}` is not the name of a workspace", name.escape_debug()),
                )
            };
            let file = kusion::workspace_file(name).ok_or_else(no_name)?;
            return self.file(&file)?.map(Some).ok_or_else(|| {
                UserError::new(ErrorKind::Layout, format!("the workspace `{name}` has no file"))
                    .at(file.to_string(), None, None)
                    .hint("`stacks[].workspace` of konverge.yaml names it: write the file, or `konverge state import` takes it out of Kusion's backend")
            });
        }
        for file in [stack.names.name(), DEFAULT]
            .into_iter()
            .filter_map(kusion::workspace_file)
        {
            if let Some(workspace) = self.file(&file)? {
                return Ok(Some(workspace));
            }
        }
        Ok(None)
    }

    fn file(&mut self, file: &RepoPath) -> Result<Option<Arc<Workspace>>, UserError> {
        if let Some(parsed) = self.parsed.get(file) {
            return parsed.clone();
        }
        let parsed = self.text(file).and_then(|text| {
            let workspace = text.map(|text| Workspace::parse(file, &text)).transpose()?;
            Ok(workspace.map(Arc::new))
        });
        self.parsed.insert(file.clone(), parsed.clone());
        parsed
    }

    fn text(&self, path: &RepoPath) -> Result<Option<String>, UserError> {
        let content = self.tree.read(path);
        let content = content.map_err(|error| UserError::new(ErrorKind::Git, error.to_string()))?;
        Ok(content.map(|bytes| String::from_utf8_lossy(&bytes).into_owned()))
    }
}
