//! An existing object for which a dry-run was sent.

use serde_json::{Map, Value};

use crate::{
    api::{discovery::ResourceType, noop_guard::Guard},
    object::plan_item::PlanItem,
};
use konverge_base::{
    error::{ErrorKind, UserError},
    model::FieldPath,
};
use konverge_engine::runtime::Item;

/// An existing object for which a dry-run was sent.
pub(super) struct Asked<'a> {
    pub item: &'a Item,
    pub subject: &'a PlanItem,
    pub of: &'a ResourceType,
    pub guard: Guard,
    pub live: &'a Value,
    pub body: &'a Map<String, Value>,
    pub prior: Option<&'a Map<String, Value>>,
    pub adopting: bool,
}

pub(super) fn conflict(subject: &PlanItem, conflicts: &[(FieldPath, String)]) -> UserError {
    let owned =
        |(path, owner): &(FieldPath, String)| format!("`{path}` (owned by `{}`)", owner.escape_debug());
    let fields: Vec<_> = conflicts.iter().map(owned).collect();
    let (title, fields) = (subject.title(), fields.join(", "));
    let what = format!("{title}: other field managers own fields that the Spec sets: {fields}");
    UserError::new(ErrorKind::Policy, what).hint(
        "remove the field from the Spec, or set `apply.conflicts: write` (or `leave`) in `konverge.yaml`",
    )
}
