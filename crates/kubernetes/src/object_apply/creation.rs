//! Creates objects without overwriting. Server-side apply overwrites an existing object, even one that
//! another stack created a moment before, because both use the same field manager. So a create names a
//! resource version that no object has. The server creates the object if there is none, and answers 409 if
//! there is one. That check is part of its own transaction, so two creates cannot both succeed. This module
//! decides what to do with an existing object.

use serde_json::{Value, json};

use super::super::{
    OWNER,
    api::discovery::ResourceType,
    object::{fetch, object_ref, plan_item::PlanItem, precondition, precondition::Precondition},
};
use konverge_base::{
    error::{ErrorKind, UserError},
    model::StackId,
};

/// The first write to an etcd store gets revision 2, so no object has this version.
const NO_VERSION: &str = "1";

/// Makes an apply fail if the object exists.
pub(crate) fn only_create(body: &mut Value) {
    body["metadata"]["resourceVersion"] = json!(NO_VERSION);
}

/// The existing object, and how to continue.
pub(crate) enum ExistingObject {
    /// The object was deleted since: create it again.
    Nothing,
    /// Write to the existing object: an earlier attempt of this write created it, or it has no owner. Conflicts with
    /// other managers are refused.
    Ours(Precondition),
    /// A shared object of another stack of the project: write to it, and keep its owner.
    Shared(Precondition),
}

/// Classifies the existing object.
///
/// # Errors
/// It belongs to another stack, or is being deleted.
pub(crate) async fn classify_existing(
    subject: &PlanItem,
    of: &ResourceType,
    stack: &StackId,
    is_shared: bool,
) -> Result<ExistingObject, UserError> {
    let Some(object) = fetch::get(&subject.cluster, of, &subject.name).await? else {
        return Ok(ExistingObject::Nothing);
    };
    if !object["metadata"]["deletionTimestamp"].is_null() {
        return Err(precondition::another_object(
            subject,
            "an object with its name is being deleted",
        ));
    }
    let seen = Precondition::from_object(&object);
    match owner(&object, stack, is_shared) {
        Owner::Nobody | Owner::Us => Ok(ExistingObject::Ours(seen)),
        Owner::Beside(_) => Ok(ExistingObject::Shared(seen)),
        Owner::Other(owner) => Err(belongs_to(subject, owner)),
    }
}

/// The owner of an object, from its annotation.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Owner<'a> {
    /// No owner.
    Nobody,
    /// This stack.
    Us,
    /// A stack of the same project, which shares the object.
    Beside(&'a str),
    /// Another stack.
    Other(&'a str),
}

/// The owner of an object, which the stacks of a project share or not.
pub(crate) fn owner<'a>(object: &'a Value, stack: &StackId, is_shared: bool) -> Owner<'a> {
    match object_ref::annotation(object, OWNER) {
        None => Owner::Nobody,
        Some(owner) if owner == stack.as_str() => Owner::Us,
        Some(owner) if is_shared && stack.is_sibling_of(owner) => Owner::Beside(owner),
        Some(owner) => Owner::Other(owner),
    }
}

fn belongs_to(subject: &PlanItem, owner: &str) -> UserError {
    let owner = owner.escape_debug();
    UserError::new(
        ErrorKind::Policy,
        format!(
            "{} was not created: stack `{owner}` created it since the plan was made, and owns it",
            subject.title()
        ),
    )
    .hint(format!(
        "both stacks want the same object: remove it from one of them, this one or `{owner}`"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_owner_is_read_from_the_annotation() {
        let object = |kind: &str, owner: &str| json!({"kind": kind, "metadata": {"annotations": {"konverge/stack": owner}}});
        let stack: StackId = "shop/dev".parse().unwrap();
        let unowned = json!({"kind": "ConfigMap", "metadata": {"name": "a"}});
        assert_eq!(owner(&unowned, &stack, false), Owner::Nobody);
        assert_eq!(owner(&object("ConfigMap", "shop/dev"), &stack, false), Owner::Us);
        assert_eq!(
            owner(&object("ConfigMap", "shop/prod"), &stack, false),
            Owner::Other("shop/prod")
        );
        let definition = object("CustomResourceDefinition", "shop/prod");
        assert_eq!(owner(&definition, &stack, true), Owner::Beside("shop/prod"));
        let foreign = object("CustomResourceDefinition", "bank/prod");
        assert_eq!(owner(&foreign, &stack, true), Owner::Other("bank/prod"));
    }
}
