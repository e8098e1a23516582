mod foreign;

use std::collections::BTreeSet;

use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use konverge_base::error::UserError;

fn resource(id: &str, attributes: Value) -> Resource {
    Resource::new(
        id.parse().unwrap(),
        RuntimeKind::Kubernetes,
        attributes.as_object().unwrap().clone(),
    )
}

fn workload(name: &str) -> Resource {
    let template = json!({"spec": {"containers": [{"name": "app", "image": "a:1"}]}});
    resource(
        &format!("apps/v1:Deployment:shop:{name}"),
        json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name, "namespace": "shop"}, "spec": {"template": template}}),
    )
}

fn hook(name: &str, annotations: Value) -> Resource {
    let pod = json!({"restartPolicy": "Never", "serviceAccountName": "migrator", "containers": [{"name": "job", "image": "a:1"}]});
    resource(
        &format!("batch/v1:Job:shop:{name}"),
        json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name, "namespace": "shop", "annotations": annotations},
            "spec": {"template": {"spec": pod}}}),
    )
}

fn after(mut resource: Resource, on: &Resource) -> Resource {
    resource.depends_on.push(on.id.clone());
    resource
}

fn rules() -> HookRules {
    HookRules {
        service_accounts: vec!["migrator".to_owned()],
        ..HookRules::default()
    }
}

fn ordered(resources: &[Resource], rules: &HookRules) -> Result<(SpecHooks, ResourceGraph), HookError> {
    let mut graph = ResourceGraph::from_spec(resources).unwrap();
    let hooks = order_hooks(resources, &mut graph, rules, &Resource::clone)?;
    Ok((hooks, graph))
}

fn refused(resources: &[Resource]) -> UserError {
    let failure = UserError::from(ordered(resources, &rules()).unwrap_err());
    assert!(!failure.hints.is_empty(), "{failure}");
    failure
}

fn names(graph: &ResourceGraph) -> Vec<&str> {
    graph
        .order()
        .into_iter()
        .map(|id| id.as_str().rsplit(':').next().unwrap())
        .collect()
}

#[test]
fn a_hook_comes_before_or_after_what_it_guards_and_after_what_it_refers_to() {
    let mut migrate = hook("migrate", json!({"konverge/hook": "pre"}));
    migrate.attributes["spec"]["template"]["spec"]["containers"][0]["envFrom"] =
        json!([{"configMapRef": {"name": "settings"}}]);
    let settings = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "settings", "namespace": "shop"}});
    let resources = [
        hook(
            "smoke",
            json!({"konverge/hook": "post", "konverge/hook-on": "always", "konverge/hook-keep": "none"}),
        ),
        workload("web"),
        workload("api"),
        migrate,
        resource("v1:ConfigMap:shop:settings", settings),
    ];
    let (hooks, graph) = ordered(&resources, &rules()).unwrap();
    assert_eq!(names(&graph), ["settings", "migrate", "web", "api", "smoke"]);
    let smoke = &hooks.tasks[&resources[0].id];
    assert!(smoke.always && !smoke.keeps_last && !smoke.reversible && smoke.time == HookTime::Post);
    let migrate = &hooks.tasks[&resources[3].id];
    assert_eq!(migrate.guards, [resources[2].id.clone(), resources[1].id.clone()]);
}

#[test]
fn a_database_that_the_hook_needs_is_not_guarded() {
    let database = workload("db");
    let migrate = after(hook("migrate", json!({"konverge/hook": "pre"})), &database);
    let (hooks, graph) = ordered(&[workload("web"), migrate.clone(), database], &rules()).unwrap();
    assert_eq!(names(&graph), ["db", "migrate", "web"]);
    assert_eq!(hooks.tasks[&migrate.id].guards, [workload("web").id]);
}

#[test]
fn the_digest_covers_the_job_and_what_it_guards() {
    let digest = |resources: &[Resource], rules: &HookRules| {
        let (hooks, _) = ordered(resources, rules).unwrap();
        hooks.tasks.into_values().next().unwrap().stamp()
    };
    let pre = || hook("migrate", json!({"konverge/hook": "pre"}));
    let first = digest(&[pre(), workload("web")], &rules());
    let config = resource("v1:ConfigMap:shop:c", json!({"kind": "ConfigMap"}));
    assert_eq!(digest(&[workload("web"), config, pre()], &rules()), first);
    let mut other = workload("web");
    other.attributes["spec"]["replicas"] = json!(2);
    assert_ne!(digest(&[pre(), other], &rules()), first);
    assert_ne!(
        digest(&[pre(), workload("web"), workload("api")], &rules()),
        first
    );
    let mut job = pre();
    job.attributes["spec"]["backoffLimit"] = json!(1);
    assert_ne!(digest(&[job, workload("web")], &rules()), first);
    let at = |serial| HookRules {
        serial: Some(serial),
        ..rules()
    };
    assert_eq!(digest(&[pre(), workload("web")], &at(7)), first);
    let always = || hook("m", json!({"konverge/hook": "pre", "konverge/hook-on": "always"}));
    assert_ne!(
        digest(&[always(), workload("web")], &at(7)),
        digest(&[always(), workload("web")], &at(8))
    );
}

#[test]
fn bad_hooks_are_refused_with_a_remedy() {
    let pre = || hook("migrate", json!({"konverge/hook": "pre"}));
    let with = |pointer: &str, value: Value| {
        let mut job = Value::Object(pre().attributes);
        *job.pointer_mut(pointer).unwrap() = value;
        Resource {
            attributes: job.as_object().unwrap().clone(),
            ..pre()
        }
    };
    let web = workload("web");
    let post = hook("smoke", json!({"konverge/hook": "post"}));
    let cases: Vec<(Vec<Resource>, &str)> = vec![
        (
            vec![hook("m", json!({"konverge/hook": "before"}))],
            "must be one of `pre`, `post`, `failed`, `pre-destroy`",
        ),
        (
            vec![
                hook("m", json!({"konverge/hook": "pre", "konverge/hook-keep": true})),
                web.clone(),
            ],
            "`last`, `none`",
        ),
        (
            vec![hook("m", json!({"konverge/hook-on": "always"}))],
            "no `konverge/hook`",
        ),
        (
            vec![hook(
                "m",
                json!({"konverge/hook": "pre", "konverge/hook-digest": "a"}),
            )],
            "not an annotation of hooks",
        ),
        (
            vec![with("/kind", json!("CronJob")), web.clone()],
            "only a Job can be a hook",
        ),
        (
            vec![
                with("/spec/template/spec/restartPolicy", json!("Always")),
                web.clone(),
            ],
            "restartPolicy: Always",
        ),
        (
            vec![
                with("/spec/template/spec/restartPolicy", json!(null)),
                web.clone(),
            ],
            "(not set)",
        ),
        (
            vec![
                with(
                    "/spec",
                    json!({"suspend": true, "template": {"spec": {"restartPolicy": "Never"}}}),
                ),
                web.clone(),
            ],
            "suspend: true",
        ),
        (
            vec![
                with("/spec/template/spec/serviceAccountName", json!("admin")),
                web.clone(),
            ],
            "service account `admin`",
        ),
        (
            vec![
                with("/spec/template/spec/serviceAccountName", json!("")),
                web.clone(),
            ],
            "service account `default`",
        ),
        (
            vec![
                with(
                    "/spec/template/spec",
                    json!({"restartPolicy": "Never", "serviceAccountName": "", "serviceAccount": "admin"}),
                ),
                web.clone(),
            ],
            "service account `admin`",
        ),
        (vec![pre()], "no workload"),
        (vec![post.clone()], "no workload"),
        (
            vec![after(pre(), &web), web.clone()],
            "guards nothing: it depends on every workload",
        ),
        (
            vec![after(web.clone(), &post), post.clone()],
            "guards nothing: every workload depends on it",
        ),
        (
            vec![after(pre(), &post), post.clone(), web.clone()],
            "hooks wait for each other",
        ),
        (
            vec![
                hook("f", json!({"konverge/hook": "failed"})),
                after(web.clone(), &hook("f", json!({}))),
            ],
            "has no place in the order",
        ),
    ];
    for (resources, part) in cases {
        let failure = refused(&resources);
        assert!(failure.message.contains(part), "{part}: {}", failure.message);
    }
    let hostile = hook("m", json!({"konverge/hook": "`\u{1b}[31m\n"}));
    assert!(!refused(&[hostile]).message.contains(['\u{1b}', '\n']));
}

#[test]
fn an_account_may_be_listed_with_its_namespace() {
    let allows = |listed: &str| {
        let rules = HookRules {
            service_accounts: vec![listed.to_owned()],
            ..HookRules::default()
        };
        ordered(
            &[hook("m", json!({"konverge/hook": "pre"})), workload("web")],
            &rules,
        )
        .is_ok()
    };
    assert!(allows("migrator") && allows("shop/migrator"));
    assert!(!allows("bank/migrator") && !allows("default") && !allows("*"));
}

/// The API server takes `serviceAccount` if `serviceAccountName` is empty. What it takes comes first, too.
#[test]
fn an_account_under_its_old_name_counts() {
    let rules = HookRules {
        service_accounts: vec!["default".to_owned()],
        ..HookRules::default()
    };
    let account = resource(
        "v1:ServiceAccount:shop:admin",
        json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "admin", "namespace": "shop"}}),
    );
    for named in [
        json!({"serviceAccountName": "", "serviceAccount": "admin"}),
        json!({"serviceAccountName": null, "serviceAccount": "admin"}),
        json!({"serviceAccount": "admin"}),
        json!({"serviceAccount": "default", "serviceAccountName": "admin"}),
    ] {
        let mut job = hook("m", json!({"konverge/hook": "pre"}));
        let mut pod = named.clone();
        pod["restartPolicy"] = json!("Never");
        job.attributes["spec"]["template"]["spec"] = pod;
        let job_id = job.id.clone();
        let resources = [account.clone(), job, workload("web")];
        let failure = UserError::from(ordered(&resources, &rules).unwrap_err());
        assert!(failure.message.contains("account `admin`"), "{named}: {failure}");
        let graph = ResourceGraph::from_spec(&resources).unwrap();
        assert!(graph.ancestors(&job_id).contains(&account.id), "{named}");
    }
}

proptest! {
    /// Whatever depends on what: either the Spec is refused, or each workload that a hook guards is on its right side.
    #[test]
    fn the_order_holds_or_the_spec_is_refused(
        kinds in prop::collection::vec(0..4_usize, 2..8),
        dependencies in prop::collection::vec((0..8_usize, 0..8_usize), 0..10),
    ) {
        let mut resources: Vec<_> = kinds.iter().enumerate().map(|(n, kind)| match kind {
            0 => hook(&format!("h{n}"), json!({"konverge/hook": "pre"})),
            1 => hook(&format!("h{n}"), json!({"konverge/hook": "post"})),
            2 => resource(&format!("v1:ConfigMap:shop:c{n}"), json!({"kind": "ConfigMap"})),
            _ => workload(&format!("w{n}")),
        }).collect();
        for (of, on) in dependencies {
            let (of, on) = (of % resources.len(), on % resources.len());
            // Without a circle of its own.
            if on < of {
                let on = resources[on].id.clone();
                resources[of].depends_on.push(on);
            }
        }
        if let Ok((hooks, graph)) = ordered(&resources, &rules()) {
            let order = graph.order();
            prop_assert_eq!(order.len(), resources.len(), "no circle");
            let place = |id: &ResourceId| order.iter().position(|other| *other == id).unwrap();
            for (id, task) in &hooks.tasks {
                prop_assert!(!task.guards.is_empty());
                let guards: BTreeSet<_> = task.guards.iter().collect();
                for workload in resources.iter().filter(|one| is_workload(one) && !hooks.tasks.contains_key(&one.id)) {
                    let is_before = place(&workload.id) < place(id);
                    if guards.contains(&workload.id) {
                        prop_assert_eq!(is_before, task.time == HookTime::Post);
                    } else {
                        // It depends on the hook, or the hook on it.
                        prop_assert_eq!(is_before, task.time == HookTime::Pre);
                    }
                }
            }
        }
    }
}
