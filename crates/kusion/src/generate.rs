//! [`generate`]: generates a Spec from AppConfigurations and a platform.
//!
//! The order is fixed: the Namespace; then for each application, by name, its Secrets by name, the workload, the
//! other resources of the workload's module, and the accessories by key.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use super::{
    AppConfigurations, AppStack, KusionError,
    apps::{App, Part},
    context_keys,
    kubernetes_object::{IS_WORKLOAD, ObjectName},
    kubernetes_order,
    module_call::{AppPart, ForeignAnswers},
    module_source::{ModuleRef, NativeRules, WorkloadVersion, place},
    native::{self, EnvOrder, ModuleCall, ModuleOutput},
    patch::{Patch, PatchAuthor},
    platform::{HealthPolicy, PlatformModule},
    workload_secrets,
};
use konverge_base::model::{
    claim::IMPORT_ID,
    spec::{Resource, RuntimeKind, Sharing, Spec},
};
use konverge_repo::konfig::DeclaredDependency;

/// A Spec, with notes for the developer.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Generated {
    /// The generated resources.
    pub spec: Spec,
    /// Notes for the developer, in the order of the Spec and without duplicates.
    pub notes: Vec<String>,
}

/// Generates the Spec of a stack. `answers` are the responses of the modules that are not built in.
///
/// # Errors
/// A module is unknown, has no response, or rejects its settings.
pub fn generate(
    apps: &AppConfigurations,
    stack: &AppStack<'_>,
    answers: &ForeignAnswers,
) -> Result<Generated, KusionError> {
    let imported = stack.platform.imported_resources()?;
    let mut generated = Generated::default();
    generated
        .notes
        .extend(context_keys::notes(&stack.platform.context));
    if stack.platform.has_secret_store {
        let note = "the workspace's `secretStore` is not used: name the store under `secrets.stores` in konverge.yaml";
        generated.notes.push(note.to_owned());
    }
    generated.notes.extend(apps.others.iter().map(|name| {
        format!(
            "`{}` is not an AppConfiguration and is left out",
            name.escape_debug()
        )
    }));
    let namespace = namespace(stack)?;
    for app in &apps.apps {
        generated.notes.extend(app.without_effect.iter().map(|key| {
            format!(
                "`{}`: `{key}` of the application has no effect: set it on the workload",
                app.name
            )
        }));
        let mut resources = generate_app(app, stack, answers, &mut generated.notes)?;
        kubernetes_order::add(&mut resources, &[&namespace]);
        generated.spec.resources.extend(resources);
    }
    generated.spec.resources.insert(0, namespace);
    import(&mut generated, &imported);
    let mut met = std::collections::HashSet::new();
    generated.notes.retain(|note| met.insert(note.clone()));
    Ok(generated)
}

fn namespace(stack: &AppStack<'_>) -> Result<Resource, KusionError> {
    let object = ObjectName::new("v1", "Namespace", None, stack.own_namespace());
    let body = json!({"spec": {}, "status": {}});
    let namespace = object.resource(stack.project, &Map::new(), &Map::new(), body)?;
    Ok(Resource {
        sharing: Sharing::Project,
        ..namespace
    })
}

fn generate_app(
    app: &App,
    stack: &AppStack<'_>,
    answers: &ForeignAnswers,
    notes: &mut Vec<String>,
) -> Result<Vec<Resource>, KusionError> {
    let mut resources = workload_secrets::generate(app, stack.own_namespace(), notes)?;
    let mut called: BTreeMap<String, String> = BTreeMap::new();
    let mut patches: Vec<(String, String, Patch)> = Vec::new();
    let mut workload = None;
    for (key, part) in app.parts() {
        let place = place(key);
        let module = ModuleRef::find(&app.name, &place, part, stack.dependencies)?;
        if let Some(first) = called.insert(module.name.clone(), place.clone()) {
            return Err(KusionError::Twice {
                app: app.name.clone(),
                module: module.name,
                first,
                second: place,
            });
        }
        let none = PlatformModule::default();
        let platform = stack
            .platform
            .modules
            .get(module.platform_name())
            .unwrap_or(&none);
        notes.extend(version_note(&module, platform, stack));
        let output = match call_native(app, &place, part, &module, platform, stack, notes)? {
            Some(output) => output,
            None => {
                let part = AppPart::new(app, key);
                let answer = answers.get(&part).ok_or_else(|| KusionError::Foreign {
                    app: app.name.clone(),
                    place: place.clone(),
                    module: module.name.clone(),
                    source_text: source_text(&module.name, stack.dependencies),
                })?;
                let (output, added) = answer.read(&part, &module.name)?;
                let by = |patch| (place.clone(), module.name.clone(), patch);
                patches.extend(added.into_iter().map(by));
                output
            }
        };
        notes.extend(output.notes);
        let is_workload = key.is_none();
        let made = output.workload.into_iter().map(|resource| (true, resource));
        for (main, mut resource) in made.chain(output.resources.into_iter().map(|resource| (false, resource)))
        {
            let era = module.rules.and_then(NativeRules::workload_version);
            if main && is_workload && era != Some(WorkloadVersion::BuiltIn) {
                resource.extensions.insert(IS_WORKLOAD.to_owned(), json!(true));
            }
            if let Some(policy) = &platform.health_policy
                && ((main && is_workload) || policy.is_for(&resource))
            {
                resource
                    .extensions
                    .insert("healthPolicy".to_owned(), json!(policy));
            }
            if main && is_workload {
                workload = Some(resources.len());
            }
            resources.push(resource);
        }
    }
    // Patches come last, because a patch of any module may change the workload and the resources of other
    // modules.
    for (place, module, patch) in &patches {
        let author = PatchAuthor {
            app: &app.name,
            place,
            module,
        };
        notes.extend(patch.apply(&author, workload, &mut resources)?);
    }
    Ok(resources)
}

/// Calls a module whose rules are built in; returns `None` for a module with a binary.
fn call_native(
    app: &App,
    place: &str,
    part: &Part,
    module: &ModuleRef,
    platform: &PlatformModule,
    stack: &AppStack<'_>,
    notes: &mut Vec<String>,
) -> Result<Option<ModuleOutput>, KusionError> {
    let Some(rules) = module.rules else {
        return Ok(None);
    };
    // Kusion itself generated workloads until 0.12.0. The modules that generate them today ignore the extension
    // `kubernetesNamespace`, and sort the variables of the containers.
    let (namespace, env_order) = match rules.workload_version() {
        Some(WorkloadVersion::BuiltIn) => (stack.own_namespace(), EnvOrder::Declared),
        _ => (stack.project, EnvOrder::Natural),
    };
    if namespace != stack.own_namespace() {
        notes.push(format!(
            "the module `{}` puts its objects into the namespace `{namespace}`, as its published versions do: the extension `kubernetesNamespace` moves only the Namespace and the Secrets to `{}`",
            module.name,
            stack.own_namespace()
        ));
    }
    let call = ModuleCall {
        project: stack.project,
        stack: stack.name,
        app: &app.name,
        place,
        namespace,
        env_order,
        developer: &part.config,
        platform: &platform.settings,
        workload: app.workload.as_ref().map(|part| &part.config),
    };
    let output = match rules {
        NativeRules::Service(_) => native::generate_service(&call),
        NativeRules::Job(_) => native::generate_job(&call),
        NativeRules::Network => native::generate_network(&call),
    };
    output.map(Some)
}

impl HealthPolicy {
    /// Returns true if the policy names the API version and kind of this resource.
    fn is_for(&self, resource: &Resource) -> bool {
        let same = |key: &str, wanted: &Option<String>| {
            let found = resource.attributes.get(key).and_then(Value::as_str);
            found
                .zip(wanted.as_deref())
                .is_some_and(|(found, wanted)| found.eq_ignore_ascii_case(wanted))
        };
        same("apiVersion", &self.api_version) && same("kind", &self.kind)
    }
}

/// Describes the source of a dependency.
fn source_text(module: &str, dependencies: &[DeclaredDependency]) -> String {
    let declared = dependencies.iter().find(|dependency| dependency.name == module);
    declared.map_or_else(|| "unknown".to_owned(), ToString::to_string)
}

/// Returns a note if the workspace names another version of a module than `kcl.mod`, which decides.
fn version_note(module: &ModuleRef, platform: &PlatformModule, stack: &AppStack<'_>) -> Option<String> {
    let mut dependencies = stack.dependencies.iter();
    let declared = dependencies.find(|dependency| dependency.name == module.platform_name())?;
    let used = declared.version().filter(|_| !platform.version.is_empty())?;
    let plain = |version: &str| version.trim_start_matches('v').to_owned();
    (plain(used) != plain(&platform.version)).then(|| {
        format!(
            "the workspace names version {} of the module `{}`, and kcl.mod {used}, which is the one that counts",
            platform.version, module.name
        )
    })
}

/// Marks the resources that the workspace imports from existing ones.
fn import(generated: &mut Generated, imported: &BTreeMap<String, String>) {
    for (id, target) in imported {
        let mut resources = generated.spec.resources.iter_mut();
        match resources.find(|resource| resource.id.as_str() == id) {
            Some(resource) if resource.runtime == RuntimeKind::Terraform => {
                resource.extensions.insert(IMPORT_ID.to_owned(), json!(target));
            }
            Some(_) => generated.notes.push(format!(
                "the workspace imports `{id}`, a Kubernetes object: that has no effect, because the object is found by its name"
            )),
            None => generated.notes.push(format!(
                "the workspace imports `{}`, which is not in the Spec",
                id.escape_debug()
            )),
        }
    }
}
