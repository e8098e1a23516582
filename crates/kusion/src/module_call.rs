//! Requests to modules that are not built in, and their responses. `run::module_runner` executes them.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::{
    AppConfigurations, AppStack, KusionError,
    apps::{App, Part},
    context_keys,
    kubernetes_object::IS_WORKLOAD,
    module_source::{ModuleRef, place},
    native::ModuleOutput,
    patch::Patch,
    platform::PlatformModule,
};
use konverge_base::{
    model::{
        ResourceId,
        spec::{Resource, RuntimeKind},
    },
    yaml,
};
use konverge_secrets::without_secrets;

/// A request to a module that is not built in. The texts are YAML; a missing one is empty.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ForeignCall {
    /// The part of an application that the call is for.
    pub part: AppPart,
    /// The name of the dependency, as KCL imports it.
    pub module: String,
    /// The workload as YAML.
    pub workload: String,
    /// The developer's values as YAML.
    pub dev_config: String,
    /// The platform's values as YAML.
    pub platform_config: String,
    /// The context of the workspace as YAML.
    pub context: String,
    /// The environment variables of the module.
    pub environment: BTreeMap<String, String>,
}

/// A part of an application.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct AppPart {
    /// Name of the application.
    pub app: String,
    /// The key of the accessory; `None` for the workload.
    pub accessory: Option<String>,
}

/// Response of a module, as YAML.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ForeignAnswer {
    /// The resources as YAML.
    pub resources: Vec<String>,
    /// The patches of the workload as YAML.
    pub patchers: Vec<String>,
}

/// Summary of a response, without its values.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AnswerSummary {
    /// Ids of the resources.
    pub resources: Vec<String>,
    /// Number of patchers.
    pub patchers: usize,
}

/// The responses of modules, by the part of an application that each is for.
pub type ForeignAnswers = BTreeMap<AppPart, ForeignAnswer>;

/// Returns the requests that the Spec of a stack needs, in the order in which they must be made.
///
/// # Errors
/// A part of an application belongs to no module.
pub fn foreign_calls(
    apps: &AppConfigurations,
    stack: &AppStack<'_>,
) -> Result<Vec<ForeignCall>, KusionError> {
    let mut calls = Vec::new();
    let context = context_keys::of_modules(&stack.platform.context);
    let context = if context.is_empty() {
        String::new()
    } else {
        yaml::to_string(&context)
    };
    let environment = context_keys::environment(&stack.platform.context);
    for app in &apps.apps {
        for (key, part) in app.parts() {
            let module = ModuleRef::find(&app.name, &place(key), part, stack.dependencies)?;
            if module.rules.is_some() {
                continue;
            }
            let workload = app.workload.as_ref().map(|part| yaml::to_string(&part.config));
            let platform = stack.platform.modules.get(&module.name);
            calls.push(ForeignCall {
                part: AppPart::new(app, key),
                module: module.name,
                workload: workload.unwrap_or_default(),
                dev_config: yaml::to_string(&part.config),
                platform_config: platform.map(PlatformModule::whole_text).unwrap_or_default(),
                context: context.clone(),
                environment: environment.clone(),
            });
        }
    }
    Ok(calls)
}

impl App {
    /// Returns the parts of the application: the workload, then the accessories by key.
    pub(super) fn parts(&self) -> impl Iterator<Item = (Option<&str>, &Part)> {
        let workload = self.workload.iter().map(|part| (None, part));
        let accessories = self.accessories.iter();
        workload.chain(accessories.map(|(key, part)| (Some(key.as_str()), part)))
    }
}

impl AppPart {
    pub(super) fn new(app: &App, accessory: Option<&str>) -> Self {
        Self {
            app: app.name.clone(),
            accessory: accessory.map(str::to_owned),
        }
    }
}

impl PlatformModule {
    /// Returns all settings of a module as YAML, including the keys that Kusion reads itself.
    fn whole_text(&self) -> String {
        let mut whole = self.settings.clone();
        if !self.imported_resources.is_empty() {
            whole.insert("importedResources".to_owned(), json!(self.imported_resources));
        }
        if let Some(policy) = &self.health_policy {
            whole.insert("healthPolicy".to_owned(), json!(policy));
        }
        if whole.is_empty() {
            String::new()
        } else {
            yaml::to_string(&whole)
        }
    }
}

/// A resource as a module writes it. Some libraries write names in lower case.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct AnsweredResource {
    id: String,
    #[serde(rename = "type")]
    runtime: RuntimeKind,
    attributes: Option<Map<String, Value>>,
    #[serde(alias = "dependson")]
    depends_on: Option<Vec<ResourceId>>,
    extensions: Option<Map<String, Value>>,
}

impl ForeignAnswer {
    /// Reads a response without using it, as a check and for a report.
    ///
    /// # Errors
    /// The response is invalid.
    pub fn summary(&self) -> Result<AnswerSummary, KusionError> {
        let part = AppPart {
            app: "app".to_owned(),
            accessory: Some("module".to_owned()),
        };
        let (output, patches) = self.read(&part, "module")?;
        let resources = output.resources.iter();
        Ok(AnswerSummary {
            resources: resources.map(|resource| resource.id.to_string()).collect(),
            patchers: patches.len(),
        })
    }

    /// Reads a response. `name` is the module's name, for messages.
    pub(super) fn read(&self, part: &AppPart, name: &str) -> Result<(ModuleOutput, Vec<Patch>), KusionError> {
        // The message may quote a value, which may be secret.
        let refuse = |what: &str, why: String| KusionError::Module {
            app: part.app.clone(),
            place: place(part.accessory.as_deref()),
            message: format!("the module `{name}` returned {what}: {}", without_secrets(&why)),
        };
        let mut resources = Vec::new();
        for text in &self.resources {
            let read: AnsweredResource = yaml::from_str(text)
                .map_err(|error| refuse("a resource that cannot be read", error.message))?;
            let id = read.id.parse().map_err(|error| {
                refuse(
                    "a resource with an invalid id",
                    format!("`{}`: {error}", read.id.escape_debug()),
                )
            })?;
            let attributes = read.attributes.unwrap_or_default();
            if attributes.is_empty() && read.runtime == RuntimeKind::Kubernetes {
                return Err(refuse("an object without attributes", format!("`{id}`")));
            }
            resources.push(Resource {
                id,
                runtime: read.runtime,
                attributes,
                depends_on: read.depends_on.unwrap_or_default(),
                extensions: read.extensions.unwrap_or_default(),
                sharing: konverge_base::model::spec::Sharing::default(),
            });
        }
        let patches = self
            .patchers
            .iter()
            .filter(|text| !text.trim().is_empty())
            .map(|text| Patch::parse(text).map_err(|why| refuse("a patcher that cannot be read", why)));
        let patches = patches.collect::<Result<Vec<_>, _>>()?;
        let workload = match part.accessory {
            None => take_workload(&mut resources).map_err(|why| refuse("several workloads", why))?,
            Some(_) => None,
        };
        let is_empty = workload.is_none() && resources.is_empty() && patches.is_empty();
        let note = is_empty.then(|| {
            format!(
                "`{}`: the module `{name}` returned nothing for {}: neither a resource nor a patch. It may have failed without an error",
                part.app,
                place(part.accessory.as_deref())
            )
        });
        let output = ModuleOutput {
            workload,
            resources,
            notes: note.into_iter().collect(),
        };
        Ok((output, patches))
    }
}

/// Removes the workload from the resources of its module: the only resource, or the one with the extension
/// [`IS_WORKLOAD`], whose value may be a boolean or a text.
fn take_workload(resources: &mut Vec<Resource>) -> Result<Option<Resource>, String> {
    if resources.len() == 1 {
        return Ok(resources.pop());
    }
    let is_marked = |resource: &Resource| {
        let mark = resource.extensions.get(IS_WORKLOAD);
        mark.is_some_and(|mark| *mark == json!(true) || *mark == json!("true"))
    };
    let marked: Vec<_> = resources
        .iter()
        .enumerate()
        .filter(|(_, resource)| is_marked(resource))
        .map(|(index, _)| index)
        .collect();
    match marked.as_slice() {
        [] => Ok(None),
        [index] => Ok(Some(resources.remove(*index))),
        [first, second, ..] => Err(format!(
            "`{}` and `{}`",
            resources[*first].id, resources[*second].id
        )),
    }
}
