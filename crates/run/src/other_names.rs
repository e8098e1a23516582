//! Finds all names of a stack under which guards apply: policy sets, approvals, reviewers, limits, freezes and workflow
//! hooks. A pull request may rename folders and identities, so a guard must follow the resources that it guards.
//!
//! The index can only add names, so a wrong entry can only make an apply stricter. The state records the names under
//! which a plan was checked.

use std::collections::BTreeSet;

use crate::{OpenRevision, Planner, SpecSource, StateBackend, Target};
use konverge_base::{
    error::UserError,
    model::{
        StackId,
        claim::{Claim, MOVED_FROM},
        other_names::OtherNames,
        spec::{RuntimeKind, Spec},
        state::StackState,
    },
};
use konverge_repo::git::{CommitFolder, Repository};
use konverge_state::{IndexEntry, IndexedStates};

/// Looks up the names of a target.
pub(crate) struct NameLookup<'a> {
    pub planner: &'a Planner,
    pub target: &'a Target,
}

/// The recorded stacks of the store.
#[derive(Clone, Copy)]
struct Records<'a> {
    backend: &'a StateBackend,
    known: &'a IndexedStates,
}

impl NameLookup<'_> {
    /// Returns the other names of the target. They come from its files, before and after this change, from its record,
    /// from each recorded stack whose folder is or was this one, and from the stacks that it continues by resources or
    /// files.
    ///
    /// # Errors
    /// Errors of the store.
    pub(crate) async fn find(&self, wanted: &Spec, state: &StackState) -> Result<OtherNames, UserError> {
        let target = self.target;
        let mut names = state.guarded_as.clone();
        names.ids.extend(state.earlier_identities.iter().cloned());
        names.folders.extend(state.folder.path().cloned());
        for stack in target.head.iter().chain(&target.base) {
            names.ids.extend([stack.names.clone(), stack.id.clone()]);
            names.folders.insert(stack.folder.clone());
        }
        // A Spec from a file has no folder to find other stacks by. Its objects do not help either, because an object
        // that another stack records is refused.
        if let (Some(backend), SpecSource::Compiled { .. }) = (&self.planner.backend, &self.planner.wanted) {
            let known = backend.states.known().await?;
            let records = Records { backend, known };
            let mut others = self.of_folder(known);
            others.extend(self.by_objects(records, wanted, state).await?);
            others.extend(self.removed(records, wanted, state).await?);
            for id in others {
                let Some(entry) = known.entries.get(&id) else {
                    continue;
                };
                names.folders.extend(entry.folder.path().cloned());
                names.extend(&entry.guarded_as);
                names.ids.insert(id);
            }
        }
        Ok(names.besides(&target.id, target.folder()))
    }

    /// Returns the recorded stacks whose folder is or was that of the target. Removed stacks are among them.
    fn of_folder(&self, known: &IndexedStates) -> BTreeSet<StackId> {
        let stack_folder = &self.target.stack_folder;
        let Some(folder) = stack_folder.path() else {
            return BTreeSet::new();
        };
        let stood_here =
            |entry: &IndexEntry| entry.folder == *stack_folder || entry.guarded_as.folders.contains(folder);
        let entries = known.entries.iter();
        let here = entries.filter(|(_, entry)| stood_here(entry));
        here.map(|(id, _)| id.clone()).collect()
    }

    /// Returns the stacks that record an object which this stack wants but does not record.
    async fn by_objects(
        &self,
        records: Records<'_>,
        wanted: &Spec,
        state: &StackState,
    ) -> Result<BTreeSet<StackId>, UserError> {
        // A cluster that cannot be determined is unknown here; the plan reports the error.
        let stack = self.target.rules();
        let cluster = stack.and_then(|stack| self.planner.cluster_of(stack).ok().flatten());
        let own: BTreeSet<_> = state.resources.iter().flat_map(Claim::all_of_recorded).collect();
        let mut others = BTreeSet::new();
        for resource in &wanted.resources {
            let claim = Claim::of_resource(resource, cluster.as_ref());
            let Some(claim) = claim.filter(|claim| !own.contains(claim)) else {
                continue;
            };
            let holders = self.planner.claims.holders_of(&claim, records.backend).await?;
            // An object that all stacks of a project share is no sign that one of these stacks was renamed.
            let moves = |other: &&StackId| {
                **other != self.target.id
                    && !(resource.is_shared() && self.target.id.is_sibling_of(other.as_str()))
            };
            others.extend(holders.into_iter().filter(moves).cloned());
        }
        Ok(others)
    }

    /// Returns the recorded stacks that are missing at the head and that the target continues: both have a Terraform
    /// resource with the same id, or git sees a file renamed from one folder to the other.
    async fn removed(
        &self,
        records: Records<'_>,
        wanted: &Spec,
        state: &StackState,
    ) -> Result<BTreeSet<StackId>, UserError> {
        let mut others = BTreeSet::new();
        let (SpecSource::Compiled { head, .. }, None) = (&self.planner.wanted, &self.target.recorded) else {
            return Ok(others);
        };
        if self.target.head.is_none() || self.planner.rolls_back {
            return Ok(others);
        }
        let terraform = wanted.resources.iter();
        let terraform = terraform.filter(|resource| resource.runtime == RuntimeKind::Terraform);
        let new: BTreeSet<_> = terraform
            .filter(|resource| state.resource(&resource.id).is_none())
            .flat_map(|resource| {
                let before = resource.extensions.get(MOVED_FROM).and_then(|id| id.as_str());
                before.into_iter().chain([resource.id.as_str()])
            })
            .collect();
        if new.is_empty() && !state.is_blank() {
            return Ok(others);
        }
        let is_removed = |(id, entry): &(&StackId, &IndexEntry)| {
            entry.is_known()
                && head.layout.stack(id).is_none()
                && !head.layout.leaves_out(entry.folder.or_root())
        };
        for (id, entry) in records.known.entries.iter().filter(is_removed) {
            let has_resource = !new.is_empty() && {
                let removed = records.backend.states.load(id).await?;
                let resources = removed.into_iter().flat_map(|removed| removed.state.resources);
                let mut resources = resources.filter(|one| one.runtime == RuntimeKind::Terraform);
                resources.any(|resource| new.contains(resource.id.as_str()))
            };
            if has_resource || (state.is_blank() && self.has_files_of(entry).await) {
                others.insert(id.clone());
            }
        }
        Ok(others)
    }

    /// Returns true if git sees a file of a removed stack in the folder of the target. Also returns true if the applied
    /// commit of that stack cannot be read, because the files may be the same then.
    async fn has_files_of(&self, removed: &IndexEntry) -> bool {
        let to = self.planner.wanted.head().and_then(OpenRevision::commit);
        let (Some(to), Some(from)) = (to, &removed.commit) else {
            return false;
        };
        let run = &self.planner.run;
        let renamed = async {
            let repository = Repository::discover(&run.dir)?;
            repository.ensure(from, run.clone_credentials().as_ref()).await?;
            let (from, to) = (
                CommitFolder {
                    commit: from,
                    folder: removed.folder.or_root(),
                },
                CommitFolder {
                    commit: to,
                    folder: self.target.folder(),
                },
            );
            repository.is_renamed(from, to)
        };
        renamed.await.unwrap_or(true)
    }
}
