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

/// Returns the existing object to write to: an earlier attempt of this write created it, it has no owner, or it is the
/// shared object of another stack of the project, which stays its owner. `None` if the object was deleted in the
/// meantime: then it is created again.
///
/// # Errors
/// The object belongs to another stack, or is being deleted.
pub(crate) async fn find_existing(
    subject: &PlanItem,
    of: &ResourceType,
    stack: &StackId,
    is_shared: bool,
) -> Result<Option<Precondition>, UserError> {
    let Some(object) = fetch::get(&subject.cluster, of, &subject.name).await? else {
        return Ok(None);
    };
    if !object["metadata"]["deletionTimestamp"].is_null() {
        return Err(precondition::another_object(
            subject,
            "an object with its name is being deleted",
        ));
    }
    match owner(&object, stack, is_shared) {
        Owner::Nobody | Owner::Us | Owner::Beside => Ok(Some(Precondition::from_object(&object))),
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
    Beside,
    /// Another stack.
    Other(&'a str),
}

/// Returns the owner of an object. `is_shared` is true if the stacks of a project share it.
pub(crate) fn owner<'a>(object: &'a Value, stack: &StackId, is_shared: bool) -> Owner<'a> {
    match object_ref::annotation(object, OWNER) {
        None => Owner::Nobody,
        Some(owner) if owner == stack.as_str() => Owner::Us,
        Some(owner) if is_shared && stack.is_sibling_of(owner) => Owner::Beside,
        Some(owner) => Owner::Other(owner),
    }
}

fn belongs_to(subject: &PlanItem, owner: &str) -> UserError {
    let (owner, title) = (owner.escape_debug(), subject.title());
    let what =
        format!("{title} was not created: stack `{owner}` created it since the plan was made, and owns it");
    UserError::new(ErrorKind::Policy, what).hint(format!(
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
        assert_eq!(owner(&definition, &stack, true), Owner::Beside);
        let foreign = object("CustomResourceDefinition", "bank/prod");
        assert_eq!(owner(&foreign, &stack, true), Owner::Other("bank/prod"));
    }
}
