//! The journal: the changes that a run started or finished since the state was written.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use konverge_base::model::{
    ResourceId,
    plan::Action,
    spec::RuntimeKind,
    state::{JournalEntry, Recorded, StackState},
};

/// The body of `stacks/<identity>/journal/<epoch>/<entry>`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum JournalDocument {
    /// Entries in chronological order.
    Entries(Vec<JournalEntry>),
    /// The last entry: the lease with this epoch took over. Its existence makes the next write of the old
    /// holder fail.
    ClosedBy(u64),
}

/// Intents without a result: the change may or may not have happened.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct OpenIntents(BTreeMap<ResourceId, (Recorded, Action)>);

impl OpenIntents {
    /// Updates the open intents by one entry.
    pub(super) fn follow(&mut self, entry: &JournalEntry) {
        match entry {
            JournalEntry::Intent { recorded, action } => {
                self.0.insert(recorded.id.clone(), (recorded.clone(), *action));
            }
            JournalEntry::Done { recorded } => {
                self.0.remove(&recorded.id);
            }
            JournalEntry::Gone { id } => {
                self.0.remove(id);
            }
            // A *failed* creation may have succeeded if only the response was lost, so the intent stays
            // open. For Terraform, its own state shows whether the object was created.
            JournalEntry::Failed { id } => {
                let may_exist = |(recorded, action): &(Recorded, Action)| {
                    matches!(action, Action::Create | Action::Run)
                        && recorded.runtime == RuntimeKind::Kubernetes
                };
                if !self.0.get(id).is_some_and(may_exist) {
                    self.0.remove(id);
                }
            }
            JournalEntry::Untouched { ids } => self.0.retain(|id, _| !ids.contains(id)),
            JournalEntry::Begun { .. }
            | JournalEntry::Runtime { .. }
            | JournalEntry::Folder { .. }
            | JournalEntry::Names { .. }
            | JournalEntry::Release { .. } => {}
        }
    }

    /// Returns the ids of the resources, sorted.
    pub fn ids(&self) -> Vec<ResourceId> {
        self.0.keys().cloned().collect()
    }

    /// Adds the resources that the state lacks, so that everything that may exist is recorded. Returns true
    /// if there are open intents. Planned adoptions are not added: until they succeed, the object does not
    /// belong to the stack, and adopting it again is harmless.
    pub(super) fn add_missing_to(&self, state: &mut StackState) -> bool {
        for (recorded, action) in self.0.values() {
            if *action != Action::Adopt && state.resource(&recorded.id).is_none() {
                state.put(recorded.clone());
            }
        }
        !self.0.is_empty()
    }
}

/// Merges journal entries into the state before them, so that it contains every object of the stack that may
/// exist. Results replace or remove resources; intents without a result are added as in
/// `OpenIntents::add_missing_to`. A resource that is already recorded stays unchanged, because the old or the
/// new version may be the live one.
///
/// Any entry clears the input digest, so that the next run applies the stack again.
pub fn merge_journal(state: &mut StackState, entries: &[JournalEntry]) -> OpenIntents {
    let mut open = OpenIntents::default();
    entries.iter().for_each(|entry| open.follow(entry));
    state.apply_entries(entries);
    open.add_missing_to(state);
    if !entries.is_empty() {
        state.input_digest = None;
    }
    open
}

#[cfg(test)]
mod tests {
    use super::*;
    use konverge_base::model::{Digest, RepoPath, StackFolder, spec::RuntimeKind};
    use serde_json::json;

    fn recorded(id: &str, word: &str) -> Recorded {
        Recorded {
            id: id.parse().unwrap(),
            runtime: RuntimeKind::Kubernetes,
            cluster: None,
            attributes: json!({"word": word}).as_object().unwrap().clone().into(),
            depends_on: Vec::new(),
            extensions: serde_json::Map::new(),
            object_hash: None,
            private: konverge_base::model::state::RuntimeRecord::default(),
            sharing: konverge_base::model::spec::Sharing::default(),
        }
    }

    fn intent(id: &str, action: Action) -> JournalEntry {
        JournalEntry::Intent {
            recorded: recorded(id, "new"),
            action,
        }
    }

    #[test]
    fn a_first_apply_that_was_killed_says_where_the_stack_lies() {
        let folder = |path: &str| JournalEntry::Folder {
            folder: RepoPath::normalize(path).unwrap(),
        };
        let mut state = StackState::empty("a/b".parse().unwrap(), StackFolder::none());
        merge_journal(
            &mut state,
            &[folder("apps/a"), intent("v1:A:made", Action::Create)],
        );
        assert_eq!(state.folder.or_root().as_str(), "apps/a");
        // What a state says is as it was applied.
        merge_journal(&mut state, &[folder("apps/other")]);
        assert_eq!(state.folder.or_root().as_str(), "apps/a");
    }

    #[test]
    fn what_may_exist_is_in_the_prior() {
        let mut state = StackState::empty("a/b".parse().unwrap(), RepoPath::root());
        state.input_digest = Some(Digest::of_bytes(b"x"));
        state.put(recorded("v1:A:kept", "old"));
        state.put(recorded("v1:A:gone", "old"));
        let open = merge_journal(
            &mut state,
            &[
                intent("v1:A:made", Action::Create),
                intent("v1:A:kept", Action::Update),
                intent("v1:A:gone", Action::Delete),
                intent("v1:A:failed", Action::Create),
                intent("v1:A:foreign", Action::Adopt),
                intent("v1:A:waiting", Action::Create),
                JournalEntry::Gone {
                    id: "v1:A:gone".parse().unwrap(),
                },
                JournalEntry::Failed {
                    id: "v1:A:failed".parse().unwrap(),
                },
                JournalEntry::Untouched {
                    ids: vec!["v1:A:waiting".parse().unwrap()],
                },
            ],
        );
        let ids: Vec<_> = state.resources.iter().map(|r| r.id.as_str()).collect();
        assert_eq!(ids, ["v1:A:failed", "v1:A:kept", "v1:A:made"]);
        let kept = state.resource(&"v1:A:kept".parse().unwrap()).unwrap();
        assert_eq!(kept.attributes["word"], "old");
        let open: Vec<_> = open.ids().iter().map(ToString::to_string).collect();
        assert_eq!(open, ["v1:A:failed", "v1:A:foreign", "v1:A:kept", "v1:A:made"]);
        assert_eq!(state.input_digest, None);
    }

    #[test]
    fn entries_survive_being_written() {
        let document = JournalDocument::Entries(vec![
            intent("v1:A:x", Action::Create),
            JournalEntry::Runtime {
                key: "tf".into(),
                value: json!({"$age": "x"}),
            },
        ]);
        let text = serde_json::to_string(&document).unwrap();
        assert_eq!(serde_json::from_str::<JournalDocument>(&text).unwrap(), document);
        let closed = serde_json::to_string(&JournalDocument::ClosedBy(3)).unwrap();
        assert_eq!(
            serde_json::from_str::<JournalDocument>(&closed).unwrap(),
            JournalDocument::ClosedBy(3)
        );
    }

    #[test]
    fn a_failed_creation_of_a_kubernetes_object_alone_may_have_succeeded() {
        for (action, runtime, stays_open) in [
            (Action::Create, RuntimeKind::Kubernetes, true),
            (Action::Update, RuntimeKind::Kubernetes, false),
            (Action::Create, RuntimeKind::Terraform, false),
            (Action::Delete, RuntimeKind::Terraform, false),
        ] {
            let id: ResourceId = "v1:A:x".parse().unwrap();
            let recorded = Recorded {
                runtime,
                ..recorded("v1:A:x", "new")
            };
            let mut open = OpenIntents::default();
            open.follow(&JournalEntry::Intent { recorded, action });
            open.follow(&JournalEntry::Failed { id: id.clone() });
            let expected = if stays_open { vec![id] } else { Vec::new() };
            assert_eq!(open.ids(), expected, "{action:?} {runtime:?}");
        }
    }

    #[test]
    fn an_open_intent_is_added_once_and_an_adoption_is_not() {
        let mut state = StackState::empty("a/b".parse().unwrap(), RepoPath::root());
        assert!(!OpenIntents::default().add_missing_to(&mut state));
        let mut open = OpenIntents::default();
        open.follow(&intent("v1:A:foreign", Action::Adopt));
        assert!(open.add_missing_to(&mut state), "it is open nevertheless");
        assert!(state.resources.is_empty());
        open.follow(&intent("v1:A:made", Action::Create));
        assert!(open.add_missing_to(&mut state));
        assert_eq!(state.resources, [recorded("v1:A:made", "new")]);
        state.put(recorded("v1:A:made", "old"));
        assert!(open.add_missing_to(&mut state));
        assert_eq!(state.resources, [recorded("v1:A:made", "old")]);
        let done = JournalEntry::Done {
            recorded: recorded("v1:A:made", "new"),
        };
        open.follow(&done);
        open.follow(&JournalEntry::Untouched {
            ids: vec!["v1:A:foreign".parse().unwrap()],
        });
        assert!(!open.add_missing_to(&mut state));
    }

    #[test]
    fn a_journal_of_results_alone_leaves_nothing_open_and_clears_the_digest() {
        let applied = || {
            let mut state = StackState::empty("a/b".parse().unwrap(), RepoPath::root());
            state.input_digest = Some(Digest::of_bytes(b"x"));
            state
        };
        let mut state = applied();
        assert!(merge_journal(&mut state, &[]).ids().is_empty());
        assert_eq!(state, applied());
        let gone = JournalEntry::Gone {
            id: "v1:A:gone".parse().unwrap(),
        };
        assert!(merge_journal(&mut state, &[gone]).ids().is_empty());
        assert_eq!(state.input_digest, None);
    }
}
