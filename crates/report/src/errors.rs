//! Groups equal errors of several stacks, so that each error is shown once, with the number of its stacks.

use super::{escape, labels::plural};
use konverge_base::{
    error::ErrorBody,
    model::{
        StackId,
        apply_result::{ApplyReport, StackOutcome, StackResult},
        text::{first_few, split_place_count, truncate},
    },
};

/// The maximum number of stacks that a group lists.
const NAMED: usize = 10;

/// Stacks with the same error.
pub struct ErrorGroup<'a> {
    /// The error that is shown for all stacks: the one with the fewest hints, because more hints are about other errors
    /// that follow in single stacks.
    pub error: &'a ErrorBody,
    /// The stacks, in the order in which they were given.
    pub stacks: Vec<&'a StackId>,
    messages: Vec<&'a str>,
}

/// Groups errors that begin with the same cause at the same position, because other errors may follow in each stack. If
/// no file is named, the hints must be the same, too, because they may be about the stack.
pub fn group<'a>(errors: impl IntoIterator<Item = (&'a StackId, &'a ErrorBody)>) -> Vec<ErrorGroup<'a>> {
    let mut groups: Vec<ErrorGroup<'a>> = Vec::new();
    for (stack, error) in errors {
        let message = unnamed(stack, &error.message);
        let known = groups.iter_mut().find(|group| {
            let place = |error: &'a ErrorBody| (error.kind, &error.file, error.line, error.column);
            place(group.error) == place(error)
                && first_cause(group.messages[0]) == first_cause(message)
                && (error.file.is_some() || group.error.hints == error.hints)
        });
        match known {
            Some(group) => {
                if error.hints.len() < group.error.hints.len() {
                    group.error = error;
                }
                group.stacks.push(stack);
                group.messages.push(message);
            }
            None => groups.push(ErrorGroup {
                error,
                stacks: vec![stack],
                messages: vec![message],
            }),
        }
    }
    groups
}

fn first_cause(message: &str) -> &str {
    split_place_count(message.lines().next().unwrap_or_default()).0
}

/// Returns the stacks of an apply that ended with the same error and result before anything of them was changed. Stacks
/// with an error of their own are in no group.
pub fn equal_outcomes(report: &ApplyReport) -> Vec<ErrorGroup<'_>> {
    let untouched = |stack: &&StackOutcome| stack.resources.is_empty() && stack.serial.is_none();
    let of = |result: StackResult| {
        let stacks = report.stacks.iter().filter(move |stack| stack.result == result);
        group(
            stacks
                .filter(untouched)
                .filter_map(|stack| Some((&stack.id, stack.error.as_ref()?))),
        )
    };
    let results = [StackResult::Failed, StackResult::Stopped, StackResult::HeldBack];
    let groups = results.into_iter().flat_map(of);
    groups.filter(|group| group.stacks.len() > 1).collect()
}

/// Returns the group that contains a stack.
pub fn group_of<'g, 'a>(groups: &'g [ErrorGroup<'a>], stack: &StackId) -> Option<&'g ErrorGroup<'a>> {
    groups.iter().find(|group| group.stacks.contains(&stack))
}

impl ErrorGroup<'_> {
    /// Returns true if the group is shown at this stack.
    pub fn is_shown_at(&self, stack: &StackId) -> bool {
        self.stacks.first() == Some(&stack)
    }

    /// Returns the message without the lines that only some stacks have; their number is given. Causes with different
    /// numbers of positions count as the same.
    pub fn message(&self) -> String {
        let (first, others) = self.messages.split_first().expect("a group has a stack");
        let mut lines = Vec::new();
        for line in first.lines() {
            let (cause, count) = split_place_count(line);
            let same = |other: &&str| -> Option<String> {
                let mut lines = other.lines().map(split_place_count);
                lines.find(|its| its.0 == cause).map(|its| its.1.to_owned())
            };
            let found: Vec<String> = others.iter().filter_map(same).collect();
            if found.len() == others.len() {
                let is_equal = found.iter().all(|its| its == count);
                lines.push(if is_equal {
                    line.to_owned()
                } else {
                    format!("{cause} (and in more places)")
                });
            }
        }
        let count = |message: &&str| message.lines().count() - lines.len().min(message.lines().count());
        let left_out: usize = self.messages.iter().map(count).sum();
        if left_out > 0 {
            lines.push(format!(
                "… and {} that only some of the stacks have",
                plural(left_out, "line")
            ));
        }
        lines.join("\n")
    }

    /// Returns at most ten of the stacks: `a/dev, b/dev and 3 more`.
    pub fn names(&self, write: impl Fn(&str) -> String) -> String {
        names(&self.stacks, write)
    }
}

/// Returns at most ten stacks: `a/dev, b/dev and 3 more`.
pub(super) fn names(stacks: &[&StackId], write: impl Fn(&str) -> String) -> String {
    first_few(stacks.iter().map(|id| write(id.as_str())), NAMED)
}

/// Removes the name of the stack from a message.
fn unnamed<'a>(stack: &StackId, message: &'a str) -> &'a str {
    let rest = message
        .strip_prefix("stack ")
        .and_then(|rest| rest.strip_prefix(stack.as_str()));
    rest.and_then(|rest| rest.strip_prefix(": ")).unwrap_or(message)
}

/// The maximum number of lines of an error that a comment shows, besides the line with the number of the others.
const SHOWN_LINES: usize = 8;

/// The maximum number of bytes of such a line.
const SHOWN_COLUMNS: usize = 400;

/// Returns at most `most` lines of a message, and a line with the number of the others.
pub(super) fn first_lines<'t>(lines: impl Iterator<Item = &'t str>, most: usize) -> Vec<String> {
    let lines: Vec<_> = lines.collect();
    let shown = lines.iter().take(most);
    let shown = shown.map(|line| truncate(&escape::line(line), SHOWN_COLUMNS).into_owned());
    let more = lines.len().saturating_sub(most);
    let rest = (more > 0).then(|| format!("… ({more} more lines)"));
    shown.chain(rest).collect()
}

/// Returns an excerpt of an error: its first lines, which contain the first causes, and the last line, where many
/// programs report the final error. The number of the lines between is given.
pub fn excerpt(message: &str) -> Vec<String> {
    let lines: Vec<String> = escape::lines(message)
        .map(|line| truncate(&line, SHOWN_COLUMNS).into_owned())
        .collect();
    let left_out = lines.len().saturating_sub(SHOWN_LINES);
    if left_out == 0 {
        return lines;
    }
    let (first, rest) = lines.split_at(SHOWN_LINES - 1);
    let between = format!("… {}", plural(left_out, "more line"));
    [first, &[between], &rest[left_out..]].concat()
}

#[cfg(test)]
mod tests {
    use super::*;
    use konverge_base::error::{ErrorKind, UserError};

    #[test]
    fn of_a_long_error_the_first_causes_are_shown() {
        let lines: Vec<_> = (1..=50).map(|n| format!("line {n}")).collect();
        let shown = excerpt(&lines.join("\n"));
        assert_eq!(
            shown,
            [
                "line 1",
                "line 2",
                "line 3",
                "line 4",
                "line 5",
                "line 6",
                "line 7",
                "… 42 more lines",
                "line 50"
            ]
        );
        assert_eq!(excerpt("one\ntwo"), ["one", "two"]);
        assert_eq!(excerpt(&lines[..8].join("\n")), lines[..8]);
    }

    #[test]
    fn one_root_is_one_group_whatever_follows_from_it() {
        let ids: Vec<StackId> = ["a/dev", "b/dev", "c/dev"].map(|id| id.parse().unwrap()).into();
        let body = |follows: &str, hints: &[&str]| {
            let message = format!("CompileError: name 'false' is not defined{follows}");
            let error = UserError::new(ErrorKind::Kcl, message).at("base/a.k", Some(3), None);
            hints.iter().fold(error, |error, hint| error.hint(*hint)).body()
        };
        let errors = [
            body(
                " (and in 9 more places)\n    a = false\nown.k:1:1: TypeError: own",
                &["of own.k"],
            ),
            body(" (and in 9 more places)\n    a = false", &[]),
            body("\n    a = false", &["of another"]),
        ];
        let groups = group(ids.iter().zip(&errors));
        assert_eq!(groups.len(), 1);
        assert!(groups[0].error.hints.is_empty());
        assert_eq!(
            groups[0].message(),
            "CompileError: name 'false' is not defined (and in more places)\n    a = false\n… and 1 line that only some of the stacks have"
        );
        // Without a place the hint may be about the stack.
        let plain = ["a", "b"].map(|hint| UserError::new(ErrorKind::State, "no").hint(hint).body());
        assert_eq!(group(ids.iter().zip(&plain)).len(), 2);
    }

    #[test]
    fn what_is_the_same_in_many_stacks_is_one_group() {
        let ids: Vec<StackId> = (0..16).map(|n| format!("p{n}/dev").parse().unwrap()).collect();
        let body = |id: &StackId, line: u32| {
            let message = format!("stack {id}: TypeError: no\n    a = 1\n{id}/main.k:1:1: TypeError: own");
            UserError::new(ErrorKind::Kcl, message)
                .at("base/a.k", Some(line), None)
                .body()
        };
        let mut errors: Vec<_> = ids.iter().map(|id| (id, body(id, 3))).collect();
        let other = "q/dev".parse().unwrap();
        errors.push((&other, body(&other, 4)));
        let groups = group(errors.iter().map(|(id, body)| (*id, body)));
        assert_eq!(
            groups.iter().map(|group| group.stacks.len()).collect::<Vec<_>>(),
            [16, 1]
        );
        assert_eq!(
            groups[0].message(),
            "TypeError: no\n    a = 1\n… and 16 lines that only some of the stacks have"
        );
        assert!(groups[0].names(str::to_owned).ends_with("p9/dev and 6 more"));
        assert_eq!(
            groups[1].message(),
            "TypeError: no\n    a = 1\nq/dev/main.k:1:1: TypeError: own"
        );
    }
    #[test]
    fn equal_ends_of_untouched_stacks_are_one_group() {
        use konverge_base::model::{
            Digest, RepoPath, apply_result::ResourceOutcome, authorization::Authorization,
        };
        let outcome = |id: &str, result: StackResult, message: &str| StackOutcome {
            stack: RepoPath::root(),
            id: id.parse().unwrap(),
            result,
            digest: Digest::of_set([]),
            serial: None,
            grounds: Authorization::default(),
            waiting: None,
            resources: Vec::<ResourceOutcome>::new(),
            error: Some(UserError::new(ErrorKind::Kubernetes, message).body()),
        };
        use StackResult::{Failed, Stopped};
        let mut written = outcome("e/dev", Failed, "no answer");
        written.serial = Some(3);
        let report = ApplyReport {
            stacks: vec![
                outcome("a/dev", Failed, "no answer"),
                outcome("b/dev", Stopped, "no answer"),
                outcome("c/dev", Failed, "no answer"),
                outcome("d/dev", Failed, "another one"),
                written,
            ],
            version: 1,
        };
        let groups = equal_outcomes(&report);
        assert_eq!(groups.len(), 1);
        assert_eq!(groups[0].names(str::to_owned), "a/dev, c/dev");
        for (stack, grouped, shown) in [
            ("a/dev", true, true),
            ("c/dev", true, false),
            ("b/dev", false, false),
            ("e/dev", false, false),
        ] {
            let id = stack.parse().unwrap();
            let group = group_of(&groups, &id);
            assert_eq!(group.is_some(), grouped, "{stack}");
            assert_eq!(
                group.is_some_and(|group| group.is_shown_at(&id)),
                shown,
                "{stack}"
            );
        }
        let text = crate::outcome::text(&report, crate::terminal::Style { color: false });
        assert_eq!(text.matches("no answer").count(), 3, "{text}");
        assert!(
            text.starts_with("a/dev, c/dev: failed (2 stacks)\n    no answer\nb/dev: stopped"),
            "{text}"
        );
        assert!(
            text.ends_with("5 stacks: 0 applied, 0 unchanged, 4 failed, 1 stopped, 0 skipped.\n"),
            "{text}"
        );
    }
}
