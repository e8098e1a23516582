//! Adds notes to a plan: why an adopted resource is not in the state, and which created resources may already exist.

use crate::{Planner, Target};
use konverge_base::{
    error::UserError,
    model::{
        plan::{Action, ResourcePlan, StackPlan},
        spec::RuntimeKind,
    },
};
use konverge_state::{Versioned, WriteReason};

/// Adds to each adopted resource of a plan a note why it is adopted and what an adoption does. A Terraform resource
/// that would be created after an import gets a note that the import may have skipped it.
///
/// # Errors
/// Errors of the store.
pub(crate) async fn explain(
    planning: &Planner,
    target: &Target,
    plan: &mut StackPlan,
) -> Result<(), UserError> {
    if !plan
        .resources
        .iter()
        .any(|resource| is_adopted(resource) || is_made_by_terraform(resource))
    {
        return Ok(());
    }
    let prior = planning.stored(&target.id).await?;
    let prior = prior.filter(|prior| !prior.retired);
    let is_imported = prior
        .as_ref()
        .is_some_and(|prior| prior.reason == WriteReason::Import);
    let why = missing_from(target, prior.as_ref());
    for resource in &mut plan.resources {
        if is_adopted(resource) {
            resource.notes.push(format!(
                "it exists and {why}: the first apply takes it over, and fields that the Spec does not set are kept"
            ));
        } else if is_imported && is_made_by_terraform(resource) {
            resource.notes.push(
                "Terraform resources of Kusion's state were not imported: if it exists, `kusionstack.io/import-id` in its \
                 `extensions`, or `importedResources` of its module in the workspace, takes it over instead of creating another one"
                    .to_owned(),
            );
        }
    }
    Ok(())
}

fn is_adopted(resource: &ResourcePlan) -> bool {
    resource.action == Action::Adopt
}

fn is_made_by_terraform(resource: &ResourcePlan) -> bool {
    resource.action == Action::Create && resource.runtime == RuntimeKind::Terraform
}

/// Describes the state in which an adopted resource is missing.
fn missing_from(target: &Target, prior: Option<&Versioned>) -> String {
    match prior {
        Some(prior) if prior.reason == WriteReason::Import => match &prior.note {
            Some(note) => format!("is not in the state that was imported ({note})"),
            None => "is not in the state that was imported".to_owned(),
        },
        Some(prior) if !prior.state.is_blank() => format!("is not in the state of `{}`", target.id),
        _ => format!("the state of `{}` is empty", target.id),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_fixture::{backend, record, stack, state};

    #[tokio::test]
    async fn an_adopted_object_is_told_by_the_state_that_lacks_it() {
        let backend = backend();
        let target = Target::new(&stack("shop/prod"), None);
        let prior = async || backend.states.load(&target.id).await.unwrap().unwrap();
        assert_eq!(missing_from(&target, None), "the state of `shop/prod` is empty");
        record(&backend, state("shop/prod", &[])).await;
        let blank = prior().await;
        assert_eq!(
            missing_from(&target, Some(&blank)),
            "the state of `shop/prod` is empty"
        );
        record(&backend, state("shop/prod", &["web"])).await;
        let applied = prior().await;
        assert_eq!(
            missing_from(&target, Some(&applied)),
            "is not in the state of `shop/prod`"
        );
        let imported = |note: Option<&str>| {
            let mut imported = applied.clone();
            imported.reason = WriteReason::Import;
            imported.note = note.map(str::to_owned);
            imported
        };
        let unnamed = imported(None);
        assert_eq!(
            missing_from(&target, Some(&unnamed)),
            "is not in the state that was imported"
        );
        let named = imported(Some("from release 3"));
        assert!(missing_from(&target, Some(&named)).ends_with("that was imported (from release 3)"));
    }

    #[test]
    fn only_a_creation_by_terraform_may_double_what_an_import_left_out() {
        let resource = |action, runtime| {
            let id = "shop/prod".parse().unwrap();
            ResourcePlan::new(&id, "a:b:c:d".parse().unwrap(), runtime, action, Vec::new())
        };
        assert!(is_made_by_terraform(&resource(
            Action::Create,
            RuntimeKind::Terraform
        )));
        assert!(!is_made_by_terraform(&resource(
            Action::Create,
            RuntimeKind::Kubernetes
        )));
        assert!(!is_made_by_terraform(&resource(
            Action::Update,
            RuntimeKind::Terraform
        )));
        assert!(is_adopted(&resource(Action::Adopt, RuntimeKind::Kubernetes)));
    }
}
