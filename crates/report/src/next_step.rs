//! Computes the next steps of a reader, for the top of the comment: errors to fix, changes to check, approvals, the
//! merge.

use super::{CommentInput, Merging, labels, sums::Sums, view_model::PlanView};
use konverge_base::model::policy_finding::{Enforcement, PolicyFinding};

/// The rules that an approval satisfies.
const APPROVALS: [&str; 2] = ["policy.approvals", "policy.reviewers"];

/// Returns the next steps as a sentence without a subject: `check what is deleted or replaced, get the approval, then
/// merge`. `None` if a merge applies nothing, or its effect is still unknown.
pub(super) fn next_steps(input: &CommentInput<'_>, view: &PlanView<'_>) -> Option<String> {
    let merges = match input.mode.merging {
        Merging::Applies | Merging::Outside => true,
        Merging::NoStore | Merging::Unreviewed | Merging::OtherBranch | Merging::Queued => false,
    };
    if !merges || view.introduces || view.changes_nothing() {
        return None;
    }
    let others_changed = !view.changed_by_others().is_empty() || view.restored > 0;
    let own = || view.stacks.iter().flat_map(|stack| &stack.own);
    let loses_data = own().any(|resource| resource.data_loss);
    let is_grave = own().any(|resource| labels::is_grave(resource));
    let may_replace = own().any(|resource| !resource.immutable.is_empty());
    let denials = || {
        let findings = input.findings.iter();
        findings.filter(|finding| finding.verdict == Enforcement::Deny)
    };
    let lacks_approval = |finding: &PolicyFinding| APPROVALS.contains(&finding.rule.as_str());
    let is_denied = denials().any(|finding| !lacks_approval(finding));
    let needs_approval = Sums::of_view(view).needs_approval() || denials().any(lacks_approval);
    let steps = [
        (view.failed > view.failed_before, "fix what could not be planned"),
        (is_denied, "settle what blocks the apply"),
        (
            others_changed && input.mode.stops_at_drift,
            "settle what others changed",
        ),
        (loses_data, "save the data that is lost"),
        (is_grave && !loses_data, "check what is deleted or replaced"),
        (may_replace, "check what may be replaced"),
        (
            others_changed && !input.mode.stops_at_drift,
            "check what is taken back",
        ),
        (
            view.total.adopt_changed > 0,
            "check what changes with the takeover",
        ),
        (!input.power.is_empty(), "check what grants permissions"),
        (needs_approval, "get the approval"),
        (true, "merge"),
    ];
    let steps: Vec<_> = steps
        .into_iter()
        .filter_map(|(is_due, step)| is_due.then_some(step))
        .collect();
    Some(match steps.as_slice() {
        [last] => (*last).to_owned(),
        [first, last] => format!("{first}, then {last}"),
        [first @ .., last] => format!("{}, then {last}", first.join(", ")),
        [] => return None,
    })
}
