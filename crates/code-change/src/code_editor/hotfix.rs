//! Keeps a hotfix: writes a change that somebody made on the cluster, outside Konverge, into the code.

use super::{
    CodeEditor, EditPlace, EditedLine,
    attribute_edit::UnsetAttribute,
    spec_fields::{SpecField, WantedField},
};
use konverge_base::{
    error::{ErrorKind, UserError},
    model::{
        plan::{Action, ChangeOrigin, FieldChange, ResourcePlan, StackPlan},
        stack::Stack,
    },
};
use konverge_secrets::shows_mask;

impl CodeEditor<'_> {
    /// Edits the attributes of a stack so that its Spec has the live values that a drift check found, and changes
    /// nothing else.
    ///
    /// # Errors
    /// An object was created or deleted by hand, a field was added or removed, a value is a secret, or a field has no
    /// attribute or several.
    pub async fn keep_hotfix(
        &mut self,
        stack: &Stack,
        drift: &StackPlan,
    ) -> Result<Vec<EditedLine>, UserError> {
        let mut wanted = Vec::new();
        for resource in &drift.resources {
            wanted.extend(wanted_fields(resource)?);
        }
        if wanted.is_empty() {
            return Err(not_kept(format!("no field of {} differs", stack.id)));
        }
        let mut lines = Vec::new();
        while !wanted.is_empty() {
            let edit = self.set_field(stack, &wanted, EditPlace::Stack, UnsetAttribute::Add);
            let (line, left) = edit.await??;
            lines.push(line);
            wanted = left;
        }
        Ok(lines)
    }
}

/// Returns the fields of a resource with their live values.
fn wanted_fields(resource: &ResourcePlan) -> Result<Vec<WantedField>, UserError> {
    if resource.action != Action::Update {
        return Err(not_kept(format!(
            "{} was created or deleted by hand",
            resource.id
        )));
    }
    let by_server =
        |change: &&FieldChange| matches!(change.origin, ChangeOrigin::Default | ChangeOrigin::Admission);
    let changes = resource.changes.iter().filter(|change| !by_server(change));
    changes
        .map(|change| {
            let name = format!("{} {}", resource.id, change.path.as_str().escape_debug());
            let (Some(live), Some(recorded)) = (&change.from, &change.to) else {
                return Err(not_kept(format!("{name} was added or removed by hand")));
            };
            if [live, recorded].into_iter().any(shows_mask) {
                return Err(not_kept(format!(
                    "{name} is a secret, which is never written into code"
                )));
            }
            let field = SpecField {
                resource: resource.id.clone(),
                path: change.path.clone(),
                value: live.clone(),
            };
            let current = recorded.clone();
            Ok(WantedField { field, current })
        })
        .collect()
}

fn not_kept(why: String) -> UserError {
    UserError::new(
        ErrorKind::Kcl,
        format!("the live values cannot be written into the code: {why}"),
    )
    .hint("nothing was written; edit the code by hand, or restore what was applied last")
}

#[cfg(test)]
mod tests {
    use super::*;
    use konverge_base::model::{masked_value, spec::RuntimeKind};
    use serde_json::{Value, json};

    fn changed(live: &Value, recorded: &Value) -> ResourcePlan {
        let change = FieldChange {
            path: "/data/word".into(),
            from: Some(live.clone()),
            to: Some(recorded.clone()),
            origin: ChangeOrigin::Change,
        };
        let stack = "shop/dev".parse().unwrap();
        let id = "v1:Secret:shop:web".parse().unwrap();
        ResourcePlan::new(&stack, id, RuntimeKind::Kubernetes, Action::Update, vec![change])
    }

    #[test]
    fn what_is_masked_is_never_kept() {
        let mark = masked_value::secret("a1b2");
        let reference = json!({"$secret": {"ref": "vault:app#/password"}});
        for (live, recorded) in [
            (mark.clone(), masked_value::secret("c3d4")),
            // One side is enough, and so is a part.
            (json!("open"), mark.clone()),
            (mark.clone(), json!("open")),
            (json!({"name": "PASSWORD", "value": mark}), json!("open")),
            (json!(["a", reference]), json!("open")),
            (masked_value::unknown(), json!("open")),
            (json!("postgres://app:***@db/app"), json!("postgres://app@db/app")),
        ] {
            let refused = wanted_fields(&changed(&live, &recorded)).unwrap_err();
            assert!(
                refused
                    .message
                    .contains("is a secret, which is never written into code"),
                "{live}: {}",
                refused.message
            );
        }
        let plain = changed(&json!("two"), &json!("one"));
        assert_eq!(wanted_fields(&plain).unwrap().len(), 1);
    }
}
