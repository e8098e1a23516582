//! Finds the changes of `konverge.yaml` that affect stacks.

use std::collections::BTreeMap;

use crate::ComparedRevisions;
use konverge_base::model::{StackId, setting_change::SettingChange};
use konverge_config::{Config, StackSides};

/// Returns the keys of `konverge.yaml` whose change affects stacks. `proposed` is the configuration of the change.
/// Returns nothing without a base, if the change adds the file, or if the file of the base cannot be read.
pub fn find(proposed: &Config, revisions: &ComparedRevisions) -> Vec<SettingChange> {
    let Some(base) = &revisions.base else {
        return Vec::new();
    };
    if revisions.introduces_config() {
        return Vec::new();
    }
    let Ok(before) = Config::load(base.source.as_ref()) else {
        return Vec::new();
    };
    let mut sides: BTreeMap<&StackId, StackSides<'_>> = BTreeMap::new();
    for stack in &revisions.head.layout.stacks {
        let earlier = revisions.head.layout.predecessor_of(&base.layout, stack);
        sides.insert(
            &stack.id,
            StackSides {
                before: earlier,
                after: Some(stack),
            },
        );
    }
    let sides: Vec<_> = sides.into_values().collect();
    before.setting_changes(proposed, &sides)
}
