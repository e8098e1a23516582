//! The page of the audit log: who requested which operation.

use maud::{Markup, html};

use super::{
    layout::{Page, PageMode},
    parts::{code, line, moment, notices, prose},
};
use crate::{AUDIT_ROWS, AuditDocument, AuditEntry, RequestOutcome, site_path};
use konverge_report::plural;

/// Renders the page of the audit log.
pub fn audit(audit: &AuditDocument) -> String {
    let main = html! {
        p.facts {
            (plural(audit.entries.len(), "entry")) ", the newest first. The person is the user that the login provider reported. "
            "What a run did is in the history of the stack, with the forge's own actor. "
            a href=(site_path::AUDIT_CSV) { "The newest " (AUDIT_ROWS) " as CSV" }
        }
        (notices(&audit.notices))
        @if audit.entries.is_empty() { p.empty { "No request is recorded." } }
        ul.rows { @for entry in &audit.entries { (self::entry(entry)) } }
    };
    Page::new("Audit", site_path::AUDIT, PageMode::Personal, main).render()
}

fn entry(entry: &AuditEntry) -> Markup {
    let (class, outcome) = match entry.outcome {
        RequestOutcome::Asked => ("update", "asked"),
        RequestOutcome::Done => ("create", "done"),
        RequestOutcome::Failed => ("failed", "failed"),
        RequestOutcome::Unknown => ("replace", "outcome unknown"),
    };
    let input = &entry.input;
    let reason = input.reason.as_deref().filter(|reason| !reason.is_empty());
    html! {
        li.row id=(entry.id) {
            span.name { (entry.operation.key()) }
            @if let Some(stack) = &entry.stack { " " a href=(site_path::stack(stack)) { (line(stack.as_str())) } }
            " " span.badge.(class) { (outcome) }
            p.facts {
                (moment(entry.time)) " by " (line(&entry.person.name)) " (" (code(&entry.person.subject)) " of "
                (code(&entry.person.issuer)) ") from " (line(&entry.address))
                @if let Some(before) = &entry.forwarded_for { ", forwarded for " (line(before)) " as reported" }
            }
            @if let Some(reason) = reason { p.facts { "Reason: " (prose(reason)) } }
            @if let Some(digest) = &input.digest { p.facts { "Digest " (code(digest)) } }
            @if let Some(serial) = input.serial { p.facts { "Serial " (serial) } }
            @if let Some(lease) = &input.lease { p.facts { "Lease " (code(lease)) } }
            @if let Some(error) = &entry.error { p.note { (prose(error)) } }
        }
    }
}
