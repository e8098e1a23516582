//! A mixed stack of which Terraform cannot plan everything: what waits for that is held back, with every deletion, and
//! the rest is done.

use std::path::PathBuf;

use konverge_base::{
    error::ErrorKind,
    model::{
        apply_result::{ResourceResult, StackOutcome, StackResult},
        plan::Action,
        spec::{Resource, Spec},
    },
};
use konverge_engine::EnginePlan;
use konverge_terraform::AllowedProvider;
use serde_json::{Value, json};

use super::{
    mixed::{Mixed, action_of},
    runtime_fixture::{data, name, resource},
};

const ADDRESS: &str = "$kusion_path.terraform:builtin:terraform_data:database.output.address";
const THING: &str = "hashicorp:absent:absent_thing:thing";

fn after(mut resource: Resource, on: &Resource) -> Resource {
    resource.depends_on = vec![on.id.clone()];
    resource
}

/// A database in Terraform, who reads it, who only comes after it, and who needs nothing.
fn wanted(stack: &Mixed, address: &str, value: &str) -> Vec<Resource> {
    let database = data("database", json!({"input": {"address": address}}));
    vec![
        stack.map_of("reads", json!({"address": ADDRESS})),
        after(stack.map_of("waits", json!({"value": value})), &database),
        stack.map_of("alone", json!({"value": value})),
        database,
    ]
}

fn spec(resources: Vec<Resource>) -> Spec {
    Spec {
        resources,
        secret_stores: Vec::new(),
        outputs: serde_json::Map::new(),
        notes: Vec::new(),
    }
}

fn held_back(plan: &EnginePlan) -> Vec<String> {
    plan.public.held_back.iter().map(name).collect()
}

/// What an outcome says of a resource, by the last part of its id.
fn result<'a>(outcome: &'a StackOutcome, wanted: &str) -> (ResourceResult, &'a str) {
    let mut resources = outcome.resources.iter();
    let found = resources.find(|r| name(&r.id) == wanted);
    let found = found.unwrap_or_else(|| panic!("{wanted}: {outcome:?}"));
    (found.result, found.message.as_deref().unwrap_or_default())
}

async fn value(stack: &Mixed, map: &str, key: &str) -> Option<Value> {
    Some(stack.map(map).await?["data"][key].clone())
}

pub async fn without_terraform(binary: PathBuf) {
    let mut stack = Mixed::new(binary.clone()).await;
    let mut first = wanted(&stack, "10.0.0.7", "one");
    first.push(stack.map_of("old", json!({})));
    let plan = stack.plan(&spec(first)).await;
    assert_eq!(stack.carry_out(plan).await.result, StackResult::Applied);
    let before = stack.state.clone();

    stack.binary = "/nonexistent/terraform".into();
    stack.start_anew().await;
    let second = spec(wanted(&stack, "10.0.0.8", "two"));
    let plan = stack.try_plan(&second).await;
    assert_eq!(plan.failures.len(), 1, "{:?}", plan.failures);
    assert!(plan.refusal.is_none() && plan.public.fails_in_part());
    assert_eq!(held_back(&plan), ["database", "old", "reads", "waits"]);
    let notes = |wanted: &str| {
        let mut resources = plan.public.resources.iter();
        resources.find(|r| name(&r.id) == wanted).unwrap().notes.join(" ")
    };
    assert!(
        notes("waits").contains("skipped: it depends on"),
        "{}",
        notes("waits")
    );
    assert!(notes("old").contains("nothing is deleted"), "{}", notes("old"));
    assert_eq!(notes("alone"), "");

    let outcome = stack.carry_out(plan).await;
    assert_eq!(outcome.result, StackResult::Failed);
    let error = outcome.error.as_ref().unwrap();
    assert!(error.message.contains("terraform_data:database"), "{error:?}");
    assert!(error.hints[0].contains("install Terraform"), "{error:?}");
    assert_eq!(result(&outcome, "alone").0, ResourceResult::Done);
    assert_eq!(result(&outcome, "database").0, ResourceResult::Failed);
    let because = "`terraform:builtin:terraform_data:database` could not be planned";
    for (held, how) in [("reads", "tried"), ("waits", "tried"), ("old", "deleted")] {
        let said = format!("not {how}: {because}");
        assert_eq!(result(&outcome, held), (ResourceResult::Skipped, said.as_str()));
    }
    assert_eq!(value(&stack, "alone", "value").await.unwrap(), "two");
    assert_eq!(value(&stack, "waits", "value").await.unwrap(), "one");
    assert_eq!(value(&stack, "reads", "address").await.unwrap(), "10.0.0.7");
    assert!(stack.map("old").await.is_some());
    assert_eq!(
        stack.state.runtime, before.runtime,
        "what Terraform holds is untouched"
    );
    for resource in &before.resources {
        if name(&resource.id) != "alone" {
            assert_eq!(stack.state.resource(&resource.id), Some(resource));
        }
    }

    // The next run finds Terraform, and does the rest.
    stack.binary = binary;
    stack.start_anew().await;
    let plan = stack.plan(&second).await;
    assert_eq!(action_of(&plan, "alone"), Action::Unchanged);
    let outcome = stack.carry_out(plan).await;
    assert_eq!(outcome.result, StackResult::Applied, "{outcome:?}");
    assert_eq!(value(&stack, "waits", "value").await.unwrap(), "two");
    assert_eq!(value(&stack, "reads", "address").await.unwrap(), "10.0.0.8");
    assert!(stack.map("old").await.is_none());
    let again = stack.plan(&second).await;
    assert_eq!(again.public.summary.unchanged, 4, "{:?}", again.public);
}

/// One provider that is nowhere: Terraform's other resources go on too, those of the same module included.
pub async fn without_a_provider(binary: PathBuf) {
    let mut stack = Mixed::new(binary).await;
    stack.providers.push(AllowedProvider {
        source: "hashicorp/absent".to_owned(),
        version: "1.0.0".to_owned(),
        hashes: Vec::new(),
    });
    stack.start_anew().await;
    let mut thing = resource(THING, json!({}));
    let provider = json!("registry.terraform.io/hashicorp/absent/1.0.0");
    thing.extensions.insert("provider".to_owned(), provider);
    let behind = after(stack.map_of("behind", json!({})), &thing);
    let alone = stack.map_of("alone", json!({"value": "one"}));
    // Two of one module: one waits for the thing by way of the cluster, the other for what needs nothing.
    let held = after(data("held", json!({"input": 1})), &behind);
    let free = after(data("free", json!({"input": 2})), &alone);
    let mut all = wanted(&stack, "10.0.0.7", "one");
    all.retain(|resource| resource.id != alone.id);
    all.extend([alone, behind, held, free]);
    let rest = spec(all.clone());
    all.push(thing);
    let whole = spec(all);

    let plan = stack.try_plan(&whole).await;
    let (id, failure) = &plan.failures[0];
    assert_eq!(
        (id.as_str(), plan.failures.len()),
        (THING, 1),
        "{:?}",
        plan.failures
    );
    assert!(
        failure.message.contains("hashicorp/absent 1.0.0 was not found"),
        "{failure}"
    );
    assert_eq!(held_back(&plan), ["thing", "held", "behind"]);
    let outcome = stack.carry_out(plan).await;
    assert_eq!(outcome.result, StackResult::Failed, "{outcome:?}");
    for done in ["database", "free", "reads", "waits", "alone"] {
        assert_eq!(
            result(&outcome, done).0,
            ResourceResult::Done,
            "{done}: {outcome:?}"
        );
    }
    for skipped in ["held", "behind"] {
        let (how, why) = result(&outcome, skipped);
        assert_eq!(how, ResourceResult::Skipped, "{skipped}: {outcome:?}");
        assert!(why.contains(THING), "{why}");
    }
    assert_eq!(value(&stack, "reads", "address").await.unwrap(), "10.0.0.7");
    assert!(stack.map("behind").await.is_none());
    // A later module of the same run is not in the way of the one that failed.
    let mut rest = rest;
    for resource in &mut rest.resources {
        resource.depends_on.retain(|id| id.as_str() != THING);
    }
    let plan = stack.plan(&rest).await;
    assert_eq!(stack.carry_out(plan).await.result, StackResult::Applied);
}

/// What providers of clouds say when they cannot look, put into Terraform's mouth: each with the resource and a remedy.
pub async fn whatever_a_provider_lacks(binary: PathBuf) {
    use std::os::unix::fs::PermissionsExt as _;
    let folder = tempfile::TempDir::new().unwrap();
    let (wrapper, said) = (folder.path().join("terraform"), folder.path().join("said"));
    let script = format!(
        "#!/bin/sh\n[ \"$1\" = plan ] && [ -e {said} ] && cat {said} && exit 1\nexec {real} \"$@\"\n",
        said = said.display(),
        real = binary.display()
    );
    std::fs::write(&wrapper, script).unwrap();
    std::fs::set_permissions(&wrapper, std::fs::Permissions::from_mode(0o755)).unwrap();
    let mut stack = Mixed::new(wrapper).await;
    let spec = spec(wanted(&stack, "10.0.0.7", "one"));
    for (words, remedy) in [
        (
            "reading RDS DB Instance (orders): operation error RDS: DescribeDBInstances, https response error StatusCode: 403, ExpiredToken: The security token included in the request is expired",
            "valid credentials",
        ),
        (
            "Error creating instance: googleapi: Error 403: Quota 'CPUS' exceeded. Limit: 24.0 in region europe-west1., quotaExceeded",
            "raise the quota",
        ),
        (
            "waiting for RDS DB Instance (orders) create: timeout while waiting for state to become 'available'",
            "`timeouts` attribute",
        ),
    ] {
        let diagnostic = json!({"severity": "error", "summary": words, "detail": "", "address": "terraform_data.database"});
        let line = json!({"@level": "error", "type": "diagnostic", "diagnostic": diagnostic});
        std::fs::write(&said, format!("{line}\n")).unwrap();
        let plan = stack.try_plan(&spec).await;
        let (id, failure) = &plan.failures[0];
        assert_eq!(name(id), "database");
        assert!(failure.message.contains("terraform_data:database"), "{failure}");
        assert!(failure.message.contains(words), "{failure}");
        assert!(failure.hints[0].contains(remedy), "{failure:?}");
        assert_eq!(held_back(&plan), ["database", "reads", "waits"]);
        let outcome = stack.carry_out(plan).await;
        assert_eq!(outcome.result, StackResult::Failed, "{outcome:?}");
        assert_eq!(value(&stack, "alone", "value").await.unwrap(), "one");
        assert!(stack.map("reads").await.is_none() && stack.map("waits").await.is_none());
    }
    std::fs::remove_file(&said).unwrap();
    let plan = stack.plan(&spec).await;
    assert_eq!(stack.carry_out(plan).await.result, StackResult::Applied);
}

pub async fn what_stops_the_whole_stack(binary: PathBuf) {
    let mut stack = Mixed::new(binary).await;
    let mut forbidden = data("forbidden", json!({"input": 1}));
    let provider = json!("evil.example/hashicorp/local/2.9.0");
    forbidden.extensions.insert("provider".to_owned(), provider);
    let refused = stack.map_of("Not-A-Name", json!({}));
    for (bad, kind) in [(forbidden, ErrorKind::Policy), (refused, ErrorKind::Kubernetes)] {
        let mut all = wanted(&stack, "10.0.0.7", "one");
        all.push(bad);
        let plan = stack.try_plan(&spec(all)).await;
        let refusal = plan.refusal.clone().unwrap();
        assert_eq!(refusal.kind, kind, "{refusal}");
        assert!(!plan.public.fails_in_part());
        let outcome = stack.carry_out(plan).await;
        assert_eq!(outcome.result, StackResult::Stopped, "{outcome:?}");
        assert!(outcome.resources.is_empty() && stack.state.resources.is_empty());
        assert!(stack.map("alone").await.is_none(), "nothing is touched");
    }
}
