//! The check runs of a preview: one for all stacks, and one for each stack that failed or deletes something.

use super::{
    CHECK_BUDGET, diff, errors, escape,
    labels::{self, is_grave},
    markdown,
};
use konverge_base::{
    error::ErrorBody,
    model::{
        ResourceId, StackId,
        check_run::{Annotation, CheckRun, Conclusion, Level},
        plan::{Plan, StackPlan, Summary},
        policy_finding::{Enforcement, PolicyFinding},
    },
};

/// GitHub shows 10 errors and 10 warnings of a step.
const MOST_ANNOTATIONS: usize = 20;

/// At most `most` check runs: failed stacks first, then stacks with deletions or replacements, each sorted by
/// identity. The last one is about all other stacks, under the name of the plan's `scope`. The name of a check
/// run is that of its stack, so the next run replaces it.
pub fn checks(plan: &Plan, most: usize, scope: &str) -> Vec<CheckRun> {
    let mut stacks: Vec<_> = plan
        .stacks
        .iter()
        .filter(|s| s.error.is_some() || diff::own_summary(s).changed() > 0)
        .collect();
    stacks.sort_by(|a, b| rank(a).cmp(&rank(b)).then_with(|| a.id.cmp(&b.id)));
    let grave = stacks.iter().filter(|stack| rank(stack) < HARMLESS).count();
    if stacks.is_empty() || most == 0 {
        return Vec::new();
    }
    let own = if grave == stacks.len() && grave <= most {
        grave
    } else {
        grave.min(most - 1)
    };
    let (shown, rest) = stacks.split_at(own);
    let mut checks: Vec<_> = shown.iter().map(|s| check(s)).collect();
    if !rest.is_empty() {
        checks.push(aggregate(rest, scope));
    }
    checks
}

/// The name of a stack's check run.
pub fn name(stack: &StackId) -> String {
    format!("konverge: {}", escape::line(stack.as_str()))
}

/// The annotations of a plan: errors at their lines, for the log of the job. An error of many stacks is shown once.
pub fn annotations(plan: &Plan) -> Vec<Annotation> {
    let failed = plan.stacks.iter();
    let groups = errors::group(failed.filter_map(|stack| Some((&stack.id, stack.error.as_ref()?))));
    let of_group = |group: &errors::ErrorGroup<'_>| {
        let first = plan.stacks.iter().find(|stack| group.is_shown_at(&stack.id))?;
        let mut note = annotation(first, group.error);
        if group.stacks.len() > 1 {
            note.title = format!(
                "{} {}",
                labels::plural(group.stacks.len(), "stack"),
                labels::failed(first)
            );
            note.message = visible_lines(&format!("{}\nin {}", group.message(), group.names(str::to_owned)));
        }
        Some(note)
    };
    groups.iter().filter_map(of_group).collect()
}

fn rank(stack: &StackPlan) -> u8 {
    match stack {
        s if s.error.is_some() => 0,
        s if s.resources.iter().any(is_grave) => 1,
        _ => HARMLESS,
    }
}

/// The rank of a stack without a check run of its own.
const HARMLESS: u8 = 2;

fn check(stack: &StackPlan) -> CheckRun {
    let name = name(&stack.id);
    if let Some(error) = &stack.error {
        let note = annotation(stack, error);
        return CheckRun {
            name,
            conclusion: if stack.fails_as_before {
                Conclusion::Neutral
            } else {
                Conclusion::Failure
            },
            title: labels::failed(stack).to_owned(),
            summary: format!(
                "{} {}. {}",
                escape::code(stack.id.as_str()),
                labels::failed(stack),
                labels::left_as_it_is(stack).unwrap_or_default()
            ),
            text: markdown::stack_text(stack, CHECK_BUDGET),
            annotations: if note.file.is_empty() {
                Vec::new()
            } else {
                vec![note]
            },
        };
    }
    let counts = counts(stack);
    CheckRun {
        name,
        // A severe change is not an error: the review and the policies decide whether it is allowed.
        conclusion: if stack.resources.iter().any(is_grave) {
            Conclusion::Neutral
        } else {
            Conclusion::Success
        },
        title: counts.clone(),
        summary: format!(
            "{}: {counts}. Digest `{}`.",
            escape::code(stack.id.as_str()),
            stack.digest.short()
        ),
        text: markdown::stack_text(stack, CHECK_BUDGET),
        annotations: Vec::new(),
    }
}

fn annotation(stack: &StackPlan, error: &ErrorBody) -> Annotation {
    Annotation {
        level: if stack.fails_as_before {
            Level::Warning
        } else {
            Level::Error
        },
        file: error.file.clone().unwrap_or_default(),
        line: error.line,
        column: error.column,
        title: format!("{} {}", stack.id, labels::failed(stack)),
        message: visible_lines(&error.message),
    }
}

/// The annotations of what policy sets deny, warn about or cannot decide.
pub fn finding_annotations(findings: &[PolicyFinding]) -> Vec<Annotation> {
    let of_sets = findings.iter().filter_map(|finding| {
        let place = finding.place.as_ref()?;
        let level = match finding.verdict {
            Enforcement::Deny => Level::Error,
            Enforcement::Undecided | Enforcement::Warn => Level::Warning,
            Enforcement::Pass => return None,
        };
        let stack = finding.stack.as_ref().map_or("", StackId::as_str);
        let resource = place.resource.as_ref().map_or("", ResourceId::as_str);
        let path = place.path.as_deref().unwrap_or_default();
        let mut message = format!("{stack} {resource}{path}: {}", finding.message);
        if let Some(hint) = &finding.hint {
            message.push_str("\nhint: ");
            message.push_str(hint);
        }
        Some(Annotation {
            level,
            file: String::new(),
            line: None,
            column: None,
            title: format!("policy {}", finding.rule),
            message: visible_lines(&message),
        })
    });
    of_sets.take(MOST_ANNOTATIONS).collect()
}

/// The lines of a message for GitHub's interface, which shows them as plain text.
fn visible_lines(message: &str) -> String {
    let lines: Vec<_> = escape::lines(message).collect();
    lines.join("\n")
}

/// The counts of a stack's own changes. What differs already is counted apart.
fn counts(stack: &StackPlan) -> String {
    let own = labels::counts(&diff::own_summary(stack));
    match diff::drifted(stack) {
        0 => own,
        1 => format!("{own}; 1 resource differs already"),
        drifted => format!("{own}; {drifted} resources differ already"),
    }
}

fn aggregate(rest: &[&StackPlan], scope: &str) -> CheckRun {
    let is_failed = |stack: &&&StackPlan| stack.error.is_some() && !stack.fails_as_before;
    let failed = rest.iter().filter(is_failed).count();
    let total = rest
        .iter()
        .fold(Summary::default(), |sum, stack| sum + diff::own_summary(stack));
    let mut text = String::new();
    let mut left_out = 0;
    for stack in rest {
        let what = match stack.error {
            Some(_) => labels::failed(stack).to_owned(),
            None => counts(stack),
        };
        let line = format!("- {}: {what}\n", escape::code(stack.id.as_str()));
        if text.len() + line.len() > CHECK_BUDGET {
            left_out += 1;
        } else {
            text.push_str(&line);
        }
    }
    if left_out > 0 {
        text.push_str(&format!("- and {left_out} more\n"));
    }
    // The diffs of as many stacks as fit.
    for stack in rest {
        let heading = format!("\n### {}\n\n", escape::code(stack.id.as_str()));
        let room = CHECK_BUDGET.saturating_sub(text.len() + heading.len());
        if room < LEAST {
            break;
        }
        let body = markdown::stack_text(stack, room);
        text.push_str(&heading);
        text.push_str(&body);
    }
    let counts = labels::counts(&total);
    CheckRun {
        name: format!("konverge: plan {}", escape::line(scope))
            .trim_end()
            .to_owned(),
        conclusion: if failed > 0 {
            Conclusion::Failure
        } else if rest.iter().any(|stack| stack.resources.iter().any(is_grave)) {
            Conclusion::Neutral
        } else {
            Conclusion::Success
        },
        title: format!("{counts} in {}", labels::plural(rest.len(), "stack")),
        summary: format!(
            "{counts} in {}; {failed} failed.",
            labels::plural(rest.len(), "stack")
        ),
        text,
        annotations: rest
            .iter()
            .filter_map(|s| s.error.as_ref().map(|e| annotation(s, e)))
            .filter(|note| !note.file.is_empty())
            .collect(),
    }
}

/// The least room for the diff of a stack.
const LEAST: usize = 2048;
