//! Maps Terraform's errors to the items of a batch: which item caused the error, and which items are removed.

use std::collections::{BTreeSet, HashMap, HashSet};

use super::{
    context::Terraform,
    error::{FIX_FIRST, TerraformError, of_resource},
    log_messages::{TerraformDiagnostic, plain},
    module::ProviderUsers,
    module_resource::ModuleResource,
    plan_command::PlanRefusal,
};
use konverge_base::{
    error::ErrorKind,
    model::{ResourceId, reference::Targets},
};
use konverge_engine::runtime::PlannedResource;

/// The planning result of an item.
pub(super) type ItemResult = Result<PlannedResource, TerraformError>;

/// Returns the items that caused the errors, each with its error. An error that names no item is returned for
/// every item.
pub(super) fn blame(
    runtime: &Terraform,
    subjects: &[ModuleResource],
    users: &ProviderUsers,
    refusal: &PlanRefusal,
) -> Result<Vec<(ResourceId, TerraformError)>, TerraformError> {
    let secrets = &runtime.options.secrets;
    let expired = |error: TerraformError| error.after_expiry(&refusal.expiry_hints);
    let to_error = |diagnostic: &TerraformDiagnostic, id| expired(diagnostic.to_error(id, secrets));
    let mut refused: Vec<(ResourceId, TerraformError)> = Vec::new();
    for diagnostic in &refusal.errors {
        for subject in failed_items(diagnostic, subjects, users, refusal) {
            if !refused.iter().any(|(id, _)| id == subject.id()) {
                let id = subject.id();
                let error = if diagnostic.forbids_destroying() {
                    replace_protected(id)
                } else {
                    to_error(diagnostic, id)
                };
                refused.push((id.clone(), error));
            }
        }
    }
    match refusal.errors.first() {
        None => Err(expired(TerraformError::Failed(plain(secrets, &refusal.stderr)))),
        Some(_) if !refused.is_empty() => Ok(refused),
        // The error names no resource, so every resource gets it.
        Some(diagnostic) => Ok(subjects
            .iter()
            .map(|s| (s.id().clone(), to_error(diagnostic, s.id())))
            .collect()),
    }
}

fn replace_protected(id: &ResourceId) -> TerraformError {
    let what = format!("`{id}` would be replaced, but `lifecycle.prevent_destroy` is set on it");
    of_resource(ErrorKind::Terraform, id, what)
        .hint(
            "to replace the object, set `lifecycle.prevent_destroy: false` in the Spec; to keep the object, undo the change \
             that forces the replacement",
        )
        .hint(format!("to keep the object and stop managing it: `konverge state forget STACK '{id}'`"))
        .into()
}

/// Returns the items that an error concerns. An error in a provider's configuration concerns the items of
/// that provider. An import error names the address only in its text, or not at all: then it concerns the
/// planned imports that were not yet refreshed.
fn failed_items<'s>(
    diagnostic: &TerraformDiagnostic,
    subjects: &'s [ModuleResource],
    users: &ProviderUsers,
    refusal: &PlanRefusal,
) -> Vec<&'s ModuleResource> {
    let which = |is_one: &dyn Fn(&ModuleResource, &str) -> bool| -> Vec<&'s ModuleResource> {
        let mut found = Vec::new();
        found.extend(subjects.iter().filter(|s| is_one(s, &s.address.to_string())));
        found
    };
    let served = diagnostic.subjects().filter_map(|about| users.get(about));
    let served: HashSet<&ResourceId> = served.flatten().collect();
    if !served.is_empty() {
        return subjects.iter().filter(|s| served.contains(s.id())).collect();
    }
    // A position in the module may be one of all resources of a type, such as `resource.terraform_data`, so
    // only an address with a name is used.
    if let Some(about) = diagnostic.address().filter(|about| about.contains('.')) {
        return which(&|_, address| address == about);
    }
    let named = which(&|_, address| names_address(&diagnostic.detail, address));
    if !named.is_empty() {
        return named;
    }
    let unseen =
        which(&|subject, address| subject.import_id().is_some() && !refusal.refreshed.contains(address));
    // Resources that depend on failed ones were not refreshed for that reason only, so they have no error of
    // their own.
    let ids: HashSet<&ResourceId> = unseen.iter().map(|s| s.id()).collect();
    let needs = needs(subjects, &subjects.iter().map(ModuleResource::id).collect());
    let waits = |subject: &ModuleResource| {
        let (mut seen, mut next) = (HashSet::new(), vec![subject.id()]);
        while let Some(at) = next.pop() {
            let needed = needs.get(at).into_iter().flatten();
            next.extend(needed.filter(|id| seen.insert(*id)));
        }
        seen.iter().any(|id| ids.contains(id))
    };
    unseen.into_iter().filter(|s| !waits(s)).collect()
}

/// Returns true if a text contains an address that is not part of a longer one. Terraform quotes addresses in
/// some errors only.
fn names_address(text: &str, address: &str) -> bool {
    let is_part = |c: char| c.is_alphanumeric() || matches!(c, '-' | '_');
    text.match_indices(address).any(|(at, _)| {
        let (before, after) = (&text[..at], &text[at + address.len()..]);
        !before.ends_with(|c: char| is_part(c) || c == '.') && !after.starts_with(is_part)
    })
}

/// Returns for each item the named resources that it depends on or refers to.
fn needs(subjects: &[ModuleResource], named: &Targets) -> HashMap<ResourceId, BTreeSet<ResourceId>> {
    let of = |subject: &ModuleResource| {
        let desired = subject.item.desired.as_ref()?;
        // An invalid reference is an error of its own, reported when the module is built.
        let mut needs = named.referenced(&desired.attributes).unwrap_or_default();
        needs.extend(desired.depends_on.iter().cloned());
        Some((subject.id().clone(), needs))
    };
    subjects.iter().filter_map(of).collect()
}

/// Returns the error for the items of the provider whose package is not available. Other items can still be
/// planned.
pub(super) fn without_package(
    subjects: &[ModuleResource],
    error: &TerraformError,
) -> Vec<(ResourceId, TerraformError)> {
    let TerraformError::Package { source_address, .. } = error else {
        return Vec::new();
    };
    let lacking = subjects.iter().filter(|s| s.provider.source == *source_address);
    lacking.map(|s| (s.id().clone(), error.clone())).collect()
}

/// Gives up imports that may have caused errors: an object that an interrupted run created may be gone, or
/// its provider may not support imports. Such a resource is planned as if it did not exist. Returns true if
/// there was such an import.
pub(super) fn give_imports_up(
    subjects: &mut [ModuleResource],
    refused: &[(ResourceId, TerraformError)],
) -> bool {
    let mut any = false;
    for subject in subjects {
        let is_refused = refused.iter().any(|(id, _)| id == subject.id());
        any |= is_refused && subject.made.take().is_some();
    }
    any
}

/// Removes failed items, and the items that depend on them, and records their errors.
pub(super) fn take_out(
    subjects: &mut Vec<ModuleResource>,
    failed: Vec<(ResourceId, TerraformError)>,
    answers: &mut HashMap<ResourceId, ItemResult>,
) {
    let mut gone: Vec<ResourceId> = failed.iter().map(|(id, _)| id.clone()).collect();
    answers.extend(failed.into_iter().map(|(id, error)| (id, Err(error))));
    let named: Targets = subjects.iter().map(ModuleResource::id).chain(&gone).collect();
    let needs = needs(subjects, &named);
    subjects.retain(|s| !gone.contains(s.id()));
    loop {
        let needy = subjects.iter().find_map(|subject| {
            let needed = needs.get(subject.id())?.iter().find(|id| gone.contains(id))?;
            Some((subject.id().clone(), needed.clone()))
        });
        let Some((id, needed)) = needy else { return };
        subjects.retain(|s| *s.id() != id);
        gone.push(id.clone());
        let what = format!("`{id}` depends on `{needed}`, which cannot be planned");
        let error = of_resource(ErrorKind::Terraform, &id, what).hint(FIX_FIRST);
        answers.insert(id, Err(error.into()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_named_as_a_whole() {
        for (text, named) in [
            ("Resource t_x.a has lifecycle.prevent_destroy set, but", true),
            ("the object \"t_x.a\" exists", true),
            ("see t_x.a.", true),
            ("Resource t_x.ab has", false),
            ("Resource my_t_x.a has", false),
            ("module.m.t_x.a has", false),
            ("t_x.a-b", false),
            ("", false),
        ] {
            assert_eq!(names_address(text, "t_x.a"), named, "{text}");
        }
    }
}
