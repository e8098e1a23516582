//! Compares two revisions: a stack is affected if its digests differ.

use std::{
    cell::LazyCell,
    collections::{HashMap, HashSet},
};

use super::{
    Analysis,
    explain::{AnalysisDiff, MAX_REASONS},
    test_files,
};
use konverge_base::model::{
    RepoPath, StackId,
    affected::{Affected, AffectedStack, InputChange, InputKind, InputReason, SpecChange},
    stack::Stack,
};

impl Analysis {
    /// Returns the stacks that the change from `base` to this revision affects.
    ///
    /// Stacks are matched by identity: a stack in another folder is modified, not removed and added. A stack whose
    /// files cannot be resolved at the head is always affected. If its identity cannot be read at the head, it is
    /// matched with the stack in the same folder at the base.
    pub fn compare(&self, base: &Analysis) -> Affected {
        let mut known: HashMap<&StackId, usize> = HashMap::new();
        let mut lying: HashMap<&RepoPath, usize> = HashMap::new();
        for (at, stack) in base.layout.stacks.iter().enumerate() {
            known.entry(&stack.id).or_insert(at);
            lying.insert(&stack.folder, at);
        }
        let here = LazyCell::new(|| {
            self.layout
                .stacks
                .iter()
                .map(|stack| &stack.id)
                .collect::<HashSet<_>>()
        });
        let difference = LazyCell::new(|| AnalysisDiff::new(base, self));
        let mut met = HashSet::new();
        let mut stacks = Vec::new();
        for (at, stack) in self.layout.stacks.iter().enumerate() {
            let broken = self.inputs[at].error.is_some();
            // A stack is matched by its identity. The folder is used only if the identity is unknown, or if it changed
            // and no other stack took the old one.
            let before = known.get(&stack.id).or_else(|| {
                let same_place = lying.get(&stack.folder)?;
                let old = &base.layout.stacks[*same_place];
                let unknown = broken && !self.layout.identities_certain();
                let renamed = || stack.continues(&old.id, old.named_by) && !here.contains(&old.id);
                (unknown || renamed()).then_some(same_place)
            });
            let Some(before) = before.copied() else {
                let mut why = own_file(stack, InputKind::Stack);
                why.extend(self.unresolved(at));
                stacks.push(answer(stack, &stack.id, InputChange::Added, why));
                continue;
            };
            met.insert(before);
            let old = &base.layout.stacks[before];
            let moved = old.folder != stack.folder;
            let renamed = old.id != stack.id && !broken;
            // Stack tests are not inputs of the Spec, so the digest does not cover them.
            let tests = test_files::changed(&base.tree, old, &self.tree, stack);
            let same_inputs = base.digests[before] == self.digests[at] && tests.is_empty();
            if same_inputs && !moved && !broken && !renamed {
                continue;
            }
            let mut why = difference.reasons(before, at);
            why.extend(tests);
            // A file that moved with its stack looks changed, but its content is the same, so it is no reason.
            if moved {
                why.retain(|reason| !moved_with_stack(&reason.path, old, stack));
                why.push(InputReason {
                    path: old.manifest.clone(),
                    kind: InputKind::Moved,
                    chain: vec![old.manifest.clone(), stack.folder.clone()],
                });
            }
            if renamed {
                why.extend(self.why_renamed(base, old, stack));
            }
            why.extend(self.unresolved(at));
            why.sort_by(|a, b| (a.chain.len(), a).cmp(&(b.chain.len(), b)));
            why.dedup();
            let id = if renamed { &stack.id } else { &old.id };
            stacks.push(answer(stack, id, InputChange::Modified, why));
        }
        for (at, stack) in base.layout.stacks.iter().enumerate() {
            // A folder that still exists but no longer defines a stack was excluded, not removed.
            let left_out = self.layout.leaves_out(&stack.folder);
            if known.get(&stack.id) == Some(&at) && !met.contains(&at) && !left_out {
                let why = own_file(stack, InputKind::Stack);
                stacks.push(answer(stack, &stack.id, InputChange::Removed, why));
            }
        }
        self.add_readers(&mut stacks);
        stacks.sort_by(|a, b| (&a.stack, &a.id).cmp(&(&b.stack, &b.id)));
        Affected {
            version: 1,
            base: base.tree.source().commit().cloned(),
            head: self.tree.source().commit().cloned(),
            stacks,
        }
    }

    /// Adds the stacks that read outputs of affected stacks, directly or indirectly. Their chain begins at the stack
    /// that they read.
    fn add_readers(&self, stacks: &mut Vec<AffectedStack>) {
        let readers = self.layout.readers();
        if readers.is_empty() {
            return;
        }
        let mut known: HashMap<StackId, usize> = HashMap::new();
        known.extend(
            stacks
                .iter()
                .enumerate()
                .map(|(at, stack)| (stack.id.clone(), at)),
        );
        // The list grows while it is walked, so that readers of readers are found as well.
        let mut at = 0;
        while at < stacks.len() {
            let (id, folder) = (stacks[at].id.clone(), stacks[at].stack.clone());
            let first = stacks[at].why.first().map(|reason| reason.path.clone());
            let path = first.unwrap_or_else(|| folder.clone());
            for reader in readers.get(&id).into_iter().flatten() {
                let why = InputReason {
                    path: path.clone(),
                    kind: InputKind::Output,
                    chain: vec![folder.clone(), reader.folder.clone()],
                };
                match known.get(&reader.id) {
                    // A reader that is affected by itself already has reasons, and these come first.
                    Some(&known) if stacks[known].why.len() < MAX_REASONS => stacks[known].why.push(why),
                    Some(_) => {}
                    None => {
                        known.insert(reader.id.clone(), stacks.len());
                        stacks.push(answer(reader, &reader.id, InputChange::Modified, vec![why]));
                    }
                }
            }
            at += 1;
        }
    }

    /// Returns the reasons why the identity of a stack differs from the base: a stack with the same names was added or
    /// removed, or konverge.yaml changed.
    fn why_renamed(&self, base: &Analysis, old: &Stack, new: &Stack) -> Vec<InputReason> {
        let same_names = |stack: &&Stack| stack.names == old.names || stack.names == new.names;
        let others = |of: &'_ Analysis, without: &Analysis| -> Vec<RepoPath> {
            let stacks = of.layout.stacks.iter().filter(same_names);
            let only_here = stacks.filter(|stack| {
                let there = without.layout.stack_in_folder(&stack.folder);
                there.is_none_or(|there| there.names != stack.names)
            });
            only_here.map(|stack| stack.manifest.clone()).collect()
        };
        let mut files = others(self, base);
        files.extend(others(base, self));
        let (kind, files) = if files.is_empty() {
            (InputKind::Config, vec![RepoPath::root().child("konverge.yaml")])
        } else {
            (InputKind::Stack, files)
        };
        let reason = |path: RepoPath| InputReason {
            chain: vec![path.clone(), new.folder.clone()],
            path,
            kind,
        };
        files.into_iter().map(reason).collect()
    }

    fn unresolved(&self, at: usize) -> Option<InputReason> {
        let error = self.inputs[at].error.as_ref()?;
        Some(InputReason {
            path: error.file.clone(),
            kind: InputKind::Unresolved,
            chain: vec![error.file.clone(), self.layout.stacks[at].folder.clone()],
        })
    }
}

/// Returns true if a changed file only moved together with its stack or project.
fn moved_with_stack(path: &RepoPath, old: &Stack, new: &Stack) -> bool {
    let mut folders = vec![&old.folder, &new.folder];
    if old.project_folder != new.project_folder {
        folders.extend([&old.project_folder, &new.project_folder]);
    }
    folders.into_iter().any(|folder| path.is_within(folder))
}

fn own_file(stack: &Stack, kind: InputKind) -> Vec<InputReason> {
    let path = stack.manifest.clone();
    vec![InputReason {
        path: path.clone(),
        kind,
        chain: vec![path, stack.folder.clone()],
    }]
}

fn answer(stack: &Stack, id: &StackId, change: InputChange, why: Vec<InputReason>) -> AffectedStack {
    AffectedStack {
        stack: stack.folder.clone(),
        id: id.clone(),
        project: id.project().to_owned(),
        name: id.name().to_owned(),
        change,
        spec: match change {
            InputChange::Modified => SpecChange::NotCompiled,
            InputChange::Added | InputChange::Removed => SpecChange::Changed,
        },
        why,
    }
}
