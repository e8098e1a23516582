//! What rules see with `input: tfplan`, held against `terraform show -json` of the same change.

use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
    process::Command,
};

use konverge_base::model::{
    RepoPath,
    plan::{Basis, StackPlan},
    plan_document::DesiredResource,
    policy_finding::Enforcement,
    spec::{Resource, RuntimeKind},
};
use konverge_config::Config;
use konverge_policy_sets::{self as policy_sets, PolicyFile, PolicySet};
use serde_json::{Value, json};
use tempfile::TempDir;

use super::runtime_fixture::Rig;
use crate::support::terraform;

/// What is compared of each change: its form, what is known, and what is not.
const PLACES: [&str; 16] = [
    "mode",
    "type",
    "name",
    "provider_name",
    "change.actions[0]",
    "change.actions[1]",
    "change.before.name",
    "change.before.value",
    "change.before.tags[0]",
    "change.after.name",
    "change.after.value",
    "change.after.tags[0]",
    "change.after.rule[0].port",
    "change.after_unknown.id",
    "change.after_unknown.value",
    "change.before.rule[0].port",
];

/// The lists of resources, with what is compared of each.
const LISTS: [(&str, &[&str]); 2] = [
    (
        "planned_values.root_module.resources",
        &[
            "mode",
            "type",
            "name",
            "values.name",
            "values.value",
            "values.tags[0]",
        ],
    ),
    (
        "prior_state.values.root_module.resources",
        &[
            "mode",
            "type",
            "name",
            "values.name",
            "values.value",
            "values.tags[0]",
        ],
    ),
];

/// Each list with the places that are compared in it.
fn lists() -> Vec<(&'static str, &'static [&'static str])> {
    std::iter::once(("resource_changes", &PLACES[..]))
        .chain(LISTS)
        .collect()
}

/// The objects of a stage: name in the module, name, value, tag.
type Stage<'s> = &'s [(&'s str, &'s str, &'s str, &'s str)];

fn attributes((_, name, value, tag): (&str, &str, &str, &str)) -> Value {
    json!({"name": name, "value": value, "tags": [tag], "rule": [{"port": 80}]})
}

/// What a rule in Rego reads of our input.
fn ours(plan: StackPlan, wanted: &[Resource]) -> BTreeSet<String> {
    let mut text = "package main\n".to_owned();
    for (list, places) in lists() {
        for place in places {
            text += &format!(
                "deny contains msg if {{ some one in input.{list}; msg := sprintf(\"{list} %s {place} %v\", [one.address, one.{place}]) }}\n"
            );
        }
    }
    let config = Config::parse("policy: {sets: [{name: s, path: p, input: tfplan}]}\n").unwrap();
    let file = PolicyFile {
        path: "p/a.rego".to_owned(),
        text,
    };
    let set = PolicySet::load(&config.policy.sets[0], &[file], &[]);
    let desired = wanted.iter().map(|resource| DesiredResource {
        id: resource.id.clone(),
        runtime: RuntimeKind::Terraform,
        kind: "trace_object".to_owned(),
        cluster: None,
        attributes: resource.attributes.clone(),
        known_before_write: true,
    });
    let findings = crate::policy::created_objects::findings(
        &set,
        &policy_sets::document(&plan, desired.collect()),
        &konverge_secrets::Secrets::new(konverge_secrets::HashKey::derive("k")),
    );
    let denied = findings
        .into_iter()
        .filter(|finding| finding.verdict == Enforcement::Deny);
    denied.map(|finding| finding.message).collect()
}

/// The same of Terraform's own.
fn theirs(shown: &Value) -> BTreeSet<String> {
    let pointer = |path: &str| format!("/{}", path.replace(['.', '['], "/").replace(']', ""));
    let mut found = BTreeSet::new();
    for (list, places) in lists() {
        let items = shown.pointer(&pointer(list)).and_then(Value::as_array).cloned();
        for (one, place) in items
            .iter()
            .flatten()
            .flat_map(|one| places.iter().map(move |place| (one, place)))
        {
            let value = match one.pointer(&pointer(place)) {
                // A rule does not see a difference between `false` and nothing here: Terraform writes both.
                None | Some(Value::Null | Value::Bool(false)) => continue,
                Some(Value::String(text)) => text.clone(),
                Some(other) => other.to_string(),
            };
            let address = one["address"].as_str().unwrap();
            found.insert(format!("{list} {address} {place} {value}"));
        }
    }
    found
}

/// A folder with Terraform's own module.
struct Module {
    binary: PathBuf,
    folder: TempDir,
    objects: PathBuf,
}

impl Module {
    fn new(binary: &Path) -> Self {
        let folder = TempDir::new().unwrap();
        let objects = folder.path().join("objects");
        std::fs::create_dir(&objects).unwrap();
        Self {
            binary: binary.to_owned(),
            objects,
            folder,
        }
    }

    fn want(&self, stage: Stage<'_>) {
        let objects = stage.iter().map(|one| {
            let mut attributes = attributes(*one);
            attributes["folder"] = json!(self.objects);
            (one.0.to_owned(), attributes)
        });
        let objects: serde_json::Map<_, _> = objects.collect();
        let mut module = json!({"terraform": {"required_providers": {
            "trace": {"source": "konverge/trace", "version": terraform::TRACE_PROVIDER},
        }}});
        if !objects.is_empty() {
            module["resource"] = json!({"trace_object": objects});
        }
        std::fs::write(self.folder.path().join("main.tf.json"), module.to_string()).unwrap();
    }

    fn run(&self, args: &[&str]) -> Vec<u8> {
        let output = Command::new(&self.binary)
            .args(args)
            .current_dir(self.folder.path())
            .env("TF_CLI_CONFIG_FILE", terraform::cli_config(self.folder.path()))
            .output()
            .unwrap();
        assert!(
            output.status.success(),
            "{args:?}: {}",
            String::from_utf8_lossy(&output.stderr)
        );
        output.stdout
    }

    fn plan(&self) -> Value {
        self.run(&["plan", "-input=false", "-out=p"]);
        serde_json::from_slice(&self.run(&["show", "-json", "p"])).unwrap()
    }
}

pub async fn is_that_of_terraform(binary: PathBuf) {
    let _ = terraform::trace();
    let module = Module::new(&binary);
    let mut rig = Rig::new(binary);
    let stages: [(&str, Stage<'_>); 5] = [
        ("create", &[("a", "a", "1", "x"), ("b", "b", "1", "x")]),
        ("update", &[("a", "a", "2", "y"), ("b", "b", "1", "x")]),
        ("replace", &[("a", "other", "2", "y"), ("b", "b", "1", "x")]),
        ("delete", &[("a", "other", "2", "y")]),
        ("nothing", &[("a", "other", "2", "y")]),
    ];
    for (number, (action, stage)) in stages.into_iter().enumerate() {
        module.want(stage);
        if number == 0 {
            module.run(&["init", "-input=false"]);
        }
        let wanted: Vec<_> = stage
            .iter()
            .map(|one| rig.trace(one.0, attributes(*one)))
            .collect();
        let planned = rig.plan(&wanted).await;
        let public = planned
            .into_iter()
            .flatten()
            .map(|planned| planned.public)
            .collect();
        let stack = rig.scope.stack.clone();
        let plan = StackPlan::new(RepoPath::root(), stack, Basis::Live, public);
        let (ours, theirs) = (ours(plan, &wanted), theirs(&module.plan()));
        let only = |one: &BTreeSet<String>, other| one.difference(other).cloned().collect::<Vec<_>>();
        assert!(
            ours == theirs && ours.len() > 10,
            "{action}: only ours {:#?}, only Terraform's {:#?}",
            only(&ours, &theirs),
            only(&theirs, &ours)
        );
        module.run(&["apply", "-input=false", "p"]);
        rig.apply(&wanted).await;
    }
}
