//! The notes about stacks: of generation from AppConfigurations, of hooks and of comparisons. Equal notes are shown
//! once.

use super::{bounded_part::BoundedPart, errors, escape};
use konverge_base::model::{StackId, plan::Plan};

/// A note, with the stacks that it is about.
pub(super) struct GenerationNote<'a> {
    pub text: &'a str,
    stacks: Vec<&'a StackId>,
}

/// Returns the notes of a plan, in the order of its stacks.
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
    /// Returns the names of the stacks.
    pub(crate) fn names(&self, write: impl Fn(&str) -> String) -> String {
        errors::names(&self.stacks, write)
    }
}

/// Renders the section of a comment in at most `room` bytes, with the number of notes that do not fit.
pub(super) fn markdown(plan: &Plan, room: usize) -> BoundedPart {
    let groups = group(plan);
    if groups.is_empty() {
        return BoundedPart::default();
    }
    let title = format!(
        "<b>Notes</b> on stacks: {}",
        super::labels::plural(groups.len(), "note")
    );
    let lines = groups
        .iter()
        .map(|group| format!("- {}: {}\n", group.names(escape::code), escape::code(group.text)));
    BoundedPart::open_fold(&title, lines, room, ": `konverge preview` shows them")
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
        let part = markdown(&plan, 500);
        assert_eq!(part.left_out, 1);
        let text = part.text;
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
            BoundedPart::default()
        );
    }
}
