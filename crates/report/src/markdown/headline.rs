//! The first lines of the comment: the verdict and the commits.

use crate::{CommentInput, escape, sums::Sums, view_model::PlanView};
use konverge_base::model::Shard;

/// Renders the heading with the verdict, and the line with the commits.
pub(super) fn render(input: &CommentInput<'_>, view: &PlanView<'_>) -> String {
    let scope = if input.marker.scope.is_empty() {
        String::new()
    } else {
        format!(" ({})", escape::code(&input.marker.scope))
    };
    let mut text = format!("### Konverge preview{scope}: {}\n\n", view.verdict());
    let mut facts = Vec::new();
    facts.extend(view.stacks_line());
    for (word, commit) in [("head", &input.run.head), ("base", &input.run.base)] {
        facts.extend(
            commit
                .as_ref()
                .map(|commit| format!("{word} `{}`", commit.short())),
        );
    }
    if input.marker.scope.parse::<Shard>().is_ok() {
        facts.push("the other shards have their own comments".to_owned());
    }
    if !facts.is_empty() {
        text.push_str(&facts.join(" · "));
        text.push_str("\n\n");
    }
    let sums = Sums::of_view(view).sentences(escape::code);
    if !sums.is_empty() {
        text.push_str(&format!("**In all**: {}\n\n", sums.join(" · ")));
    }
    if let Some(taken_over) = view.takeover_sentence() {
        text.push_str(&format!("{taken_over}\n\n"));
    }
    if view.introduces {
        text.push_str("This change adds `konverge.yaml`, so every stack was compiled.\n\n");
    }
    text
}
