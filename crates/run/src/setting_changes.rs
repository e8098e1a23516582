//! What the configuration of a change does to stacks.

use std::collections::BTreeMap;

use crate::ComparedRevisions;
use konverge_base::model::{StackId, setting_change::SettingChange};
use konverge_config::{Config, StackSides};

/// The keys of `konverge.yaml` that mean something else for stacks after a change, whose own configuration is `proposed`.
/// Nothing without a base, if the change adds the file, or if that of the base cannot be read.
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
