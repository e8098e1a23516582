//! Manual changes of the state. Each change holds the lease and writes a new serial.

use super::read::{PulledState, unknown};
use crate::StateBackend;
use crate::infrastructure::StateSeal;
use konverge_base::{
    error::{ErrorKind, UserError},
    model::{
        ClusterName, ResourceId, StackFolder, StackId,
        state::{RuntimeRecord, StackState},
    },
};
use konverge_kubernetes::forget_clusters;
use konverge_report as report;
use konverge_state::{Holder, Lease, LeaseOptions, WriteReason};
use konverge_terraform::{self as terraform, StateEncryption};

/// Returns lease options without a wait, because a person is waiting: a held lease is an error at once.
pub(super) fn at_once() -> LeaseOptions {
    LeaseOptions {
        wait: std::time::Duration::ZERO,
        ..LeaseOptions::default()
    }
}

/// Returns lease options without a wait, valid even if the documents of the state are lost, because the write replaces
/// them.
fn over_lost_documents() -> LeaseOptions {
    LeaseOptions {
        over_vanished: true,
        ..at_once()
    }
}

/// Acquires the lease of a stack whose state is about to be replaced.
pub(super) async fn acquire_to_replace(backend: &StateBackend, stack: &StackId) -> Result<Lease, UserError> {
    Ok(backend.states.acquire(stack, over_lost_documents()).await?)
}

pub(super) async fn acquire(backend: &StateBackend, stack: &StackId) -> Result<Lease, UserError> {
    Ok(backend.states.acquire(stack, at_once()).await?)
}

fn recorded_state(lease: &Lease, stack: &StackId) -> Result<StackState, UserError> {
    let prior = lease.prior().ok_or_else(|| unknown(stack))?;
    Ok(prior.state.clone())
}

/// Releases the lease, whether the operation succeeded or not, and returns the result of the operation.
async fn given_back<T>(lease: &Lease, result: Result<T, UserError>) -> Result<T, UserError> {
    let released = lease.release().await;
    let value = result?;
    released?;
    Ok(value)
}

/// The condition that [`push`] requires of the newest document.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NewestDocument {
    /// The newest state must be the one that was pulled.
    AsPulled,
    /// The newest state may be unreadable. It is replaced.
    MayBeDamaged,
}

/// Writes back a state that was pulled, and possibly edited. The state must belong to this repository and stack, and no
/// other run may have written since the pull.
///
/// # Errors
/// One of these conditions is not met; another run holds the lease; errors of the store.
pub async fn push(
    backend: &StateBackend,
    repository: &str,
    stack: &StackId,
    pulled: PulledState,
    newest: NewestDocument,
) -> Result<u64, UserError> {
    let refuse = |text: String| UserError::new(ErrorKind::State, text);
    if pulled.version != 1 {
        return Err(refuse(format!(
            "the file has version {}, but only version 1 is supported",
            pulled.version
        )));
    }
    if pulled.repository != repository {
        return Err(refuse(format!(
            "the file belongs to repository `{}`, not to `{repository}`",
            pulled.repository.escape_debug()
        )));
    }
    if pulled.state.stack != *stack {
        return Err(refuse(format!(
            "the file is the state of `{}`, not of `{stack}`",
            pulled.state.stack
        ))
        .hint("`konverge state move FROM TO` renames a stack"));
    }
    let over_damaged = newest == NewestDocument::MayBeDamaged;
    let mut options = LeaseOptions {
        over_damaged,
        ..over_lost_documents()
    };
    if over_damaged {
        // The damaged document cannot show whether the last holder released its lease, so the term of that lease must
        // pass.
        options.wait = options.term * 3;
    }
    let lease = backend.states.acquire(stack, options).await?;
    let result = async {
        // If no state document is left (a journal alone has serial 0), any pulled state is accepted.
        let newest = lease.prior().map(|prior| prior.serial);
        let newest = newest.filter(|newest| *newest > 0);
        if let Some(newest) = newest.filter(|newest| !over_damaged && *newest != pulled.serial) {
            return Err(refuse(format!(
                "the file was pulled at serial {}, and serial {newest} has been written since",
                pulled.serial
            ))
            .hint(format!(
                "pull the state again and repeat the edit; `konverge state diff {stack} {} {newest}` shows what changed",
                pulled.serial
            )));
        }
        let mut state = pulled.state;
        state.resources.sort_by(|a, b| a.id.cmp(&b.id));
        // Without an input digest the stack is pending, so that the next apply checks what was written by hand.
        state.input_digest = None;
        let note = format!("pushed from serial {}", pulled.serial);
        Ok(lease.record(WriteReason::Push, state, Some(note)).await?)
    }
    .await;
    let serial = given_back(&lease, result).await?;
    backend.states.save_index().await?;
    Ok(serial)
}

/// Gives a stack another identity, under the leases of both identities. They are acquired in the order of the names.
///
/// # Errors
/// No state is recorded for `from`; `to` has resources; another run holds a lease; errors of the store.
pub async fn move_to(backend: &StateBackend, from: &StackId, to: &StackId) -> Result<u64, UserError> {
    move_waiting(backend, from, to, at_once()).await
}

/// Gives a stack another identity as [`move_to`] does, but waits for the leases as the options say.
///
/// # Errors
/// See [`move_to`].
pub async fn move_waiting(
    backend: &StateBackend,
    from: &StackId,
    to: &StackId,
    options: LeaseOptions,
) -> Result<u64, UserError> {
    if from == to {
        return Err(UserError::new(
            ErrorKind::Usage,
            "both names are of the same stack",
        ));
    }
    // Leases are always acquired in the order of the names, so that two runs that move in opposite directions never
    // wait for each other.
    let (first, second) = if from < to { (from, to) } else { (to, from) };
    let first_lease = backend.states.acquire(first, options.clone()).await?;
    let second_lease = match backend.states.acquire(second, options).await {
        Ok(lease) => lease,
        Err(error) => return given_back(&first_lease, Err(error.into())).await,
    };
    let (old, new) = if from < to {
        (&first_lease, &second_lease)
    } else {
        (&second_lease, &first_lease)
    };
    let result = async {
        let state = recorded_state(old, from)?;
        if let Some(there) = new.prior().filter(|prior| !prior.state.resources.is_empty()) {
            return Err(UserError::new(
                ErrorKind::State,
                format!(
                    "stack `{to}` already has {}",
                    report::plural(there.state.resources.len(), "resource")
                ),
            )
            .hint(format!(
                "`konverge state forget {to}` removes the records; live objects are not changed"
            )));
        }
        let mut moved = state.clone().renamed(to.clone());
        if let Some(there) = new.prior() {
            moved.guarded_as.extend(&there.state.guarded_as);
        }
        // The new identity is written first: after a crash between the two writes the stack is recorded twice, but
        // never lost.
        let serial = new
            .record(WriteReason::Move, moved, Some(format!("moved from {from}")))
            .await?;
        let emptied = StackState {
            guarded_as: state.guarded_as,
            ..StackState::empty(from.clone(), state.folder)
        };
        old.record(WriteReason::Move, emptied, Some(format!("moved to {to}")))
            .await?;
        Ok(serial)
    }
    .await;
    let result = given_back(&second_lease, result).await;
    let serial = given_back(&first_lease, result).await?;
    backend.states.save_index().await?;
    Ok(serial)
}

/// Removes resources from the state, or the whole stack if no resource is named. Live objects are not changed.
///
/// # Errors
/// A resource is not recorded; the Terraform state cannot be decrypted; another run holds the lease; errors of the
/// store.
pub async fn forget(
    backend: &StateBackend,
    stack: &StackId,
    resources: &[ResourceId],
) -> Result<u64, UserError> {
    let lease = if resources.is_empty() {
        acquire_to_replace(backend, stack).await?
    } else {
        acquire(backend, stack).await?
    };
    let result = async {
        let vanished =
            lease.prior().is_none() && resources.is_empty() && backend.states.was_written(stack).await?;
        let mut state = if vanished {
            StackState::empty(stack.clone(), StackFolder::none())
        } else {
            recorded_state(&lease, stack)?
        };
        // The Terraform state is an encrypted document of its own, which may contain a resource that the main state no
        // longer records.
        let seal = backend.states.sealer().cloned().map(StateSeal);
        let key = seal.as_ref().map(|seal| seal as &dyn StateEncryption);
        let given_up = terraform::forget(&mut state.runtime, key, resources)?;
        for id in resources {
            if state.resource(id).is_none() && !given_up.contains(id) {
                return Err(UserError::new(
                    ErrorKind::State,
                    format!("`{id}` is not recorded in stack `{stack}`"),
                )
                .hint(format!("`konverge state show {stack}` lists what is recorded")));
            }
            state.remove(id);
        }
        let note = if resources.is_empty() {
            state = StackState {
                guarded_as: state.guarded_as,
                ..StackState::empty(stack.clone(), state.folder)
            };
            "the whole stack".to_owned()
        } else {
            let names: Vec<_> = resources.iter().map(ResourceId::as_str).collect();
            names.join(", ")
        };
        state.input_digest = None;
        Ok(lease.record(WriteReason::Forget, state, Some(note)).await?)
    }
    .await;
    let serial = given_back(&lease, result).await?;
    backend.states.save_index().await?;
    Ok(serial)
}

/// Lets a stack move to the cluster that its cluster name means now: removes the recorded cluster identity and the uid
/// of every object. Existing objects that do not name the stack as their owner are adopted by a reviewed change, and
/// never deleted.
///
/// # Errors
/// No object is recorded on that cluster; another run holds the lease; errors of the store.
pub async fn rebind(
    backend: &StateBackend,
    stack: &StackId,
    cluster: Option<&ClusterName>,
) -> Result<u64, UserError> {
    let lease = acquire(backend, stack).await?;
    let result = async {
        let mut state = recorded_state(&lease, stack)?;
        let names = forget_clusters(&mut state.runtime, cluster);
        if names.is_empty() {
            let on = cluster.map_or_else(String::new, |cluster| format!(" on cluster `{cluster}`"));
            return Err(UserError::new(
                ErrorKind::State,
                format!("no cluster is recorded for stack `{stack}`{on}: there is nothing to rebind"),
            )
            .hint(format!(
                "`konverge state show {stack}` shows the clusters that it was applied to"
            )));
        }
        for resource in &mut state.resources {
            if resource.cluster.as_ref().is_some_and(|name| names.contains(name)) {
                resource.private = RuntimeRecord::unconfirmed();
            }
        }
        state.input_digest = None;
        let names: Vec<_> = names.iter().map(ClusterName::as_str).collect();
        let note = format!("rebound: {}", names.join(", "));
        Ok(lease.record(WriteReason::Forget, state, Some(note)).await?)
    }
    .await;
    let serial = given_back(&lease, result).await?;
    backend.states.save_index().await?;
    Ok(serial)
}

/// Ends a lease that another run holds, because a person requests it.
///
/// # Errors
/// The lease does not exist; errors of the store.
pub async fn unlock(
    backend: &StateBackend,
    stack: &StackId,
    lease: &str,
    reason: &str,
) -> Result<Holder, UserError> {
    if reason.trim().is_empty() {
        return Err(UserError::new(
            ErrorKind::Usage,
            "give a reason; it is stored with the lease",
        ));
    }
    Ok(backend.states.unlock(stack, lease, reason).await?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_fixture::{backend, id, record, state};
    use konverge_state::Versioned;

    async fn load(backend: &StateBackend, stack: &str) -> Versioned {
        backend.states.load(&id(stack)).await.unwrap().unwrap()
    }

    fn pulled(serial: u64, state: StackState) -> PulledState {
        PulledState {
            version: 1,
            repository: "shop".to_owned(),
            serial,
            state,
        }
    }

    fn digest() -> konverge_base::model::Digest {
        konverge_base::model::Digest::of_bytes(b"inputs")
    }

    #[tokio::test]
    async fn what_was_pulled_is_written_back_in_order_and_makes_the_stack_pending() {
        let backend = backend();
        let prod = id("shop/prod");
        let serial = record(&backend, state("shop/prod", &["a"])).await;
        let mut edited = state("shop/prod", &["b", "a"]);
        edited.input_digest = Some(digest());
        let at = NewestDocument::AsPulled;
        let next = push(&backend, "shop", &prod, pulled(serial, edited), at)
            .await
            .unwrap();
        let written = load(&backend, "shop/prod").await;
        let ids: Vec<_> = written
            .state
            .resources
            .iter()
            .map(|resource| resource.id.as_str())
            .collect();
        assert_eq!((next, written.serial), (serial + 1, serial + 1));
        assert!(ids.is_sorted() && ids.len() == 2, "{ids:?}");
        assert_eq!(written.state.input_digest, None);
        assert_eq!(written.note.as_deref(), Some("pushed from serial 1"));
    }

    #[tokio::test]
    async fn a_file_of_elsewhere_or_of_before_another_run_is_not_written() {
        let backend = backend();
        let prod = id("shop/prod");
        let serial = record(&backend, state("shop/prod", &["a"])).await;
        record(&backend, state("shop/prod", &["a", "b"])).await;
        let own = || pulled(serial, state("shop/prod", &[]));
        for (file, why) in [
            (PulledState { version: 2, ..own() }, "only version 1"),
            (
                PulledState {
                    repository: "other".to_owned(),
                    ..own()
                },
                "belongs to repository `other`",
            ),
            (
                pulled(serial, state("shop/dev", &[])),
                "is the state of `shop/dev`",
            ),
            (own(), "serial 2 has been written since"),
        ] {
            let refused = push(&backend, "shop", &prod, file, NewestDocument::AsPulled)
                .await
                .unwrap_err();
            assert!(refused.message.contains(why), "{why}: {refused}");
        }
        assert_eq!(load(&backend, "shop/prod").await.serial, 2);
        // The lease was given back, so that the next one gets it at once.
        record(&backend, state("shop/prod", &["a"])).await;
    }

    #[tokio::test]
    async fn a_stack_moves_with_its_guards_and_never_over_another_one() {
        let backend = backend();
        let (old, new) = (id("shop/old"), id("shop/new"));
        let mut recorded = state("shop/old", &["web"]);
        recorded.input_digest = Some(digest());
        record(&backend, recorded).await;
        record(&backend, state("shop/taken", &["api"])).await;
        let taken = move_to(&backend, &old, &id("shop/taken")).await.unwrap_err();
        assert!(
            taken.message.contains("`shop/taken` already has 1 resource"),
            "{taken}"
        );
        let same = move_to(&backend, &old, &old).await.unwrap_err();
        assert_eq!(same.kind, ErrorKind::Usage);
        move_to(&backend, &id("shop/none"), &new).await.unwrap_err();
        move_to(&backend, &old, &new).await.unwrap();
        let (there, left) = (
            load(&backend, "shop/new").await.state,
            load(&backend, "shop/old").await.state,
        );
        assert_eq!((there.resources.len(), left.resources.len()), (1, 0));
        assert_eq!(
            (there.earlier_identities, there.input_digest),
            (vec![old.clone()], None)
        );
        assert!(
            there.guarded_as.ids.contains(&old),
            "rules that name the old one still hold"
        );
    }

    #[tokio::test]
    async fn what_is_forgotten_is_what_was_named() {
        let backend = backend();
        let prod = id("shop/prod");
        let mut recorded = state("shop/prod", &["a", "b"]);
        recorded.input_digest = Some(digest());
        recorded.guarded_as.ids.insert(id("shop/old"));
        record(&backend, recorded).await;
        let resource = |name: &str| format!("v1:ConfigMap:shop:{name}").parse().unwrap();
        let unknown = forget(&backend, &prod, &[resource("a"), resource("c")])
            .await
            .unwrap_err();
        assert!(
            unknown.message.contains("`v1:ConfigMap:shop:c` is not recorded"),
            "{unknown}"
        );
        assert_eq!(
            load(&backend, "shop/prod").await.state.resources.len(),
            2,
            "nothing of it"
        );
        forget(&backend, &prod, &[resource("a")]).await.unwrap();
        let left = load(&backend, "shop/prod").await.state;
        assert_eq!((left.resources.len(), left.input_digest), (1, None));
        forget(&backend, &prod, &[]).await.unwrap();
        let left = load(&backend, "shop/prod").await.state;
        assert!(left.resources.is_empty() && left.guarded_as.ids.contains(&id("shop/old")));
        let never = forget(&backend, &id("shop/never"), &[]).await.unwrap_err();
        assert_eq!(never, unknown_stack("shop/never"));
    }

    fn unknown_stack(name: &str) -> UserError {
        unknown(&id(name))
    }

    #[tokio::test]
    async fn a_lease_of_another_run_is_ended_with_a_reason_alone() {
        let backend = backend();
        let prod = id("shop/prod");
        record(&backend, state("shop/prod", &["a"])).await;
        let lease = acquire(&backend, &prod).await.unwrap();
        let held = acquire(&backend, &prod).await.err().unwrap();
        assert_eq!(held.kind, ErrorKind::LeaseHeld);
        for empty in ["", " \n"] {
            let refused = unlock(&backend, &prod, lease.id(), empty).await.unwrap_err();
            assert_eq!(refused.kind, ErrorKind::Usage);
        }
        unlock(&backend, &prod, "another lease", "why").await.unwrap_err();
        let ended = unlock(&backend, &prod, lease.id(), "the runner is gone")
            .await
            .unwrap();
        assert_eq!(ended.id, lease.id());
    }
}
