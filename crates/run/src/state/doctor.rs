//! `state doctor`: checks that the store keeps its guarantees, and that every document can be read.

use std::collections::{BTreeMap, HashMap, hash_map::Entry};

use serde::Serialize;

use crate::{StateBackend, state_backend};
use konverge_base::{
    error::{UserError, chain},
    model::{ResourceId, StackId, claim::Claim},
};
use konverge_report::plural;
use konverge_state::{IndexEntry, IndexedStates, KeyServiceTrial, Sealing, Versioned, store};

/// The result of one check.
#[derive(Debug, Clone, Serialize)]
pub struct StateFinding {
    /// The part that was checked, for example the store or a stack.
    pub what: String,
    /// True if the check found no problem.
    pub well: bool,
    /// The result as a sentence.
    pub says: String,
}

/// The mode of the check of the index.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IndexCheck {
    /// The index is compared with the states.
    Compare,
    /// The index is also written again from the states.
    Rebuild,
}

/// Checks the four primitives of the store, the newest documents of every stack, and the index against the states. With
/// [`IndexCheck::Rebuild`], the index is also rebuilt.
///
/// # Errors
/// Only an error that prevents the checks themselves. A failed check is a finding.
pub async fn doctor(backend: &StateBackend, index: IndexCheck) -> Result<Vec<StateFinding>, UserError> {
    let mut findings = Vec::new();
    let mut note = |what: &str, well: bool, says: String| {
        findings.push(StateFinding {
            what: what.to_owned(),
            well,
            says,
        });
    };
    match store::probe(backend.states.store()).await {
        Ok(()) => note(
            "store",
            true,
            format!(
                "{}: store test passed (create, refuse, read, list, delete)",
                backend.states.store().url()
            ),
        ),
        Err(error) => {
            // Without a working store, every further check would fail for the same reason.
            note("store", false, chain(&error));
            return Ok(findings);
        }
    }
    for (well, says) in encryption(backend).await? {
        note("encryption", well, says);
    }
    if let Err(error) = backend.states.existing_hash_key().await {
        note("key of the hashes", false, chain(&error));
    }
    // The states are listed without the index, because the index is checked below.
    let rebuilt = match backend.states.rebuild_index().await {
        Ok(rebuilt) => rebuilt,
        Err(error) => {
            note("states", false, chain(&error));
            return Ok(findings);
        }
    };
    let mut owners = Owners::default();
    for (stack, entry) in &rebuilt.entries {
        let loaded = backend.states.load(stack).await;
        let state_is_readable = loaded.is_ok();
        if let Ok(Some(state)) = &loaded {
            for (is_certain, says) in owners.add(stack, state) {
                note(stack.as_str(), !is_certain, says);
            }
        }
        match loaded {
            Err(error) => note(stack.as_str(), false, chain(&error)),
            Ok(Some(state)) if !state.pending.is_empty() => note(
                stack.as_str(),
                false,
                format!(
                    "a run ended in the middle: the outcome of {} is unknown; the next apply checks the live resources",
                    plural(state.pending.len(), "resource")
                ),
            ),
            Ok(_) => {}
        }
        match backend.states.holder(stack).await {
            Ok(Some(holder)) => {
                let says = format!(
                    "lease {} is held by {} ({}); if that run is gone: `konverge state unlock {stack} --lease {} --reason TEXT`",
                    holder.id, holder.writer.run, holder.writer.actor, holder.id
                );
                note(stack.as_str(), true, says);
            }
            Ok(None) => {}
            // An unreadable state was already reported above.
            Err(error) if state_is_readable => note(stack.as_str(), false, chain(&error)),
            Err(_) => {}
        }
        let unreadable: Vec<_> = match backend.states.history(stack).await {
            Ok(lines) => lines
                .into_iter()
                .filter(|line| line.document.is_err())
                .map(|line| line.serial)
                .collect(),
            Err(_) => Vec::new(),
        };
        if !unreadable.is_empty() && entry.is_known() {
            note(
                stack.as_str(),
                false,
                format!("cannot be read: {}", serials(&unreadable)),
            );
        }
    }
    if let Some(more @ 1..) = owners.uncertain.checked_sub(NAMED) {
        note(
            "objects",
            true,
            format!("{more} more have a type and an id that another stack records"),
        );
    }
    let differing = differing_entries(&*backend.states.read_all().await?, &rebuilt);
    if differing.is_empty() {
        note(
            "index",
            true,
            format!(
                "{}, as recorded in the states",
                plural(rebuilt.entries.len(), "stack")
            ),
        );
    } else {
        note(
            "index",
            false,
            format!("differs from the states for {}", differing.join(", ")),
        );
    }
    // Written last, so that the findings describe the index as it was before.
    if index == IndexCheck::Rebuild {
        backend.states.maintain_index(&rebuilt).await?;
        note("index", true, "written again from the states".to_owned());
    }
    Ok(findings)
}

/// Checks which recipients can decrypt which documents, and which key services respond.
async fn encryption(backend: &StateBackend) -> Result<Vec<(bool, String)>, UserError> {
    let states = &backend.states;
    let (data_keys, mut says) = (states.list_data_keys().await?, Vec::new());
    let tried = states.try_key_services().await?;
    // If no key service responds, it is unknown which data key is the newest.
    let is_silent = !tried.is_empty() && tried.iter().all(|trial| trial.failure.is_some());
    for KeyServiceTrial { service, failure } in tried {
        says.push(match failure {
            None => (true, format!("`{service}` unwraps the data key")),
            Some(why) => (false, format!("`{service}`: {why}")),
        });
    }
    if let Some(newest) = data_keys.last() {
        let former = states.former_services(&newest.by);
        if !former.is_empty() {
            says.push((false, state_backend::former_services_text(&former)));
        }
    }
    let mut counts: BTreeMap<Sealing, usize> = BTreeMap::new();
    for stack in states.stacks().await? {
        for sealing in states.sealings(&stack).await? {
            *counts.entry(sealing).or_default() += 1;
        }
    }
    let today = match (backend.is_encrypted, states.sealer()) {
        (true, Some(sealer)) => Some(Sealing::Recipients(sealer.recipients())),
        (true, None) => None,
        (false, _) => Some(Sealing::Plain),
    };
    for (sealing, count) in counts {
        let documents = plural(count, "state document");
        let is_today = today.as_ref() == Some(&sealing) || is_silent && sealing != Sealing::Plain;
        let what = match &sealing {
            Sealing::Plain if is_today => continue,
            Sealing::Plain => "not encrypted".to_owned(),
            Sealing::Unknown => "encrypted to recipients that are not recorded".to_owned(),
            Sealing::Unmarked => "encrypted, but without a mark of a key that this run accepts".to_owned(),
            Sealing::Recipients(recipients) => {
                let names = recipients.iter().map(|recipient| {
                    let data_key = data_keys.iter().find(|key| key.recipient == *recipient);
                    data_key.map_or_else(
                        || recipient.clone(),
                        |key| format!("{} ({})", key.by.join(", "), key.place),
                    )
                });
                let names: Vec<_> = names.collect();
                format!("can be decrypted by {}", names.join(", "))
            }
        };
        let way_out = match &sealing {
            _ if is_today => "",
            Sealing::Plain | Sealing::Unmarked if backend.is_encrypted => {
                "; they are read only while `state.accept_unmarked_until` is set"
            }
            _ => "; `konverge state rekey` encrypts them to `state.encrypt_to`",
        };
        says.push((is_today, format!("{documents}: {what}{way_out}")));
    }
    Ok(says)
}

/// The maximum number of possible duplicates that are listed by name.
const NAMED: usize = 20;

/// The claims of all stacks, to find objects that two stacks record.
#[derive(Default)]
struct Owners {
    /// The first owner of each claim. The flag is true if the owner shares the object with other stacks of its project.
    by_claim: HashMap<Claim, (StackId, ResourceId, bool)>,
    /// The number of objects that may be the same as an object of another stack.
    uncertain: usize,
}

impl Owners {
    /// Adds the claims of a stack. Returns the claims that another stack has, too; the flag is true if both are
    /// certainly the same object.
    fn add(&mut self, stack: &StackId, state: &Versioned) -> Vec<(bool, String)> {
        let mut found = Vec::new();
        for recorded in &state.state.resources {
            // A resource may have several claims; the last one is the most exact.
            if let Some(claim) = Claim::all_of_recorded(recorded).last() {
                // For any other claim, two accounts may use the same id for different objects.
                let is_certain = matches!(claim, Claim::Object { .. });
                let (other, id, is_shared) = match self.by_claim.entry(claim) {
                    Entry::Vacant(entry) => {
                        entry.insert((stack.clone(), recorded.id.clone(), recorded.is_shared()));
                        continue;
                    }
                    Entry::Occupied(entry) => entry.get().clone(),
                };
                let both_share = is_shared && recorded.is_shared();
                if other == *stack || (both_share && stack.is_sibling_of(other.as_str())) {
                    continue;
                }
                self.uncertain += usize::from(!is_certain);
                if !is_certain && self.uncertain > NAMED {
                    continue;
                }
                let what = if is_certain {
                    "is the same object as"
                } else {
                    "has the same type and id at its provider as"
                };
                found.push((is_certain, format!(
                    "`{}` {what} `{id}` of stack `{other}`; if it is one object, only one stack may record it: \
                     `konverge state forget`",
                    recorded.id
                )));
            }
        }
        found
    }
}

/// Formats serials: `serial 3`, `serials 3, 4`.
fn serials(numbers: &[u64]) -> String {
    let word = if numbers.len() == 1 { "serial" } else { "serials" };
    let numbers: Vec<_> = numbers.iter().map(u64::to_string).collect();
    format!("{word} {}", numbers.join(", "))
}

fn differing_entries(index: &IndexedStates, states: &IndexedStates) -> Vec<String> {
    let of_index = index.entries.iter().filter(|(_, entry)| entry.is_known());
    let recorded = |entry: &IndexEntry| (entry.serial, entry.settled_digest());
    let stale = of_index.filter(|(stack, entry)| {
        let there = states.entries.get(*stack);
        match there {
            Some(there) if !entry.open && !there.open => recorded(there) != recorded(entry),
            _ => there.and_then(IndexEntry::settled_digest) != entry.settled_digest(),
        }
    });
    let missing = states
        .entries
        .keys()
        .filter(|stack| !index.entries.contains_key(*stack));
    stale
        .map(|(stack, _)| stack)
        .chain(missing)
        .map(ToString::to_string)
        .collect()
}
