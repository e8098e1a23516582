//! Replacements that did not come to their end: the old object is gone, and Terraform plans a mere creation. The next
//! run finishes the approved replacement and shows it as that replacement.

use std::{
    path::PathBuf,
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use konverge_base::model::{
    Digest,
    plan::{Action, ResourcePlan},
};
use konverge_engine::runtime::Runtime;
use konverge_state::Sealer;
use konverge_terraform::{STATE, TerraformOptions};
use serde_json::{Value, json};

use super::{
    cli_fixture::Place,
    interruption::pipe,
    runtime_fixture::{Event, Rig, Sink, StateSeal, data, resource},
};

/// A rig whose books the test can open.
fn open_rig(binary: PathBuf, change: impl FnOnce(&mut TerraformOptions)) -> (Rig, Sealer) {
    let key = Sealer::generate();
    let rig = Rig::with(binary, |options| {
        options.key = Some(Arc::new(StateSeal(key.clone())));
        change(options);
    });
    (rig, key)
}

async fn only(rig: &Rig, wanted: &konverge_base::model::spec::Resource) -> ResourcePlan {
    rig.plan(std::slice::from_ref(wanted))
        .await
        .remove(0)
        .remove(0)
        .public
}

/// The rest of a replacement is shown as the whole was.
fn is_the_rest(rest: &ResourcePlan, whole: &ResourcePlan) {
    assert_eq!(
        (rest.action, rest.digest),
        (whole.action, whole.digest),
        "{rest:?}"
    );
    assert_eq!((&rest.changes, &rest.replace), (&whole.changes, &whole.replace));
    assert!(!rest.data_loss, "what could be lost is lost");
    let notes = rest.notes.join("\n");
    assert!(
        notes.contains("started to replace it") && !notes.contains("deleted outside"),
        "{notes}"
    );
}

fn book(rig: &Rig, key: &Sealer) -> Value {
    key.open_value(&rig.scope.data[STATE]).unwrap()
}

/// A file that is to lie somewhere else: the provider deletes the old one and makes a new one.
fn file_at(path: PathBuf) -> konverge_base::model::spec::Resource {
    resource(
        "hashicorp:local:local_file:moving",
        json!({"filename": path, "content": "x"}),
    )
}

async fn comes_to_its_end(mut rig: Rig, key: &Sealer, wanted: &konverge_base::model::spec::Resource) {
    rig.apply(std::slice::from_ref(wanted)).await;
    assert_eq!(book(&rig, key).get("begun"), None);
    assert_eq!(only(&rig, wanted).await.action, Action::Unchanged);
    // Deleted by somebody later, it is made like any other.
    let path = wanted.attributes["filename"].as_str().unwrap();
    std::fs::remove_file(path).unwrap();
    assert_eq!(only(&rig, wanted).await.action, Action::Create);
}

pub async fn that_failed_half_way(binary: PathBuf) {
    let (mut rig, key) = open_rig(binary, |_| {});
    rig.apply(&[file_at(rig.path("old"))]).await;
    let new = file_at(rig.path("blocked").join("new"));
    // A path below a file cannot be made; the provider learns that when the old one is gone.
    std::fs::write(rig.path("blocked"), "").unwrap();
    let whole = only(&rig, &new).await;
    assert_eq!((whole.action, whole.data_loss), (Action::Replace, true));
    let sink = Sink::default();
    rig.apply_into(std::slice::from_ref(&new), &sink).await.unwrap();
    assert!(sink.end_of("moving").unwrap().is_err());
    assert!(!rig.path("old").exists());

    is_the_rest(&only(&rig, &new).await, &whole);
    // Something else is wanted now: that is a change of its own.
    assert_eq!(
        only(&rig, &file_at(rig.path("other"))).await.action,
        Action::Create
    );
    std::fs::remove_file(rig.path("blocked")).unwrap();
    comes_to_its_end(rig, &key, &new).await;
}

pub async fn that_was_killed(binary: PathBuf) {
    let (mut rig, key) = open_rig(binary, |options| options.grace = Duration::from_millis(300));
    rig.apply(&[file_at(rig.path("old"))]).await;
    let new = file_at(rig.path("slow"));
    pipe(&rig.path("slow"));
    let planned = rig.plan(std::slice::from_ref(&new)).await.remove(0);
    let whole = planned[0].public.clone();
    let sink = Sink::default();
    let apply = rig.runtime.apply(&rig.scope, planned, &sink);
    let others = async {
        let is_made = |event: &Event| match event {
            Event::Data(name, sealed) if name == STATE => {
                let book = key.open_value(sealed).unwrap();
                let flight = &book["in_flight"][new.id.as_str()];
                flight["action"] == "create" && flight["planned"].is_null()
            }
            _ => false,
        };
        sink.until("the new one is being made", |sink| {
            sink.events.lock().unwrap().iter().any(is_made)
        })
        .await;
        sink.cancelled.store(true, Ordering::Relaxed);
    };
    let (result, ()) = tokio::join!(apply, others);
    result.unwrap();
    rig.remember(&sink);
    std::fs::remove_file(rig.path("slow")).unwrap();
    assert!(!rig.path("old").exists());

    let rest = only(&rig, &new).await;
    is_the_rest(&rest, &whole);
    assert!(
        rest.notes.iter().any(|note| note.contains("it may exist")),
        "{:?}",
        rest.notes
    );
    comes_to_its_end(rig, &key, &new).await;
}

/// As OpenTofu leaves it when it is killed: the new object was reported, and no state has it. `terraform_data` is
/// replaced for a reason that its import does not bring along, so what was agreed to is written by hand.
pub async fn whose_state_was_not_written(binary: PathBuf) {
    for new_one_first in [false, true] {
        let (mut rig, key) = open_rig(binary.clone(), |_| {});
        let lifecycle = json!({"create_before_destroy": new_one_first});
        let wanted = data("made", json!({"input": "x", "lifecycle": lifecycle}));
        let sink = rig.apply(std::slice::from_ref(&wanted)).await;
        let new = sink.end_of("made").unwrap().unwrap().live.unwrap()["id"].clone();
        let mut book = book(&rig, &key);
        let id = wanted.id.as_str();
        let changes = json!([{"path": "/input", "from": "w", "to": "x", "origin": "change"}]);
        let digest = Digest::of_json(&json!([wanted.attributes, wanted.extensions]));
        book["begun"] = json!({id: {"wanted": digest, "changes": changes, "paths": ["/input"]}});
        book["in_flight"] = json!({id: {"action": "create", "address": "terraform_data.made", "id": new}});
        book["resources"][id]["entry"]["instances"][0]["attributes"]["id"] = json!("the-old-one");
        rig.scope
            .data
            .insert(STATE.to_owned(), key.seal_value(&book).unwrap());

        let rest = only(&rig, &wanted).await;
        assert_eq!(
            (rest.action, rest.data_loss),
            (Action::Replace, false),
            "{rest:?}"
        );
        assert_eq!(
            (json!(rest.changes), &rest.replace[..]),
            (changes, &["/input".into()][..])
        );
        let notes = rest.notes.join("\n");
        assert!(notes.contains("adopted, not created again"), "{notes}");
        let names_the_old = notes.contains("id `the-old-one` and may still exist");
        assert_eq!(names_the_old, new_one_first, "{notes}");
        let sink = rig.apply(std::slice::from_ref(&wanted)).await;
        let live = sink.end_of("made").unwrap().unwrap().live.unwrap();
        assert_eq!(live["id"], new, "it is the same object");
        assert_eq!(self::book(&rig, &key).get("begun"), None);
        assert_eq!(only(&rig, &wanted).await.action, Action::Unchanged);
    }
}

/// A replacement deletes a file that another resource, which stays unchanged, has written too.
pub async fn that_takes_another_along(binary: PathBuf) {
    let place = Place::new(&binary);
    let file = |name: &str, at: &str, after: &[&str]| {
        let mut file = place.local("local_file", name, "same", after);
        file["attributes"]["filename"] = json!(place.path(at));
        file
    };
    let inside = file("inside", "shared", &["hashicorp:local:local_file:holder"]);
    let apply = |holder: &str| {
        place.want(&[file("holder", holder, &[]), inside.clone()]);
        let run = place.run("apply").arg_all(["--yes", "--output", "json"]);
        let outcome = run.run().expect(0);
        assert_eq!(outcome.json()["stacks"][0]["result"], "applied");
        outcome
    };
    apply("shared");
    let outcome = apply("elsewhere");
    let said = "`hashicorp:local:local_file:inside` disappeared during the apply";
    assert!(outcome.stderr.contains(said), "{}", outcome.stderr);
    for name in ["shared", "elsewhere"] {
        assert_eq!(
            std::fs::read_to_string(place.path(name)).unwrap(),
            "same",
            "{name}"
        );
    }
    assert_eq!(place.preview()["summary"]["unchanged"], 2);
}
