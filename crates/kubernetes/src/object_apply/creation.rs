//! Creates objects without overwriting existing ones. Server-side apply would overwrite an object that
//! another stack has just created, because both stacks use the same field manager. So a create names a
//! resource version that no object has: the server creates the object if there is none, and returns 409
//! otherwise. The server checks this in its transaction, so two creates cannot both succeed. This module
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

/// A resource version that no object has, because the first write to an etcd store gets revision 2.
const NO_VERSION: &str = "1";

/// Makes an apply fail if the object exists.
pub(crate) fn only_create(body: &mut Value) {
    body["metadata"]["resourceVersion"] = json!(NO_VERSION);
}

/// The next step when the object to create exists already.
pub(crate) enum ExistingObject {
    /// The object was deleted in the meantime: create it again.
    Nothing,
    /// Write to the existing object: an earlier attempt of this write created it, or it has no owner.
    /// Conflicts with other managers are errors.
    Ours(Precondition),
    /// Write to the shared object of another stack of the project, and keep that owner.
    Shared(Precondition),
}

/// Decides how to continue with the existing object.
///
/// # Errors
/// The object belongs to another stack, or is being deleted.
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

/// Returns the owner of an object. `is_shared` is true if the stacks of a project share it.
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
