//! Stacks of AppConfigurations: reads their workspaces and modules, and compiles them to Specs.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    path::{Path, PathBuf},
    sync::{Arc, Mutex},
};

use serde_json::json;

use crate::{
    compile_error::CompileError,
    module_binaries::ModuleBinaries,
    module_runner::{CallContext, ModuleRunner},
};
use konverge_base::{
    error::{ErrorKind, UserError},
    model::{
        Digest, RepoPath,
        digest::DigestBuilder,
        file_source::Source,
        spec::Sharing,
        stack::{SettingsOrder, Stack},
        workspace_name::is_workspace_name,
    },
    sync::lock,
};
use konverge_config::{Config, ModuleConfig};
use konverge_kcl::{CompileRequest, Compiled, Pool};
use konverge_kusion::{
    self as kusion, AppConfigurations, AppStack, ExtensionFile, KusionError, Platform, Workspace,
};
use konverge_repo::{
    affected::WorkspaceInput,
    konfig::{DeclaredDependency, FileTreeView, Layout, declared_dependencies},
};

/// The name of the workspace that a stack uses if no other fits.
const DEFAULT: &str = "default";

/// The generation inputs of the stacks that may hold AppConfigurations, by folder.
#[derive(Default)]
pub struct AppStacks {
    stacks: BTreeMap<RepoPath, Result<AppInputs, UserError>>,
    order: SettingsOrder,
    /// The section `modules` of `konverge.yaml`.
    modules: BTreeMap<String, ModuleConfig>,
    /// For the folder of each fetched package: true if the package may define an AppConfiguration.
    packages: Mutex<HashMap<PathBuf, bool>>,
}

fn extension_file<'a>(path: &'a RepoPath, text: Option<&'a str>) -> ExtensionFile<'a> {
    ExtensionFile {
        path: path.as_str(),
        text: text.unwrap_or_default(),
    }
}

/// The inputs from which the Spec of a stack is generated.
struct AppInputs {
    platform: Platform,
    dependencies: Vec<DeclaredDependency>,
    namespace: Option<String>,
    binaries: ModuleBinaries,
    /// The modules that may use the network: with the network, a module may return another result.
    networked: Vec<String>,
    /// Notes for the developer: how the workspace and the extensions were chosen.
    notes: Vec<String>,
}

impl AppInputs {
    /// Returns the digest of all inputs of the generation, except the KCL program itself.
    fn digest(&self) -> Digest {
        let digest = self.binaries.joined(self.platform.digest());
        if self.networked.is_empty() {
            return digest;
        }
        let mut builder = DigestBuilder::new("kusion module network");
        builder.part(digest.as_bytes());
        for module in &self.networked {
            builder.part(module.as_bytes());
        }
        builder.finish()
    }
}

impl AppStacks {
    /// Reads the workspaces of a revision. An invalid file is an error of the stacks that have it.
    pub fn read(tree: &FileTreeView, layout: &Layout, config: &Config) -> Self {
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
            networked: networked(config),
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
            modules: config.modules.clone(),
            packages: Mutex::default(),
        }
    }

    /// Returns the part of the workspace that a stack uses; `None` if the stack cannot have AppConfigurations.
    pub fn workspace_input(&self, stack: &Stack) -> Option<WorkspaceInput> {
        Some(match self.stacks.get(&stack.folder)? {
            Ok(inputs) => WorkspaceInput {
                files: inputs
                    .platform
                    .file
                    .iter()
                    .chain(inputs.binaries.files())
                    .cloned()
                    .collect(),
                secret_files: Vec::new(),
                digest: inputs.digest(),
            },
            Err(failure) => WorkspaceInput {
                files: failure
                    .location
                    .iter()
                    .filter_map(|place| RepoPath::normalize(&place.file))
                    .collect(),
                secret_files: Vec::new(),
                digest: Digest::of_bytes(failure.message.as_bytes()),
            },
        })
    }

    /// Returns the digests of all module binaries that the stacks of this revision use.
    pub fn known_binaries(&self, source: &dyn Source) -> Result<HashSet<String>, UserError> {
        let mut known = HashSet::new();
        for inputs in self.stacks.values().flatten() {
            inputs.binaries.add_known(source, &mut known)?;
        }
        Ok(known)
    }

    /// Compiles a stack. AppConfigurations become a Spec.
    pub async fn compile(
        &self,
        pool: &Pool,
        request: &CompileRequest,
        stack: &Stack,
        source: &dyn Source,
        modules: &ModuleRunner,
    ) -> Result<Compiled, CompileError> {
        let Some(inputs) = self
            .stacks
            .get(&stack.folder)
            .filter(|_| self.may_hold_apps(request))
        else {
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
        let Some(apps) = AppConfigurations::recognize(&compiled.documents)? else {
            // The output with the types of schemas is for applications only, so the stack is compiled again without
            // them.
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
        // The modules run before the generation, because their resources become part of the Spec.
        let calls = kusion::foreign_calls(&apps, &app_stack)?;
        let context = CallContext {
            stack,
            dependencies: &inputs.dependencies,
            binaries: &inputs.binaries,
            request,
            source,
            settings: &self.modules,
            workspace: inputs
                .platform
                .file
                .clone()
                .unwrap_or_else(|| own_workspaces(stack).next().unwrap_or_default()),
        };
        let (answers, said) = modules.answer(&calls, &context).await?;
        let generated = kusion::generate(&apps, &app_stack, &answers)?;
        let resources = &generated.spec.resources;
        let notes = inputs.notes.iter().cloned();
        let shared = resources
            .iter()
            .filter(|resource| resource.sharing == Sharing::Project);
        Ok(Compiled {
            shared: shared.map(|resource| resource.id.clone()).collect(),
            documents: vec![json!({"resources": generated.spec.resources})],
            warnings: compiled.warnings,
            notes: notes.chain(generated.notes).chain(said).collect(),
        })
    }

    /// Returns true if the program may hold AppConfigurations, so that it must be compiled with the types of its
    /// schemas. A package that only mentions workloads defines none: the packages of Kubernetes mention them in their
    /// texts.
    fn may_hold_apps(&self, request: &CompileRequest) -> bool {
        let packages = &request.setup.packages;
        let in_package = |path: &RepoPath| packages.iter().any(|(_, folder)| path.is_within(folder));
        let mut files = request.files.iter();
        files.any(|(path, content)| {
            if in_package(path) {
                kusion::defines_apps(content)
            } else {
                kusion::may_hold_apps(content)
            }
        }) || request
            .packages
            .iter()
            .any(|(_, folder)| self.package_defines_apps(folder))
    }

    fn package_defines_apps(&self, folder: &Path) -> bool {
        let mut known = lock(&self.packages);
        if let Some(defines) = known.get(folder) {
            return *defines;
        }
        let defines = folder_defines_apps(folder);
        known.insert(folder.to_owned(), defines);
        defines
    }

    fn not_own_package(&self, app: &str) -> KusionError {
        KusionError::NotOwnPackage {
            app: app.to_owned(),
            why: match self.order {
                SettingsOrder::V07 => "`kcl.settings: v0.7` of konverge.yaml reads no kcl.mod of a stack",
                SettingsOrder::V090 | SettingsOrder::V091 => "its stack has no own kcl.mod",
            },
        }
    }
}

/// Returns true if a KCL file of a fetched package defines applications. A folder or file that cannot be read may
/// define them.
fn folder_defines_apps(folder: &Path) -> bool {
    let Ok(entries) = std::fs::read_dir(folder) else {
        return true;
    };
    for entry in entries {
        let Ok((kind, path)) = entry.and_then(|entry| Ok((entry.file_type()?, entry.path()))) else {
            return true;
        };
        let is_program = kind.is_file() && path.extension().is_some_and(|extension| extension == "k");
        let defines = if kind.is_dir() {
            folder_defines_apps(&path)
        } else {
            is_program && std::fs::read(&path).map_or(true, |content| kusion::defines_apps(&content))
        };
        if defines {
            return true;
        }
    }
    false
}

fn networked(config: &Config) -> Vec<String> {
    let modules = config.modules.iter();
    let networked = modules.filter(|(_, module)| module.network);
    networked.map(|(name, _)| name.clone()).collect()
}

/// Workspace files, each read once.
struct WorkspaceFiles<'a> {
    tree: &'a FileTreeView,
    /// The modules to which `modules` of `konverge.yaml` gives the network.
    networked: Vec<String>,
    parsed: HashMap<RepoPath, Result<Option<Arc<Workspace>>, UserError>>,
}

impl WorkspaceFiles<'_> {
    fn inputs(&mut self, stack: &Stack, named: Option<&str>) -> Result<AppInputs, UserError> {
        let kcl_mod = stack.folder.child("kcl.mod");
        let text = self.text(&kcl_mod)?.unwrap_or_default();
        let dependencies = declared_dependencies(text.as_bytes()).map_err(|error| {
            UserError::from_error(ErrorKind::Layout, error).at(kcl_mod.to_string(), None, None)
        })?;
        let names = kusion::platform_names(&dependencies);
        // AppConfigurations need the package of their types, so a stack without dependencies needs no workspace.
        let workspace = if dependencies.is_empty() && named.is_none() {
            None
        } else {
            self.workspace(stack, named)?
        };
        let note = match (&workspace, named) {
            (Some(_), None) => unusable_name(stack),
            (None, None) => self.without_workspace(stack),
            _ => None,
        };
        let platform = workspace.map(|workspace| workspace.platform(stack.names.project(), &names));
        let (own, project) = (
            stack.folder.child("stack.yaml"),
            stack.project_folder.child("project.yaml"),
        );
        let (own_text, project_text) = (self.text(&own)?, self.text(&project)?);
        let extensions = kusion::project_extensions(
            extension_file(&own, own_text.as_deref()),
            extension_file(&project, project_text.as_deref()),
        )?;
        let is_used = |module: &&String| dependencies.iter().any(|declared| declared.name == **module);
        Ok(AppInputs {
            networked: self.networked.iter().filter(is_used).cloned().collect(),
            platform: platform.unwrap_or_default(),
            binaries: ModuleBinaries::read(self.tree, stack, &dependencies)?,
            dependencies,
            namespace: extensions.namespace,
            notes: note.into_iter().chain(extensions.notes).collect(),
        })
    }

    /// Returns the workspace that a rule names; without one, the workspace with the name of the stack, or else
    /// `default`.
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
                    .hint("`stacks[].workspace` of konverge.yaml names this workspace: write its file, or take it out of Kusion's backend with `konverge state import`")
            });
        }
        for file in own_workspaces(stack) {
            if let Some(workspace) = self.file(&file)? {
                return Ok(Some(workspace));
            }
        }
        Ok(None)
    }

    /// Returns a note if a stack has no workspace although the repository has some. Its modules then get no settings.
    fn without_workspace(&self, stack: &Stack) -> Option<String> {
        let folder = RepoPath::root().child(kusion::FOLDER);
        self.tree.files_below(&folder).next()?;
        let files: Vec<_> = own_workspaces(stack).map(|file| format!("`{file}`")).collect();
        Some(format!(
            "the stack has no workspace, so its modules get no settings from the platform: neither file exists: {}",
            files.join(" and no ")
        ))
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
        let content = self.tree.read(path)?;
        Ok(content.map(|bytes| String::from_utf8_lossy(&bytes).into_owned()))
    }
}

/// Returns the workspace files of a stack for which no rule names a workspace: the one with the name of the stack, and
/// the default one.
fn own_workspaces(stack: &Stack) -> impl Iterator<Item = RepoPath> {
    let names = [stack.names.name(), DEFAULT].into_iter();
    names.filter_map(kusion::workspace_file)
}

/// Returns a note if a stack uses the default workspace because its name cannot be a file name.
fn unusable_name(stack: &Stack) -> Option<String> {
    let name = stack.names.name();
    (!is_workspace_name(name)).then(|| {
        format!(
            "no workspace can have the name of the stack, `{}`, so the workspace `{DEFAULT}` is used: name another one by `stacks[].workspace` of konverge.yaml",
            name.escape_debug()
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use konverge_base::model::stack::CompileSetup;

    #[test]
    fn a_program_is_compiled_with_types_only_if_it_may_hold_applications() {
        let apps = AppStacks::default();
        let path = |path: &str| RepoPath::normalize(path).unwrap();
        let fetched = tempfile::tempdir().unwrap();
        let folder = fetched.path().join("v1");
        std::fs::create_dir(&folder).unwrap();
        let may = |file: &str, text: &str, package: Option<&str>| {
            if let Some(text) = package {
                std::fs::write(folder.join("a.k"), text).unwrap();
            }
            let request = CompileRequest {
                setup: CompileSetup {
                    packages: vec![("k8s".to_owned(), path("apps/shop/dev/vendor/k8s"))],
                    ..CompileSetup::default()
                },
                files: vec![(path(file), text.as_bytes().into())],
                packages: package
                    .map(|_| ("base".to_owned(), fetched.path().to_owned()))
                    .into_iter()
                    .collect(),
                ..CompileRequest::default()
            };
            apps.packages.lock().unwrap().clear();
            apps.may_hold_apps(&request)
        };
        let (own, vendored) = ("apps/shop/dev/main.k", "apps/shop/dev/vendor/k8s/pod.k");
        assert!(may(own, "a = base.App {workload: b}", None));
        assert!(!may(vendored, "# the workload of a pod", None));
        assert!(!may(own, "a = 1", Some("# the workload of a pod")));
        assert!(may(own, "a = 1", Some("schema App(ac.AppConfiguration):")));
        assert!(may(vendored, "schema AppConfiguration:", None));
    }
}
