//! Applies that do not come to their end. A named pipe makes a resource slow for as long as a test likes: the provider
//! waits until somebody reads what it writes.

use std::{
    io::Read as _,
    path::{Path, PathBuf},
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use konverge_base::{error::ErrorKind, model::plan::Action};
use konverge_engine::runtime::Runtime;
use konverge_state::Sealer;
use konverge_terraform::{BinaryKind, STATE};
use serde_json::json;

use super::runtime_fixture::{Event, Rig, Sink, StateSeal, data};

pub fn pipe(path: &Path) {
    nix::unistd::mkfifo(path, nix::sys::stat::Mode::from_bits_truncate(0o600)).unwrap();
}

/// Lets the provider write; gives what it wrote.
pub async fn read_pipe(path: PathBuf) -> String {
    let read = move || {
        let mut text = String::new();
        std::fs::File::open(path)
            .unwrap()
            .read_to_string(&mut text)
            .unwrap();
        text
    };
    tokio::task::spawn_blocking(read).await.unwrap()
}

/// A quick resource, a slow one, and one that needs the slow one.
fn wanted(rig: &Rig) -> Vec<konverge_base::model::spec::Resource> {
    let mut later = rig.file("later", json!("later"));
    let slow = rig.file("slow", json!("slow"));
    later.depends_on = vec![slow.id.clone()];
    vec![rig.file("quick", json!("quick")), slow, later]
}

/// The state was written through with the quick resource in it, while the slow one is still under way.
async fn quick_one_is_remembered(rig: &Rig, sink: &Sink) {
    let is_state = |e: &Event| matches!(e, Event::Data(key, _) if key == konverge_terraform::STATE);
    if rig.runtime.binary().await.unwrap().make == BinaryKind::OpenTofu {
        // It writes its state when it is interrupted, or after 20 seconds.
        sink.until("something is remembered", |sink| {
            rig.path("quick").exists() && sink.events.lock().unwrap().iter().any(is_state)
        })
        .await;
        return;
    }
    sink.until("the quick resource has ended", |sink| {
        sink.end_of("quick").is_some()
    })
    .await;
    let events = sink.events.lock().unwrap();
    let ended = events.iter().position(|e| matches!(e, Event::Ended(..))).unwrap();
    assert!(
        events[..ended].iter().any(is_state),
        "the state comes before the end"
    );
}

pub async fn an_interrupted_apply(binary: PathBuf) {
    let mut rig = Rig::new(binary);
    pipe(&rig.path("slow"));
    let wanted = wanted(&rig);
    let planned = rig.plan(&wanted).await.remove(0);
    let sink = Sink::default();
    let apply = rig.runtime.apply(&rig.scope, planned, &sink);
    let others = async {
        quick_one_is_remembered(&rig, &sink).await;
        assert!(sink.end_of("slow").is_none());
        sink.cancelled.store(true, Ordering::Relaxed);
        // What is in flight is not torn: it ends when it can.
        tokio::time::sleep(Duration::from_millis(600)).await;
        assert!(sink.end_of("slow").is_none());
        assert_eq!(read_pipe(rig.path("slow")).await, "slow");
    };
    let (result, ()) = tokio::join!(apply, others);
    result.unwrap();
    assert!(sink.end_of("quick").unwrap().is_ok());
    let later = sink.end_of("later").unwrap().unwrap_err();
    assert_eq!(later.kind, ErrorKind::Interrupted, "{later}");
    assert!(!rig.path("later").exists());
    rig.remember(&sink);
    std::fs::remove_file(rig.path("slow")).unwrap();
    // The next run takes the rest up.
    let sink = rig.apply(&wanted).await;
    assert!(sink.end_of("later").unwrap().is_ok());
    assert!(
        rig.actions(&wanted)
            .await
            .values()
            .all(|a| *a == Action::Unchanged)
    );
}

pub async fn a_killed_apply(binary: PathBuf) {
    let mut rig = Rig::with(binary, |options| options.grace = Duration::from_millis(300));
    pipe(&rig.path("slow"));
    let wanted = wanted(&rig);
    let planned = rig.plan(&wanted).await.remove(0);
    let sink = Sink::default();
    let apply = rig.runtime.apply(&rig.scope, planned, &sink);
    let others = async {
        quick_one_is_remembered(&rig, &sink).await;
        sink.cancelled.store(true, Ordering::Relaxed);
    };
    let (result, ()) = tokio::join!(apply, others);
    result.unwrap();
    let slow = sink.end_of("slow").unwrap().unwrap_err();
    assert!(slow.message.contains("was being created"), "{slow}");
    assert!(
        slow.hints.iter().any(|h| h.contains("kusionstack.io/import-id"))
            && slow
                .hints
                .iter()
                .any(|h| h.contains("terraform import local_file.slow ID")),
        "{slow:?}"
    );
    rig.remember(&sink);
    assert!(
        rig.recorded.keys().any(|id| id.as_str().ends_with(":slow")),
        "what may exist is not forgotten"
    );
    std::fs::remove_file(rig.path("slow")).unwrap();
    let plan = rig.plan(&wanted).await.remove(0);
    assert_eq!(plan[0].public.action, Action::Unchanged);
    assert!(
        plan[1].public.notes[0].contains("import-id"),
        "{:?}",
        plan[1].public.notes
    );
    rig.apply(&wanted).await;
    assert!(
        rig.actions(&wanted)
            .await
            .values()
            .all(|a| *a == Action::Unchanged)
    );
}

pub async fn a_lost_lease_stops_terraform(binary: PathBuf) {
    let rig = Rig::new(binary);
    pipe(&rig.path("slow"));
    let wanted = wanted(&rig);
    let planned = rig.plan(&wanted).await.remove(0);
    let sink = Sink::default();
    let apply = rig.runtime.apply(&rig.scope, planned, &sink);
    let others = async {
        quick_one_is_remembered(&rig, &sink).await;
        sink.lost.store(true, Ordering::Relaxed);
        // The next thing to remember cannot be: Terraform is asked to stop.
        assert_eq!(read_pipe(rig.path("slow")).await, "slow");
    };
    let (result, ()) = tokio::join!(apply, others);
    assert_eq!(result.unwrap_err().kind, ErrorKind::LeaseHeld);
}

/// As OpenTofu leaves it when it is killed: a resource was reported complete, with an id, and no state has it.
pub async fn what_was_made_is_imported(binary: PathBuf) {
    let key = Sealer::generate();
    let mut rig = Rig::with(binary, |options| {
        options.key = Some(Arc::new(StateSeal(key.clone())));
    });
    let wanted = [
        data("imported", json!({"input": "x"})),
        rig.file("not", json!("y")),
    ];
    let sink = rig.apply(&wanted).await;
    let made = sink.end_of("imported").unwrap().unwrap().live.unwrap()["id"].clone();
    let mut book = key.open_value(&rig.scope.data[STATE]).unwrap();
    for resource in &wanted {
        let held = book["resources"]
            .as_object_mut()
            .unwrap()
            .shift_remove(resource.id.as_str());
        let id = held.unwrap()["entry"]["instances"][0]["attributes"]["id"].clone();
        book["in_flight"][resource.id.as_str()] = json!({"action": "create", "address": "a.b", "id": id});
    }
    rig.scope
        .data
        .insert(STATE.to_owned(), key.seal_value(&book).unwrap());

    let plan = rig.plan(&wanted).await.remove(0);
    let (imported, not) = (&plan[0].public, &plan[1].public);
    assert_eq!(
        (imported.action, not.action),
        (Action::Create, Action::Create),
        "the creation that was agreed to, brought to its end"
    );
    assert!(
        imported.notes[0].contains("adopted, not created again"),
        "{:?}",
        imported.notes
    );
    assert!(
        not.notes[0].contains("kusionstack.io/import-id"),
        "its provider imports nothing: {:?}",
        not.notes
    );
    let sink = rig.apply(&wanted).await;
    let live = sink.end_of("imported").unwrap().unwrap().live.unwrap();
    assert_eq!(live["id"], made, "it is the same object");
    let book = key.open_value(&rig.scope.data[STATE]).unwrap();
    assert_eq!(book.get("in_flight"), None);
    assert!(
        rig.actions(&wanted)
            .await
            .values()
            .all(|a| *a == Action::Unchanged)
    );
}
