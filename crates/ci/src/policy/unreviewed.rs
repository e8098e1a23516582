//! The errors for changes that nobody reviewed, or that differ from the reviewed ones.

use crate::policy::pull_head::PullHead;
use konverge_base::{
    error::{ErrorKind, UserError},
    model::{
        Digest, StackId,
        plan::StackPlan,
        review::{ReviewUnit, stack_units},
        text::with_rest,
    },
};
use konverge_policy::{Objection, Unreviewed};

/// Returns the error for unreviewed changes. `lines` describe the changes; only the first of them are shown.
pub(crate) fn refusal(what: &str, lines: &[String]) -> UserError {
    const SHOWN: usize = 5;
    let lines = with_rest(lines.iter().cloned(), SHOWN);
    UserError::new(ErrorKind::Unreviewed, format!("{what}:\n{}", lines.join("\n")))
}

/// Returns the error for drift that differs from the approved drift. `found` is the present drift, with its digest.
pub(crate) fn another_difference(found: &StackPlan, digest: Digest) -> UserError {
    let stack = &found.id;
    if found.summary.changed() == 0 {
        return UserError::new(
            ErrorKind::Unreviewed,
            format!("{stack} no longer differs from what was applied: nothing was restored"),
        );
    }
    let what = format!("{stack} was not restored: the given digest is not that of its present difference");
    let lines: Vec<_> = stack_units(found).iter().map(describe_unit).collect();
    refusal(&what, &lines)
        .hint("read the drift issue, which shows this difference now")
        .hint(format!(
            "to restore exactly this, start the workflow manually with `approve: {digest}`"
        ))
}

/// Returns the error for a stack of which no drift was approved.
pub(crate) fn no_difference(stack: &StackId) -> UserError {
    let what = format!("{stack} was not restored: it could not be compared with what was applied");
    UserError::new(ErrorKind::Unreviewed, what).hint("run the drift check again")
}

/// Adds to the error of a rule the pull requests that the rule stops.
pub(crate) fn naming(mut refusal: UserError, pulls: &[PullHead]) -> UserError {
    let numbers: Vec<_> = pulls.iter().map(|pull| format!("#{}", pull.number)).collect();
    if !numbers.is_empty() {
        refusal
            .message
            .push_str(&format!("\nbrought by {}", numbers.join(", ")));
    }
    refusal
}

fn describe(unreviewed: &Unreviewed, restores: bool) -> String {
    let Unreviewed { unit, objection } = unreviewed;
    let why = match objection {
        Objection::Unseen => "no merged pull request showed this change",
        Objection::BaseChanged => {
            "the live value is neither the reviewed value nor the last one that Konverge wrote"
        }
        Objection::OnlySpecs => {
            "it was reviewed without a cluster (Spec compared with Spec), and this stack was never applied"
        }
        Objection::Drifted if restores => "it changed after the approved difference was planned",
        Objection::Drifted => {
            "it was changed outside Konverge since the last apply, and policy.drift is `stop`"
        }
    };
    format!("{}: {why}", describe_unit(unit))
}

/// Describes unreviewed changes, one line each.
pub(crate) fn describe_all(objections: &[Unreviewed], restores: bool) -> Vec<String> {
    objections.iter().map(|one| describe(one, restores)).collect()
}

/// Describes a change, for example `update v1:ConfigMap:shop:web at /data/value`.
fn describe_unit(unit: &ReviewUnit) -> String {
    let path = if unit.path.is_root() {
        String::new()
    } else {
        format!(" at {}", unit.path)
    };
    format!("{} {}{path}", unit.action, unit.resource)
}
