//! Sensitive values: marked for reviewers, encrypted for the state, in clear nowhere.

use std::path::PathBuf;

use konverge_base::{
    error::ErrorKind,
    model::{
        RepoPath, masked_value,
        plan::{Action, Basis, StackPlan},
    },
};
use konverge_engine::runtime::Runtime;
use konverge_secrets::redact;
use konverge_terraform::STATE;
use serde_json::{Value, json};

use super::runtime_fixture::{Event, Rig, Sink, data, resource};

/// Long and odd enough to be found.
pub const SECRET: &str = "correct-horse\"battery\\staple";
pub const NEXT: &str = "another-horse-another-staple";

fn secret_file(rig: &Rig, content: &str) -> konverge_base::model::spec::Resource {
    resource(
        "hashicorp:local:local_sensitive_file:secret",
        json!({"filename": rig.path("secret"), "content": content}),
    )
}

pub fn assert_clean(what: &str, text: &str) {
    use base64::Engine as _;
    for secret in [SECRET, NEXT] {
        let quoted = Value::String(secret.to_owned()).to_string();
        let forms = [
            secret.to_owned(),
            quoted[1..quoted.len() - 1].to_owned(),
            base64::engine::general_purpose::STANDARD.encode(secret),
        ];
        for form in forms {
            assert!(!text.contains(&form), "{what} holds a secret: {text}");
        }
    }
}

fn assert_events_are_clean(sink: &Sink) {
    for event in sink.events.lock().unwrap().iter() {
        match event {
            Event::Data(key, value) => assert_clean(key, &value.to_string()),
            Event::Written(recorded) => {
                assert_clean("a record", &serde_json::to_string(recorded).unwrap());
            }
            Event::Ended(_, Ok(applied)) => {
                assert_clean("a record", &serde_json::to_string(&applied.recorded).unwrap());
            }
            Event::Ended(_, Err(failure)) => {
                assert_clean("a failure", &serde_json::to_string(&failure.body()).unwrap());
            }
        }
    }
    assert_clean("progress", &sink.words.lock().unwrap().join("\n"));
}

pub async fn in_clear_nowhere(binary: PathBuf) {
    let mut rig = Rig::new(binary);
    let mut copy = rig.file(
        "copy",
        json!("$kusion_path.hashicorp:local:local_sensitive_file:secret.filename"),
    );
    copy.extensions.insert("providerMeta".to_owned(), json!({}));
    let also = data("also", json!({"input": format!("password={SECRET}")}));
    let wanted = [secret_file(&rig, SECRET), copy, also.clone()];
    let plan = rig.plan(&wanted).await;
    // A copy in clear is masked where it is shown, and told by name.
    let public = plan.iter().flatten().map(|planned| planned.public.clone());
    let (id, folder) = ("shop/dev".parse().unwrap(), RepoPath::root());
    let mut shown = StackPlan::new(folder, id, Basis::Live, public.collect());
    let hidden = redact::stack(&mut shown, &rig.secrets);
    assert_clean("a plan", &serde_json::to_string(&shown).unwrap());
    assert_eq!(hidden.len(), 1, "{hidden:?}");
    assert_eq!(
        (hidden[0].resource.as_str(), hidden[0].path.as_str()),
        (also.id.as_str(), "/input")
    );
    for planned in plan.iter().flatten() {
        assert_clean("a record", &serde_json::to_string(&planned.recorded).unwrap());
    }
    let to = plan[0][0].public.changes[0].to.clone().unwrap();
    assert!(masked_value::as_secret(&to["content"]).is_some(), "{to}");
    // The plan is made and waits: nothing of it may be on a disk.
    let files = rig.files_on_disk();
    assert!(!files.is_empty());
    for file in files {
        let bytes = std::fs::read(&file).unwrap();
        assert_clean(&file.display().to_string(), &String::from_utf8_lossy(&bytes));
    }

    let sink = rig.apply(&wanted).await;
    assert_events_are_clean(&sink);
    assert!(
        std::fs::read_to_string(rig.path("secret"))
            .unwrap()
            .contains("horse")
    );
    let stored = &rig.scope.data[STATE];
    assert!(stored.get("$age").is_some());

    let changed = [secret_file(&rig, NEXT), wanted[1].clone(), also];
    let plan = rig.plan(&changed).await;
    let planned = &plan[0][0].public;
    assert_eq!(planned.action, Action::Replace);
    let content = planned.changes.iter().find(|c| c.path == "/content").unwrap();
    let (from, to) = (content.from.as_ref().unwrap(), content.to.as_ref().unwrap());
    assert!(masked_value::as_secret(from).is_some() && masked_value::as_secret(to).is_some());
    assert_ne!(from, to, "a reviewer sees that it changes");
    assert_clean("a plan", &serde_json::to_string(planned).unwrap());
    // A provider that fails tells its reasons without the value.
    let mut changed = changed;
    let below = rig.path("copy").join("below");
    changed[0].attributes.insert("filename".to_owned(), json!(below));
    changed[1]
        .attributes
        .insert("content".to_owned(), json!(rig.path("secret")));
    let sink = Sink::default();
    rig.apply_into(&changed, &sink).await.unwrap();
    assert!(sink.end_of("secret").unwrap().is_err());
    assert_events_are_clean(&sink);
}

pub async fn without_a_key(binary: PathBuf) {
    let mut rig = Rig::with(binary, |options| options.key = None);
    let wanted = [secret_file(&rig, SECRET)];
    let answers = rig.try_plan(&wanted).await.remove(0);
    let failure = answers[0].as_ref().unwrap_err();
    assert_eq!(failure.kind, ErrorKind::Secret);
    assert!(failure.hints[0].contains("age-keygen"), "{failure:?}");

    let harmless = [data("harmless", json!({"input": "x"}))];
    rig.apply(&harmless).await;
    assert!(rig.scope.data[STATE].get("$clear").is_some());

    let mut with_key = Rig::new(crate::support::terraform::binary());
    with_key.apply(&harmless).await;
    rig.scope.data = with_key.scope.data.clone();
    let answers = rig.runtime.plan(&rig.scope, plan_items(&harmless)).await.unwrap();
    let failure = answers[0].as_ref().unwrap_err();
    assert!(failure.error.message.contains("encrypted"), "{failure}");
}

fn plan_items(wanted: &[konverge_base::model::spec::Resource]) -> Vec<konverge_engine::runtime::Item> {
    let item = |r: &konverge_base::model::spec::Resource| konverge_engine::runtime::Item {
        id: r.id.clone(),
        cluster: None,
        prior: None,
        desired: Some(r.clone()),
        needs: konverge_engine::runtime::Needs::default(),
    };
    wanted.iter().map(item).collect()
}
