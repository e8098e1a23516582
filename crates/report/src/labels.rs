//! The names in every report: titles of resources, signs and words of actions, counts.

use std::time::Duration;

use konverge_base::model::{
    ResourceId,
    plan::{Action, ResourcePlan, StackPlan, Summary},
    policy_finding::Enforcement,
    spec::RuntimeKind,
};

/// The parts of a resource id for display. The texts are not escaped.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Title {
    /// The API group and version, for example `apps/v1`, or the Terraform provider.
    pub group: String,
    /// The kind, for example `Deployment`, or the Terraform type.
    pub kind: String,
    /// The name, as `namespace/name` if there is a namespace.
    pub name: String,
}

impl Title {
    /// Parses an id in Kusion's form. An id of another form becomes the name.
    pub(crate) fn with_runtime(id: &ResourceId, runtime: RuntimeKind) -> Self {
        let parts = match runtime {
            RuntimeKind::Kubernetes => id.object().map(|o| (o.api_version, o.kind, o.path())),
            RuntimeKind::Terraform => id
                .terraform()
                .and_then(|t| Some((t.provider, t.kind, t.name?.to_owned()))),
        };
        let (group, kind, name) = parts.unwrap_or_else(|| ("", "", id.to_string()));
        Self {
            group: group.to_owned(),
            kind: kind.to_owned(),
            name,
        }
    }

    /// Parses an id in Kusion's form, if the runtime is not recorded.
    pub(crate) fn from_id(id: &ResourceId) -> Self {
        Self::with_runtime(id, id.runtime_by_form())
    }

    /// Returns the full title: `apps/v1 Deployment web/api`.
    pub(crate) fn full(&self) -> String {
        [&self.group, &self.kind, &self.name]
            .into_iter()
            .filter(|part| !part.is_empty())
            .cloned()
            .collect::<Vec<_>>()
            .join(" ")
    }

    /// Returns the group and kind: `apps/v1 Deployment`, for resources of several stacks.
    pub(crate) fn kind_label(&self) -> String {
        let words = [&self.group, &self.kind].map(String::as_str).join(" ");
        if words.trim().is_empty() {
            self.name.clone()
        } else {
            words.trim().to_owned()
        }
    }

    /// Returns the short title: `Deployment web/api`.
    pub(crate) fn short(&self) -> String {
        if self.kind.is_empty() {
            self.name.clone()
        } else {
            format!("{} {}", self.kind, self.name)
        }
    }
}

/// The text for a stack that could not be planned.
pub(crate) const FAILED: &str = "could not be planned";

/// The text for a stack of which only a part could be planned.
pub(crate) const FAILED_IN_PART: &str = "could not be planned in full";

/// The text for a stack that could not be planned before the change either.
pub(crate) const FAILED_BEFORE: &str =
    "could not be planned: the base fails in the same way, at a place that this change does not touch";

/// Returns the text for a stack with an error.
pub(crate) fn failed(stack: &StackPlan) -> &'static str {
    match (stack.fails_in_part(), stack.fails_as_before) {
        (true, _) => FAILED_IN_PART,
        (false, true) => FAILED_BEFORE,
        (false, false) => FAILED,
    }
}

/// Returns the headline for a preview that adds `konverge.yaml`: `26 of 28 stacks compile`.
pub fn compiling_stacks(compiling: usize, stacks: usize) -> String {
    let verb = if stacks == 1 { "compiles" } else { "compile" };
    format!("{compiling} of {} {verb}", plural(stacks, "stack"))
}

/// Returns a sentence about the part that an apply would skip, for a stack that was planned in part; `None` for any
/// other.
pub(crate) fn left_as_it_is(stack: &StackPlan) -> Option<String> {
    stack.fails_in_part().then(|| skipped(stack.held_back.len()))
}

/// Returns a sentence about the resources that an apply would skip.
pub(crate) fn skipped(resources: usize) -> String {
    format!(
        "Apply will skip {}: unplanned resources, their dependents and all deletions.",
        plural(resources, "resource")
    )
}

/// Returns the sign of an action. It is always next to the word, or in a column with a title.
pub(crate) fn sign(action: Action) -> &'static str {
    match action {
        Action::Create => "+",
        Action::Update => "~",
        Action::Replace => "±",
        Action::Delete => "-",
        Action::Adopt => "»",
        Action::Forget => "∅",
        Action::Run => "▸",
        Action::Unchanged => "=",
        Action::Unknown => "?",
    }
}

/// Returns the word for the verdict of a policy.
pub(crate) fn enforcement_word(verdict: Enforcement) -> &'static str {
    match verdict {
        Enforcement::Deny => "denied",
        Enforcement::Undecided => "undecided",
        Enforcement::Warn => "warning",
        Enforcement::Pass => "satisfied",
    }
}

/// Returns the counts of a plan without the zeros: `7 to create, 31 to update, 1 to replace, 2 to delete`, or `no
/// change`. `5 to adopt (2 with changes)` means that two adopted resources also change.
pub fn counts(summary: &Summary) -> String {
    let adopt = match summary.adopt_changed {
        0 => "to adopt".to_owned(),
        changed => format!("to adopt ({changed} with changes)"),
    };
    let parts = [
        (summary.create, "to create"),
        (summary.update, "to update"),
        (summary.replace, "to replace"),
        (summary.delete, "to delete"),
        (summary.adopt, adopt.as_str()),
        (summary.forget, "to forget"),
        (summary.run, "to run"),
        (summary.unknown, "unknown"),
    ];
    let text = without_zeros(parts);
    if text.is_empty() {
        "no change".to_owned()
    } else {
        text.join(", ")
    }
}

/// Returns each number with its word, without the zeros: `3 updated`, `1 failed`.
pub(crate) fn without_zeros<'w>(counts: impl IntoIterator<Item = (usize, &'w str)>) -> Vec<String> {
    let counts = counts.into_iter().filter(|(count, _)| *count > 0);
    counts.map(|(count, word)| format!("{count} {word}")).collect()
}

/// Returns a sentence about the stacks that are taken over without a change; `None` if there are none.
pub(crate) fn taken_over(stacks: usize, objects: usize) -> Option<String> {
    let verb = match stacks {
        0 => return None,
        1 => "is taken over as it runs",
        _ => "are taken over as they run",
    };
    Some(format!(
        "{} {verb}: only the owner annotation is added, to {}.",
        plural(stacks, "stack"),
        plural(objects, "object")
    ))
}

/// The note for a comparison of Specs, which lists what only a cluster could show.
pub(crate) const SPEC_ONLY: &str = "No cluster was queried: these are differences between the compiled Specs of base and head. Not known: whether the server accepts them, whether a change replaces a resource or deletes data beyond the published rules of built-in kinds, and what differs on the cluster already (drift).";

/// The text before resources that a dry run could not include, for example those of a new namespace.
pub(crate) const UNCHECKED: &str = "not validated yet: ";

/// Returns the planned actions without the zeros: `3 updates, 1 delete`.
pub fn changes(summary: &Summary) -> String {
    let parts = [
        (summary.create, "create"),
        (summary.update, "update"),
        (summary.replace, "replacement"),
        (summary.delete, "delete"),
        (summary.adopt, "adoption"),
        (summary.forget, "forget"),
        (summary.run, "run"),
        (summary.unknown, "unknown change"),
    ];
    let parts = parts.into_iter().filter(|(n, _)| *n > 0);
    let text: Vec<_> = parts.map(|(n, word)| plural(n, word)).collect();
    text.join(", ")
}

/// Returns the counts of a plan, including drift that an apply restores: `1 to create, 2 to restore`.
pub(crate) fn counts_with_drift(summary: &Summary, drifted: usize) -> String {
    match (summary.changed(), drifted) {
        (_, 0) => counts(summary),
        (0, drifted) => format!("{drifted} to restore"),
        (_, drifted) => format!("{}, {drifted} to restore", counts(summary)),
    }
}

/// Returns how many resources were changed: `1 of 4 resources changed`, or `nothing changed` if the plan had no
/// changes.
pub(crate) fn changed_of(changed: usize, all: usize) -> String {
    match all {
        0 => "nothing changed".to_owned(),
        all => format!("{changed} of {} changed", plural(all, "resource")),
    }
}

/// The advice after an apply that failed half-way.
pub(crate) const AFTER_A_FAILURE: &str = "fix the cause and run the apply again: what is changed is recorded, and the run continues with the rest.";

/// Returns why data or an address is lost: the first note of the resource, if the change loses something.
pub(crate) fn loss(resource: &ResourcePlan) -> Option<&str> {
    let first = resource.notes.first().map(String::as_str);
    first.filter(|_| resource.data_loss)
}

/// Appends the number of production stacks to a number of stacks: `36 stacks (12 in production)`.
pub(crate) fn with_production(stacks: String, production: usize) -> String {
    match production {
        0 => stacks,
        production => format!("{stacks} ({production} in production)"),
    }
}

/// Formats a duration in seconds: `4.7 s`, `12 s`.
pub(crate) fn seconds(time: Duration) -> String {
    if time < Duration::from_secs(10) {
        format!("{:.1} s", time.as_secs_f64())
    } else {
        format!("{} s", time.as_secs())
    }
}

/// Formats a number with its noun: `1 stack`, `2 stacks`.
pub fn plural(n: usize, one: &str) -> String {
    if n == 1 {
        format!("1 {one}")
    } else if let Some(stem) = one.strip_suffix('y') {
        format!("{n} {stem}ies")
    } else {
        format!("{n} {one}s")
    }
}

/// Formats a time to the second, in UTC.
pub fn time(at: jiff::Timestamp) -> String {
    at.strftime("%Y-%m-%d %H:%M:%S UTC").to_string()
}

/// Formats a duration in its largest unit: `3 d`, `5 h`, `12 min`.
pub fn age(time: Duration) -> String {
    let minutes = time.as_secs() / 60;
    match (minutes / (24 * 60), minutes / 60) {
        (days @ 1.., _) => format!("{days} d"),
        (_, hours @ 1..) => format!("{hours} h"),
        _ if minutes > 0 => format!("{minutes} min"),
        _ => "less than a minute".to_owned(),
    }
}

/// Formats the duration of a run or a step: `0.4 s`, `18 s`, `2 min 5 s`, `1 h 3 min`.
pub fn took(time: Duration) -> String {
    let seconds = time.as_secs();
    match (seconds / 3600, seconds / 60) {
        (0, 0) if seconds < 10 => format!("{:.1} s", time.as_secs_f64()),
        (0, 0) => format!("{seconds} s"),
        (0, minutes) => format!("{minutes} min {} s", seconds % 60),
        (hours, minutes) => format!("{hours} h {} min", minutes % 60),
    }
}

/// Returns true if the change deletes or replaces something, so that a mistake would be costly.
pub(crate) fn is_grave(resource: &ResourcePlan) -> bool {
    resource.data_loss || matches!(resource.action, Action::Delete | Action::Replace)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn titles() {
        let title = |id: &str, runtime| Title::with_runtime(&id.parse().unwrap(), runtime).full();
        let k8s = RuntimeKind::Kubernetes;
        assert_eq!(
            title("apps/v1:Deployment:web:api", k8s),
            "apps/v1 Deployment web/api"
        );
        assert_eq!(title("v1:Namespace:web", k8s), "v1 Namespace web");
        assert_eq!(
            title("rbac.authorization.k8s.io/v1:ClusterRole:system:node", k8s),
            "rbac.authorization.k8s.io/v1 ClusterRole system:node"
        );
        assert_eq!(
            title("hashicorp:aws:aws_s3_bucket:logs", RuntimeKind::Terraform),
            "aws aws_s3_bucket logs"
        );
    }

    #[test]
    fn an_id_alone_gives_the_same_title() {
        let title = |id: &str| Title::from_id(&id.parse().unwrap()).full();
        assert_eq!(title("v1:Namespace:web"), "v1 Namespace web");
        assert_eq!(title("apps/v1:Deployment:web:api"), "apps/v1 Deployment web/api");
        assert_eq!(
            title("vmware:vsphere:vsphere_folder:f"),
            "vsphere vsphere_folder f"
        );
        assert_eq!(
            title("hashicorp:aws:aws_s3_bucket:logs"),
            "aws aws_s3_bucket logs"
        );
    }

    #[test]
    fn a_duration_has_one_or_two_units() {
        let said = |seconds: f64| took(Duration::from_secs_f64(seconds));
        assert_eq!(
            [0.42, 18.0, 125.0, 3780.0].map(said),
            ["0.4 s", "18 s", "2 min 5 s", "1 h 3 min"]
        );
    }

    #[test]
    fn counts_leave_out_nothing_and_plurals_read_well() {
        let summary = Summary {
            create: 1,
            delete: 2,
            unchanged: 9,
            ..Summary::default()
        };
        assert_eq!(counts(&summary), "1 to create, 2 to delete");
        assert_eq!(counts(&Summary::default()), "no change");
        let adopted = Summary {
            adopt: 5,
            adopt_changed: 2,
            delete: 1,
            ..Summary::default()
        };
        assert_eq!(counts(&adopted), "1 to delete, 5 to adopt (2 with changes)");
        let unchanged = Summary {
            adopt_changed: 0,
            ..adopted
        };
        assert_eq!(
            counts(&(unchanged + adopted)),
            "2 to delete, 10 to adopt (2 with changes)"
        );
        assert_eq!(
            (plural(1, "stack"), plural(2, "policy")),
            ("1 stack".into(), "2 policies".into())
        );
    }
}
