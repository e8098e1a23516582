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

/// The maximum number of annotations of a step: GitHub shows 10 errors and 10 warnings.
const MOST_ANNOTATIONS: usize = 20;

/// Returns at most `most` check runs: failed stacks first, then stacks with deletions or replacements, each sorted by
/// identity. Stacks that failed with the same error share one. The last check run is for all other stacks, under the
/// name of the plan's `scope`. A check run is named after its stack or the file with the error, so that the next run
/// replaces it.
pub fn checks(plan: &Plan, most: usize, scope: &str) -> Vec<CheckRun> {
    let mut stacks: Vec<_> = plan
        .stacks
        .iter()
        .filter(|s| s.error.is_some() || diff::own_summary(s).changed() > 0)
        .collect();
    stacks.sort_by(|a, b| rank(a).cmp(&rank(b)).then_with(|| a.id.cmp(&b.id)));
    let (grave, mut rest): (Vec<_>, Vec<_>) = stacks.into_iter().partition(|stack| rank(stack) < HARMLESS);
    let mut subjects = subjects(&grave);
    if subjects.is_empty() && rest.is_empty() || most == 0 {
        return Vec::new();
    }
    let own = if rest.is_empty() && subjects.len() <= most {
        subjects.len()
    } else {
        subjects.len().min(most - 1)
    };
    let beyond = subjects.split_off(own).into_iter().flatten();
    rest.splice(..0, beyond);
    let mut checks: Vec<_> = subjects.iter().map(|stacks| check_of_subject(stacks)).collect();
    if !rest.is_empty() {
        checks.push(aggregate(&rest, scope));
    }
    checks
}

/// Returns the stacks of each check run. Stacks with the same error are together, in the order of the first of them.
fn subjects<'a>(stacks: &[&'a StackPlan]) -> Vec<Vec<&'a StackPlan>> {
    let groups: Vec<_> = [false, true]
        .into_iter()
        .flat_map(|before| {
            let failed = stacks.iter().filter(move |stack| stack.fails_as_before == before);
            let failed = failed.filter(|stack| !stack.fails_in_part());
            errors::group(failed.filter_map(|stack| Some((&stack.id, stack.error.as_ref()?))))
        })
        .collect();
    let mut subjects = Vec::new();
    for stack in stacks {
        match errors::group_of(&groups, &stack.id) {
            Some(group) if group.is_shown_at(&stack.id) => {
                let of_group = stacks.iter().filter(|other| group.stacks.contains(&&other.id));
                subjects.push(of_group.copied().collect());
            }
            Some(_) => {}
            None => subjects.push(vec![*stack]),
        }
    }
    subjects
}

fn check_of_subject(stacks: &[&StackPlan]) -> CheckRun {
    let first = check(stacks[0]);
    if stacks.len() == 1 {
        return first;
    }
    let file = stacks[0].error.as_ref().and_then(|error| error.file.as_ref());
    let failed = format!(
        "{} {}",
        labels::plural(stacks.len(), "stack"),
        labels::failed(stacks[0])
    );
    let ids: Vec<_> = stacks.iter().map(|stack| &stack.id).collect();
    CheckRun {
        name: file.map_or(first.name.clone(), |file| {
            format!("konverge: {}", escape::line(file))
        }),
        title: failed.clone(),
        summary: format!("{failed}: {}.", errors::names(&ids, escape::code)),
        annotations: annotations_of(stacks),
        ..first
    }
}

/// Returns the name of a stack's check run.
pub fn name(stack: &StackId) -> String {
    format!("konverge: {}", escape::line(stack.as_str()))
}

/// Returns the annotations of a plan for the log of the job: errors at their lines. An error of many stacks appears
/// once.
pub fn annotations(plan: &Plan) -> Vec<Annotation> {
    grouped_annotations(&plan.stacks.iter().collect::<Vec<_>>())
}

fn grouped_annotations(stacks: &[&StackPlan]) -> Vec<Annotation> {
    let failed = stacks.iter();
    let groups = errors::group(failed.filter_map(|stack| Some((&stack.id, stack.error.as_ref()?))));
    let of_group = |group: &errors::ErrorGroup<'_>| {
        let first = stacks.iter().find(|stack| group.is_shown_at(&stack.id))?;
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

/// Returns the annotations of a check run. GitHub accepts them only with a file.
fn annotations_of(stacks: &[&StackPlan]) -> Vec<Annotation> {
    let mut notes = grouped_annotations(stacks);
    notes.retain(|note| !note.file.is_empty());
    notes
}

fn rank(stack: &StackPlan) -> u8 {
    match stack {
        s if s.error.is_some() => 0,
        s if s.resources.iter().any(is_grave) => 1,
        _ => HARMLESS,
    }
}

/// The rank of a stack that gets no check run of its own.
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
        // A severe change is no error, because the review and the policies decide whether it is allowed.
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

/// Returns annotations for the findings of policy sets that deny, warn or could not be decided.
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

/// Returns the lines of a message for a place in GitHub that shows plain text.
fn visible_lines(message: &str) -> String {
    let lines: Vec<_> = escape::lines(message).collect();
    lines.join("\n")
}

/// Returns the counts of a stack's own changes. Existing differences are counted separately.
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
    // Shows the diffs of as many stacks as fit.
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
        annotations: annotations_of(rest),
    }
}

/// The minimum room in bytes for the diff of a stack.
const LEAST: usize = 2048;

#[cfg(test)]
mod tests {
    use super::*;
    use konverge_base::{
        error::{ErrorKind, UserError},
        model::{RepoPath, plan::Basis},
    };

    #[test]
    fn one_error_of_many_stacks_is_one_check_run_and_one_annotation() {
        let failed = |at: usize, file: &str| {
            let error = UserError::new(ErrorKind::Kcl, "invalid syntax").at(file, Some(7), Some(1));
            let id = format!("app-{at:02}/dev").parse().unwrap();
            StackPlan::failed(RepoPath::root(), id, Basis::Live, error.body())
        };
        let mut stacks: Vec<_> = (0..39).map(|at| failed(at, "base/base.k")).collect();
        stacks.push(failed(39, "apps/own.k"));
        let plan = Plan { version: 1, stacks };
        let found = checks(&plan, 50, "");
        let names: Vec<_> = found.iter().map(|check| check.name.as_str()).collect();
        assert_eq!(names, ["konverge: base/base.k", "konverge: app-39/dev"]);
        assert_eq!(found[0].title, "39 stacks could not be planned");
        assert!(found[0].summary.contains("`app-00/dev`"), "{}", found[0].summary);
        for check in &found {
            assert_eq!(check.annotations.len(), 1, "{}", check.name);
        }
        // What has no check run of its own is one annotation too.
        let rest = checks(&plan, 1, "");
        assert_eq!(rest.len(), 1);
        assert_eq!(rest[0].annotations.len(), 2);
    }
}
