//! Plans objects of kinds that the plan itself defines: the cluster does not have the kind yet, or has a
//! schema that the plan changes.

use serde_json::{Map, Value};

use super::super::object_planner::{DraftPlan, ObjectPlanner};
use crate::{
    api::{
        error::ApiError,
        error_classify::{self, RefusalCause},
    },
    object::{
        crd_validation::{Check, Definition},
        object_ref,
        plan_item::PlanItem,
    },
};
use konverge_base::{
    error::{ErrorKind, UserError},
    model::{ClusterName, GroupKind, built_in_groups, plan::Validation},
};
use konverge_engine::runtime::Item;

impl ObjectPlanner<'_> {
    /// Adds a CustomResourceDefinition of the plan; other objects are ignored.
    pub(in crate::plan) fn define(
        &mut self,
        cluster: &ClusterName,
        object: &Map<String, Value>,
        changes: bool,
    ) {
        if GroupKind::defined_by(object).is_some() {
            self.definitions.push(Definition::new(cluster, object, changes));
        }
    }

    /// Returns the plan's CRD of an object's kind, if the cluster does not serve the same one.
    pub(in crate::plan) fn definition(&self, subject: &PlanItem) -> Option<&Definition> {
        let name = &subject.name;
        let mut definitions = self.definitions.iter();
        definitions.find(|definition| {
            definition.cluster == subject.cluster.api.name
                && definition.defines(name.group_kind())
                && (definition.changes || subject.of.is_none())
        })
    }

    /// Returns the plan's definition of the item's kind, if there is one and it accepts the object.
    ///
    /// # Errors
    /// The definition rejects the object, or the cluster serves the kind only in other versions and the plan
    /// does not change that.
    pub(super) fn plan_planned_kind(
        &self,
        subject: &PlanItem,
        body: &Map<String, Value>,
        live: Option<&Value>,
    ) -> Result<Option<&Definition>, UserError> {
        let Some(definition) = self.definition(subject) else {
            return match subject.other {
                Some(_) => Err(subject.not_served(object_ref::text(body, "apiVersion"))),
                None => Ok(None),
            };
        };
        let name = definition.name().escape_debug();
        let (title, version) = (subject.title(), object_ref::text(body, "apiVersion"));
        match definition.check(body, live) {
            Check::Fits | Check::NoSchema => Ok(Some(definition)),
            Check::Wrong(wrong) => {
                let failure = UserError::new(ErrorKind::Spec, format!("{title}: {}", wrong.join("; ")));
                Err(failure.hint(format!(
                    "the schema is that of the CustomResourceDefinition `{name}` in the same stack"
                )))
            }
            Check::NotServed(served) => {
                let message = format!(
                    "{title}: the CustomResourceDefinition `{name}` in the same stack does not serve `{}`; it serves: {}",
                    version.escape_debug(),
                    served.join(", ").escape_debug()
                );
                Err(UserError::new(ErrorKind::Spec, message))
            }
        }
    }

    /// Adds a note that only the plan's own CRD has validated the object.
    pub(super) fn validated_by(&self, definition: &Definition, draft: &mut DraftPlan) {
        draft.validated = Validation::Schema;
        draft.notes.push(format!(
            "its kind is defined by `{}`, which this plan changes: checked against the new schema",
            definition.name().escape_debug()
        ));
    }

    /// Plans the change of an object that the server can validate only after its CRD is applied.
    pub(super) fn update_later(
        &self,
        item: &Item,
        subject: &PlanItem,
        definition: &Definition,
        body: &Map<String, Value>,
        live: &Value,
    ) -> DraftPlan {
        let mut live = live.clone();
        if subject.of.is_none() {
            // The live object was read in another version of its kind, which is not a difference.
            live["apiVersion"] = Value::String(object_ref::text(body, "apiVersion").to_owned());
        }
        let mut draft = self.plan_without_server(item, subject, body, &live, Some(definition));
        self.validated_by(definition, &mut draft);
        draft.provisional = true;
        draft
    }

    /// Plans an object whose kind the cluster does not have: a CustomResourceDefinition of the plan may
    /// define it.
    pub(super) fn unknown_kind(
        &self,
        subject: &PlanItem,
        mut draft: DraftPlan,
        body: &Map<String, Value>,
    ) -> Result<DraftPlan, UserError> {
        let [api_version, kind] = ["apiVersion", "kind"].map(|key| object_ref::text(body, key));
        let cluster = &subject.cluster.api.name;
        match self.definition(subject).map(|definition| definition.check(body, None)) {
            Some(Check::NoSchema) => {
                draft.notes.push("its kind is defined by this plan, without a schema: not checked".to_owned());
            }
            Some(_) => {
                draft.validated = Validation::Schema;
                draft.notes.push("its kind is defined by this plan: checked against that schema".to_owned());
            }
            None if built_in_groups::is_built_in(&subject.name.group) => {
                let message = format!("cluster `{cluster}` knows no kind `{kind}` in `{api_version}`");
                return Err(UserError::new(ErrorKind::Spec, message)
                    .hint("`kubectl api-resources` lists the kinds of the cluster"));
            }
            None => draft.notes.push(format!(
                "cluster `{cluster}` does not know `{kind}` in `{api_version}`, and this stack does not define it: \
                 not checked; another stack must define it before"
            )),
        }
        Ok(draft)
    }
}

/// Returns true if a refusal may be caused by the cluster's current schema.
pub(super) fn is_of_schema(error: &ApiError) -> bool {
    matches!(
        error_classify::cause(error),
        RefusalCause::Invalid | RefusalCause::Immutable(_) | RefusalCause::NoKind
    )
}
