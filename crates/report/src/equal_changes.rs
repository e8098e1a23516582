//! Finds equal changes in several stacks, so that a reader sees each of them once.

use std::{cmp::Reverse, collections::BTreeMap};

use serde_json::Value;

use super::{danger::Danger, diff, escape, labels};
use konverge_base::model::{
    Digest, FieldPath, StackId,
    digest::DigestBuilder,
    plan::{Action, PodImpact, ResourcePlan},
    text::first_few,
};

/// The maximum number of names, fields or changes in a title.
const IN_TITLE: usize = 3;

/// The placeholder in a path for the name of a workload, if the names differ between stacks. No Kubernetes name has
/// capitals.
const OWN_NAME: &str = "NAME";

/// The changed resources of one stack, in the order in which they are shown.
pub(super) struct StackChanges<'s, 'a> {
    pub stack: &'a StackId,
    pub is_production: bool,
    pub resources: &'s [&'a ResourcePlan],
}

/// One change, with all stacks that make it.
pub(super) struct EqualChange<'a> {
    /// The resources with this change, in the order of the stacks.
    pub resources: Vec<&'a ResourcePlan>,
    /// The positions of these resources: the number of the stack, and of the resource in it.
    positions: Vec<(usize, usize)>,
    /// The resource that is shown for all of them: the first one, with the sums of all and without its own name.
    representative: ResourcePlan,
}

/// Equal changes that the same stacks make, shown under one list of names.
pub(super) struct ChangeGroup<'a> {
    pub changes: Vec<EqualChange<'a>>,
    /// The stacks, in the order in which they were given.
    pub stacks: Vec<&'a StackId>,
    /// The positions of these stacks in the given order.
    pub members: Vec<usize>,
    /// The number of production stacks among these stacks.
    pub production: usize,
}

/// The groups of a plan: the most dangerous first, then those with production stacks, then the largest.
pub(super) struct EqualChanges<'a> {
    pub groups: Vec<ChangeGroup<'a>>,
    /// The number of the group of each resource, by stack and resource.
    places: Vec<Vec<Option<usize>>>,
}

impl<'a> EqualChanges<'a> {
    /// Groups changes that at least two stacks make, and combines the changes that the same stacks make.
    pub(crate) fn find(stacks: &[StackChanges<'_, 'a>]) -> Self {
        let mut found: BTreeMap<Digest, Vec<(usize, usize)>> = BTreeMap::new();
        for (s, stack) in stacks.iter().enumerate() {
            for (r, resource) in stack.resources.iter().enumerate() {
                found
                    .entry(shape(stack.stack, resource))
                    .or_default()
                    .push((s, r));
            }
        }
        // Changes of exactly the same stacks become one group, so that the names are listed once.
        let mut by_stacks: BTreeMap<Vec<usize>, Vec<Vec<(usize, usize)>>> = BTreeMap::new();
        for same in found.into_values() {
            let mut of: Vec<_> = same.iter().map(|(s, _)| *s).collect();
            of.dedup();
            if of.len() > 1 {
                by_stacks.entry(of).or_default().push(same);
            }
        }
        let places = stacks.iter().map(|stack| vec![None; stack.resources.len()]);
        let mut equal = Self {
            groups: by_stacks
                .into_iter()
                .map(|(members, mut sames)| {
                    // The map was sorted by digests, which mean nothing to a reader, so the order of the stacks is
                    // restored.
                    sames.sort();
                    ChangeGroup::new(stacks, members, &sames)
                })
                .collect(),
            places: places.collect(),
        };
        equal.groups.sort_by(|a, b| a.rank().cmp(&b.rank()));
        for (at, group) in equal.groups.iter().enumerate() {
            for (s, r) in group.changes.iter().flat_map(|change| &change.positions) {
                equal.places[*s][*r] = Some(at);
            }
        }
        equal
    }

    /// Returns the group that shows a resource, by the position of its stack and of the resource.
    pub(crate) fn group_of(&self, stack: usize, resource: usize) -> Option<usize> {
        self.places[stack][resource]
    }
}

impl<'a> EqualChange<'a> {
    fn new(stacks: &[StackChanges<'_, 'a>], positions: &[(usize, usize)]) -> Self {
        let resources: Vec<_> = positions.iter().map(|(s, r)| stacks[*s].resources[*r]).collect();
        let first = resources[0];
        let pods = resources
            .iter()
            .fold(PodImpact::default(), |sum, resource| sum + resource.pods);
        let mut representative = first.clone();
        representative.notes = first
            .notes
            .iter()
            .map(|note| with_pods(note, &first.pods, |of| Some(of(&pods))))
            .collect();
        representative.pods = pods;
        let own = |(s, r): &(usize, usize)| own_names(stacks[*s].stack, stacks[*s].resources[*r]);
        let names = own(&positions[0]);
        // If the names differ, the name of the first resource must not stand for the others.
        if positions.iter().any(|position| own(position) != names) {
            for change in &mut representative.changes {
                change.path = without_own_name(&change.path, &names);
            }
            for path in representative
                .replace
                .iter_mut()
                .chain(&mut representative.immutable)
            {
                *path = without_own_name(path, &names);
            }
        }
        Self {
            resources,
            positions: positions.to_vec(),
            representative,
        }
    }

    /// Returns the resource that is shown for all resources of the group.
    pub(crate) fn first(&self) -> &ResourcePlan {
        &self.representative
    }

    /// Returns the names of the resources without namespaces, each once, in the order of the stacks.
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
        let names = first_few(self.names().iter().map(|name| escape::html_code(name)), IN_TITLE);
        let kind = if title.kind.is_empty() {
            String::new()
        } else {
            format!(" {}", escape::html_code(&title.kind))
        };
        let fields = self.fields();
        let fields = if fields.is_empty() {
            String::new()
        } else {
            let fields = fields.iter().map(|field| escape::html_code(field));
            format!(": {}", first_few(fields, IN_TITLE))
        };
        format!("{}{kind} {names}{fields}", resource.action)
    }

    /// Returns the changed fields, for example `spec.replicas`. Empty for a change of a whole resource.
    pub(crate) fn fields(&self) -> Vec<String> {
        match self.first().action {
            Action::Create | Action::Delete | Action::Forget | Action::Run => Vec::new(),
            _ => diff::paths(self.first()),
        }
    }
}

impl<'a> ChangeGroup<'a> {
    fn new(stacks: &[StackChanges<'_, 'a>], members: Vec<usize>, sames: &[Vec<(usize, usize)>]) -> Self {
        let of_members = || members.iter().map(|member| &stacks[*member]);
        Self {
            changes: sames
                .iter()
                .map(|positions| EqualChange::new(stacks, positions))
                .collect(),
            stacks: of_members().map(|stack| stack.stack).collect(),
            production: of_members().filter(|stack| stack.is_production).count(),
            members,
        }
    }

    /// Returns the sort key of the group: dangerous groups first, then those with production stacks, then larger ones.
    fn rank(&self) -> impl Ord + use<> {
        let changes = self.changes.iter();
        let dangers = changes.map(|change| Danger::of_resource(change.first()));
        // A change of no live resource comes last.
        let danger = dangers.map(|danger| (danger.is_none(), danger)).min();
        (
            danger,
            self.production == 0,
            Reverse(self.stacks.len()),
            self.members.clone(),
        )
    }

    /// Returns the number of stacks, and how many of them are production: `36 stacks (12 in production)`.
    pub(crate) fn count(&self) -> String {
        labels::with_production(labels::plural(self.stacks.len(), "stack"), self.production)
    }

    /// Returns the changes as HTML, for the comment and the page: `update Deployment web: spec.replicas`.
    pub(crate) fn title(&self) -> String {
        first_few(self.changes.iter().map(EqualChange::title), IN_TITLE)
    }
}

/// Returns the names that a workload's containers may have: that of the workload, and that of its project.
fn own_names<'r>(stack: &'r StackId, resource: &'r ResourcePlan) -> [&'r str; 2] {
    let last = |text: &'r str, at| text.rsplit_once(at).map_or(text, |(_, last)| last);
    [last(resource.id.as_str(), ':'), last(stack.project(), '/')]
}

/// Replaces the workload's own name in a path by [`OWN_NAME`]. The name of a sidecar stays.
fn without_own_name(path: &FieldPath, names: &[&str; 2]) -> FieldPath {
    let part = |part: &str| match part.strip_prefix("name=") {
        Some(name) if names.contains(&name) => format!("name={OWN_NAME}"),
        _ => part.to_owned(),
    };
    path.as_str()
        .split('/')
        .map(part)
        .collect::<Vec<_>>()
        .join("/")
        .into()
}

/// A getter for one number of [`PodImpact`].
type PodNumber = fn(&PodImpact) -> u64;

/// Replaces the numbers of pods in a note: by other numbers, or by a word if `number` returns none.
fn with_pods(note: &str, pods: &PodImpact, number: impl Fn(PodNumber) -> Option<u64>) -> String {
    let counts: [(&str, PodNumber); 3] = [
        ("restarts", |pods| pods.restarts),
        ("starts", |pods| pods.starts),
        ("ends", |pods| pods.ends),
    ];
    let parts = note.split("; ").map(|part| {
        for (word, of) in counts {
            let said = format!("{word} {}", labels::plural(of(pods) as usize, "pod"));
            if of(pods) > 0
                && let Some(rest) = part.strip_prefix(&said)
            {
                let other = number(of).map_or("pods".to_owned(), |all| labels::plural(all as usize, "pod"));
                return format!("{word} {other}{rest}");
            }
        }
        part.to_owned()
    });
    parts.collect::<Vec<_>>().join("; ")
}

/// Returns the digest of a resource's change without its namespace, the workload's name in paths, and the number of
/// pods: equal in two stacks if a reader would see the same lines. The name of a resource that is created, deleted,
/// forgotten or run is included, because it is reviewed.
fn shape(stack: &StackId, resource: &ResourcePlan) -> Digest {
    let names = own_names(stack, resource);
    let mut builder = DigestBuilder::new("shape");
    let title = labels::Title::with_runtime(&resource.id, resource.runtime);
    for part in [&title.group, &title.kind, &resource.action.to_string()] {
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
        builder.part(without_own_name(path, &names).as_str().as_bytes());
    }
    builder.part(b"changes");
    for change in resource.changes.iter().filter(|c| diff::is_own(resource, c)) {
        builder.part(without_own_name(&change.path, &names).as_str().as_bytes());
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
        builder.part(with_pods(note, &resource.pods, |_| None).as_bytes());
    }
    builder.finish()
}

/// Returns a whole resource without its namespace.
fn without_namespace(value: &Value, path: &FieldPath) -> Value {
    let mut value = value.clone();
    if path.is_root()
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
            .map(|(stack, resources)| StackChanges {
                stack,
                is_production: false,
                resources,
            })
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

    /// A Deployment whose container has its name, and one of a sidecar, with so many pods.
    fn scaled(stack: &StackId, name: &str, container: &str, pods: u64) -> ResourcePlan {
        let id = format!("apps/v1:Deployment:{}:{name}", stack.project());
        let change = FieldChange {
            path: format!("/spec/template/spec/containers/name={container}/image").into(),
            from: Some(json!("a:1")),
            to: Some(json!("a:2")),
            origin: ChangeOrigin::Change,
        };
        let mut plan = ResourcePlan::new(
            stack,
            id.parse().unwrap(),
            RuntimeKind::Kubernetes,
            Action::Update,
            vec![change],
        );
        plan.pods.restarts = pods;
        plan.notes = vec![
            format!(
                "restarts {} by rolling update",
                labels::plural(pods as usize, "pod")
            ),
            "v1beta1 is deprecated since 1.22".to_owned(),
        ];
        plan
    }

    #[test]
    fn own_names_and_numbers_of_pods_do_not_part_a_change() {
        let ids: Vec<StackId> = ["a/dev", "b/prod", "c/dev", "d/dev"]
            .map(|id| id.parse().unwrap())
            .into();
        let plans = [
            scaled(&ids[0], "web", "web", 1),
            scaled(&ids[1], "api", "api", 5),
            // The project's name is a name of the workload too.
            scaled(&ids[2], "server", "c", 2),
            // A sidecar is another container, whatever the workload is called.
            scaled(&ids[3], "mesh", "proxy", 2),
        ];
        let refs: Vec<Vec<&ResourcePlan>> = plans.iter().map(|plan| vec![plan]).collect();
        let stacks: Vec<_> = ids
            .iter()
            .zip(&refs)
            .map(|(stack, resources)| StackChanges {
                stack,
                is_production: stack.name() == "prod",
                resources,
            })
            .collect();
        let equal = EqualChanges::find(&stacks);
        assert_eq!(equal.groups.len(), 1);
        let group = &equal.groups[0];
        assert_eq!(group.count(), "3 stacks (1 in production)");
        assert_eq!(equal.group_of(3, 0), None);
        let shown = group.changes[0].first();
        assert_eq!(
            group.changes[0].fields(),
            ["spec.template.spec.containers[name=NAME].image"]
        );
        assert_eq!(shown.pods.restarts, 8);
        assert_eq!(
            shown.notes,
            [
                "restarts 8 pods by rolling update",
                "v1beta1 is deprecated since 1.22"
            ]
        );
        // A sidecar of the same name in two workloads stays what it is.
        let sidecars = [
            scaled(&ids[0], "web", "proxy", 1),
            scaled(&ids[1], "api", "proxy", 1),
        ];
        let refs: Vec<Vec<&ResourcePlan>> = sidecars.iter().map(|plan| vec![plan]).collect();
        let stacks: Vec<_> = ids
            .iter()
            .zip(&refs)
            .map(|(stack, resources)| StackChanges {
                stack,
                is_production: false,
                resources,
            })
            .collect();
        let equal = EqualChanges::find(&stacks);
        assert_eq!(
            equal.groups[0].changes[0].fields(),
            ["spec.template.spec.containers[name=proxy].image"]
        );
    }
}
