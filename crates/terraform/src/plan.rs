//! Plans a batch: one module, one `terraform plan`. An item that Terraform refuses is removed with its
//! dependents, and the rest is planned again.

use std::collections::{BTreeMap, HashMap};

use super::{
    context::Terraform,
    diagnostics_map::{ItemResult, blame, give_imports_up, take_out, without_package},
    error::TerraformError,
    module::{self, ProviderUsers},
    module_resource::ModuleResource,
    plan_command::{self, DryRun, SavedPlanFile},
    plan_convert,
    prepared_plan::PreparedPlan,
    providers::ProviderRef,
    resolve_items::{self, ResolvedItems},
    saved_plan::SavedPlan,
    secret_references::{self, ModuleSecrets},
    state_document::TerraformState,
};
use konverge_base::{
    error::{ErrorKind, UserError},
    model::{ResourceId, spec::RuntimeKind},
};
use konverge_engine::runtime::{Item, PlannedResource, StackScope};
use konverge_secrets::mask_resource;

/// Plans items. Returns one result for each item, in the same order.
pub(super) async fn plan(runtime: &Terraform, scope: &StackScope, items: Vec<Item>) -> Vec<ItemResult> {
    let order: Vec<ResourceId> = items.iter().map(|item| item.id.clone()).collect();
    let mut answers: HashMap<ResourceId, ItemResult> = HashMap::new();
    if let Err(error) = plan_all(runtime, scope, items, &mut answers).await {
        for id in &order {
            answers.entry(id.clone()).or_insert_with(|| Err(error.clone()));
        }
    }
    order
        .iter()
        .map(|id| {
            answers
                .remove(id)
                .unwrap_or_else(|| Err(TerraformError::Failed(format!("no result for `{id}`"))))
        })
        .collect()
}

/// Plans all items. An error applies to all items that have no result yet.
async fn plan_all(
    runtime: &Terraform,
    scope: &StackScope,
    items: Vec<Item>,
    answers: &mut HashMap<ResourceId, ItemResult>,
) -> Result<(), TerraformError> {
    let options = &runtime.options;
    let book = TerraformState::open(&scope.data, options.key.as_deref())?;
    let moved = runtime.renamed_resources(&scope.stack);
    let drafts = resolve_items::draft(items, &book, &moved, options);
    let ResolvedItems {
        mut subjects,
        forgotten,
        failed,
        providers,
    } = drafts;
    for (item, reason) in forgotten {
        let planned = PlannedResource::forgotten(&scope.stack, item, RuntimeKind::Terraform, reason);
        answers.insert(planned.item.id.clone(), Ok(planned));
    }
    take_out(&mut subjects, failed, answers);
    let resolver = scope.references.resolver();
    let failed = secret_references::fill_in_versions(resolver, &mut subjects).await;
    take_out(&mut subjects, failed, answers);
    // All resources are in one module, so an error of one fails the whole plan. Therefore a refused resource
    // gets its error and is removed, and the rest is planned again.
    while !subjects.is_empty() {
        let toolbox = runtime.toolbox().await?;
        let used: BTreeMap<ProviderRef, Vec<String>> = providers
            .iter()
            .filter(|(provider, _)| subjects.iter().any(|s| s.provider == **provider))
            .map(|(provider, hashes)| (provider.clone(), hashes.clone()))
            .collect();
        let installed = match toolbox.install(&used, options).await {
            Ok(installed) => installed,
            Err(error) => {
                let lacking = without_package(&subjects, &error);
                if lacking.is_empty() {
                    return Err(error);
                }
                take_out(&mut subjects, lacking, answers);
                continue;
            }
        };
        // A secret's value is allowed only where Terraform does not store it. The schemas tell which
        // attributes these are.
        if subjects.iter().any(ModuleResource::has_secret_values) {
            let schemas = toolbox.schemas(&installed, options).await?;
            let name = |source: &str| toolbox.binary.source_of(source);
            let misplaced = secret_references::check_places(schemas, &subjects, name);
            if !misplaced.is_empty() {
                take_out(&mut subjects, misplaced, answers);
                continue;
            }
        }
        let secrets = match ModuleSecrets::resolve(resolver, &subjects).await {
            Ok(secrets) => secrets,
            Err(failed) => {
                take_out(&mut subjects, failed, answers);
                continue;
            }
        };
        if !secrets.is_empty() {
            secret_references::check_version(&toolbox.binary)?;
        }
        let module = match module::build(&subjects, &toolbox.binary, &secrets) {
            Ok(module) => module,
            Err(failed) => {
                take_out(&mut subjects, failed, answers);
                continue;
            }
        };
        // A provider that is configured without its secret could log in elsewhere, so nothing is refreshed
        // then.
        let is_asked = secrets.unasked.is_empty();
        let mode = (!is_asked).then_some("-refresh=false");
        match plan_command::plan(runtime, &installed, &module, mode).await? {
            DryRun::Refused(refusal) => {
                let refused = blame(runtime, &subjects, &module.users, &refusal)?;
                if !give_imports_up(&mut subjects, &refused) {
                    take_out(&mut subjects, refused, answers);
                }
            }
            DryRun::Saved(saved) => {
                for provider in &secrets.unasked {
                    options.notes.note(&format!(
                        "{}: the configuration of `{provider}` refers to a secret, which only an apply reads: the \
                         live objects of all Terraform resources of the stack were not refreshed",
                        scope.stack
                    ));
                }
                let hash = |provider: &ProviderRef| {
                    let hash = installed
                        .hashes
                        .get(&toolbox.binary.source_of(&provider.source))?;
                    Some((provider.clone(), hash.clone()))
                };
                let hashes = used.keys().filter_map(hash).collect();
                let planned = keep_plan(runtime, scope, &book, subjects, *saved, module.users, hashes)?;
                answers.extend(planned.into_iter().map(|p| (p.item.id.clone(), Ok(p))));
                return Ok(());
            }
        }
    }
    Ok(())
}

/// Keeps the saved plan for the apply. Returns the planned resources.
fn keep_plan(
    runtime: &Terraform,
    scope: &StackScope,
    book: &TerraformState,
    subjects: Vec<ModuleResource>,
    saved: SavedPlanFile,
    users: ProviderUsers,
    hashes: BTreeMap<ProviderRef, Vec<String>>,
) -> Result<Vec<PlannedResource>, TerraformError> {
    let SavedPlanFile { plan, workspace, log } = saved;
    require_key(runtime, &plan, &subjects)?;
    for subject in &subjects {
        // A later batch that deletes the old id must only forget it, because its state has moved.
        if let Some(old) = &subject.moved_from {
            runtime.remember_move(&scope.stack, old, subject.id());
        }
    }
    let segment = plan_convert::Segment {
        stack: &scope.stack,
        saved: &plan,
        log: &log,
        book,
        secrets: &runtime.options.secrets,
        created: runtime.created_resources(&scope.stack),
    };
    let token = runtime.next_token();
    let (planned, ready) = segment.present(subjects, token.clone());
    runtime.keep(PreparedPlan {
        stack: scope.stack.clone(),
        workspace,
        ready,
        users,
        hashes,
        token,
    });
    Ok(planned)
}

/// Returns an error if a plan has sensitive values and there is no key to encrypt the state.
fn require_key(
    runtime: &Terraform,
    saved: &SavedPlan,
    subjects: &[ModuleResource],
) -> Result<(), TerraformError> {
    if runtime.options.key.is_some() {
        return Ok(());
    }
    let secrets = &runtime.options.secrets;
    let holds_secret = |subject: &ModuleResource| {
        let desired = subject.item.desired.as_ref();
        desired.is_some_and(|d| {
            let attributes = serde_json::Value::Object(d.attributes.clone());
            mask_resource(secrets, d).attributes != d.attributes
                || secrets.mask_value(&attributes) != attributes
                || secrets.mask_value(&subject.meta) != subject.meta
        })
    };
    let sensitive = subjects
        .iter()
        .find(|s| holds_secret(s) || s.holding.as_ref().is_some_and(|h| h.is_sensitive()));
    if sensitive.is_some() || saved.is_sensitive() {
        let id = sensitive.map(ModuleResource::id);
        let what = format!(
            "`{}` has sensitive values, but this run has no key to encrypt Terraform's state",
            id.map_or("this stack", ResourceId::as_str)
        );
        let failure = id
            .into_iter()
            .fold(UserError::new(ErrorKind::Secret, what), UserError::with_resource);
        return Err(failure
            .hint("create a key with `age-keygen`, store it as a secret of the job, and pass it in `KONVERGE_AGE_IDENTITY`")
            .into());
    }
    Ok(())
}
