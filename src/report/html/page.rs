//! The parts of the page.

use std::fmt::Write as _;

use base64::{Engine as _, engine::general_purpose::STANDARD};
use sha2::{Digest as _, Sha256};

use super::{
    alerts::{alerts, class, fields},
    graph,
};
use crate::{
    model::plan::{Action, Basis, ResourcePlan},
    report::{
        CommentInput, diff,
        equal_changes::EqualChange,
        escape, labels,
        view_model::{self, PlanView, StackView},
    },
};

const STYLE: &str = include_str!("style.css");
const SCRIPT: &str = include_str!("script.js");

/// The number of affected stacks up to which the graph is open.
const OPEN_GRAPH: usize = 50;

/// The whole preview as one HTML file.
pub fn report(input: &CommentInput<'_>) -> String {
    let view = view_model::build(input);
    let mut html = String::with_capacity(64 * 1024);
    let title = if input.run.repository.is_empty() {
        "Konverge preview".to_owned()
    } else {
        format!("Konverge preview · {}", input.run.repository)
    };
    let title = escape::html(&escape::line(&title));
    // Nothing is loaded, and only our own script and style can run, whatever the data contains.
    let _ = write!(
        html,
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'sha256-{}'; script-src 'sha256-{}'; base-uri 'none'; form-action 'none'\">\n<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n<meta name=\"color-scheme\" content=\"light dark\">\n<meta name=\"referrer\" content=\"no-referrer\">\n<title>{title}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n",
        sha256(STYLE),
        sha256(SCRIPT)
    );
    header(&mut html, input, &view, &title);
    tools(&mut html, &view);
    html.push_str("<main>\n");
    alerts(&mut html, input, &view);
    last_push(&mut html, input);
    groups(&mut html, &view);
    stacks(&mut html, &view);
    if let Some(svg) = graph::svg(input.affected) {
        // A large graph is in the way of the changes.
        let open = match input.affected.stacks.len() <= OPEN_GRAPH {
            true => " open",
            false => "",
        };
        let _ = write!(
            html,
            "<section><details{open}><summary><h2>Why these stacks</h2></summary>\n<p class=\"legend\"><span class=\"swatch changed\"></span> changed file <span class=\"swatch between\"></span> imports it <span class=\"swatch stack\"></span> affected stack</p>\n<div class=\"graph\" tabindex=\"0\">{svg}</div></details></section>\n"
        );
    }
    rest(&mut html, input, &view);
    let _ = write!(html, "</main>\n<script>{SCRIPT}</script>\n</body>\n</html>\n");
    html
}

fn sha256(text: &str) -> String {
    STANDARD.encode(Sha256::digest(text.as_bytes()))
}

fn header(html: &mut String, input: &CommentInput<'_>, view: &PlanView<'_>, title: &str) {
    let _ = write!(
        html,
        "<header>\n<h1>{title}</h1>\n<p class=\"verdict\"><strong>{}</strong>",
        escape::html(&view.verdict())
    );
    html.push_str("</p>\n<p class=\"facts\">");
    let mut facts = Vec::new();
    if let Some(pr) = input.run.pr {
        facts.push(format!("pull request {pr}"));
    }
    for (word, commit) in [("head", &input.run.head), ("base", &input.run.base)] {
        if let Some(commit) = commit {
            facts.push(format!("{word} <code>{}</code>", commit.short()));
        }
    }
    facts.push(format!("digest <code>{}</code>", view.digest.short()));
    if let Some(url) = input.run.run_url.as_ref().filter(|url| escape::is_plain_url(url)) {
        facts.push(format!("<a href=\"{}\">run</a>", escape::html(url)));
    }
    for (stage, time) in &input.run.timings {
        facts.push(format!("{stage} {:.1} s", time.as_secs_f64()));
    }
    facts.push(format!(
        "{} compiled, {} from the cache",
        input.run.compiled, input.run.cached
    ));
    let _ = write!(html, "{}</p>\n</header>\n", facts.join(" · "));
}

fn count_actions(view: &PlanView<'_>) -> Vec<(Action, usize)> {
    let t = &view.total;
    [
        (Action::Create, t.create),
        (Action::Update, t.update),
        (Action::Replace, t.replace),
        (Action::Delete, t.delete),
        (Action::Adopt, t.adopt),
        (Action::Forget, t.forget),
        (Action::Unknown, t.unknown),
    ]
    .into_iter()
    .filter(|(_, n)| *n > 0)
    .collect()
}

fn tools(html: &mut String, view: &PlanView<'_>) {
    // Without script the tools do nothing: the script shows them.
    html.push_str("<div class=\"tools\" hidden>\n<label class=\"search\"><span>Search</span><input id=\"search\" type=\"search\" placeholder=\"stack, resource, value\" autocomplete=\"off\"></label>\n<div class=\"filters\">");
    for (action, _) in count_actions(view) {
        let word = labels::action_word(action).replace(' ', "-");
        let _ = write!(
            html,
            "<label><input type=\"checkbox\" data-filter=\"{word}\"> {}</label>",
            labels::action_word(action)
        );
    }
    for (word, count) in [
        (FAILED, view.failed),
        (
            DANGEROUS,
            view.stacks
                .iter()
                .filter(|stack| is_dangerous(&stack.own))
                .count(),
        ),
    ] {
        if count > 0 {
            let _ = write!(
                html,
                "<label><input type=\"checkbox\" data-filter=\"{word}\"> {word}</label>"
            );
        }
    }
    html.push_str("</div>\n<button id=\"all\" type=\"button\">Open all</button>\n<p id=\"found\" role=\"status\"></p>\n</div>\n");
}

fn last_push(html: &mut String, input: &CommentInput<'_>) {
    let Some(difference) = input.last_push else { return };
    let _ = write!(
        html,
        "<section><h2>Since your last push</h2>\n<p>Compared with the preview of <code>{}</code>.</p>\n<ul>\n",
        difference.earlier.short()
    );
    for (word, units) in [("now", &difference.added), ("no longer", &difference.removed)] {
        for unit in units {
            let path = match unit.path.is_empty() {
                true => String::new(),
                false => format!(": {}", escape::html_code(&diff::dotted(&unit.path))),
            };
            let _ = writeln!(
                html,
                "<li>{word}: {} {} in {}{path}</li>",
                labels::action_word(unit.action),
                escape::html_code(&escape::line(unit.resource.as_str())),
                escape::html_code(&escape::line(unit.stack.as_str()))
            );
        }
    }
    if difference.added.is_empty() && difference.removed.is_empty() {
        html.push_str("<li>the same changes</li>\n");
    }
    html.push_str("</ul></section>\n");
}

fn groups(html: &mut String, view: &PlanView<'_>) {
    if view.groups.is_empty() {
        return;
    }
    html.push_str("<section><h2>Same change in several stacks</h2>\n");
    for (index, group) in view.groups.iter().enumerate() {
        let _ = write!(
            html,
            "<details class=\"item\" id=\"group-{index}\" data-actions=\"{}\"><summary><span class=\"name\">{}</span> <span class=\"where\">in {} stacks</span></summary>\n<p class=\"stacks\">{}</p>\n",
            actions(group.changes.iter().map(EqualChange::first)),
            group.title(),
            group.stacks.len(),
            group
                .stacks
                .iter()
                .map(|id| escape::html_code(id.as_str()))
                .collect::<Vec<_>>()
                .join(" ")
        );
        for change in &group.changes {
            let resource = change.first();
            let title = labels::Title::of(&resource.id, resource.runtime);
            let title = format!("{} {}", title.kind_label(), change.names().join(", "));
            // What differs already differs in each stack, and is shown there.
            change_block(html, resource, &title);
            html.push_str("</article>\n");
        }
        html.push_str("</details>\n");
    }
    html.push_str("</section>\n");
}

/// The filter for stacks that failed.
const FAILED: &str = "failed";

/// The filter for deletions, replacements and lost data.
const DANGEROUS: &str = "dangerous";

fn is_dangerous(resources: &[&ResourcePlan]) -> bool {
    let is = |resource: &&ResourcePlan| labels::is_grave(resource) || !resource.immutable.is_empty();
    resources.iter().any(is)
}

fn actions<'a>(resources: impl Iterator<Item = &'a ResourcePlan>) -> String {
    let resources: Vec<_> = resources.collect();
    let mut words: Vec<_> = resources
        .iter()
        .map(|r| labels::action_word(r.action).replace(' ', "-"))
        .collect();
    if is_dangerous(&resources) {
        words.push(DANGEROUS.to_owned());
    }
    words.sort_unstable();
    words.dedup();
    words.join(" ")
}

fn stacks(html: &mut String, view: &PlanView<'_>) {
    if view.stacks.is_empty() {
        return;
    }
    html.push_str("<section><h2>Stacks</h2>\n");
    for stack in &view.stacks {
        stack_block(html, stack);
    }
    html.push_str("</section>\n");
}

fn stack_block(html: &mut String, stack: &StackView<'_>) {
    let failed = if stack.plan.error.is_some() {
        " <span class=\"badge failed\">failed</span>"
    } else {
        ""
    };
    let _ = writeln!(
        html,
        "<details class=\"item\" data-actions=\"{}{}\"><summary><span class=\"name\">{}</span> <span class=\"where\">{}</span>{failed}</summary>",
        actions(stack.own.iter().copied()),
        if stack.plan.error.is_some() { " failed" } else { "" },
        escape::html(&escape::line(stack.plan.id.as_str())),
        if stack.plan.error.is_some() && !stack.plan.fails_in_part() {
            String::new()
        } else {
            labels::counts(&diff::own_summary(stack.plan))
        }
    );
    if let Some(affected) = stack.affected {
        html.push_str("<ul class=\"why\">");
        for reason in affected.why.iter().take(20) {
            let chain: Vec<_> = reason
                .chain
                .iter()
                .map(|f| escape::html_code(&escape::line(f.as_str())))
                .collect();
            let _ = write!(
                html,
                "<li>{}</li>",
                if chain.is_empty() {
                    escape::html_code(&escape::line(reason.path.as_str()))
                } else {
                    chain.join(" → ")
                }
            );
        }
        if affected.why.len() > 20 {
            let _ = write!(html, "<li>and {} more</li>", affected.why.len() - 20);
        }
        html.push_str("</ul>\n");
    }
    if stack.plan.error.is_some() {
        let _ = writeln!(
            html,
            "<p class=\"note\">This stack {}. The error is at the top of the page.</p>",
            labels::failed(stack.plan)
        );
    }
    if stack.plan.basis == Basis::Spec {
        html.push_str("<p class=\"note\">Not validated: compared with the base's Spec.</p>\n");
    }
    for (resource, group) in stack.own.iter().zip(&stack.grouped) {
        match group {
            Some(index) => {
                let title = labels::Title::of(&resource.id, resource.runtime);
                let _ = writeln!(
                    html,
                    "<p class=\"same\">{} {}: <a href=\"#group-{index}\">see \"Same change\"</a></p>",
                    labels::action_word(resource.action),
                    escape::html_code(&escape::line(&title.full()))
                );
                drift_block(html, resource);
            }
            None => resource_block(html, resource),
        }
    }
    html.push_str("</details>\n");
}

fn resource_block(html: &mut String, resource: &ResourcePlan) {
    let title = labels::Title::of(&resource.id, resource.runtime);
    change_block(html, resource, &title.full());
    drift_block(html, resource);
    html.push_str("</article>\n");
}

/// The change of a resource, in an article that the caller ends.
fn change_block(html: &mut String, resource: &ResourcePlan, title: &str) {
    let _ = writeln!(
        html,
        "<article class=\"resource\"><h3><span class=\"badge {}\">{} {}</span> {}</h3>",
        class(resource.action),
        labels::sign(resource.action),
        labels::action_word(resource.action),
        escape::html(&escape::line(title))
    );
    if resource.data_loss {
        html.push_str(
            "<p class=\"note\"><strong>permanently deletes data or releases an address</strong></p>\n",
        );
    }
    for (before, paths) in [
        ("must be replaced, because of a change of ", &resource.replace),
        (
            "may have to be replaced, because this cannot be changed in place: ",
            &resource.immutable,
        ),
    ] {
        if !paths.is_empty() {
            let _ = writeln!(html, "<p class=\"note\">{}</p>", fields(before, paths));
        }
    }
    for note in &resource.notes {
        let _ = writeln!(
            html,
            "<p class=\"note\">{}</p>",
            escape::html(&escape::line(note))
        );
    }
    diff_block(html, &diff::resource(resource, diff::DiffContext::Tree(3)));
}

/// What differs already, apart from the change.
fn drift_block(html: &mut String, resource: &ResourcePlan) {
    let drift = diff::drift(resource, diff::DiffContext::Tree(3));
    if !drift.is_empty() {
        html.push_str(
            "<p class=\"note\">Already different on the cluster, not from this pull request:</p>\n",
        );
        diff_block(html, &drift);
    }
}

fn diff_block(html: &mut String, lines: &[String]) {
    if lines.is_empty() {
        return;
    }
    html.push_str("<pre class=\"diff\" tabindex=\"0\">");
    for line in lines {
        let text = escape::html(line);
        match line.as_bytes().first() {
            Some(b'+') => {
                let _ = write!(html, "<ins>{text}</ins>");
            }
            Some(b'-') => {
                let _ = write!(html, "<del>{text}</del>");
            }
            _ => {
                let _ = write!(html, "<span>{text}</span>");
            }
        }
    }
    html.push_str("</pre>\n");
}

fn rest(html: &mut String, input: &CommentInput<'_>, view: &PlanView<'_>) {
    let drifted: Vec<_> = view
        .drifted
        .iter()
        .filter(|s| !view.stacks.iter().any(|v| v.plan.id == s.id))
        .collect();
    if !drifted.is_empty() {
        html.push_str("<section><h2>Already different on the cluster</h2>\n");
        for stack in drifted {
            let _ = writeln!(
                html,
                "<details class=\"item\" data-actions=\"update\"><summary><span class=\"name\">{}</span></summary>",
                escape::html(&escape::line(stack.id.as_str()))
            );
            for resource in stack
                .resources
                .iter()
                .filter(|r| r.changes.iter().any(diff::is_drift))
            {
                resource_block(html, resource);
            }
            html.push_str("</details>\n");
        }
        html.push_str("</section>\n");
    }
    if !view.unchanged.is_empty() {
        let names: Vec<_> = view
            .unchanged
            .iter()
            .map(|id| escape::html_code(id.as_str()))
            .collect();
        let _ = write!(
            html,
            "<section><h2>Affected, without changes</h2>\n<p class=\"stacks\">{}</p></section>\n",
            names.join(" ")
        );
    }
    if !input.findings.is_empty() {
        html.push_str("<section><h2>Policies</h2>\n<ul>\n");
        for finding in input.findings {
            let word = labels::enforcement_word(finding.verdict);
            let stack = finding
                .stack
                .as_ref()
                .map_or(String::new(), |s| format!("{} ", escape::html_code(s.as_str())));
            let _ = writeln!(
                html,
                "<li>{word}: {stack}{} {}</li>",
                escape::html_code(&finding.rule),
                escape::html(&finding.message)
            );
        }
        html.push_str("</ul></section>\n");
    }
}
