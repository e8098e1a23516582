//! [`StateDifference`]: the changes between two serials of a stack's state, resource by resource.

use serde::Serialize;
use serde_json::{Value, json};
use similar::TextDiff;

use konverge_base::model::{
    ResourceId, StackId,
    state::{Recorded, StackState},
};

/// The number of resources whose changed lines are shown; of further ones only the id is shown.
const SHOWN: usize = 300;
/// The maximum number of lines of a resource that is compared line by line: the time grows with the product of both
/// lengths.
const LONGEST: usize = 3_000;
/// The number of unchanged lines that are shown around a change.
const AROUND: usize = 3;

/// The difference of two serials. The JSON has `"version":1`.
#[derive(Debug, Clone, Serialize)]
pub struct StateDifference {
    /// Version of this format.
    pub version: u32,
    /// The stack whose states are compared.
    pub stack: StackId,
    /// The earlier serial.
    pub from: u64,
    /// The later serial.
    pub to: u64,
    /// The resources that differ, sorted by id.
    pub resources: Vec<ChangedResource>,
}

/// A resource that differs between the two serials.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ChangedResource {
    /// The resource that changed.
    pub id: ResourceId,
    /// The kind of the difference.
    pub change: SerialChange,
    /// The lines, each with a prefix `+`, `-` or a space. Empty if there are too many to show.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub lines: Vec<String>,
}

/// The kind of a resource's difference.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum SerialChange {
    /// The resource is only in the later serial.
    Added,
    /// The resource is in both serials, with different content.
    Changed,
    /// The resource is only in the earlier serial.
    Removed,
}

impl SerialChange {
    /// Returns the word that a page shows.
    pub fn word(self) -> &'static str {
        match self {
            Self::Added => "added",
            Self::Changed => "changed",
            Self::Removed => "removed",
        }
    }
}

/// The state of a stack, with its serial.
#[derive(Debug, Clone, Copy)]
pub struct StateAtSerial<'a> {
    serial: u64,
    state: &'a StackState,
}

impl<'a> StateAtSerial<'a> {
    /// Combines a state with its serial.
    pub fn new(serial: u64, state: &'a StackState) -> Self {
        Self { serial, state }
    }
}

impl StateDifference {
    /// Compares two states. Their resources must be sorted by id, and their secrets masked.
    pub fn between(from: StateAtSerial<'_>, to: StateAtSerial<'_>) -> Self {
        let (old, new) = (from.state, to.state);
        let mut resources = Vec::new();
        // Both lists are sorted by id, so one pass over both finds all pairs.
        let (mut before, mut after) = (old.resources.iter().peekable(), new.resources.iter().peekable());
        loop {
            let (was, is) = match (before.peek(), after.peek()) {
                (None, None) => break,
                (Some(_), None) => (before.next(), None),
                (None, Some(_)) => (None, after.next()),
                (Some(a), Some(b)) => match a.id.cmp(&b.id) {
                    std::cmp::Ordering::Less => (before.next(), None),
                    std::cmp::Ordering::Greater => (None, after.next()),
                    std::cmp::Ordering::Equal => (before.next(), after.next()),
                },
            };
            resources.extend(compare(was, is, resources.len() < SHOWN));
        }
        Self {
            version: 1,
            stack: new.stack.clone(),
            from: from.serial,
            to: to.serial,
            resources,
        }
    }
}

fn compare(was: Option<&Recorded>, is: Option<&Recorded>, with_lines: bool) -> Option<ChangedResource> {
    let (recorded, change) = match (was, is) {
        (Some(old), None) => (old, SerialChange::Removed),
        (None, Some(new)) => (new, SerialChange::Added),
        (Some(old), Some(new)) if is_same(old, new) => return None,
        (Some(_), Some(new)) => (new, SerialChange::Changed),
        (None, None) => return None,
    };
    let lines = if with_lines {
        line_difference(&lines_of(was), &lines_of(is))
    } else {
        Vec::new()
    };
    Some(ChangedResource {
        id: recorded.id.clone(),
        change,
        lines,
    })
}

fn is_same(old: &Recorded, new: &Recorded) -> bool {
    old.attributes == new.attributes
        && old.cluster == new.cluster
        && old.depends_on == new.depends_on
        && old.extensions == new.extensions
}

/// Returns the parts of a resource that are useful to a person.
pub(crate) fn readable(recorded: &Recorded) -> Value {
    let mut value = json!({});
    if let Some(cluster) = &recorded.cluster {
        value["cluster"] = json!(cluster);
    }
    if !recorded.depends_on.is_empty() {
        value["dependsOn"] = json!(recorded.depends_on);
    }
    if !recorded.extensions.is_empty() {
        value["extensions"] = json!(recorded.extensions);
    }
    value["attributes"] = Value::Object((*recorded.attributes).clone());
    value
}

fn lines_of(recorded: Option<&Recorded>) -> String {
    let lines = recorded.map(|recorded| konverge_report::yaml_lines(&readable(recorded)));
    lines.unwrap_or_default().join("\n")
}

fn line_difference(old: &str, new: &str) -> Vec<String> {
    if old.lines().count().max(new.lines().count()) > LONGEST {
        return Vec::new();
    }
    if old.is_empty() || new.is_empty() {
        let signed = |sign: char, text: &str| text.lines().map(|line| format!("{sign}{line}")).collect();
        return if new.is_empty() {
            signed('-', old)
        } else {
            signed('+', new)
        };
    }
    let (old, new) = (format!("{old}\n"), format!("{new}\n"));
    let diff = TextDiff::from_lines(old.as_str(), new.as_str());
    let mut lines = Vec::new();
    for (index, hunk) in diff.grouped_ops(AROUND).iter().enumerate() {
        if index > 0 {
            lines.push(" …".to_owned());
        }
        for change in hunk.iter().flat_map(|op| diff.iter_changes(op)) {
            let line = change.value().trim_end_matches('\n');
            lines.push(format!("{}{line}", change.tag()));
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use konverge_base::model::{RepoPath, spec::RuntimeKind};

    fn state(resources: &[(&str, Value)]) -> StackState {
        let mut state = StackState::empty("shop/dev".parse().unwrap(), RepoPath::root());
        for (id, attributes) in resources {
            state.put(Recorded {
                id: id.parse().unwrap(),
                runtime: RuntimeKind::Kubernetes,
                cluster: None,
                attributes: Arc::new(attributes.as_object().unwrap().clone()),
                depends_on: Vec::new(),
                extensions: serde_json::Map::new(),
                sharing: konverge_base::model::spec::Sharing::default(),
                object_hash: None,
                private: konverge_base::model::state::RuntimeRecord::default(),
            });
        }
        state
    }

    #[test]
    fn what_is_added_changed_and_removed_is_said_and_nothing_else() {
        let old = state(&[
            ("v1:ConfigMap:a:gone", json!({"data": {"x": "1"}})),
            ("v1:ConfigMap:a:same", json!({"data": {"x": "1"}})),
            (
                "v1:ConfigMap:a:web",
                json!({"data": {"x": "1", "y": {"$secret": "aa"}}}),
            ),
        ]);
        let new = state(&[
            ("v1:ConfigMap:a:new", json!({"data": {}})),
            ("v1:ConfigMap:a:same", json!({"data": {"x": "1"}})),
            (
                "v1:ConfigMap:a:web",
                json!({"data": {"x": "2", "y": {"$secret": "aa"}}}),
            ),
        ]);
        let difference = StateDifference::between(StateAtSerial::new(3, &old), StateAtSerial::new(4, &new));
        let said: Vec<_> = difference
            .resources
            .iter()
            .map(|r| (r.id.as_str(), r.change.word()))
            .collect();
        assert_eq!(
            said,
            [
                ("v1:ConfigMap:a:gone", "removed"),
                ("v1:ConfigMap:a:new", "added"),
                ("v1:ConfigMap:a:web", "changed")
            ]
        );
        let changed = difference.resources[2]
            .lines
            .iter()
            .filter(|line| !line.starts_with(' '));
        assert_eq!(changed.collect::<Vec<_>>(), ["-    x: \"1\"", "+    x: \"2\""]);
        assert!(
            StateDifference::between(StateAtSerial::new(4, &new), StateAtSerial::new(5, &new))
                .resources
                .is_empty()
        );
    }

    #[test]
    fn of_many_resources_every_one_is_named() {
        let many: Vec<_> = (0..10_000)
            .map(|n| (format!("v1:ConfigMap:a:c{n:05}"), json!({"n": n})))
            .collect();
        let many: Vec<_> = many
            .iter()
            .map(|(id, value)| (id.as_str(), value.clone()))
            .collect();
        let difference = StateDifference::between(
            StateAtSerial::new(1, &state(&[])),
            StateAtSerial::new(2, &state(&many)),
        );
        assert_eq!(difference.resources.len(), 10_000);
        let shown = difference
            .resources
            .iter()
            .filter(|resource| !resource.lines.is_empty())
            .count();
        assert_eq!(shown, SHOWN);
    }
}
