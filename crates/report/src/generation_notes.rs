//! The notes of stacks: of generation from AppConfigurations, of hooks and of comparisons. One of several stacks is shown once.

use super::{errors, escape};
use konverge_base::model::{StackId, plan::Plan};

/// A note with the stacks that it is about.
pub(super) struct GenerationNote<'a> {
    pub text: &'a str,
    stacks: Vec<&'a StackId>,
}

/// The notes of a plan, in its order.
pub(super) fn group(plan: &Plan) -> Vec<GenerationNote<'_>> {
    let mut groups: Vec<GenerationNote<'_>> = Vec::new();
    for (stack, text) in plan
        .stacks
        .iter()
        .flat_map(|stack| stack.notes.iter().map(move |note| (&stack.id, note)))
    {
        match groups.iter_mut().find(|group| group.text == text) {
            Some(group) => group.stacks.push(stack),
            None => groups.push(GenerationNote {
                text,
                stacks: vec![stack],
            }),
        }
    }
    groups
}

impl GenerationNote<'_> {
    /// The stacks by name.
    pub(crate) fn names(&self, write: impl Fn(&str) -> String) -> String {
        errors::names(&self.stacks, write)
    }
}

/// The section of a comment in at most `room` bytes; notes that do not fit are counted.
pub(super) fn markdown(plan: &Plan, room: usize) -> String {
    let groups = group(plan);
    if groups.is_empty() {
        return String::new();
    }
    let title = format!(
        "<b>Notes</b> on stacks: {}",
        super::labels::plural(groups.len(), "note")
    );
    let mut body = String::new();
    let mut left_out = 0;
    for group in &groups {
        let line = format!("- {}: {}\n", group.names(escape::code), escape::code(group.text));
        if body.len() + line.len() + title.len() + 200 > room {
            left_out += 1
        } else {
            body.push_str(&line)
        }
    }
    if left_out > 0 {
        body.push_str(&format!("- and {left_out} more: `konverge preview` shows them\n"));
    }
    format!("<details open><summary>{title}</summary>\n\n{body}\n</details>\n\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use konverge_base::model::{
        RepoPath,
        plan::{Basis, StackPlan},
    };

    fn plan(stacks: &[(&str, &[&str])]) -> Plan {
        let stacks = stacks.iter().map(|(id, notes)| {
            let plan = StackPlan::new(RepoPath::root(), id.parse().unwrap(), Basis::Live, Vec::new());
            let notes = notes.iter().map(|note| (*note).to_owned()).collect();
            StackPlan { notes, ..plan }
        });
        Plan {
            version: 1,
            stacks: stacks.collect(),
        }
    }

    #[test]
    fn what_several_stacks_are_told_is_shown_once() {
        let plan = plan(&[("a/dev", &["x", "y"]), ("b/dev", &["y"]), ("c/dev", &[])]);
        let groups = group(&plan);
        let shown = groups
            .iter()
            .map(|group| (group.text, group.names(str::to_owned)));
        assert_eq!(
            shown.collect::<Vec<_>>(),
            [("x", "a/dev".to_owned()), ("y", "a/dev, b/dev".to_owned())]
        );
    }

    #[test]
    fn the_section_stays_in_its_room_and_no_text_breaks_out() {
        let long = "n".repeat(300);
        let plan = plan(&[("a/dev", &["</details> @all `x`", &long, "z"])]);
        let text = markdown(&plan, 500);
        assert!(text.len() <= 500 && text.contains("and 1 more"), "{text}");
        assert_eq!(text.matches("</details>").count(), 2, "{text}");
        assert!(text.contains("`` </details> @all `x` ``"), "{text}");
        assert_eq!(
            markdown(
                &Plan {
                    version: 1,
                    stacks: Vec::new()
                },
                500
            ),
            ""
        );
    }
}
