//! Changes that are equal in several stacks, so that a reader sees each of them once.

use std::collections::BTreeMap;

use serde_json::Value;

use super::{diff, escape, labels};
use konverge_base::model::{
    Digest, StackId,
    digest::DigestBuilder,
    plan::{Action, ResourcePlan},
};

/// The number of names, fields or changes that a title shows.
const IN_TITLE: usize = 3;

/// The changed resources of one stack, in the order in which they are shown.
pub(super) struct StackChanges<'s, 'a> {
    pub stack: &'a StackId,
    pub resources: &'s [&'a ResourcePlan],
}

/// One change, in all stacks that make it.
pub(super) struct EqualChange<'a> {
    /// The resources with this change, in the order of the stacks. The first one represents all.
    pub resources: Vec<&'a ResourcePlan>,
}

/// Equal changes that the same stacks make.
pub(super) struct ChangeGroup<'a> {
    pub changes: Vec<EqualChange<'a>>,
    /// The stacks, in the order given.
    pub stacks: Vec<&'a StackId>,
}

/// The groups of a plan, the one with the most stacks first.
pub(super) struct EqualChanges<'a> {
    pub groups: Vec<ChangeGroup<'a>>,
    /// The group of each resource of each stack.
    places: Vec<Vec<Option<usize>>>,
}

impl<'a> EqualChanges<'a> {
    /// Groups the changes that at least two stacks make, and joins the changes of the same stacks.
    pub(crate) fn find(stacks: &[StackChanges<'_, 'a>]) -> Self {
        let mut found: BTreeMap<Digest, Vec<(usize, usize)>> = BTreeMap::new();
        for (s, stack) in stacks.iter().enumerate() {
            for (r, resource) in stack.resources.iter().enumerate() {
                found.entry(shape(resource)).or_default().push((s, r));
            }
        }
        let mut by_stacks: BTreeMap<Vec<usize>, Vec<Vec<(usize, usize)>>> = BTreeMap::new();
        for same in found.into_values() {
            let mut of: Vec<_> = same.iter().map(|(s, _)| *s).collect();
            of.dedup();
            if of.len() > 1 {
                by_stacks.entry(of).or_default().push(same);
            }
        }
        let mut sorted: Vec<_> = by_stacks.into_iter().collect();
        sorted.sort_by(|(a, _), (b, _)| b.len().cmp(&a.len()).then_with(|| a.cmp(b)));
        let places = stacks.iter().map(|stack| vec![None; stack.resources.len()]);
        let mut equal = Self {
            groups: Vec::with_capacity(sorted.len()),
            places: places.collect(),
        };
        for (of, mut sames) in sorted {
            sames.sort();
            for (s, r) in sames.iter().flatten() {
                equal.places[*s][*r] = Some(equal.groups.len());
            }
            let resources = |same: Vec<(usize, usize)>| EqualChange {
                resources: same.into_iter().map(|(s, r)| stacks[s].resources[r]).collect(),
            };
            equal.groups.push(ChangeGroup {
                changes: sames.into_iter().map(resources).collect(),
                stacks: of.into_iter().map(|s| stacks[s].stack).collect(),
            });
        }
        equal
    }

    /// The group that shows a resource, by the positions of its stack and of the resource.
    pub(crate) fn group_of(&self, stack: usize, resource: usize) -> Option<usize> {
        self.places[stack][resource]
    }
}

impl EqualChange<'_> {
    /// The resource that represents all.
    pub(crate) fn first(&self) -> &ResourcePlan {
        self.resources[0]
    }

    /// The names of the resources without their namespaces, each once, in the order of the stacks.
    pub(crate) fn names(&self) -> Vec<String> {
        let mut names: Vec<String> = Vec::new();
        for resource in &self.resources {
            let name = labels::Title::with_runtime(&resource.id, resource.runtime).name;
            let name = name.rsplit_once('/').map_or(name.as_str(), |(_, name)| name);
            if !names.iter().any(|known| known == name) {
                names.push(name.to_owned());
            }
        }
        names
    }

    fn title(&self) -> String {
        let resource = self.first();
        let title = labels::Title::with_runtime(&resource.id, resource.runtime);
        let names = first_few(&self.names(), IN_TITLE, escape::html_code);
        let kind = if title.kind.is_empty() {
            String::new()
        } else {
            format!(" {}", escape::html_code(&title.kind))
        };
        let fields = self.fields();
        let fields = if fields.is_empty() {
            String::new()
        } else {
            format!(": {}", first_few(&fields, IN_TITLE, escape::html_code))
        };
        format!("{}{kind} {names}{fields}", labels::action_word(resource.action))
    }

    /// The changed fields, as in `spec.replicas`. Empty for a change of a whole resource.
    pub(crate) fn fields(&self) -> Vec<String> {
        match self.first().action {
            Action::Create | Action::Delete | Action::Forget | Action::Run => Vec::new(),
            _ => diff::paths(self.first()),
        }
    }
}

impl ChangeGroup<'_> {
    /// The changes as HTML, for the comment and the page: `update Deployment web: spec.replicas`.
    pub(crate) fn title(&self) -> String {
        let titles: Vec<_> = self.changes.iter().map(EqualChange::title).collect();
        first_few(&titles, IN_TITLE, str::to_owned)
    }
}

/// At most `most` texts, and how many more there are.
pub(super) fn first_few(texts: &[String], most: usize, write: impl Fn(&str) -> String) -> String {
    let shown: Vec<_> = texts.iter().take(most).map(|text| write(text)).collect();
    match texts.len().saturating_sub(most) {
        0 => shown.join(", "),
        more => format!("{} and {more} more", shown.join(", ")),
    }
}

/// The digest of a resource's change without its namespace: equal in two stacks if a reader would see the same
/// lines. The name of a resource that is created, deleted, forgotten or run is part of what is reviewed.
fn shape(resource: &ResourcePlan) -> Digest {
    let mut builder = DigestBuilder::new("shape");
    let title = labels::Title::with_runtime(&resource.id, resource.runtime);
    for part in [&title.group, &title.kind, labels::action_word(resource.action)] {
        builder.part(part.as_bytes());
    }
    if matches!(
        resource.action,
        Action::Create | Action::Delete | Action::Forget | Action::Adopt | Action::Run
    ) {
        let name = title
            .name
            .rsplit_once('/')
            .map_or(title.name.as_str(), |(_, name)| name);
        builder.part(name.as_bytes());
    }
    builder.part(&[u8::from(resource.data_loss)]);
    for path in &resource.replace {
        builder.part(path.as_bytes());
    }
    builder.part(b"changes");
    for change in resource.changes.iter().filter(|c| diff::is_own(resource, c)) {
        builder.part(change.path.as_bytes());
        for side in [&change.from, &change.to] {
            match side {
                Some(value) => {
                    let value = without_namespace(value, &change.path);
                    builder.part(Digest::of_json(&value).as_bytes())
                }
                None => builder.part(b""),
            };
        }
    }
    for note in &resource.notes {
        builder.part(note.as_bytes());
    }
    builder.finish()
}

/// A whole resource without its namespace.
fn without_namespace(value: &Value, path: &str) -> Value {
    let mut value = value.clone();
    if path.is_empty()
        && let Some(metadata) = value.get_mut("metadata").and_then(Value::as_object_mut)
    {
        metadata.shift_remove("namespace");
    }
    value
}

#[cfg(test)]
mod tests {
    use super::*;
    use konverge_base::model::{
        plan::{ChangeOrigin, FieldChange},
        spec::RuntimeKind,
    };
    use serde_json::json;

    fn resource(stack: &StackId, name: &str, action: Action, to: &str) -> ResourcePlan {
        let id = format!("apps/v1:Deployment:{}:{name}", stack.project());
        let change = FieldChange {
            path: "/spec/template/spec/containers/name=main/image".into(),
            from: Some(json!("a:1")),
            to: Some(json!(to)),
            origin: ChangeOrigin::Change,
        };
        ResourcePlan::new(
            stack,
            id.parse().unwrap(),
            RuntimeKind::Kubernetes,
            action,
            vec![change],
        )
    }

    #[test]
    fn equal_changes_are_one_group_with_names_and_fields() {
        let ids: Vec<StackId> = ["a/dev", "b/dev", "c/dev"].map(|id| id.parse().unwrap()).into();
        let mut plans: Vec<Vec<ResourcePlan>> = ids
            .iter()
            .map(|id| vec![resource(id, "web", Action::Update, "a:2")])
            .collect();
        plans[0].push(resource(&ids[0], "own", Action::Update, "b:1"));
        plans[2][0] = resource(&ids[2], "api", Action::Update, "a:2");
        // The name of what is deleted counts.
        plans[0].push(resource(&ids[0], "x", Action::Delete, "a:2"));
        plans[1].push(resource(&ids[1], "y", Action::Delete, "a:2"));
        let refs: Vec<Vec<&ResourcePlan>> = plans.iter().map(|plans| plans.iter().collect()).collect();
        let stacks: Vec<_> = ids
            .iter()
            .zip(&refs)
            .map(|(stack, resources)| StackChanges { stack, resources })
            .collect();
        let equal = EqualChanges::find(&stacks);
        assert_eq!(equal.groups.len(), 1);
        let group = &equal.groups[0];
        assert_eq!(group.stacks.len(), 3);
        assert_eq!(group.changes[0].names(), ["web", "api"]);
        assert_eq!(
            group.changes[0].fields(),
            ["spec.template.spec.containers[name=main].image"]
        );
        assert_eq!([0, 1, 2].map(|r| equal.group_of(0, r)), [Some(0), None, None]);
    }
}
