//! Plans whose names, keys, values and messages somebody hostile wrote.

use konverge_base::{
    error::{ErrorKind, UserError},
    model::{
        RepoPath,
        affected::InputChange,
        model_change::{ModelChange, ModelPackageChange, ModelPropertyChange},
        permission_changes::PowerChange,
        plan::{Action, ChangeOrigin},
        policy_finding::{Enforcement, PolicyFinding},
        text::is_hidden,
    },
};
use serde_json::json;

use super::sample_plans::{self, Sample};

/// The texts of one stack.
#[derive(Debug, Clone)]
pub struct HostileStack {
    pub name: String,
    pub key: String,
    pub value: String,
    /// What its plan does, below 5.
    pub kind: usize,
}

/// What may stand in a name or in a path.
pub fn cleaned(text: &str) -> String {
    let may = |c: &char| !is_hidden(*c) && !c.is_whitespace() && !"/\\".contains(*c);
    text.chars().filter(may).collect()
}

/// Generated models whose CRD an attacker wrote.
fn hostile_model(stack: &HostileStack, id: &str) -> ModelChange {
    let HostileStack {
        name,
        key,
        value,
        kind,
    } = stack;
    let property = |property: Option<&str>, check: Option<&str>| ModelPropertyChange {
        schema: name.to_owned(),
        property: property.map(str::to_owned),
        check: check.map(str::to_owned),
        from: (*kind != 1).then(|| value.repeat(kind * 40)),
        to: (*kind != 2).then(|| key.to_owned()),
    };
    ModelChange {
        folder: RepoPath::from_kept(name),
        sources: vec![key.to_owned(); kind * 2],
        record: (*kind > 0).then_some(InputChange::Modified),
        from_version: Some(key.to_owned()),
        to_version: Some(value.to_owned()),
        packages: vec![ModelPackageChange {
            package: RepoPath::from_kept(key),
            change: InputChange::Modified,
            properties: vec![
                property(Some(key), None),
                property(None, Some(value)),
                property(None, None),
            ],
            stacks: vec![id.parse().unwrap(); kind * 2],
        }],
    }
}

/// A preview of these stacks, with a finding and errors of these words.
pub fn sample(stacks: impl IntoIterator<Item = HostileStack>, message: &str, file: &str) -> Sample {
    let mut sample = sample_plans::shop();
    sample.plan.stacks.clear();
    sample.affected.stacks.clear();
    sample.findings = vec![PolicyFinding {
        verdict: Enforcement::Deny,
        rule: message.to_owned(),
        stack: None,
        message: file.to_owned(),
        hint: Some(message.to_owned()),
        place: None,
    }];
    for (index, hostile) in stacks.into_iter().enumerate() {
        let HostileStack {
            name,
            key,
            value,
            kind,
        } = &hostile;
        let clean = cleaned(name);
        let id = format!("p{index}{clean}/s");
        sample.power.push(PowerChange {
            key: format!("apply.health_rules: {key}"),
            from: Some(value.repeat(kind * 40)),
            to: Some(format!("{}{name}", value.repeat(kind * 40))),
            stacks: Some(vec![id.parse().unwrap()]),
        });
        sample.models.push(hostile_model(&hostile, &id));
        let action = [
            Action::Create,
            Action::Update,
            Action::Replace,
            Action::Delete,
            Action::Update,
        ][*kind];
        let path = match action {
            Action::Create | Action::Delete => String::new(),
            _ => format!("/data/{}", key.replace('~', "~0").replace('/', "~1")),
        };
        let origin = if *kind == 4 {
            ChangeOrigin::Drift
        } else {
            ChangeOrigin::Change
        };
        let change = sample_plans::change(&path, Some(json!({key: value})), Some(json!(value)), origin);
        let thing = format!("v1:ConfigMap:ns:{clean}x");
        let mut resource = sample_plans::resource(&id, &thing, action, vec![change]);
        resource.notes = vec![value.clone()];
        resource.replace = vec![path.into()];
        let mut stack = sample_plans::stack(&id, vec![resource]);
        if *kind == 2 {
            let error = UserError::new(ErrorKind::Kcl, message).at(file.to_owned(), Some(1), None);
            stack.error = Some(error.hint(value.clone()).body());
        }
        sample.plan.stacks.push(stack);
        let file = format!("base/{}.k", cleaned(key));
        let chain = [file.as_str(), "base/base.k"];
        let affected = sample_plans::affected_stack(&id, InputChange::Modified, &[&chain]);
        sample.affected.stacks.push(affected);
    }
    sample
}
