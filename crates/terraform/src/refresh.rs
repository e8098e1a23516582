//! Reads the live objects with a refresh-only plan of the state, which changes nothing.

use std::collections::{BTreeMap, HashMap};

use super::{
    address::Addresses,
    context::Terraform,
    diagnostics_map::blame,
    error::{TerraformError, of_resource},
    module,
    module_resource::ModuleResource,
    plan_command::{self, DryRun},
    saved_plan::SavedPlan,
    secret_references::{self, ModuleSecrets},
    state_document::TerraformState,
};
use konverge_base::{
    error::{ErrorKind, chain},
    model::{ResourceId, health::Health},
};
use konverge_engine::runtime::{Item, ObservedObject, StackScope};

/// Returns the live objects as a refresh finds them; `None` for an object that is not in the state or no
/// longer exists. Terraform knows no health of an object.
pub(super) async fn observe(
    runtime: &Terraform,
    scope: &StackScope,
    items: &[Item],
) -> Result<Vec<ObservedObject>, TerraformError> {
    let options = &runtime.options;
    let book = TerraformState::open(&scope.data, options.key.as_deref())?;
    let mut addresses = Addresses::default();
    let mut providers = BTreeMap::new();
    let mut subjects = Vec::new();
    for item in items {
        let Some(holding) = book.resources.get(&item.id) else {
            continue;
        };
        let provider = holding.provider();
        if !provider.is_builtin() {
            let hashes = book.allowed_hashes(options, &item.id, &provider)?;
            providers.insert(provider, hashes.to_vec());
        }
        let item = Item {
            desired: None,
            ..item.clone()
        };
        subjects.push(ModuleResource::recorded(item, holding, &mut addresses));
    }
    let mut live = HashMap::new();
    let mut refused: HashMap<ResourceId, TerraformError> = HashMap::new();
    // Without its secret, a provider could send its requests elsewhere or log in with another identity. So
    // its resources are not refreshed.
    let (configured, unasked): (Vec<_>, Vec<_>) = subjects
        .into_iter()
        .partition(|subject| !secret_references::refers(&subject.meta));
    let mut subjects = configured;
    for subject in unasked {
        let id = subject.id();
        let what = format!(
            "`{id}` was not refreshed: the configuration of its provider refers to a secret, and only an apply reads secrets"
        );
        refused.insert(id.clone(), of_resource(ErrorKind::Terraform, id, what).into());
    }
    while !subjects.is_empty() {
        match refresh(runtime, &subjects, &providers).await? {
            Refreshed::Found(saved) => {
                let refreshed = saved.refreshed();
                for subject in subjects.drain(..) {
                    if let Some(found) = refreshed.get(subject.address.to_string().as_str()) {
                        super::masking::mask_object(
                            &found.values,
                            &serde_json::Value::Null,
                            &found.sensitive_values,
                            &options.secrets,
                        );
                        live.insert(subject.id().clone(), found.values.clone());
                    }
                }
            }
            // If one provider fails, the objects of its resources are unknown, and the others are refreshed
            // again.
            Refreshed::Refused(mut errors) => {
                subjects.retain(|subject| errors.iter().all(|(id, _)| id != subject.id()));
                if subjects.is_empty() && refused.is_empty() {
                    return Err(errors.remove(0).1);
                }
                refused.extend(errors);
            }
        }
    }
    Ok(items
        .iter()
        .map(|item| {
            let live = live.remove(&item.id);
            let health = match (refused.get(&item.id), &live, book.in_flight.get(&item.id)) {
                (Some(error), ..) => (Health::Unknown, chain(error)),
                (None, Some(_), _) => (Health::Ready, String::new()),
                (None, None, Some(flight)) => (
                    Health::Unknown,
                    format!("an earlier run was stopped during its {}", flight.action),
                ),
                (None, None, None) => (Health::Failed, "it is not there".to_owned()),
            };
            ObservedObject {
                id: item.id.clone(),
                live,
                health,
                waiting: None,
                is_suspended_by_spec: false,
            }
        })
        .collect())
}

/// The plan of a refresh, or the resources that could not be refreshed.
enum Refreshed {
    Found(Box<SavedPlan>),
    /// The refresh failed for these resources (at least one).
    Refused(Vec<(ResourceId, TerraformError)>),
}

async fn refresh(
    runtime: &Terraform,
    subjects: &[ModuleResource],
    providers: &BTreeMap<super::providers::ProviderRef, Vec<String>>,
) -> Result<Refreshed, TerraformError> {
    let options = &runtime.options;
    let toolbox = runtime.toolbox().await?;
    let installed = toolbox.install(providers, options).await?;
    let module = module::build(subjects, &toolbox.binary, &ModuleSecrets::default())
        .map_err(|mut failed| failed.remove(0).1)?;
    Ok(
        match plan_command::plan(runtime, &installed, &module, Some("-refresh-only")).await? {
            DryRun::Saved(saved) => Refreshed::Found(Box::new(saved.plan)),
            DryRun::Refused(refusal) => {
                Refreshed::Refused(blame(runtime, subjects, &module.users, &refusal)?)
            }
        },
    )
}
