//! Assigns identities: each stack of a revision has a unique one.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use super::{Clash, Layout, path_glob};
use konverge_base::model::{
    RepoPath, StackId,
    stack::{NamedBy, Stack},
    text::first_few,
};

/// Returns the identities that no other stack may have: the stack's own one, and the one that an earlier version of
/// Konverge may have recorded for it.
fn claimed_identities(stack: &Stack) -> impl Iterator<Item = &StackId> {
    let earlier = stack.earlier_names.as_ref();
    std::iter::once(&stack.id).chain(earlier.filter(|_| stack.named_by.is_names()))
}

impl Layout {
    /// Assigns an identity to each stack: the one from a rule, or else the one from its names. If several stacks would
    /// have the same identity, each of them gets the path of its folder instead, because otherwise their states would
    /// overwrite each other.
    pub(super) fn assign_identities(&mut self, rules: &[(String, StackId)]) {
        let rules: Vec<_> = rules
            .iter()
            .filter_map(|(pattern, identity)| {
                let glob = path_glob(pattern).ok()?;
                Some((glob.compile_matcher(), identity))
            })
            .collect();
        for stack in &mut self.stacks {
            let named = rules.iter().rev().find(|(glob, _)| {
                glob.is_match(stack.folder.as_str()) || glob.is_match(stack.names.as_str())
            });
            (stack.id, stack.named_by) = match named {
                Some((_, identity)) => ((*identity).clone(), NamedBy::Config),
                None => (stack.names.clone(), NamedBy::Names),
            };
        }
        self.clashes.clear();
        // The path of a folder may equal the identity of another stack. That stack then gets the path of its folder
        // too, so the search is repeated.
        while let Some(clashes) = self.find_clashes() {
            for clash in clashes {
                for folder in &clash.folders {
                    let at = self.stacks.iter().position(|stack| stack.folder == *folder);
                    if let Some(at) = at {
                        self.stacks[at].id = StackId::of_folder(folder);
                        self.stacks[at].named_by = NamedBy::Folder;
                    }
                }
                self.clashes.push(clash);
            }
        }
        self.clashes.sort_by(|a, b| a.identity.cmp(&b.identity));
    }

    /// Returns the identities that several stacks have, if at least one of these stacks can get another identity.
    fn find_clashes(&self) -> Option<Vec<Clash>> {
        let mut seen = HashSet::new();
        let twice: BTreeSet<&StackId> = self
            .stacks
            .iter()
            .flat_map(claimed_identities)
            .filter(|id| !seen.insert(*id))
            .collect();
        if twice.is_empty() {
            return None;
        }
        let mut claims: BTreeMap<&StackId, Vec<&Stack>> = BTreeMap::new();
        for stack in &self.stacks {
            for id in claimed_identities(stack).filter(|id| twice.contains(id)) {
                claims.entry(id).or_default().push(stack);
            }
        }
        let can_change = |stacks: &[&Stack]| stacks.iter().any(|stack| stack.named_by != NamedBy::Folder);
        let clashes: Vec<_> = claims
            .into_iter()
            .filter(|(_, stacks)| can_change(stacks))
            .map(|(identity, stacks)| Clash {
                identity: identity.clone(),
                folders: stacks.iter().map(|stack| stack.folder.clone()).collect(),
            })
            .collect();
        (!clashes.is_empty()).then_some(clashes)
    }

    /// Returns the stack of an earlier layout that a stack of this layout continues: the one with the same identity, or
    /// else the one in its folder, if the identity differs only because a clash was added or removed, or
    /// because a rule set it.
    pub fn predecessor_of<'a>(&self, earlier: &'a Layout, stack: &Stack) -> Option<&'a Stack> {
        earlier.stack_near(&stack.folder, &stack.id).or_else(|| {
            earlier
                .stack_in_folder(&stack.folder)
                .filter(|old| stack.continues(&old.id, old.named_by) && self.stack(&old.id).is_none())
        })
    }

    /// Returns the stack in a folder.
    pub fn stack_in_folder(&self, folder: &RepoPath) -> Option<&Stack> {
        let at = self.stacks.binary_search_by(|stack| stack.folder.cmp(folder));
        at.ok().map(|at| &self.stacks[at])
    }

    /// Returns a note if the revision has no stack.
    pub fn empty_note(&self) -> Option<String> {
        if !self.stacks.is_empty() {
            return None;
        }
        Some(match self.left_out.len() {
            0 => "this repository has no stack\n  hint: a stack is a folder with a `stack.yaml`, at or below a folder with \
                  a `project.yaml`; a file that git does not know is not read: `git add` it"
                .to_owned(),
            _ => format!(
                "every folder with a `stack.yaml` is left out, such as `{}`\n  hint: `exclude` in konverge.yaml, or a \
                 package that holds them, leaves them out; `exclude: ['!GLOB']` re-includes folders",
                self.left_out[0]
            ),
        })
    }

    /// Returns a note about the stacks whose identity is the path of their folder, if there are any.
    pub fn clash_note(&self) -> Option<String> {
        let first = self.clashes.first()?;
        let folders: BTreeSet<&RepoPath> = self.clashes.iter().flat_map(|clash| &clash.folders).collect();
        let some = first_few(first.folders.iter().map(|folder| format!("`{folder}`")), 3);
        let others = match self.clashes.len() - 1 {
            0 => String::new(),
            1 => ", and 1 other identity is not unique".to_owned(),
            others => format!(", and {others} other identities are not unique"),
        };
        Some(format!(
            "{} stacks are known by their folder: the names of {some} all give `{}`{others}\n  hint: give the projects \
             names of their own, or name a stack in konverge.yaml: `stacks: [{{match: {}, identity: PROJECT/STACK}}]`; \
             `exclude: [GLOB]` takes folders out that hold no stacks",
            folders.len(),
            first.identity,
            first.folders[0],
        ))
    }

    /// Returns a note about the stacks in packages that other modules depend on, if there are any.
    pub fn package_note(&self) -> Option<String> {
        let mut by_package: BTreeMap<&RepoPath, usize> = BTreeMap::new();
        for (_, package) in &self.in_packages {
            *by_package.entry(package).or_default() += 1;
        }
        let (first, _) = by_package.first_key_value()?;
        let packages: Vec<_> = by_package.keys().map(|package| format!("`{package}`")).collect();
        Some(format!(
            "{} folders with a stack.yaml are not stacks of this repository: they lie in packages that it uses ({})\n  \
             hint: to take them in: `exclude: ['!{first}/**']` in konverge.yaml",
            self.in_packages.len(),
            packages.join(", "),
        ))
    }
}
