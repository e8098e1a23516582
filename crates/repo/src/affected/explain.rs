//! Explains why a stack is affected: for every changed file the shortest chain of imports from it to the stack.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap, HashSet, btree_map::Entry},
    hash::Hash,
    sync::{Arc, Mutex, PoisonError},
};

use super::{Analysis, WorkspaceInput, graph::NodeId, resolve::ResolvedImport, stack_inputs::StackInputs};
use crate::konfig::Changes;
use konverge_base::model::{
    Digest, RepoPath,
    affected::{InputKind, InputReason},
    file_source::BlobId,
};

/// The maximum number of reasons per stack, those with the shortest chains. If a change affects everything, a complete
/// list would not help the reader.
pub(super) const MAX_REASONS: usize = 50;

/// The maximum number of files in all chains of a stack together. The first chain is always complete.
const MAX_LINKS: usize = 2000;

/// The differences between two analyses.
pub(super) struct AnalysisDiff<'a> {
    base: &'a Analysis,
    head: &'a Analysis,
    changed: Changed,
    before: Side<'a>,
    after: Side<'a>,
}

/// The paths whose entries differ between the two revisions.
struct Changed {
    paths: HashSet<RepoPath>,
    /// The paths sorted by name, so that the files of a folder are adjacent.
    sorted: Vec<RepoPath>,
    /// The paths below a folder whose name ends in `.k`: to KCL such a folder looks like a file.
    odd: Vec<RepoPath>,
}

impl Changed {
    fn from_paths(paths: HashSet<RepoPath>) -> Self {
        let mut sorted: Vec<RepoPath> = paths.iter().cloned().collect();
        sorted.sort();
        let odd = sorted
            .iter()
            .filter(|path| path.as_str().contains(".k/"))
            .cloned()
            .collect();
        Self { paths, sorted, odd }
    }

    fn contains(&self, path: &RepoPath) -> bool {
        self.paths.contains(path)
    }

    /// Returns the path itself if it changed, then all changed paths below it, by name.
    fn paths_below(&self, path: &RepoPath) -> impl Iterator<Item = &RepoPath> {
        let below = if path.is_root() {
            String::new()
        } else {
            format!("{path}/", path = path.as_str())
        };
        let start = self
            .sorted
            .partition_point(|other| other.as_str() < below.as_str());
        let own = self.paths.get(path).filter(|_| !path.is_root());
        let inside = self.sorted[start..].iter();
        own.into_iter()
            .chain(inside.take_while(move |other| other.as_str().starts_with(&below)))
    }
}

/// The nodes of one revision that are missing or different in the other revision.
struct Side<'a> {
    analysis: &'a Analysis,
    differs: Vec<bool>,
    /// The nodes that the other revision does not have at all.
    new: Vec<bool>,
    /// The number of changed files after which the search from an entry ends. Some of them are entries and are skipped
    /// later, so it is larger than the number of reasons.
    enough: usize,
    reached: Mutex<HashMap<NodeId, Arc<Reach>>>,
}

/// The changed files that an entry reaches. Each step points to the step before it, so memory is proportional to the
/// visited part of the graph. Full chains are built only for the reported reasons.
#[derive(Default)]
struct Reach {
    steps: Vec<Step>,
    found: Vec<ImportChain>,
}

/// A visited node.
struct Step {
    /// The previous step, and the file of its node that imports this one; `None` for the entry.
    from: Option<(usize, RepoPath)>,
    /// The number of imports between the entry and this node.
    length: usize,
}

/// A changed file that an entry reaches.
struct ImportChain {
    kind: InputKind,
    path: RepoPath,
    /// The file that reads the changed file while it is evaluated, if the changed file is data.
    reader: Option<RepoPath>,
    step: usize,
}

impl Reach {
    /// Returns the number of files in the chain of a changed file.
    fn length(&self, found: &ImportChain) -> usize {
        1 + usize::from(found.reader.is_some()) + self.steps[found.step].length
    }

    /// Returns the files through which the entry reaches a changed file: that file first, the entry last.
    fn chain<'s>(&'s self, found: &'s ImportChain) -> impl Iterator<Item = &'s RepoPath> {
        let mut at = found.step;
        let importers = std::iter::from_fn(move || {
            let (before, importer) = self.steps[at].from.as_ref()?;
            at = *before;
            Some(importer)
        });
        [&found.path].into_iter().chain(&found.reader).chain(importers)
    }
}

/// The chain from a changed file to a stack.
enum ChainEnd {
    /// The changed file is one of the stack's own files. Holds the chain.
    Own(Vec<RepoPath>),
    /// An entry reaches the changed file. Holds the index in [`Reach::found`].
    Reached(Arc<Reach>, usize),
}

impl ChainEnd {
    /// Returns the number of files in the chain, including the stack's folder.
    fn length(&self) -> usize {
        match self {
            Self::Own(chain) => chain.len(),
            Self::Reached(reach, at) => reach.length(&reach.found[*at]) + 1,
        }
    }

    fn chain<'s>(&'s self, folder: &'s RepoPath) -> Box<dyn Iterator<Item = &'s RepoPath> + 's> {
        match self {
            Self::Own(chain) => Box::new(chain.iter()),
            Self::Reached(reach, at) => Box::new(reach.chain(&reach.found[*at]).chain([folder])),
        }
    }

    /// Returns true if this chain is shorter than another one, or equally long and earlier by name.
    fn is_before(&self, other: &Self, folder: &RepoPath) -> bool {
        let by_names = || self.chain(folder).cmp(other.chain(folder));
        self.length().cmp(&other.length()).then_with(by_names).is_lt()
    }
}

impl<'a> AnalysisDiff<'a> {
    pub(super) fn new(base: &'a Analysis, head: &'a Analysis) -> Self {
        Self {
            base,
            head,
            changed: Changed::from_paths(Changes::compute(&base.tree, &head.tree).paths),
            before: Side::compare(base, head),
            after: Side::compare(head, base),
        }
    }

    /// Returns the reasons for one stack, given by its indices in both revisions.
    pub(super) fn reasons(&self, before: usize, after: usize) -> Vec<InputReason> {
        let (old, new) = (&self.base.inputs[before], &self.head.inputs[after]);
        let folder = &self.head.layout.stacks[after].folder;
        let mut found: BTreeMap<(RepoPath, InputKind), ChainEnd> = BTreeMap::new();
        let mut add_way = |path: RepoPath, kind: InputKind, way: ChainEnd| match found.entry((path, kind)) {
            Entry::Vacant(place) => {
                place.insert(way);
            }
            Entry::Occupied(mut kept) if way.is_before(kept.get(), folder) => {
                kept.insert(way);
            }
            Entry::Occupied(_) => {}
        };
        let mut add =
            |kind: InputKind, chain: Vec<RepoPath>| add_way(chain[0].clone(), kind, ChainEnd::Own(chain));
        for (kind, path, _) in symmetric_difference(&old.files, &new.files) {
            add(*kind, vec![path.clone(), folder.clone()]);
        }
        let config = RepoPath::root().child("konverge.yaml");
        if self.base.rules.version() != self.head.rules.version() {
            add(InputKind::Compiler, vec![config.clone(), folder.clone()]);
        }
        if self.base.config[before] != self.head.config[after] {
            add(InputKind::Config, vec![config.clone(), folder.clone()]);
        }
        let workspaces = [&self.base.workspaces[before], &self.head.workspaces[after]];
        if workspaces[0] != workspaces[1] {
            let inputs = workspaces.into_iter().flatten();
            let secrets = inputs.clone().flat_map(|input| &input.secret_files);
            let secrets: BTreeSet<_> = secrets.filter(|file| self.changed.contains(file)).collect();
            for file in &secrets {
                add(InputKind::Data, vec![(*file).clone(), folder.clone()]);
            }
            let files: Vec<_> = inputs.flat_map(|input: &WorkspaceInput| &input.files).collect();
            let edited = files.into_iter().rev().find(|file| self.changed.contains(file));
            match edited {
                Some(file) => add(InputKind::Workspace, vec![file.clone(), folder.clone()]),
                // The stack's own `kcl.mod` or a secret file is a reason already. Otherwise konverge.yaml names another
                // workspace.
                None if has_other_modules(old, new) || !secrets.is_empty() => {}
                None => add(InputKind::Config, vec![config.clone(), folder.clone()]),
            }
        }
        let parts: [(InputKind, Digest, Digest); 2] = [
            (InputKind::Settings, old.settings, new.settings),
            (InputKind::Options, old.options, new.options),
        ];
        let edited = symmetric_difference(&old.settings_files, &new.settings_files).into_iter();
        let edited: Vec<_> = edited.map(|(path, _)| path).collect();
        for (kind, was, is) in parts {
            if was == is {
                continue;
            }
            let module = has_other_modules(old, new);
            match (edited.is_empty(), module) {
                (false, _) => edited
                    .iter()
                    .for_each(|path| add(kind, vec![(*path).clone(), folder.clone()])),
                // The changed `kcl.mod` was added as a reason above.
                (true, true) => {}
                // No settings file changed, but they are read in another order, which konverge.yaml decides.
                (true, false) => add(InputKind::Config, vec![config.clone(), folder.clone()]),
            }
        }
        for (analysis, at) in [(self.head, after), (self.base, before)] {
            for (readable, reader) in analysis.shared_reads(at) {
                for path in self.changed.paths_below(&readable) {
                    if *path != reader {
                        add(
                            InputKind::Data,
                            vec![path.clone(), reader.clone(), folder.clone()],
                        );
                    }
                }
            }
        }
        // Both revisions are searched: a removed file is reachable only at the base, an added one only at the head.
        for (side, entries) in [(&self.after, &new.entries), (&self.before, &old.entries)] {
            for entry in entries {
                let reach = side.find_chains(*entry, &self.changed);
                for (at, reached) in reach.found.iter().enumerate() {
                    let way = ChainEnd::Reached(Arc::clone(&reach), at);
                    add_way(reached.path.clone(), reached.kind, way);
                }
            }
        }
        // A file that is both an entry and imported is reported as an entry only.
        let is_entry = |path: &RepoPath| found.contains_key(&(path.clone(), InputKind::Entry));
        let told = found
            .iter()
            .filter(|((path, kind), _)| *kind == InputKind::Entry || !is_entry(path));
        let mut told: Vec<_> = told.collect();
        told.sort_by(|(a, way_a), (b, way_b)| (way_a.length(), a).cmp(&(way_b.length(), b)));
        told.truncate(MAX_REASONS);
        let mut links = 0;
        let within_bounds = told.into_iter().enumerate().take_while(|(at, (_, way))| {
            links += way.length();
            *at == 0 || links <= MAX_LINKS
        });
        within_bounds
            .map(|(_, ((path, kind), way))| InputReason {
                path: path.clone(),
                kind: *kind,
                chain: way.chain(folder).cloned().collect(),
            })
            .collect()
    }
}

/// Returns the items that only one of two lists has. The lists are equal for most stacks.
fn symmetric_difference<'a, T: Eq + Hash>(old: &'a [T], new: &'a [T]) -> Vec<&'a T> {
    if old == new {
        return Vec::new();
    }
    let (was, is): (HashSet<_>, HashSet<_>) = (old.iter().collect(), new.iter().collect());
    was.symmetric_difference(&is).copied().collect()
}

fn has_other_modules(old: &StackInputs, new: &StackInputs) -> bool {
    let is_module = |(kind, ..): &&(InputKind, RepoPath, BlobId)| *kind == InputKind::Module;
    let (old, new) = (old.files.iter(), new.files.iter());
    old.filter(is_module).ne(new.filter(is_module))
}

impl<'a> Side<'a> {
    fn compare(analysis: &'a Analysis, other: &Analysis) -> Self {
        // A graph that was derived from another revision may still contain unreachable nodes, which do not count.
        let there = other.reachable_nodes();
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
        let files = |entry: &NodeId| analysis.graph.nodes[*entry].files.len();
        let own = analysis
            .inputs
            .iter()
            .map(|inputs| inputs.entries.iter().map(files).sum());
        let most: usize = own.max().unwrap_or(0);
        Self {
            analysis,
            differs,
            new: counterparts.iter().map(Option::is_none).collect(),
            enough: MAX_REASONS + most,
            reached: Mutex::default(),
        }
    }

    /// Returns the changed files that an entry reaches, each by its shortest chain; only the nearest ones if there are
    /// too many to report. Only differing nodes are visited, so the time is proportional to the change.
    fn find_chains(&self, entry: NodeId, changed: &Changed) -> Arc<Reach> {
        let known = |reached: &HashMap<NodeId, Arc<Reach>>| reached.get(&entry).map(Arc::clone);
        if let Some(known) = known(&self.reached.lock().unwrap_or_else(PoisonError::into_inner)) {
            return known;
        }
        let reach = Arc::new(self.walk(entry, changed));
        let mut reached = self.reached.lock().unwrap_or_else(PoisonError::into_inner);
        reached.insert(entry, Arc::clone(&reach));
        reach
    }

    fn walk(&self, entry: NodeId, changed: &Changed) -> Reach {
        let mut reach = Reach::default();
        if !self.differs[entry] {
            return reach;
        }
        let graph = &self.analysis.graph;
        let mut seen = HashSet::from([entry]);
        // The node of each step. Breadth-first search adds the nearest nodes first.
        let mut nodes = vec![entry];
        reach.steps.push(Step {
            from: None,
            length: 0,
        });
        // The found files whose chains are certainly the shortest.
        let mut near: HashSet<RepoPath> = HashSet::new();
        let (mut counted, mut level_found) = (0, 0);
        let mut at = 0;
        while at < nodes.len() {
            if at > 0 && reach.steps[at].length > reach.steps[at - 1].length {
                // When a new level begins, the level before the last one is complete: files that are found from now on
                // have longer chains.
                near.extend(
                    reach.found[counted..level_found]
                        .iter()
                        .map(|found| found.path.clone()),
                );
                (counted, level_found) = (level_found, reach.found.len());
                if near.len() >= self.enough {
                    break;
                }
            }
            self.look_at(nodes[at], at, changed, &mut reach.found);
            let node = &graph.nodes[nodes[at]];
            let length = reach.steps[at].length + 1;
            for (to, importer) in &node.edges {
                if self.differs[*to] && seen.insert(*to) {
                    nodes.push(*to);
                    let from = Some((at, node.files[*importer].path.clone()));
                    reach.steps.push(Step { from, length });
                }
            }
            at += 1;
        }
        reach
    }

    /// Adds the changed files of one node.
    fn look_at(&self, id: NodeId, step: usize, changed: &Changed, found: &mut Vec<ImportChain>) {
        let node = &self.analysis.graph.nodes[id];
        let mut add = |kind: InputKind, path: &RepoPath, reader: Option<&RepoPath>| {
            found.push(ImportChain {
                kind,
                path: path.clone(),
                reader: reader.cloned(),
                step,
            });
        };
        let kind = if step == 0 {
            InputKind::Entry
        } else {
            InputKind::Import
        };
        for file in node.files.iter().filter(|file| changed.contains(&file.path)) {
            add(kind, &file.path, None);
        }
        for link in node.links.iter().filter(|link| changed.contains(link)) {
            add(InputKind::Import, link, None);
        }
        let mut is_broken = false;
        if let ResolvedImport::Package(folder) | ResolvedImport::EntryFolder(folder) = &node.place {
            for path in changed.odd.iter().filter(|path| is_broken_child(path, folder)) {
                add(InputKind::Import, path, None);
                is_broken = true;
            }
        }
        // An added or removed folder hides or uncovers a file of the same name, so any file in it is a reason.
        if let ResolvedImport::Package(folder) = &node.place
            && self.new[id]
            && !is_broken
            && let Some(path) = changed.paths_below(folder).next()
        {
            add(InputKind::Import, path, None);
        }
        for (folder, reader) in &node.data {
            let reader = &node.files[*reader].path;
            for path in changed.paths_below(folder) {
                if !node.files.iter().any(|file| file.path == *path) {
                    add(InputKind::Data, path, Some(reader));
                }
            }
        }
    }
}

/// Returns true if a changed path is inside a folder that is named like a KCL file in a package.
fn is_broken_child(path: &RepoPath, folder: &RepoPath) -> bool {
    path.is_within(folder)
        && path.as_str()[folder.as_str().len()..]
            .trim_start_matches('/')
            .split_once('/')
            .is_some_and(|(child, _)| child.ends_with(".k"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(text: &str) -> RepoPath {
        RepoPath::normalize(text).unwrap()
    }

    #[test]
    fn a_folder_named_like_a_file_is_a_broken_child() {
        for (changed, is_broken) in [
            ("lib/a.k/x", true),
            ("lib/a.k/deep/x", true),
            ("lib/a/x.k", false),
            ("lib/a.k", false),
            ("other/a.k/x", false),
        ] {
            assert_eq!(
                is_broken_child(&path(changed), &path("lib")),
                is_broken,
                "{changed}"
            );
        }
        assert!(is_broken_child(&path("a.k/x"), &RepoPath::root()));
    }

    #[test]
    fn the_length_of_a_chain_is_the_number_of_its_files() {
        let steps = vec![
            Step {
                from: None,
                length: 0,
            },
            Step {
                from: Some((0, path("stack/main.k"))),
                length: 1,
            },
            Step {
                from: Some((1, path("lib/a.k"))),
                length: 2,
            },
        ];
        let found = |step: usize, reader: Option<&str>| ImportChain {
            kind: InputKind::Import,
            path: path("lib/changed"),
            reader: reader.map(path),
            step,
        };
        let all = vec![
            found(0, None),
            found(1, None),
            found(2, None),
            found(2, Some("lib/b.k")),
        ];
        let reach = Arc::new(Reach { steps, found: all });
        let folder = path("stack");
        let ends = (0..reach.found.len()).map(|at| ChainEnd::Reached(Arc::clone(&reach), at));
        let ends: Vec<_> = ends.collect();
        let lengths: Vec<_> = ends.iter().map(ChainEnd::length).collect();
        let files: Vec<_> = ends.iter().map(|end| end.chain(&folder).count()).collect();
        assert_eq!(lengths, [2, 3, 4, 5]);
        assert_eq!(lengths, files);
        assert!(ends[0].is_before(&ends[1], &folder) && !ends[1].is_before(&ends[0], &folder));
        let own = ChainEnd::Own(vec![path("stack/main.k")]);
        assert!(own.is_before(&ends[0], &folder));
    }
}
