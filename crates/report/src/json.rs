//! The JSON output: one line, with the keys in the order of the types and `"version":1` first.

use serde::Serialize;

use super::escape;
use konverge_base::{
    error::{ErrorDocument, UserError},
    model::{
        model_change::ModelChange, plan::Plan, policy_finding::PolicyFinding, setting_change::SettingChange,
    },
};

/// Returns a document of the model (plan, affected stacks, apply report) with a newline, without workflow commands and
/// hidden characters. The same input gives the same bytes.
pub fn document<T: Serialize>(document: &T) -> String {
    let text = serde_json::to_string(document).expect("the model's types have string keys only");
    escape::json(&text) + "\n"
}

/// Returns a document with the findings of the policies at its end, if there are any.
pub fn with_findings<T: Serialize>(result: &T, findings: &[PolicyFinding]) -> String {
    #[derive(Serialize)]
    struct WithFindings<'a, T> {
        #[serde(flatten)]
        result: &'a T,
        #[serde(skip_serializing_if = "<[_]>::is_empty")]
        findings: &'a [PolicyFinding],
    }
    document(&WithFindings { result, findings })
}

/// Returns a plan, with the findings of the policies and the changes of generated models at its end, if there are any.
pub fn preview(
    plan: &Plan,
    findings: &[PolicyFinding],
    models: &[ModelChange],
    settings: &[SettingChange],
) -> String {
    #[derive(Serialize)]
    struct Preview<'a> {
        #[serde(flatten)]
        plan: &'a Plan,
        #[serde(skip_serializing_if = "<[_]>::is_empty")]
        findings: &'a [PolicyFinding],
        #[serde(skip_serializing_if = "<[_]>::is_empty")]
        models: &'a [ModelChange],
        #[serde(skip_serializing_if = "<[_]>::is_empty")]
        settings: &'a [SettingChange],
    }
    document(&Preview {
        plan,
        findings,
        models,
        settings,
    })
}

/// Returns an error as `{"error":{…}}`.
pub fn failure(failure: &UserError) -> String {
    document(&ErrorDocument {
        error: failure.body(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use konverge_base::{
        error::ErrorKind,
        model::{
            plan::{Action, Basis, ChangeOrigin, FieldChange, Plan, ResourcePlan, StackPlan},
            spec::RuntimeKind,
        },
    };
    use serde_json::json;

    #[test]
    fn a_plan_has_the_keys_of_contracts_in_their_order() {
        let id = "shop/dev".parse().unwrap();
        let change = FieldChange {
            path: "/spec/replicas".into(),
            from: Some(json!(1)),
            to: Some(json!(2)),
            origin: ChangeOrigin::Change,
        };
        let resource = ResourcePlan::new(
            &id,
            "apps/v1:Deployment:shop:web".parse().unwrap(),
            RuntimeKind::Kubernetes,
            Action::Update,
            vec![change],
        );
        let folder = konverge_base::model::RepoPath::normalize("appops/shop/dev").unwrap();
        let plan = Plan {
            version: 1,
            stacks: vec![StackPlan::new(folder, id, Basis::Live, vec![resource])],
        };
        let text = document(&plan);
        assert!(text.starts_with(r#"{"version":1,"stacks":[{"stack":"appops/shop/dev","id":"shop/dev","basis":"live","digest":"#), "{text}");
        let order = [
            "\"summary\"",
            "\"create\"",
            "\"update\"",
            "\"replace\"",
            "\"delete\"",
            "\"adopt\"",
            "\"forget\"",
            "\"unchanged\"",
            "\"unknown\"",
            "\"resources\"",
            "\"runtime\"",
            "\"action\"",
            "\"validated\"",
            "\"dataLoss\"",
            "\"changes\"",
            "\"path\"",
            "\"from\"",
            "\"to\"",
            "\"origin\"",
        ];
        let places: Vec<_> = order.iter().map(|key| text.find(key).expect(key)).collect();
        assert!(places.is_sorted(), "{text}");
        assert_eq!(text, document(&plan));
    }

    #[test]
    fn an_error_is_a_document() {
        let text = failure(
            &UserError::new(ErrorKind::Kcl, "no such attribute")
                .at("main.k", Some(3), Some(7))
                .hint("`konverge check`"),
        );
        assert_eq!(
            text,
            "{\"error\":{\"kind\":\"kcl\",\"message\":\"no such attribute\",\"file\":\"main.k\",\"line\":3,\"column\":7,\"hints\":[\"`konverge check`\"]}}\n"
        );
    }
}
