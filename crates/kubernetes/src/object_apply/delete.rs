//! Deletes an object by its UID and waits until it is gone. If that takes long, the cause is reported.

use std::time::Duration;

use http::Method;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::super::{
    api::client::ApiRequest,
    object::{
        fetch,
        precondition::{self, Precondition, WriteKind},
    },
};
use super::apply_task::ApplyTask;
use konverge_base::error::{ErrorKind, UserError};

/// The fate of the dependents of a deleted object (`propagationPolicy`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Dependents {
    /// The server deletes the dependents in the background, after the object.
    Go,
    /// The server deletes the dependents first, and then the object.
    GoFirst,
    /// The server keeps the dependents.
    Stay,
}

/// Deletes the object if it is still the one that was read, with the same owner. An object that is already
/// gone is not an error.
pub(super) async fn delete(
    task: ApplyTask<'_>,
    mut seen: Precondition,
    dependents: Dependents,
) -> Result<(), UserError> {
    let ApplyTask { subject, of, .. } = task;
    let policy = match dependents {
        Dependents::Go => "Background",
        Dependents::GoFirst => "Foreground",
        Dependents::Stay => "Orphan",
    };
    for attempt in 1.. {
        let bound = json!({"uid": seen.uid, "resourceVersion": seen.version});
        let options = json!({"kind": "DeleteOptions", "apiVersion": "v1", "propagationPolicy": policy, "preconditions": bound});
        let mut request = ApiRequest::get(subject.name.path(of)).body("application/json", &options);
        (request.method, request.bound) = (Method::DELETE, true);
        match subject.cluster.api.call(&request).await {
            Ok(_) => break,
            Err(error) if error.is_code(404) => return Ok(()),
            // The object was written after it was read. It is deleted nevertheless if it still has the same
            // UID and owner.
            Err(error) if error.is_code(409) && attempt < precondition::TRIES => {
                match seen.refetch(subject, of, WriteKind::Deleting).await? {
                    Some(now) => seen = now,
                    None => return Ok(()),
                }
            }
            Err(error) => return Err(subject.refusal(&error)),
        }
    }
    wait_until_gone(task, Some(&seen.uid)).await
}

/// Waits until no object with that name and UID exists.
pub(super) async fn wait_until_gone(task: ApplyTask<'_>, uid: Option<&str>) -> Result<(), UserError> {
    let ApplyTask {
        runtime,
        subject,
        of,
        sink,
        ..
    } = task;
    let deadline = Instant::now() + runtime.options.ready_timeout;
    let mut pause = Duration::from_millis(50);
    loop {
        let Some(object) = fetch::get(&subject.cluster, of, &subject.name).await? else {
            return Ok(());
        };
        let found = object["metadata"]["uid"].as_str();
        // Another object with this name means that the deleted one is gone.
        if uid.is_some() && found != uid {
            return Ok(());
        }
        let (holds, title) = (held_by(&object), subject.title());
        if sink.cancelled() {
            let what = format!("{title} still existed when the run was asked to stop{holds}");
            return Err(UserError::new(ErrorKind::Interrupted, what).hint("the next run continues from here"));
        }
        if Instant::now() + pause > deadline {
            let seconds = runtime.options.ready_timeout.as_secs();
            let what = format!("{title} still exists after {seconds} s{holds}");
            return Err(UserError::new(ErrorKind::Kubernetes, what).hint(
                "the controller that set the finalizers must remove them; the next run continues from here",
            ));
        }
        // Most objects are gone at once, so only a longer wait is reported.
        if pause > Duration::from_millis(500) {
            sink.progress(task.id(), &format!("waiting until it is gone{holds}"));
        }
        subject.cluster.api.interrupt.pause(pause).await;
        pause = (pause * 2).min(Duration::from_secs(2));
    }
}

fn held_by(object: &Value) -> String {
    // A namespace has two lists of finalizers: those in `spec` wait until it is empty.
    let finalizers: Vec<_> = [&object["metadata"], &object["spec"]]
        .into_iter()
        .filter_map(|part| part["finalizers"].as_array())
        .flatten()
        .filter_map(Value::as_str)
        .collect();
    if finalizers.is_empty() {
        return String::new();
    }
    format!(", held by its finalizers: {}", finalizers.join(", "))
}
