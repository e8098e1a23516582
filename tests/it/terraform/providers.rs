//! What a provider refuses, and whom that concerns; what a change looks like.

use std::{path::PathBuf, sync::Arc};

use konverge_base::model::{
    RepoPath,
    health::Health,
    plan::{Action, Basis, Plan, StackPlan},
    spec::Resource,
};
use konverge_engine::runtime::{Item, Needs, Runtime};
use konverge_report::terminal::{self, Style};
use konverge_state::Sealer;
use konverge_terraform::STATE;
use serde_json::{Value, json};

use super::runtime_fixture::{Rig, Sink, StateSeal};

fn with_token(rig: &Rig, name: &str, token: &str) -> Resource {
    let mut object = rig.trace(name, json!({}));
    object
        .extensions
        .insert("providerMeta".to_owned(), json!({"token": token}));
    object
}

pub async fn expired_credentials(binary: PathBuf) {
    let mut rig = Rig::new(binary);
    let wanted = [
        with_token(&rig, "good", "one"),
        with_token(&rig, "bad", "two"),
        rig.file("beside", json!("x")),
    ];
    rig.apply(&wanted).await;
    let items = |rig: &Rig| -> Vec<Item> {
        let item = |id: &konverge_base::model::ResourceId| Item {
            id: id.clone(),
            cluster: None,
            prior: rig.recorded.get(id).cloned(),
            desired: None,
            needs: Needs::default(),
        };
        wanted.iter().map(|resource| item(&resource.id)).collect()
    };
    // The second provider's credentials expire.
    let expired = [
        wanted[0].clone(),
        with_token(&rig, "bad", "expired"),
        wanted[2].clone(),
    ];
    let answers = rig.try_plan(&expired).await.remove(0);
    assert_eq!(answers[0].as_ref().unwrap().public.action, Action::Unchanged);
    assert_eq!(answers[2].as_ref().unwrap().public.action, Action::Unchanged);
    let failure = answers[1].as_ref().unwrap_err();
    assert!(
        failure.message.contains("trace_object:bad") && failure.message.contains("ExpiredToken"),
        "{failure}"
    );
    assert!(failure.hints[0].contains("valid credentials"), "{failure:?}");

    // A setting that there is not, of one configuration alone.
    let mut wrong = expired.clone();
    wrong[1]
        .extensions
        .insert("providerMeta".to_owned(), json!({"tokn": "x"}));
    let answers = rig.try_plan(&wrong).await.remove(0);
    assert!(answers[0].is_ok() && answers[2].is_ok());
    assert!(answers[1].as_ref().unwrap_err().message.contains("tokn"));

    // What is looked at only, by the configuration that was recorded.
    let seen = rig.runtime.observe(&rig.scope, &items(&rig)).await.unwrap();
    assert!(seen.iter().all(|one| one.health.0 == Health::Ready));
}

/// They were good for the plan: what needs them fails with the reason, the rest is made, and nothing is made twice.
pub async fn credentials_that_expire_after_the_plan(binary: PathBuf) {
    let key = Sealer::generate();
    let mut rig = Rig::with(binary, |options| {
        options.key = Some(Arc::new(StateSeal(key.clone())));
    });
    let expiry = rig.path("expiry");
    let limited = format!("expires-with:{}", expiry.display());
    let wanted = [
        with_token(&rig, "good", "one"),
        with_token(&rig, "limited", &limited),
        rig.file("beside", json!("x")),
    ];
    let planned = rig.plan(&wanted).await.remove(0);
    assert!(
        planned
            .iter()
            .all(|planned| planned.public.action == Action::Create)
    );
    std::fs::write(&expiry, "").unwrap();
    let sink = Sink::default();
    rig.runtime.apply(&rig.scope, planned, &sink).await.unwrap();
    rig.remember(&sink);
    let failure = sink.end_of("limited").unwrap().unwrap_err();
    assert!(failure.message.contains("ExpiredToken"), "{failure:?}");
    let hints = failure.hints.join("\n");
    assert!(
        hints.contains("valid credentials") && !hints.contains("import"),
        "{failure:?}"
    );
    for name in ["good", "beside"] {
        assert!(sink.end_of(name).unwrap().is_ok(), "{name}");
    }
    let state = key.open_value(&rig.scope.data[STATE]).unwrap();
    assert_eq!(state.get("in_flight"), None, "nothing is under way");

    std::fs::remove_file(&expiry).unwrap();
    rig.apply(&wanted).await;
    assert_eq!(rig.calls(), ["create good", "create limited"]);
}

pub async fn expired_credentials_of_what_is_there(binary: PathBuf) {
    let key = Sealer::generate();
    let mut rig = Rig::with(binary, |options| {
        options.key = Some(Arc::new(StateSeal(key.clone())));
    });
    let wanted = [with_token(&rig, "good", "one"), with_token(&rig, "bad", "two")];
    rig.apply(&wanted).await;
    let mut book = key.open_value(&rig.scope.data[STATE]).unwrap();
    book["resources"][wanted[1].id.as_str()]["meta"]["token"] = json!("expired");
    rig.scope
        .data
        .insert(STATE.to_owned(), key.seal_value(&book).unwrap());
    let items: Vec<_> = wanted
        .iter()
        .map(|resource| Item {
            id: resource.id.clone(),
            cluster: None,
            prior: rig.recorded.get(&resource.id).cloned(),
            desired: None,
            needs: Needs::default(),
        })
        .collect();
    let seen = rig.runtime.observe(&rig.scope, &items).await.unwrap();
    assert_eq!(seen[0].health.0, Health::Ready);
    assert_eq!(seen[1].health.0, Health::Unknown);
    assert!(seen[1].health.1.contains("ExpiredToken"), "{:?}", seen[1].health);
}

pub async fn a_left_over_object_that_stays(binary: PathBuf) {
    let key = Sealer::generate();
    let mut rig = Rig::with(binary, |options| {
        options.key = Some(Arc::new(StateSeal(key.clone())));
    });
    let named = |rig: &Rig, name: &str| {
        let mut object = rig.trace("db", json!({"lifecycle": {"create_before_destroy": true}}));
        object.attributes.insert("name".to_owned(), json!(name));
        [object]
    };
    rig.apply(&named(&rig, "old")).await;
    std::fs::write(rig.path("old.refuse-delete"), "").unwrap();
    // The replacement, and the next try to delete what it left over.
    for _ in 0..2 {
        let sink = Sink::default();
        rig.apply_into(&named(&rig, "new"), &sink).await.unwrap();
        let failure = sink.end_of("db").unwrap().unwrap_err();
        assert!(
            failure
                .message
                .contains("DependencyViolation: it is still in use"),
            "{failure}"
        );
        let hints = failure.hints.join("\n");
        assert!(!hints.contains("import"), "{hints}");
        let book = key.open_value(&rig.scope.data[STATE]).unwrap();
        assert_eq!(book.get("in_flight"), None, "nothing is under way");
    }
    std::fs::remove_file(rig.path("old.refuse-delete")).unwrap();
    rig.apply(&named(&rig, "new")).await;
    assert_eq!(rig.calls(), ["create old", "create new", "delete old"]);
}

async fn shown(rig: &Rig, wanted: &[Resource]) -> String {
    let planned = rig.plan(wanted).await.remove(0);
    let public = planned.into_iter().map(|planned| planned.public).collect();
    let stack = StackPlan::new(
        RepoPath::root(),
        "shop/prod".parse().unwrap(),
        Basis::Live,
        public,
    );
    let plan = Plan {
        version: 1,
        stacks: vec![stack],
    };
    terminal::plan(&plan, Style::default())
}

pub async fn what_changes_in_lists_and_blocks(binary: PathBuf) {
    let mut rig = Rig::new(binary);
    let rules = |ports: &[u16]| -> Value {
        let rules = ports.iter().map(|port| json!({"port": port, "from": "office"}));
        rules.collect()
    };
    let object = |rig: &Rig, name: &str, ports: &[u16], tags: Value| {
        let mut object = rig.trace("fw", json!({"rule": rules(ports), "tags": tags}));
        object.attributes.insert("name".to_owned(), json!(name));
        [object]
    };
    rig.apply(&object(&rig, "fw", &[22, 80, 443], json!(["a", "b"])))
        .await;
    let update = shown(
        &rig,
        &object(&rig, "fw", &[22, 80, 8080, 443], json!(["a", "b", "c"])),
    )
    .await;
    let lines: Vec<_> = update
        .lines()
        .filter_map(|line| line.strip_prefix("      "))
        .collect();
    assert!(
        lines.contains(&"+  port: 8080") && lines.contains(&"+- c"),
        "{update}"
    );
    assert_eq!(
        lines
            .iter()
            .filter(|line| line.starts_with('-') || line.starts_with('+'))
            .count(),
        5,
        "one rule, one tag, and the revision that is not known before: {update}"
    );
    assert!(lines.contains(&"+revision: (known after apply)"), "{update}");
    let replace = shown(&rig, &object(&rig, "other", &[22, 80, 443], json!(["a", "b"]))).await;
    assert!(
        replace.contains("+name: other  # forces replacement"),
        "{replace}"
    );
    assert!(replace.contains("+id: (known after apply)"), "{replace}");
}
