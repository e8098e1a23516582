//! Finds the changes of permissions that a merge would bring.

use std::collections::BTreeMap;

use crate::policy::active_policies;
use konverge_base::model::{
    StackId,
    permission_changes::{CODEOWNERS, PowerChange},
    stack::Stack,
};
use konverge_config::{Config, StackSides};
use konverge_policy::CodeOwners;
use konverge_run::{OpenRevision, health_rules, policy_set_loader};

/// Lists the changes of permissions in a proposal: in `konverge.yaml`, in the files that it names, and in CODEOWNERS.
pub fn permission_changes(
    proposed: &Config,
    base: Option<&OpenRevision>,
    head: &OpenRevision,
) -> Vec<PowerChange> {
    // An unreadable base configuration grants nothing, so every permission is new.
    let before = base.and_then(|base| Config::load(base.source.as_ref()).ok());
    let before = before.unwrap_or_default();
    // Stacks are paired by identity, because a rule may match a stack only at the base or only at the head.
    let mut pairs: BTreeMap<&StackId, StackSides<'_>> = BTreeMap::new();
    for stack in base.iter().flat_map(|base| &base.layout.stacks) {
        pairs.entry(&stack.id).or_default().before = Some(stack);
    }
    for stack in &head.layout.stacks {
        pairs.entry(&stack.id).or_default().after = Some(stack);
    }
    let stacks: Vec<_> = pairs.into_values().collect();
    let mut changes = before.permission_changes(proposed, &stacks);
    let file = |key: &str, stacks| PowerChange {
        key: key.to_owned(),
        from: Some("as it is".to_owned()),
        to: Some("other content".to_owned()),
        stacks,
    };
    let same_rules =
        |base: &OpenRevision| health_rules::same(proposed, base.source.as_ref(), head.source.as_ref());
    if !base.is_some_and(same_rules) {
        let folder = proposed.apply.health_rules.as_deref().unwrap_or_default();
        changes.push(file(&format!("apply.health_rules: {folder}"), None));
    }
    let sets = |revision: &OpenRevision| policy_set_loader::load(proposed, revision.source.as_ref());
    for name in base.map(sets).unwrap_or_default().different(&sets(head)) {
        changes.push(file(&format!("policy.sets: {name}"), None));
    }
    let owners = |revision: &OpenRevision| active_policies::codeowners(revision.source.as_ref());
    let owners = [base.and_then(owners), owners(head)];
    if owners[0] != owners[1] {
        let [before, after] = owners.map(|text| CodeOwners::read(text.as_deref().unwrap_or_default()));
        let file_of = |stack: &&Stack| format!("{}/stack.yaml", stack.folder);
        let concerned = head.layout.stacks.iter();
        let concerned =
            concerned.filter(|stack| before.owners(&file_of(stack)) != after.owners(&file_of(stack)));
        changes.push(file(
            CODEOWNERS,
            Some(concerned.map(|stack| stack.id.clone()).collect()),
        ));
    }
    changes
}
