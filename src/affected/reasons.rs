//! Why a stack is affected: for every changed file the shortest chain of imports from it to the stack.

use std::{
    collections::{BTreeMap, HashMap, HashSet, VecDeque},
    hash::Hash,
    sync::{Mutex, PoisonError},
};

use super::{Analysis, data, graph::NodeId, resolve::Place};
use crate::{
    konfig::Changes,
    model::{
        Digest, RepoPath,
        affected::{InputKind, Reason},
    },
};

/// A stack names so many reasons at most, the shortest chains first: a change of everything needs no list of it all.
pub(super) const MAX_REASONS: usize = 50;

/// What differs between two analyses.
pub(super) struct Difference<'a> {
    base: &'a Analysis,
    head: &'a Analysis,
    /// Every path whose entry differs.
    changed: HashSet<RepoPath>,
    before: Side<'a>,
    after: Side<'a>,
}

/// One revision's nodes that the other lacks or has otherwise.
struct Side<'a> {
    analysis: &'a Analysis,
    differs: Vec<bool>,
    /// Those that the other revision does not have at all.
    new: Vec<bool>,
    reached: Mutex<HashMap<NodeId, std::sync::Arc<Vec<Found>>>>,
}

/// A changed file and the files through which an entry reaches it, the file first, the entry last.
#[derive(Clone)]
struct Found {
    kind: InputKind,
    chain: Vec<RepoPath>,
}

impl<'a> Difference<'a> {
    pub(super) fn between(base: &'a Analysis, head: &'a Analysis) -> Self {
        Self {
            base,
            head,
            changed: Changes::between(&base.tree, &head.tree).paths,
            before: Side::of(base, head),
            after: Side::of(head, base),
        }
    }

    /// The reasons for one stack, by its positions in both revisions.
    pub(super) fn reasons(&self, before: usize, after: usize) -> Vec<Reason> {
        let (old, new) = (&self.base.inputs[before], &self.head.inputs[after]);
        let folder = &self.head.layout.stacks[after].folder;
        let mut found: BTreeMap<(RepoPath, InputKind), Vec<RepoPath>> = BTreeMap::new();
        let mut add = |kind: InputKind, chain: Vec<RepoPath>| {
            let kept = found
                .entry((chain[0].clone(), kind))
                .or_insert_with(|| chain.clone());
            if (chain.len(), &chain) < (kept.len(), &*kept) {
                *kept = chain;
            }
        };
        for (kind, path, _) in differing(&old.files, &new.files) {
            add(*kind, vec![path.clone(), folder.clone()]);
        }
        let config = RepoPath::root().child("konverge.yaml");
        if self.base.rules.version() != self.head.rules.version() {
            add(InputKind::Compiler, vec![config.clone(), folder.clone()]);
        }
        if self.base.config[before] != self.head.config[after] {
            add(InputKind::Config, vec![config.clone(), folder.clone()]);
        }
        let parts: [(InputKind, Digest, Digest); 2] = [
            (InputKind::Settings, old.settings, new.settings),
            (InputKind::Options, old.options, new.options),
        ];
        let edited = differing(&old.settings_files, &new.settings_files).into_iter();
        let edited: Vec<_> = edited.map(|(path, _)| path).collect();
        for (kind, was, is) in parts {
            if was == is {
                continue;
            }
            let module = found_module(&old.files, &new.files);
            match (edited.is_empty(), module) {
                (false, _) => edited
                    .iter()
                    .for_each(|path| add(kind, vec![(*path).clone(), folder.clone()])),
                // A changed `kcl.mod` says so itself, above.
                (true, true) => {}
                // The same files mean something else: another reading order was configured.
                (true, false) => add(InputKind::Config, vec![config.clone(), folder.clone()]),
            }
        }
        for (side, entries) in [(&self.after, &new.entries), (&self.before, &old.entries)] {
            for entry in entries {
                for reached in side.reach(*entry, &self.changed).iter() {
                    let mut chain = reached.chain.clone();
                    chain.push(folder.clone());
                    add(reached.kind, chain);
                }
            }
        }
        for (analysis, entries) in [(self.head, &new.entries), (self.base, &old.entries)] {
            let shared = data::shared(&analysis.tree, &analysis.rules, &analysis.graph, entries);
            for (readable, reader) in shared {
                for path in self.changed.iter().filter(|path| path.is_within(&readable)) {
                    if *path != reader {
                        add(
                            InputKind::Data,
                            vec![path.clone(), reader.clone(), folder.clone()],
                        );
                    }
                }
            }
        }
        // A file that is imported as well as an entry is the entry.
        let mut reasons: Vec<Reason> = found
            .into_iter()
            .map(|((path, kind), chain)| Reason { path, kind, chain })
            .collect();
        reasons.sort_by(|a, b| (a.chain.len(), a).cmp(&(b.chain.len(), b)));
        let entries: HashSet<_> = reasons
            .iter()
            .filter(|reason| reason.kind == InputKind::Entry)
            .map(|reason| reason.path.clone())
            .collect();
        reasons.retain(|reason| reason.kind == InputKind::Entry || !entries.contains(&reason.path));
        reasons.truncate(MAX_REASONS);
        reasons
    }
}

/// What only one of two lists has. Of most stacks both have the same.
fn differing<'a, T: Eq + Hash>(old: &'a [T], new: &'a [T]) -> Vec<&'a T> {
    if old == new {
        return Vec::new();
    }
    let (was, is): (HashSet<_>, HashSet<_>) = (old.iter().collect(), new.iter().collect());
    was.symmetric_difference(&is).copied().collect()
}

fn found_module(
    old: &[(InputKind, RepoPath, crate::model::source::BlobId)],
    new: &[(InputKind, RepoPath, crate::model::source::BlobId)],
) -> bool {
    let modules = |files: &[(InputKind, RepoPath, crate::model::source::BlobId)]| {
        files
            .iter()
            .filter(|(kind, ..)| *kind == InputKind::Module)
            .cloned()
            .collect::<Vec<_>>()
    };
    modules(old) != modules(new)
}

impl<'a> Side<'a> {
    fn of(analysis: &'a Analysis, other: &Analysis) -> Self {
        // A graph that was reached from another one may still hold what nothing reaches any more.
        let there = other.reached();
        let counterparts: Vec<Option<NodeId>> = (0..analysis.graph.nodes.len())
            .map(|id| {
                let (context, place) = analysis.graph.key(id);
                other
                    .graph
                    .counterpart(context, place, id)
                    .filter(|id| there.contains(id))
            })
            .collect();
        let differs = counterparts
            .iter()
            .zip(analysis.nodes.iter())
            .map(|(counterpart, digest)| {
                counterpart.is_none_or(|counterpart| other.nodes[counterpart] != *digest)
            })
            .collect();
        Self {
            analysis,
            differs,
            new: counterparts.iter().map(Option::is_none).collect(),
            reached: Mutex::default(),
        }
    }

    /// Every changed file that an entry reaches, by the shortest way. Only what differs is walked: the cost follows the
    /// change.
    fn reach(&self, entry: NodeId, changed: &HashSet<RepoPath>) -> std::sync::Arc<Vec<Found>> {
        if let Some(known) = self
            .reached
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .get(&entry)
        {
            return std::sync::Arc::clone(known);
        }
        let graph = &self.analysis.graph;
        let mut found = Vec::new();
        let mut queue = VecDeque::new();
        let mut seen = HashSet::new();
        if self.differs[entry] {
            queue.push_back((entry, Vec::<RepoPath>::new()));
            seen.insert(entry);
        }
        while let Some((id, way)) = queue.pop_front() {
            let node = &graph.nodes[id];
            let kind = if way.is_empty() {
                InputKind::Entry
            } else {
                InputKind::Import
            };
            let chain = |first: &[&RepoPath]| -> Vec<RepoPath> {
                first
                    .iter()
                    .map(|path| (*path).clone())
                    .chain(way.iter().cloned())
                    .collect()
            };
            for file in node.files.iter().filter(|file| changed.contains(&file.path)) {
                found.push(Found {
                    kind,
                    chain: chain(&[&file.path]),
                });
            }
            for link in node.links.iter().filter(|link| changed.contains(*link)) {
                found.push(Found {
                    kind: InputKind::Import,
                    chain: chain(&[link]),
                });
            }
            let before = found.len();
            if let Place::Package(folder) | Place::EntryFolder(folder) = &node.place {
                let below = changed
                    .iter()
                    .filter(|path| path.as_str().ends_with(".k") || path.as_str().contains(".k/"));
                for path in below.filter(|path| is_broken_child(path, folder)) {
                    found.push(Found {
                        kind: InputKind::Import,
                        chain: chain(&[path]),
                    });
                }
            }
            // A folder that came or went beats or uncovers a file of its name, whatever lies in it.
            if let Place::Package(folder) = &node.place
                && self.new[id]
                && found.len() == before
                && let Some(path) = changed.iter().filter(|path| path.is_within(folder)).min()
            {
                found.push(Found {
                    kind: InputKind::Import,
                    chain: chain(&[path]),
                });
            }
            for (folder, reader) in &node.data {
                let reader = &node.files[*reader].path;
                for path in changed.iter().filter(|path| path.is_within(folder)) {
                    if !node.files.iter().any(|file| file.path == *path) {
                        found.push(Found {
                            kind: InputKind::Data,
                            chain: chain(&[path, reader]),
                        });
                    }
                }
            }
            for (to, importer) in &node.edges {
                if self.differs[*to] && seen.insert(*to) {
                    queue.push_back((*to, chain(&[&node.files[*importer].path])));
                }
            }
        }
        let found = std::sync::Arc::new(found);
        self.reached
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .insert(entry, std::sync::Arc::clone(&found));
        found
    }
}

/// Whether a changed path makes a child of a package that is named like a file but is none.
fn is_broken_child(path: &RepoPath, folder: &RepoPath) -> bool {
    path.is_within(folder)
        && path.as_str()[folder.as_str().len()..]
            .trim_start_matches('/')
            .split_once('/')
            .is_some_and(|(child, _)| child.ends_with(".k"))
}
