//! The results of a scheduled drift check, for the job summary.

use std::{collections::BTreeMap, time::Duration};

use super::{bounded_writer::BoundedWriter, stack_details::drift_text};
use crate::{RunInfo, drift_text::drift_counts, escape, labels};
use konverge_base::{
    error::ErrorBody,
    model::{
        StackId,
        apply_result::{ApplyReport, StackOutcome, StackResult},
        plan::{Plan, StackPlan},
        text::with_rest,
    },
};

/// The maximum number of stacks that a sentence names; the others are counted.
const NAMED: usize = 20;

/// The results of one drift check.
#[derive(Debug, Clone, Copy)]
pub struct DriftRound<'a> {
    /// The difference of each checked stack.
    pub plan: &'a Plan,
    /// The number of applied stacks, which the checks go through in turn.
    pub applied: usize,
    /// The stack that was least recently checked, and how long ago that was; `None` if it was never checked.
    pub waiting: Option<(&'a StackId, Option<Duration>)>,
    /// The time for which each difference has been known, by stack.
    pub known_for: &'a BTreeMap<StackId, Duration>,
    /// The stacks with pending changes on the default branch.
    pub behind: &'a [StackId],
    /// The age of the last successful run, if it is too old.
    pub overdue: Option<Duration>,
    /// The results for the stacks that were restored.
    pub restored: &'a ApplyReport,
}

/// Renders the headline, overdue checks, and the drifted stacks with their age and differences, in at most `budget`
/// bytes.
pub fn drift_round(round: &DriftRound<'_>, run: &RunInfo, budget: usize) -> String {
    let mut page = BoundedWriter::new(budget.max(4096));
    let drifted: Vec<_> = round
        .plan
        .stacks
        .iter()
        .filter(|stack| stack.summary.changed() > 0)
        .collect();
    let failed = round.plan.stacks.iter().filter(|stack| stack.error.is_some());
    let mut verdict = format!(
        "### Konverge drift: {} of {} {}",
        drifted.len(),
        labels::plural(round.plan.stacks.len(), "stack"),
        if drifted.len() == 1 { "differs" } else { "differ" }
    );
    let failed = failed.count();
    if failed > 0 {
        verdict.push_str(&format!(" · {failed} could not be checked"));
    }
    page.try_push(&format!("{verdict}\n\n"));
    for alert in [overdue(round.overdue), pending_note(round.behind)]
        .into_iter()
        .flatten()
    {
        page.try_push(&alert);
    }
    page.try_push(&turns(round));
    const LAST: usize = 512;
    page.reserve(LAST);
    let errors = round.plan.stacks.iter().filter_map(|stack| {
        let reason = reason(stack.error.as_ref()?);
        Some(format!("\n- {}: {reason}\n", escape::code(stack.id.as_str())))
    });
    let mut omitted = page.push_each(errors);
    for (at, stack) in drifted.iter().enumerate() {
        let row = row(stack, round);
        let head = "\n| Stack | Differs | Known for | Restored |\n| --- | --- | --- | --- |\n";
        let block = if at == 0 { format!("{head}{row}") } else { row };
        omitted += usize::from(!page.try_push(&block));
    }
    for stack in &drifted {
        let heading = format!("\n#### {}\n\n", escape::code(stack.id.as_str()));
        let room = (page.room() / drifted.len()).saturating_sub(heading.len());
        let text = heading + &drift_text(stack, room);
        omitted += usize::from(!page.try_push(&text));
    }
    page.release(LAST);
    if omitted > 0 {
        page.try_push("\nOmitted to fit the size limit; see the issues and the JSON result.\n");
    }
    if let Some(url) = &run.run_url {
        page.try_push(&format!("\n<sub>{}</sub>\n", escape::link("run", url)));
    }
    page.into_text()
}

/// Returns the alert that no drift check has succeeded for too long.
fn overdue(since: Option<Duration>) -> Option<String> {
    since.map(|since| {
        format!(
            "> [!WARNING]\n> No successful drift check for {} (`drift.stale_after`).\n\n",
            labels::age(since)
        )
    })
}

fn pending_note(stacks: &[StackId]) -> Option<String> {
    if stacks.is_empty() {
        return None;
    }
    let names = with_rest(stacks.iter().map(|stack| escape::code(stack.as_str())), NAMED);
    Some(format!(
        "> [!WARNING]\n> The default branch is ahead of what is applied for {}: {}. Run the apply job again if none is under way.\n\n",
        labels::plural(stacks.len(), "stack"),
        names.join(", ")
    ))
}

fn turns(round: &DriftRound<'_>) -> String {
    let looked = round.plan.stacks.len();
    let waiting = match round.waiting {
        Some((stack, Some(ago))) if looked < round.applied => format!(
            " Least recently checked: {}, {} ago.",
            escape::code(stack.as_str()),
            labels::age(ago)
        ),
        Some((stack, None)) if looked < round.applied => {
            format!(
                " Not checked yet: {} and maybe others.",
                escape::code(stack.as_str())
            )
        }
        _ => String::new(),
    };
    format!(
        "Checked {looked} of {} that were applied.{waiting}\n",
        labels::plural(round.applied, "stack")
    )
}

fn row(stack: &StackPlan, round: &DriftRound<'_>) -> String {
    let known_for = round.known_for.get(&stack.id).map(|time| labels::age(*time));
    let restored = round
        .restored
        .stacks
        .iter()
        .find(|outcome| outcome.id == stack.id);
    format!(
        "| {} | {} | {} | {} |\n",
        escape::cell(stack.id.as_str()),
        drift_counts(stack).join(", "),
        known_for.unwrap_or_default(),
        restored.map(restored_text).unwrap_or_default()
    )
}

fn restored_text(outcome: &StackOutcome) -> String {
    match (&outcome.error, outcome.result) {
        (_, StackResult::Applied | StackResult::Unchanged) => "yes".to_owned(),
        (_, StackResult::Waiting) => "written, and waits".to_owned(),
        (Some(error), _) => format!("**no**: {}", reason(error)),
        (None, _) => "**no**".to_owned(),
    }
}

fn reason(error: &ErrorBody) -> String {
    let why: String = error.message.lines().collect::<Vec<_>>().join(" ");
    escape::cell(&why.chars().take(300).collect::<String>())
}

#[cfg(test)]
mod tests {
    use super::*;
    use konverge_base::model::{
        Digest, RepoPath,
        authorization::Authorization,
        plan::{Action, Basis, ResourcePlan},
        spec::RuntimeKind,
    };

    fn drifted(id: &str) -> StackPlan {
        let stack: StackId = id.parse().unwrap();
        let resource = ResourcePlan::new(
            &stack,
            "v1:ConfigMap:shop:web".parse().unwrap(),
            RuntimeKind::Kubernetes,
            Action::Update,
            vec![],
        );
        StackPlan::new(RepoPath::root(), stack, Basis::Live, vec![resource])
    }

    #[test]
    fn it_says_what_differs_since_when_what_is_late_and_what_was_put_back() {
        let plan = Plan {
            version: 1,
            stacks: vec![drifted("shop/dev"), drifted("shop/prod")],
        };
        let hour = Duration::from_secs(3600);
        let ids: Vec<StackId> = ["shop/dev", "shop/prod", "old/prod"]
            .iter()
            .map(|id| id.parse().unwrap())
            .collect();
        let restored = ApplyReport {
            version: 1,
            stacks: vec![StackOutcome {
                stack: RepoPath::root(),
                id: ids[1].clone(),
                result: StackResult::Applied,
                digest: Digest::of_bytes(b""),
                serial: Some(2),
                waiting: None,
                grounds: Authorization::default(),
                resources: Vec::new(),
                error: None,
            }],
        };
        let round = DriftRound {
            plan: &plan,
            applied: 9,
            waiting: Some((&ids[2], Some(hour * 72))),
            known_for: &BTreeMap::from([(ids[0].clone(), hour * 5)]),
            behind: &ids[2..],
            overdue: Some(hour * 49),
            restored: &restored,
        };
        let text = drift_round(&round, &RunInfo::default(), 100_000);
        for said in [
            "2 of 2 stacks differ",
            "No successful drift check for 2 d",
            "ahead of what is applied for 1 stack: `old/prod`",
            "Checked 2 of 9 stacks that were applied. Least recently checked: `old/prod`, 3 d ago.",
            "| `shop/dev` | 1 changed | 5 h |  |",
            "| `shop/prod` | 1 changed |  | yes |",
        ] {
            assert!(text.contains(said), "{said}: {text}");
        }
        let short = drift_round(&round, &RunInfo::default(), 4096);
        assert!(short.len() <= 4096 && short.contains("old/prod"), "{short}");
    }
}
