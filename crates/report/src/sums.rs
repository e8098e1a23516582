//! The totals of a change that matter for a decision: restarted pods, lost data, and who must approve.

use std::collections::{BTreeMap, BTreeSet};

use super::{labels, view_model::PlanView};
use konverge_base::model::plan::{Action, Basis, PodImpact};

/// The maximum number of environments, and of groups of people, that are listed.
const NAMED: usize = 5;

/// The totals of a plan.
#[derive(Debug, Default)]
pub(super) struct Sums<'a> {
    /// The number of restarted pods by environment, production first.
    restarts: BTreeMap<(bool, &'a str), u64>,
    starts: u64,
    ends: u64,
    lost: usize,
    lost_in_production: usize,
    /// The sentence for a change that is certainly harmless.
    harmless: Option<&'static str>,
    /// The number of stacks by the names of the people who must approve, and the number of approvals.
    asked: BTreeMap<(&'a [String], u32), usize>,
}

impl<'a> Sums<'a> {
    pub(super) fn of_view(view: &'a PlanView<'_>) -> Self {
        let mut sums = Self::default();
        for stack in &view.stacks {
            for resource in &stack.own {
                let PodImpact {
                    restarts: restarted,
                    starts,
                    ends,
                } = resource.pods;
                if restarted > 0 {
                    let environment = (!stack.is_production(), stack.environment());
                    *sums.restarts.entry(environment).or_default() += restarted;
                }
                sums.starts += starts;
                sums.ends += ends;
                sums.lost += usize::from(resource.data_loss);
                sums.lost_in_production += usize::from(resource.data_loss && stack.is_production());
            }
        }
        let taken_over = view.taken_over.iter().map(|stack| stack.context);
        let contexts = view.stacks.iter().map(|stack| stack.context).chain(taken_over);
        for context in contexts.flatten() {
            if context.approvals > 0 || !context.reviewers.is_empty() {
                let people = (&context.reviewers[..], context.approvals);
                *sums.asked.entry(people).or_default() += 1;
            }
        }
        sums.harmless = harmless(view);
        sums
    }

    /// Returns true if somebody must approve.
    pub(super) fn needs_approval(&self) -> bool {
        !self.asked.is_empty()
    }

    /// Returns the totals as sentences. `code` formats a name.
    pub(super) fn sentences(&self, code: impl Fn(&str) -> String) -> Vec<String> {
        let pods = |count: u64| labels::plural(usize::try_from(count).unwrap_or(usize::MAX), "pod");
        let mut parts: Vec<_> = self.harmless.map(str::to_owned).into_iter().collect();
        let restarted: u64 = self.restarts.values().sum();
        if restarted > 0 {
            let named = self.restarts.iter().take(NAMED);
            let mut named: Vec<_> = named
                .map(|((_, environment), pods)| format!("{} {pods}", code(environment)))
                .collect();
            let rest: u64 = self.restarts.values().skip(NAMED).sum();
            named.extend((rest > 0).then(|| format!("others {rest}")));
            parts.push(format!("restarts {}: {}", pods(restarted), named.join(", ")));
        }
        for (word, count) in [("starts", self.starts), ("ends", self.ends)] {
            parts.extend((count > 0).then(|| format!("{word} {}", pods(count))));
        }
        if self.lost > 0 {
            let lost =
                labels::with_production(labels::plural(self.lost, "resource"), self.lost_in_production);
            parts.push(format!("data or an address is lost with {lost}"));
        }
        parts.extend(self.approvals(code));
        parts
    }

    /// Returns the required approvals: `needs 2 approvals, one of them by a or b (3 stacks)`.
    fn approvals(&self, code: impl Fn(&str) -> String) -> Option<String> {
        if self.asked.is_empty() {
            return None;
        }
        let one = |((reviewers, approvals), stacks): (&(&[String], u32), &usize)| {
            let people: BTreeSet<_> = reviewers.iter().map(|name| code(name)).collect();
            let people = people.into_iter().collect::<Vec<_>>().join(" or ");
            let by = match (people.is_empty(), *approvals > 1) {
                (true, _) => String::new(),
                (false, false) => format!(" by {people}"),
                (false, true) => format!(", one of them by {people}"),
            };
            let approvals = labels::plural((*approvals).max(1) as usize, "approval");
            format!("{approvals}{by} ({})", labels::plural(*stacks, "stack"))
        };
        let mut named: Vec<_> = self.asked.iter().take(NAMED).map(one).collect();
        let rest: usize = self.asked.values().skip(NAMED).sum();
        named.extend((rest > 0).then(|| format!("others ({})", labels::plural(rest, "stack"))));
        Some(format!("needs {}", named.join("; ")))
    }
}

/// Returns a sentence that the change destroys nothing, if that is certain: every stack was planned on its cluster, and
/// no action is unknown.
fn harmless(view: &PlanView<'_>) -> Option<&'static str> {
    let own = || view.stacks.iter().flat_map(|stack| &stack.own);
    let is_known = view
        .stacks
        .iter()
        .all(|stack| stack.plan.error.is_none() && stack.plan.basis == Basis::Live)
        && own().all(|resource| resource.action != Action::Unknown && resource.immutable.is_empty());
    if !is_known || own().any(|resource| labels::is_grave(resource)) || own().next().is_none() {
        return None;
    }
    let changes_what_is_there = view.restored > 0 || own().any(|resource| resource.action != Action::Create);
    Some(if changes_what_is_there || !view.drifted.is_empty() {
        "deletes and replaces nothing"
    } else {
        "changes no existing object"
    })
}
