//! The pages of operations: forms for the operations on a stack, the freeze of all applies, and the result.

use maud::{Markup, html};

use super::{
    account::token,
    layout::{Page, PageMode},
    overview::freeze_notice,
    parts::{code, lease, line, prose},
};
use crate::{OperationAnswer, Overview, PortalOperation, RequestOutcome, StackDetails, site_path};
use konverge_report::escape;

/// The maximum length of a reason in a form.
const LONGEST_REASON: u32 = 500;

/// Renders the operations on a stack. `csrf` is the token for the forms; without it the person has no permission
/// for operations, and the page has no forms.
pub fn operations(view: &StackDetails, csrf: Option<&str>) -> String {
    let id = view.row.id.as_str();
    let main = html! {
        p { a href="index.html" { "Back to " (line(id)) } }
        p.facts {
            "The portal has no credential of the forge, of a cluster or of a cloud. A request leads to the page at the forge where you do it "
            "under your own name, and is recorded in the " a href={ "../../" (site_path::AUDIT) } { "audit" } "."
        }
        @match csrf {
            None => p.notice { "You may see this stack. Operations need the role `operator` for it." },
            Some(csrf) => @for operation in PortalOperation::OF_A_STACK {
                @match operation {
                    PortalOperation::Unlock => (unlock(view, csrf)),
                    PortalOperation::Approve => (form(operation, csrf, html! {
                        label.search { "Digest " input name="digest" required minlength="8" maxlength="64" autocomplete="off"; }
                    })),
                    PortalOperation::Rollback => (form(operation, csrf, html! {
                        label.search { "Serial " input name="serial" required inputmode="numeric" autocomplete="off"; }
                    })),
                    PortalOperation::Restore if view.row.drift.is_none() => {},
                    _ => (form(operation, csrf, html! {})),
                }
            },
        }
    };
    Page {
        depth: 2,
        ..Page::new(&format!("Operations on {id}"), "", PageMode::Personal, main)
    }
    .render()
}

fn form(operation: PortalOperation, csrf: &str, fields: Markup) -> Markup {
    html! {
        form.filter method="post" action={ "operations/" (operation.key()) } {
            (token(csrf)) (fields)
            button type="submit" { (operation.words()) }
        }
    }
}

fn unlock(view: &StackDetails, csrf: &str) -> Markup {
    html! {
        @if let Some(held) = &view.lease {
            section {
                h2 { "Lease" }
                (lease(held, view.row.id.as_str(), view.forge.as_ref()))
                (form(PortalOperation::Unlock, csrf, html! {
                    input type="hidden" name="lease" value=(line(&held.id));
                    (reason())
                }))
            }
        }
    }
}

fn reason() -> Markup {
    html! { label.search { "Reason " input name="reason" required maxlength=(LONGEST_REASON) autocomplete="off"; } }
}

/// Renders the page on which a person stops all applies or lets them run again. `csrf` is the token for the form;
/// without it the page has no form.
pub fn freeze(overview: &Overview, csrf: Option<&str>) -> String {
    let operation = match overview.freeze {
        Some(_) => PortalOperation::Unfreeze,
        None => PortalOperation::Freeze,
    };
    let main = html! {
        (freeze_notice(overview))
        @if overview.freeze.is_none() { p { "Applies are not frozen." } }
        p.facts { "Every apply reads the freeze before it touches a stack. A stack that is being applied ends as usual." }
        @match csrf {
            None => p.notice { "The freeze holds for all stacks. It needs the role `operator` for `**`." },
            Some(csrf) => form.filter method="post" action=(operation.key()) {
                (token(csrf)) (reason())
                button type="submit" { (operation.words()) }
            },
        }
    };
    Page::new("Freeze", site_path::FREEZE, PageMode::Personal, main).render()
}

/// Renders the result of a request, on a page `depth` folders below the root.
pub fn answered(answer: &OperationAnswer, depth: usize) -> String {
    let root = "../".repeat(depth);
    let main = html! {
        p.verdict {
            @match answer.outcome {
                RequestOutcome::Done => "The portal has performed the operation.",
                _ => "Your request is recorded. You must do the next step:",
            }
        }
        @if let Some(next) = &answer.next {
            p { (prose(&next.says)) }
            @if let Some(address) = next.address.as_deref().filter(|address| escape::is_plain_url(address)) {
                p { a href=(address) { "Go on at " (next.forge) } }
            }
            @if let Some(command) = &next.command {
                p { "The same as a command: " (code(command)) }
            }
        }
        p.facts {
            a href={ (root) (site_path::AUDIT) "#" (answer.audit) } { "Its entry in the audit" }
            @if let Some(stack) = &answer.stack { " · " a href={ (root) (site_path::stack(stack)) } { (line(stack.as_str())) } }
        }
    };
    Page {
        depth,
        ..Page::new(answer.operation.words(), "", PageMode::Personal, main)
    }
    .render()
}
